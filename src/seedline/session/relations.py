"""Relations between the events of a log: turns, steps, calls and results in their places (3.10).

Optional. Accepting a log never depends on it: plugins and foreign recordings may break a relation and
still be read. Use `problems_in` to look at a log, `guard_relations` to keep one right while it grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, cast

from seedline.errors import EventRefusedError
from seedline.events.event import CHUNK, Event
from seedline.session.log import Session
from seedline.session.sequence import Events

Relation = Literal[
    "seq-order",
    "turn-nesting",
    "turn-number",
    "step-nesting",
    "step-number",
    "outside-step",
    "outside-turn",
    "result-without-call",
]

_IN_STEP = frozenset({CHUNK, "assistant/message", "tool/call"})
_IN_TURN = frozenset({"todo/write", "request/header", "request/context"})
_RELATED = _IN_STEP | {"turn/start", "turn/end", "step/start", "step/end", "tool/result"}


class Problem(NamedTuple):
    """A relation that the event at `seq` breaks."""

    seq: int
    event_type: str
    relation: Relation
    reason: str


class Relations:
    """What the next event of a log must fit: the open turn and step, and the calls that wait for a result."""

    def __init__(self) -> None:
        self._seq = -1
        self._turn: Any = None
        self._step: Any = None
        self._last_turn: Any = 0
        self._last_step: Any = 0
        self._waiting: Counter[str] = Counter()  # calls of the open step without a result

    def problem(self, event: Event) -> Problem | None:
        """Return the first relation that `event` would break as the next event; change nothing."""
        found = self._order(event) or self._place(event, _data(event))
        return found and Problem(event.seq, event.type, *found)

    def take(self, event: Event) -> None:
        """Go past `event`, also past one that breaks a relation: what it opens or closes counts."""
        data = _data(event)
        self._seq = max(self._seq, event.seq)
        match event.type:
            case "turn/start":
                self._turn = self._last_turn = data.get("turn")
                self._last_step = 0
                self._close_step()
            case "turn/end":
                self._turn = None
                self._close_step()
            case "step/start":
                self._step = self._last_step = data.get("step")
                self._waiting.clear()
            case "step/end":
                self._close_step()
            case "tool/call":
                self._waiting[repr(data.get("callId"))] += 1
            case "tool/result" if event.surface_op == "append":
                self._waiting -= Counter([repr(_call_id(data))])
            case _:
                pass

    def _close_step(self) -> None:
        self._step = None
        self._waiting.clear()

    def _order(self, event: Event) -> tuple[Relation, str] | None:
        return None if event.seq > self._seq else ("seq-order", f"it follows seq {self._seq}")

    def _place(self, event: Event, data: dict[str, Any]) -> tuple[Relation, str] | None:
        match event.type:
            case "turn/start":
                return self._turn_start(data)
            case "turn/end":
                return self._turn_end(data)
            case "step/start":
                return self._step_start(data)
            case "step/end":
                return self._in_step(data, "step-nesting")
            case "tool/result":
                return self._result(event, data)
            case event_type if event_type in _IN_STEP:
                return self._in_step(data, "outside-step")
            case event_type if event_type in _IN_TURN:
                return self._in_turn()
            case _:
                return None

    def _turn_start(self, data: dict[str, Any]) -> tuple[Relation, str] | None:
        if self._turn is not None:
            return "turn-nesting", f"turn {self._turn} is open"
        return _numbered("turn-number", data.get("turn"), self._last_turn)

    def _turn_end(self, data: dict[str, Any]) -> tuple[Relation, str] | None:
        if self._turn is None or not _same(data.get("turn"), self._turn):
            return "turn-nesting", f"it names turn {data.get('turn')}, {_open('turn', self._turn)}"
        if self._step is not None:
            return "step-nesting", f"step {self._step} is open"
        return None

    def _step_start(self, data: dict[str, Any]) -> tuple[Relation, str] | None:
        if self._turn is None or not _same(data.get("turn"), self._turn):
            return "step-nesting", f"it names turn {data.get('turn')}, {_open('turn', self._turn)}"
        if self._step is not None:
            return "step-nesting", f"step {self._step} is open"
        return _numbered("step-number", data.get("step"), self._last_step)

    def _in_step(self, data: dict[str, Any], relation: Relation) -> tuple[Relation, str] | None:
        turn, step = data.get("turn"), data.get("step")
        if self._step is not None and _same(turn, self._turn) and _same(step, self._step):
            return None
        place = f"{_open('turn', self._turn)}, {_open('step', self._step)}"
        return relation, f"it names turn {turn}, step {step}; {place}"

    def _in_turn(self) -> tuple[Relation, str] | None:
        return ("outside-turn", "no turn is open") if self._turn is None else None

    def _result(self, event: Event, data: dict[str, Any]) -> tuple[Relation, str] | None:
        if event.surface_op != "append":
            return self._in_turn()
        misplaced = self._in_step(data, "outside-step")
        call_id = _call_id(data)
        if misplaced or self._waiting[repr(call_id)] or _not_started(data):
            return misplaced
        return "result-without-call", f"no call {call_id!r} of this step waits for a result"


def problems_in(events: Iterable[Event]) -> list[Problem]:
    """Return every broken relation of a log, in order; an event counts for the first one it breaks."""
    relations = Relations()
    found: list[Problem] = []
    for event in events:
        problem = relations.problem(event)
        if problem:
            found.append(problem)
        relations.take(event)
    return found


def guard_relations(session: Session) -> Callable[[], None]:
    """Refuse every later append to `session` that breaks a relation. Returns the undo.

    The log so far is replayed and not judged. A refused append raises `EventRefusedError` with the code
    `relation` and leaves the log unchanged.
    """
    relations = _replayed(session.events)

    def veto(event: Event) -> None:
        problem = relations.problem(event)
        if problem:
            reason = f"{problem.relation}: {problem.reason}"
            raise EventRefusedError("relation", event.type, reason, event.seq)

    undo_veto, undo_take = session.guard(veto), session.subscribe(relations.take)

    def undo() -> None:
        undo_veto()
        undo_take()

    return undo


def _replayed(events: Events) -> Relations:
    relations = Relations()
    for event in events:
        relations.take(event)
    return relations


def _data(event: Event) -> dict[str, Any]:
    """Return the payload of an event that stands in a relation; one that is no object names nothing."""
    value = event.value if event.type in _RELATED else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _call_id(data: dict[str, Any]) -> Any:
    return _at(data, "message", "source", "callId")


def _not_started(data: dict[str, Any]) -> bool:
    """True for the result that repair gives a call of which only the assistant message is known."""
    block_is_error = _at(data, "message", "content", 0, "isError") is True
    return block_is_error and _at(data, "error", "code") == "TOOL_NOT_STARTED"


def _at(value: Any, *path: str | int) -> Any:
    for part in path:
        try:
            value = value[part]
        except (TypeError, LookupError):
            return None
    return value


def _same(named: Any, opened: Any) -> bool:
    return type(named) is type(opened) and named == opened


def _numbered(relation: Relation, number: Any, last: Any) -> tuple[Relation, str] | None:
    expected = last + 1 if type(last) is int else None
    if expected is None or (type(number) is int and number == expected):
        return None
    return relation, f"its number is {number}, {expected} is next"


def _open(kind: str, number: Any) -> str:
    return f"no {kind} is open" if number is None else f"{kind} {number} is open"
