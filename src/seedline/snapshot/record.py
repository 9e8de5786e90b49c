"""A record read ahead: what a replayed loop must be handed, and when (rules of replay derivability).

The run and the record go in lockstep, so the next recorded event is the one at the run's own next seq.
Everything here looks forward from such a seq and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, cast

import msgspec

from seedline.events.event import CHUNK, Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events

Owner = Literal["loop", "fed"]
_SPLICED: Final = "agent/inbox/spliced"
_DESCRIPTOR: Final = "subagent/descriptor"
_LOOP_TYPES: Final = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "request/header",
        "request/context",
        CHUNK,
        "assistant/message",
        "tool/call",
    }
)
_ANSWERED: Final = frozenset({CHUNK, "assistant/message", "step/end", "turn/end"})


def value_of(event: Event, *path: str) -> dict[str, Any]:
    """Return the event's payload, or the object at `path` in it; an empty object where there is none.

    A record may hold anything: what the loop's rules do not find there, the comparison shows.
    """
    value = event.value
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Failure(msgspec.Struct, frozen=True):
    """What a recorded turn ended with, other than by itself: its `turn/end` reason."""

    kind: str
    value: dict[str, Any]

    @property
    def abort_cause(self) -> dict[str, Any]:
        """Why an aborted turn was cancelled; empty where the record does not say."""
        cause = self.value.get("reason")
        return cast("dict[str, Any]", cause) if isinstance(cause, dict) else {}


class Record:
    """One recorded session, read ahead.

    `start` is the first seq that is replayed: the last `session/end-seed`, or the cut without one. What
    stands before it is inherited or was written by an earlier process, and seeds the run. `delegated` says
    that a provider delivers the first prompt and the descriptor, so the record does not feed them.
    `crash_seq` is where repair closed the last turn, None when it was not closed by repair.
    """

    def __init__(
        self, header: SessionHeader, cut: SessionLogOffset, events: Events, *, delegated: bool = False
    ) -> None:
        self.header = header
        self.cut = cut
        self.events: tuple[Event, ...] = tuple(events)
        self.start = replay_start(cut, events)
        self._owners = _Owners(self.events, self.start, delegated).owners
        self._next_owned = _next_owned(self._owners)
        self.crash_seq = _crash_seq(self.events, self.start)

    def __len__(self) -> int:
        return len(self.events)

    def at(self, seq: int) -> Event | None:
        """Return the event at `seq`, None past the end."""
        return self.events[seq] if 0 <= seq < len(self.events) else None

    def is_fed(self, seq: int) -> bool:
        """True when the event at `seq` is handed in whole, false past the end."""
        return seq < len(self.events) and self._owners[seq] == "fed"

    def owned_from(self, seq: int) -> Iterator[Event]:
        """Yield the events from `seq` on that the loop makes itself."""
        while seq < len(self.events) and (seq := self._next_owned[seq]) < len(self.events):
            yield self.events[seq]
            seq += 1

    def next_owned(self, seq: int) -> Event | None:
        """Return the next event that the loop makes itself."""
        return next(self.owned_from(seq), None)

    # --- what the loop asks ------------------------------------------------------------------------

    def entered(self, seq: int) -> list[Event] | None:
        """Return the messages that enter the step about to start, None when no step starts."""
        owned = (event for event in self.owned_from(seq) if event.type != _DESCRIPTOR)
        first = next(owned, None)
        if first is None or first.type != "step/start":
            return None
        found: list[Event] = []
        for event in owned:
            if event.type != "user/message":
                break
            found.append(event)
        return found

    def ending(self, seq: int) -> Failure | None:
        """Return how the turn ends when nothing but its closing stands between `seq` and its end."""
        for event in self.owned_from(seq):
            if event.type == "turn/end":
                return _failure(event)
            if event.type in ("step/end", _DESCRIPTOR) or _is_interrupted(event):
                continue
            return None
        return None

    def turn_outcome(self, seq: int) -> Failure | None:
        """Return the reason of the next `turn/end` at or after `seq`."""
        ends = (event for event in self.owned_from(seq) if event.type == "turn/end")
        end = next(ends, None)
        return None if end is None else _failure(end)

    def request_header(self, seq: int) -> dict[str, Any] | None:
        """Return the header that the request about to be made logs, None when it logs none."""
        event = self._before_answer(seq, "request/header")
        header = value_of(event).get("header") if event else None
        return cast("dict[str, Any]", header) if isinstance(header, dict) else None

    def request_context(self, seq: int) -> dict[str, Any] | None:
        """Return the context that the request about to be made logs, None when it logs none."""
        event = self._before_answer(seq, "request/context")
        return value_of(event) if event else None

    def _before_answer(self, seq: int, event_type: str) -> Event | None:
        for event in self.owned_from(seq):
            if event.type == event_type:
                return event
            if event.type in _ANSWERED:
                return None
        return None

    def call_follows(self, seq: int) -> bool:
        """True when the next event of the loop is a chunk or an answer."""
        event = self.next_owned(seq)
        return event is not None and event.type in (CHUNK, "assistant/message")

    def retries(self, seq: int) -> bool:
        """True when a failed call at `seq` is tried again in its step."""
        event = self.next_owned(seq)
        return event is not None and event.type not in ("step/end", "turn/end")

    def batch(self, seq: int) -> Batch:
        """Return the tool calls and results of the answer logged just before `seq`."""
        calls: list[Event] = []
        results: list[Event] = []
        for event in self.owned_from(seq):
            if event.type == "tool/call":
                calls.append(event)
            elif event.type == "tool/result":
                results.append(event)
            else:
                return Batch(tuple(calls), tuple(results), event.seq)
        return Batch(tuple(calls), tuple(results), len(self.events))

    def held(self, seq: int) -> bool:
        """True when the input at `seq` arrived after the loop had looked for some, and so waits for that.

        Such an insertion stands between a step's end and the next step's start and no claim takes it there,
        or it stands behind the last turn.
        """
        event = self.events[seq]
        if event.type != _SPLICED or not _is_insert(event):
            return False
        before = self._owned_before(seq)
        if before == "turn/end":
            return self.next_owned(seq) is None
        return before == "step/end" and self._came_after_the_claim(event)

    def _came_after_the_claim(self, event: Event) -> bool:
        if value_of(event).get("target") != "next-step":
            return False
        for later in self.events[event.seq + 1 :]:
            if later.type == _SPLICED and not _is_insert(later):
                return False
            if later.type in ("step/start", "turn/end"):
                return later.type == "step/start"
        return False

    def _owned_before(self, seq: int) -> str:
        """Return the type of the loop's last event before `seq`, empty where there is none."""
        while seq > self.start:
            seq -= 1
            if self._owners[seq] == "loop":
                return self.events[seq].type
        return ""


class Batch(msgspec.Struct, frozen=True):
    """The tool calls of one answer as recorded. `end` is the seq of the loop's event after them."""

    calls: tuple[Event, ...] = ()
    results: tuple[Event, ...] = ()
    end: int = 0

    def result(self, position: int) -> Event | None:
        """Return the result of the call at `position`, None where none was recorded."""
        return self.results[position] if position < len(self.results) else None

    def overlaps(self, position: int) -> bool:
        """True when the call at `position` ran beside another."""
        if position >= len(self.calls):
            return False
        before = position > 0 and self._result_seq(position - 1) > self.calls[position].seq
        after = position + 1 < len(self.calls) and self.calls[position + 1].seq < self._result_seq(position)
        return before or after

    def _result_seq(self, position: int) -> int:
        result = self.result(position)
        return self.end if result is None else result.seq


def replay_start(cut: SessionLogOffset, events: Events) -> int:
    """Return the first seq that a replay makes: the last end-seed mark, or the cut without one."""
    marks = (event.seq for event in events.without_chunks_reversed() if event.type == "session/end-seed")
    return next(marks, cut)


def error_code(result: Event) -> str | None:
    """Return the code of a typed tool failure."""
    code = value_of(result, "error").get("code")
    return code if isinstance(code, str) else None


def _failure(turn_end: Event) -> Failure:
    reason = value_of(turn_end, "reason")
    return Failure(str(reason.get("kind", "")), reason)


_CLOSER_CODES: Final = frozenset({"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"})


def _crash_seq(events: tuple[Event, ...], start: int) -> int | None:
    at = next((event.seq for event in reversed(events[start:]) if event.type == "turn/end"), None)
    if at is None or _failure(events[at]).kind != "interrupted":
        return None
    if at > start and events[at - 1].type == "step/end":
        at -= 1
    while at > start and events[at - 1].type == "tool/result" and error_code(events[at - 1]) in _CLOSER_CODES:
        at -= 1
    return at


def _is_interrupted(event: Event) -> bool:
    return event.type == "assistant/message" and bool(value_of(event).get("interrupted"))


def _is_insert(event: Event) -> bool:
    return bool(value_of(event).get("inserted"))


def _next_owned(owners: list[Owner]) -> list[int]:
    """Return for each seq the first one from there on whose event the loop makes, or the length."""
    following = [len(owners)] * len(owners)
    at = len(owners)
    for seq in range(len(owners) - 1, -1, -1):
        at = seq if owners[seq] == "loop" else at
        following[seq] = at
    return following


class _Owners:
    """Decides for each event whether the loop makes it or the record feeds it."""

    def __init__(self, events: tuple[Event, ...], start: int, delegated: bool) -> None:
        self._awaits_prompt = delegated
        self._awaits_descriptor = delegated
        self._in_step = False
        self.owners: list[Owner] = ["fed"] * start
        self.owners.extend(self._owner(event, event.seq == start) for event in events[start:])

    def _owner(self, event: Event, first: bool) -> Owner:
        kind = event.type
        if kind in ("step/start", "step/end"):
            self._in_step = kind == "step/start"
        if kind in _LOOP_TYPES or (kind == "session/end-seed" and first):
            return "loop"
        if kind == "user/message":  # in a step, input goes through the inbox
            return "loop" if self._in_step and event.surface_op == "append" else "fed"
        if kind == "tool/result":
            return "loop" if event.surface_op == "append" else "fed"
        if kind == _SPLICED:
            return self._splice_owner(event)
        if kind == _DESCRIPTOR and self._awaits_descriptor:
            self._awaits_descriptor = False
            return "loop"
        return "fed"

    def _splice_owner(self, event: Event) -> Owner:
        splice = value_of(event)
        if not splice.get("inserted") and "outcome" not in splice:
            return "loop"
        if self._awaits_prompt and splice.get("target") == "next-turn" and splice.get("inserted"):
            self._awaits_prompt = False
            return "loop"
        return "fed"
