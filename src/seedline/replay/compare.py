"""Walking a record and a run together, event by event, up to the first difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from seedline.events.event import CHUNK, Event
from seedline.jsonvalue import decode, is_count
from seedline.replay.divergence import Cause, CauseKind, Difference, Divergence, differences
from seedline.session.header import SessionHeader

Upstream = Callable[[Event, str], Cause | None]
"""Names the cause of a difference at a JSON Pointer of an event where more is known than the two events."""
Masked = Callable[[Event], Sequence[str]]
"""Returns the JSON Pointers below which an event of the run may differ."""


def _nothing_upstream(event: Event, path: str) -> Cause | None:
    return None


def _nothing_masked(event: Event) -> Sequence[str]:
    return ()


class Comparer:
    """Compares the events of one run with the expected ones, in lockstep by seq.

    `start` is the first seq compared; `key` is the session's lineage key. After the first difference
    `divergence` holds it and later events are ignored. `compared` and `fed` count events found equal; a fed
    event was handed in whole. A masked difference is no divergence, but it is the cause of the next one.
    """

    def __init__(
        self,
        expected: Sequence[Event],
        start: int,
        key: str,
        *,
        upstream: Upstream = _nothing_upstream,
        masked: Masked = _nothing_masked,
    ) -> None:
        self._expected = list(expected)
        self._key = key
        self._upstream = upstream
        self._masked = masked
        self._turn: int | None = None
        self._step: int | None = None
        self._suspect: Cause | None = None
        self.next_seq = start
        self.compared = 0
        self.fed = 0
        self.divergence: Divergence | None = None

    def take(self, actual: Event, *, fed: bool) -> bool:
        """Compare the next event of the run; say whether it is as expected."""
        if self.divergence is not None:
            return False
        expected = self._expected[actual.seq] if actual.seq < len(self._expected) else None
        self._enter(expected or actual)
        found = self._told(actual, event_differences(expected, actual), fed)
        if found:
            self._diverge(expected or actual, found, fed and not self._repeats(expected))
            return False
        self.next_seq = actual.seq + 1
        self.fed += fed
        self.compared += not fed
        return True

    def take_inherited(self, inherited: Sequence[Event]) -> bool:
        """Compare what a forked child inherits with what it is recorded to have; nothing of it counts."""
        if self.divergence is not None:
            return False
        for actual, expected in zip(inherited, self._expected, strict=False):
            self._enter(expected)
            found = event_differences(expected, actual)
            if found:
                self._diverge(expected, found, fed=False)
                return False
        return True

    def diverge_header(self, difference: Difference) -> None:
        """Report that the run's session is not the recorded one: a fact of its header differs."""
        self.divergence = self.divergence or Divergence(
            seq=self.next_seq,
            turn=None,
            step=None,
            type="session",
            path=difference.path,
            expected=difference.expected,
            actual=difference.actual,
            cause=Cause(self._key, self.next_seq, "session", "record"),
            differences=(difference,),
        )

    def finish(self) -> None:
        """Report the first expected event that the run never produced."""
        if self.divergence is None and self.next_seq < len(self._expected):
            missing = self._expected[self.next_seq]
            self._enter(missing)
            self._diverge(missing, [Difference("", event_value(missing), None)], fed=False)

    def _enter(self, event: Event) -> None:
        if event.type == "turn/start":
            self._turn, self._step = _count(event, "turn"), None
        elif event.type == "step/start":
            self._step = _count(event, "step")

    def _told(self, actual: Event, found: list[Difference], fed: bool) -> list[Difference]:
        """Return the differences that count, and remember the first masked one."""
        masks = tuple(self._masked(actual)) if found else ()
        told = [difference for difference in found if not _is_below(difference.path, masks)]
        if self._suspect is None and len(told) < len(found):
            masked = next(difference for difference in found if difference not in told)
            self._suspect = self._cause(actual, masked.path, fed)
        return told

    def _repeats(self, expected: Event | None) -> bool:
        """True when the expected event is the one before it once more: its doubling is what is wrong."""
        if expected is None or expected.seq == 0:
            return False
        before = self._expected[expected.seq - 1]
        return before.type == expected.type and bytes(before.data) == bytes(expected.data)

    def _diverge(self, event: Event, found: list[Difference], fed: bool) -> None:
        first = found[0]
        self.divergence = Divergence(
            seq=event.seq,
            turn=self._turn,
            step=self._step,
            type=event.type,
            path=first.path,
            expected=first.expected,
            actual=first.actual,
            cause=self._suspect or self._cause(event, first.path, fed),
            differences=tuple(found),
        )

    def _cause(self, event: Event, path: str, fed: bool) -> Cause:
        own = Cause(self._key, event.seq, event.type, cause_kind(event, path, fed=fed))
        return self._upstream(event, path) or own


def _is_below(path: str, masks: tuple[str, ...]) -> bool:
    return any(path == mask or path.startswith(f"{mask}/") for mask in masks)


def _count(event: Event, name: str) -> int | None:
    value = event.value
    count = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return count if is_count(count) else None


# --- what made the difference --------------------------------------------------------------------------

RESULT_BODY: Final = (
    "/data/message/content/0/content",
    "/data/message/content/0/isError",
    "/data/error",
    "/data/meta",
)
"""What a `tool/result` has from its tool; all around it the loop makes."""


def cause_kind(event: Event, path: str, *, fed: bool = False) -> CauseKind:
    """Return what a difference at `path` of `event` points to when the event itself is all that is known.

    `fed` says that the run was handed the event whole.
    """
    if path == "/time":
        return "clock"
    if fed:
        return "fed-input"
    if event.type == "request/header" and path.startswith("/data/header/system"):
        return "prompt"
    if event.type == "request/header" and path.startswith("/data/header/tools"):
        return "schema"
    if event.type == "tool/result" and _is_below(path, RESULT_BODY):
        return "tool-result"
    return "record"


# --- two events ----------------------------------------------------------------------------------------


def event_value(event: Event) -> dict[str, Any]:
    """Return an event as one JSON value, envelope and payload."""
    value: dict[str, Any] = {"type": event.type, "seq": event.seq, "time": event.time, "data": event.value}
    if event.source_event_seqs is not UNSET:
        value["sourceEventSeqs"] = list(event.source_event_seqs)
    if event.surface_op is not UNSET:
        value["surfaceOp"] = msgspec.to_builtins(event.surface_op)
    if event.ignorable is not UNSET:
        value["ignorable"] = True
    return value


def event_differences(expected: Event | None, actual: Event) -> list[Difference]:
    """Return every difference of two events at one seq; one that was not expected differs whole.

    What the events say comes before when: a shifted event differs in its time as well.
    """
    if expected is None:
        return [Difference("", None, event_value(actual))]
    if _envelope(expected) == _envelope(actual) and _same_data(expected, actual):
        return []
    if expected.type != actual.type:
        return [Difference("/type", expected.type, actual.type)]
    found = differences(_comparable(expected), _comparable(actual))
    return sorted(found, key=lambda difference: difference.path == "/time")


def _envelope(event: Event) -> tuple[object, ...]:
    return (event.type, event.time, event.source_event_seqs, event.surface_op, event.ignorable)


def _same_data(expected: Event, actual: Event) -> bool:
    left, right = bytes(expected.data), bytes(actual.data)
    if left == right:
        return True
    if expected.type == CHUNK:
        return _is_same(differences(decode(left), decode(right)))
    return _is_same(differences(_comparable(expected), _comparable(actual)))


def _is_same(found: Iterator[Difference]) -> bool:
    return next(found, None) is None


def _comparable(event: Event) -> Any:
    """Return the event's value, a request header without what says nothing (see `canonical_header`)."""
    value = event_value(event)
    if event.type == "request/header" and isinstance(value["data"], dict):
        data = cast("dict[str, Any]", value["data"])
        header = data.get("header")
        if isinstance(header, dict):
            data["header"] = _telling(cast("dict[str, Any]", header))
    return value


def _telling(header: dict[str, Any]) -> dict[str, Any]:
    marks: Any = header.get("adapterDefaults")
    silent = {name for name in ("system", "tools") if not header.get(name)} | {"messagePrefix"}
    if not (isinstance(marks, dict) and True in cast("dict[str, Any]", marks).values()):
        silent.add("adapterDefaults")
    return {name: value for name, value in header.items() if name not in silent}


# --- two headers ---------------------------------------------------------------------------------------


def header_difference(
    recorded: SessionHeader, recorded_cut: int, actual: SessionHeader, actual_cut: int
) -> Difference | None:
    """Return the first lineage fact in which a created child differs from the recorded one.

    A fact that a foreign recording leaves out (`spawn`, the depth) is not compared.
    """
    facts: list[tuple[str, Any, Any]] = [
        ("inheritedEventCount", recorded_cut, actual_cut),
        ("isSeeded", recorded.is_seeded, actual.is_seeded),
        ("parentSession", recorded.parent_session, actual.parent_session),
        ("origin", recorded.origin, actual.origin),
    ]
    if recorded.delegation_depth is not None:
        facts.append(("delegationDepth", recorded.depth, actual.depth))
    if recorded.spawn is not None:
        facts.append(("spawn", msgspec.to_builtins(recorded.spawn), msgspec.to_builtins(actual.spawn)))
    for name, left, right in facts:
        if left != right:
            return Difference(f"/{name}", left, right)
    return None
