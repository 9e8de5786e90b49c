"""Events without what differs between any two runs of the same agents, so that the rest can be compared.

Left out are times, durations, what the work cost, and what a provider keeps for itself. An id becomes the
place where the run first names it, so that equal ids stay equal and different ones different. A seq becomes
a place among the events that are no chunks: two runs may be streamed in different pieces.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, cast

from msgspec import UNSET

from seedline.events.event import Event
from seedline.jsonvalue import is_count
from seedline.replay.compare import event_value

_LEFT_OUT: Final = frozenset(
    {
        *("usage", "replayState", "requestId"),
        *("durationMs", "delayMs", "providerRetryAfterMs", "shadowedTokenCount"),
        *("createdAt", "updatedAt", "clearedAt", "acceptedAt"),
    }
)
_IDS: Final = frozenset(
    {
        *("id", "callId", "toolCallId", "rootCallId", "parentCallId", "subCallId"),
        *("messageId", "senderSessionId", "sessionId", "childId", "subagentId", "parentSession"),
        *("compactionId", "commandId", "sourceCommandId", "retryId", "runId", "goalId", "rpcId"),
        *("teamId", "senderId", "targetId"),
    }
)
_SEQS: Final = frozenset({"messageSeqs", "shadowedSeqs", "sourceEventSeq", "sourceEventSeqs"})
_RANGES: Final = frozenset({"shadowedRange", "surfaceOp"})
_UUID: Final = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME: Final = re.compile(r"[\w-]{8,}")
"""What may be an id within a text: a shorter one could be any word."""


class Run:
    """The names of one run, as they come up: `folder` is its working directory."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder if folder != "/" else None
        self._names: dict[str, str] = {}

    def name(self, known: str, place: str) -> str:
        """Return what stands for an id, which is first named at `place` unless it is known."""
        return self._names.setdefault(known, f"<{place}>")

    def text(self, text: str, place: str) -> str:
        """Return a text with its working directory, and the ids and UUIDs in it, replaced."""
        if self._folder:
            text = text.replace(self._folder, "<cwd>")
        numbers = count(1)
        text = _UUID.sub(lambda match: self.name(match.group(), f"{place}#{next(numbers)}"), text)
        return _NAME.sub(lambda match: self._names.get(match.group(), match.group()), text)


def alike(event: Event, place: str, run: Run, kept: Sequence[int]) -> Any:
    """Return an event as a value that is equal for events that say the same.

    `place` names the event within the run, `kept` holds the seqs of the log's events that are no chunks.
    """
    value = event_value(event)
    data = _Walk(run, kept).value(value.pop("data"), f"{place}/data", "")
    envelope = {name: value[name] for name in ("type", "ignorable") if name in value}
    if event.source_event_seqs is not UNSET:
        envelope["sourceEventSeqs"] = list(_places(event.source_event_seqs, kept))
    if event.surface_op is not UNSET:
        envelope["surfaceOp"] = _Walk(run, kept).value(value["surfaceOp"], place, "surfaceOp")
    return {**envelope, "data": data}


def _places(seqs: Sequence[Any], kept: Sequence[int]) -> Iterator[int]:
    """Yield the places of events among those that are no chunks; chunks have none."""
    for seq in seqs:
        at = bisect_left(kept, seq) if is_count(seq) else len(kept)
        if at < len(kept) and kept[at] == seq:
            yield at


class _Walk:
    """One pass over a payload. Depth is bounded by what the codec reads."""

    def __init__(self, run: Run, kept: Sequence[int]) -> None:
        self._run = run
        self._kept = kept

    def value(self, value: Any, place: str, key: str) -> Any:
        """Return a value as it compares; `key` is the name it stands under."""
        if isinstance(value, dict):
            return self._members(cast("dict[str, Any]", value), place, key)
        if isinstance(value, list):
            return self._items(cast("list[Any]", value), place, key)
        if isinstance(value, str):
            return self._run.name(value, place) if key in _IDS else self._run.text(value, place)
        if key in _SEQS:
            return next(_places([value], self._kept), None)
        return value

    def _members(self, members: dict[str, Any], place: str, key: str) -> Any:
        if key in _RANGES:
            return {
                name: next(_places([member], self._kept), member) if is_count(member) else member
                for name, member in members.items()
            }
        return {
            name: self.value(member, f"{place}/{name}", name)
            for name, member in members.items()
            if name not in _LEFT_OUT
        }

    def _items(self, items: list[Any], place: str, key: str) -> Any:
        if key in _SEQS:
            return list(_places(items, self._kept))
        return [self.value(item, f"{place}/{at}", "") for at, item in enumerate(items)]
