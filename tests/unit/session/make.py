"""Sessions, events and payloads for the tests of this room."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from seedline.clock import ManualClock
from seedline.events.event import Event, ReplaceOp
from seedline.events.packing import PackedRow, read_packed_row
from seedline.jsonvalue import encode
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.session.sequence import Events, Segment, StoredRow

MODEL = {"kind": "model", "provider": "p", "model": "m"}


def new_session(session_id: str = "s", *, start: int = 1000, step: int = 1) -> Session:
    """An empty session whose clock moves by `step` at each event."""
    header = SessionHeader(id=session_id, created_at=1)
    return Session.create(header, clock=ManualClock(start, step), inherited_event_count=START)


def event(
    event_type: str,
    seq: int,
    data: Any = None,
    *,
    time: int = 0,
    op: Any = UNSET,
    sources: Any = UNSET,
    ignorable: Any = UNSET,
) -> Event:
    """One event as a reader of rows builds it."""
    surface_op = ReplaceOp(**op) if isinstance(op, dict) else op
    return Event(
        event_type, seq, time, Raw(encode({} if data is None else data)), sources, surface_op, ignorable
    )


def replace(start: int, end: int) -> dict[str, Any]:
    return {"op": "replace", "start": start, "end": end}


def user(text: str = "hi", message_id: str = "u") -> dict[str, Any]:
    return {
        "id": message_id,
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }


def assistant(
    content: list[Any] | None = None, *, turn: int = 1, step: int = 1, **extra: Any
) -> dict[str, Any]:
    blocks = [{"type": "text", "text": "ok"}] if content is None else content
    message = {"id": "a", "role": "assistant", "content": blocks, "source": MODEL}
    return {"turn": turn, "step": step, "message": message, **extra}


def calls(*call_ids: str) -> list[Any]:
    return [{"type": "tool-call", "id": call_id, "name": "read", "arguments": "{}"} for call_id in call_ids]


def call(call_id: str = "c", *, turn: int = 1, step: int = 1) -> dict[str, Any]:
    return {"turn": turn, "step": step, "callId": call_id, "name": "read", "arguments": "{}"}


def result(
    call_id: str = "c", text: str = "done", *, turn: int = 1, step: int = 1, **extra: Any
) -> dict[str, Any]:
    block = {"type": "tool-result", "toolCallId": call_id, "content": [{"type": "text", "text": text}]}
    message = {
        "id": f"r-{call_id}",
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": call_id},
    }
    return {"turn": turn, "step": step, "message": message, **extra}


def request(system: str = "be brief", reason: str = "initial") -> dict[str, Any]:
    return {"header": {"config": {"provider": "p", "model": "m"}, "system": system}, "reason": reason}


def chunk(chunk_value: Any, *, turn: int = 1, step: int = 1) -> dict[str, Any]:
    return {"turn": turn, "step": step, "chunk": chunk_value}


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "index": 0, "text": text}


FINISH: dict[str, Any] = {"type": "finish", "reason": {"kind": "stop"}}


def packed(seq: int, *texts: str, turn: int = 1, step: int = 1, time: int = 0) -> PackedRow:
    """A packed row of text deltas."""
    data = {
        "turn": turn,
        "step": step,
        "index": 0,
        "dt": [1] * (len(texts) - 1),
        "texts": list(texts),
    }
    row = {"type": "text-chunks", "seq0": seq, "time0": time, "data": data}
    return read_packed_row(encode(row))


def events_of(*rows: StoredRow) -> Events:
    """A log over the rows given."""
    segment = Segment()
    for row in rows:
        segment.append(row)
    return Events((segment,), 0, segment.length)


def one_turn(session: Session, turn: int = 1) -> None:
    """Append a complete turn of six events: the balanced turn of the storage contract."""
    session.append("turn/start", {"turn": turn})
    session.append("user/message", user(), surface_op="append")
    session.append("step/start", {"turn": turn, "step": 1})
    session.append("assistant/message", assistant(turn=turn), surface_op="append")
    session.append("step/end", {"turn": turn, "step": 1})
    session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
