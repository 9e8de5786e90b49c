"""The inbox: two queues of messages, folded from the log.

Every change is an `agent/inbox/spliced` event first; the queues are what those events say. A fork child
starts with empty queues, because the fold begins at the cut; a resumed session gets its queues back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from msgspec import Raw

from seedline.errors import DuplicateMessageError, EventRefusedError
from seedline.events.event import Event
from seedline.jsonvalue import encode_lossless
from seedline.session.guards import check_shape
from seedline.session.log import Session

Target = Literal["next-turn", "next-step"]
MessageValue = dict[str, Any]
SPLICED = "agent/inbox/spliced"


class Inbox:
    """The queues of one session. Keeps itself in step with the log, whoever appends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queues: dict[Target, list[MessageValue]] = {"next-turn": [], "next-step": []}
        for event in session.own_events.without_chunks():
            self._fold(event)
        session.subscribe(self._fold)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def waiting(self, target: Target) -> tuple[MessageValue, ...]:
        """Return the messages of one queue, in order."""
        return tuple(self._queues[target])

    def _fold(self, event: Event) -> None:
        if event.type != SPLICED:
            return
        splice = event.value
        queue = self._queues[cast("Target", splice["target"])]
        start = splice["start"]
        queue[start : start + splice.get("removedCount", 0)] = splice["inserted"]

    def insert(self, target: Target, message: MessageValue) -> None:
        """Add `message` at the end of a queue. Raises what `splice` raises."""
        self.splice(target, len(self._queues[target]), 0, [message])

    def splice(
        self, target: Target, start: int, delete_count: int, inserted: Sequence[MessageValue] = ()
    ) -> None:
        """Change one queue as ECMAScript's `Array.splice` does: a negative `start` counts from the end.

        What is removed counts as canceled. A change of nothing logs nothing. Raises `EventRefusedError` for
        what is no user message, `JsonValueError`, and `DuplicateMessageError` for an id that waits already.
        """
        queue = self._queues[target]
        first = max(len(queue) + start, 0) if start < 0 else min(start, len(queue))
        removed = max(0, min(delete_count, len(queue) - first))
        self._check_new(inserted, gone=queue[first : first + removed])
        if removed or inserted:
            self._splice(target, first, removed, list(inserted), canceled=removed > 0)

    def _check_new(self, inserted: Sequence[MessageValue], gone: list[MessageValue]) -> None:
        taken = {waiting["id"] for queue in self._queues.values() for waiting in queue}
        taken -= {message["id"] for message in gone}
        for message in inserted:
            check_message(message)
            if message["id"] in taken:
                raise DuplicateMessageError(message["id"])
            taken.add(message["id"])

    def claim(self, target: Target) -> list[MessageValue]:
        """Take the whole `next-step` queue, or the first of `next-turn`; an empty queue leaves no trace."""
        queue = self._queues[target]
        count = len(queue) if target == "next-step" else min(1, len(queue))
        taken = queue[:count]
        if taken:
            self._splice(target, 0, count, [])
        return taken

    def remove(self, message_id: str) -> bool:
        """Drop a waiting message; say whether it waited."""
        for target, queue in self._queues.items():
            for at, waiting in enumerate(queue):
                if waiting["id"] == message_id:
                    self.splice(target, at, 1)
                    return True
        return False

    def clear(self) -> None:
        """Drop every waiting message, `next-step` first."""
        targets: tuple[Target, ...] = ("next-step", "next-turn")
        for target in targets:
            self.splice(target, 0, len(self._queues[target]))

    def _splice(
        self,
        target: Target,
        start: int,
        removed: int,
        inserted: list[MessageValue],
        *,
        canceled: bool = False,
    ) -> None:
        data: dict[str, Any] = {"target": target, "start": start}
        if removed:
            data["removedCount"] = removed
        data["inserted"] = inserted
        if canceled:
            data["outcome"] = "canceled"
        self._session.append(SPLICED, data)


def check_message(message: Any) -> None:
    """Raise `EventRefusedError`, or `JsonValueError`, unless `message` is a user message with an id."""
    try:
        check_shape(Event("user/message", 0, 0, Raw(encode_lossless(message))))
    except EventRefusedError as error:
        raise EventRefusedError("message", error.event_type, error.reason) from None
