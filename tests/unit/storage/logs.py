"""A small session as a file, written by hand: nothing here goes through the code under test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import zstandard

from seedline.events.event import Event
from seedline.jsonvalue import encode
from tests.unit.session.make import FINISH, assistant, call, calls, chunk, delta, request, result, user

HEADER: dict[str, Any] = {
    "type": "session",
    "version": 0,
    "id": "s",
    "createdAt": 1,
    "cwd": "/w",
    "delegationDepth": 0,
}
CONTENT = [{"type": "text", "text": "漢 é"}, *calls("c")]


def row(event_type: str, data: Any, **envelope: Any) -> dict[str, Any]:
    """A row without its seq and time; `rows` numbers them."""
    return {"type": event_type, "data": data, **envelope}


TURN: list[dict[str, Any]] = [
    row("turn/start", {"turn": 1}),
    row("step/start", {"turn": 1, "step": 1}),
    row("user/message", user("go"), surfaceOp="append"),
    row("request/header", request()),
    row("assistant/chunk", chunk({"type": "block-start", "index": 0, "blockType": "text"})),
    *(row("assistant/chunk", chunk(delta(text))) for text in ("漢", " ", "é", '"\\')),
    row("assistant/chunk", chunk({"type": "usage", "usage": {"inputTokens": 3, "outputTokens": 4}})),
    row("assistant/chunk", chunk({**FINISH, "replayState": {"response": 1.5}})),
    row("assistant/message", assistant(CONTENT), sourceEventSeqs=[4, 5, 6, 7, 8, 9, 10], surfaceOp="append"),
    row("tool/call", call()),
    row("tool/result", result(), sourceEventSeqs=[12], surfaceOp="append"),
    row("step/end", {"turn": 1, "step": 1}),
    row("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
]
"""One whole turn, in the order of a live log."""


def rows(values: Sequence[dict[str, Any]] = TURN, *, first: int = 0) -> list[bytes]:
    """Complete rows, numbered from `first`, ten milliseconds apart."""
    return [
        encode({"type": value["type"], "seq": seq, "time": 1000 + 10 * seq, **value})
        for seq, value in enumerate(values, first)
    ]


def projected(values: Sequence[dict[str, Any]] = TURN) -> list[bytes]:
    return list(map(encode, values))


def text(lines: Iterable[bytes], header: dict[str, Any] | bytes = HEADER, end: bytes = b"\n") -> bytes:
    """A whole log file: the header, the lines, each with its line end."""
    first = header if isinstance(header, bytes) else encode(header)
    return b"".join(line + end for line in [first, *lines])


def frame(plain: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**{"write_checksum": True, **options}).compress(plain)


def frames(lines: Sequence[bytes], *, batch: int = 5, header: bytes | None = None, **options: Any) -> bytes:
    """A compressed log: the header's frame, then one for each batch of lines."""
    batches = [lines[at : at + batch] for at in range(0, len(lines), batch)]
    texts = [b"".join(line + b"\n" for line in lines) for lines in batches]
    return frame((header or encode(HEADER)) + b"\n") + b"".join(frame(plain, **options) for plain in texts)


def shown(events: Iterable[Event]) -> list[tuple[str, int, int, Any]]:
    """What the tests look at of events: type, seq, time and payload."""
    return [(event.type, event.seq, event.time, event.value) for event in events]


def values(lines: Sequence[bytes]) -> list[tuple[str, int, int, Any]]:
    """The same of complete rows, read by the plain JSON reader."""
    import json

    parsed = [json.loads(line) for line in lines]
    return [(value["type"], value["seq"], value["time"], value["data"]) for value in parsed]
