"""Crash repair: the events that close an interrupted turn (dsh format version 0, 3.9).

Repair only appends. It is for cold sessions: a live one still writes the real ending itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from msgspec import UNSET, Raw

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import Event, read_data
from seedline.events.messages import Record
from seedline.jsonvalue import MAX_SAFE_INTEGER, encode
from seedline.session.sequence import Events
from seedline.session.wire_texts import TOOL_OUTCOME_UNKNOWN

_NOT_STARTED: Final = (
    "ToolNotStartedError",
    "TOOL_NOT_STARTED",
    "This tool call was never started: the session stopped first. Make the call again if it is still needed.",
)
_OUTCOME_UNKNOWN: Final = ("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN", TOOL_OUTCOME_UNKNOWN)
Number = int | float


class _Turn(Record, frozen=True):
    turn: Number


class _Step(Record, frozen=True):
    step: Number


class _Content(Record, frozen=True):
    content: list[Any]


class _Answer(Record, frozen=True):
    step: Number
    message: _Content


class _Call(Record, frozen=True):
    call_id: str


class _ResultMessage(Record, frozen=True):
    source: _Call


class _Result(Record, frozen=True):
    message: _ResultMessage


class _Pending(NamedTuple):
    """A call without a result: the step it was made in, and the seq of its `tool/call` if it was recorded."""

    step: Number
    call_seq: int | None = None


class _Interrupted:
    """What is open after the events taken so far."""

    def __init__(self) -> None:
        self.turn: Number | None = None
        self.turn_seq = 0
        self.step: Number | None = None
        self.pending: dict[str, _Pending] = {}

    def take(self, event: Event) -> None:
        match event.type:
            case "turn/start":
                self._restart(read_data(event, _Turn).turn)
                self.turn_seq = event.seq
            case "turn/end":
                self._restart(None)
            case "step/start":
                self.step = read_data(event, _Step).step
            case "step/end":
                self._close_step()
            case "assistant/message":
                answer: _Answer = read_data(event, _Answer)
                self.pending.update((call, _Pending(answer.step)) for call in _calls(event, answer))
            case "tool/call":
                self._start(read_data(event, _Call).call_id, event.seq)
            case "tool/result":
                self.pending.pop(read_data(event, _Result).message.source.call_id, None)
            case _:
                pass

    def _restart(self, turn: Number | None) -> None:
        self.turn = turn
        self._close_step()

    def _close_step(self) -> None:
        self.step = None
        self.pending.clear()

    def _start(self, call_id: str, seq: int) -> None:
        if call_id in self.pending:
            self.pending[call_id] = _Pending(self.pending[call_id].step, seq)


def closers(events: Events) -> list[Event]:
    """Return the events to append to a stored log so that its last turn is closed; none when it is.

    First an error result for each call that has none, in the order the model made them, then `step/end`,
    then `turn/end` with the reason `interrupted`. Seqs go on from the last event; every time is the last
    event's. The same log always gives the same events.
    Raises `SessionPersistenceCorruptionError` naming the seq of a payload that has another shape, or of an
    open turn whose number no `turn/end` can have.
    """
    if not events:
        return []
    state = _Interrupted()
    for event in events.without_chunks():
        state.take(event)
    if state.turn is None:
        return []
    if not 1 <= state.turn <= MAX_SAFE_INTEGER or state.turn % 1:
        reason = f"no `turn/end` can close a turn with the number {state.turn}"
        raise SessionPersistenceCorruptionError(reason, seq=state.turn_seq)
    last = events[-1]
    return list(_closers(state, state.turn, last.seq + 1, last.time))


def _closers(state: _Interrupted, turn: Number, seq: int, time: int) -> Iterator[Event]:
    for call_id, pending in state.pending.items():
        yield _error_result(turn, call_id, pending, seq, time)
        seq += 1
    if state.step is not None:
        yield _event("step/end", seq, time, {"turn": turn, "step": state.step})
        seq += 1
    yield _event("turn/end", seq, time, {"turn": turn, "reason": {"kind": "interrupted"}})


def _event(event_type: str, seq: int, time: int, data: dict[str, Any]) -> Event:
    return Event(event_type, seq, time, Raw(encode(data)))


def _error_result(turn: Number, call_id: str, pending: _Pending, seq: int, time: int) -> Event:
    name, code, text = _NOT_STARTED if pending.call_seq is None else _OUTCOME_UNKNOWN
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "isError": True,
        "content": [{"type": "text", "text": text}],
    }
    message = {
        "id": f"interrupted-tool-result-{call_id}-{seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [block],
    }
    data = {"turn": turn, "step": pending.step, "message": message, "error": {"name": name, "code": code}}
    sources = UNSET if pending.call_seq is None else (pending.call_seq,)
    return Event("tool/result", seq, time, Raw(encode(data)), sources, "append")


def _calls(event: Event, answer: _Answer) -> list[str]:
    """Return the ids of the tool calls in an answer, in order."""
    blocks = [cast("dict[str, Any]", block) for block in answer.message.content if isinstance(block, dict)]
    ids = [block.get("id") for block in blocks if block.get("type") == "tool-call"]
    if not all(isinstance(call_id, str) for call_id in ids):
        reason = f"payload of {event.type!r} has a tool call without an id"
        raise SessionPersistenceCorruptionError(reason, seq=event.seq)
    return cast("list[str]", ids)
