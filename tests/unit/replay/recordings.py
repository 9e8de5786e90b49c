"""Texts and values of recordings for the tests of this room."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow, pack, read_packed_row
from seedline.jsonvalue import encode
from seedline.session.sequence import Events, Segment
from tests.unit.session.make import event, events_of

Chunk = dict[str, Any]
FINISH: Chunk = {"type": "finish", "reason": {"kind": "stop"}}


def text(piece: str) -> Chunk:
    return {"type": "text-delta", "index": 0, "text": piece}


def chunk_row(chunk: Any, turn: Any = 1, step: Any = 1) -> tuple[str, Any]:
    return CHUNK, {"turn": turn, "step": step, "chunk": chunk}


def call(*pieces: str, turn: int = 1, step: int = 1) -> list[tuple[str, Any]]:
    """The chunk rows of one finished call."""
    return [chunk_row(chunk, turn, step) for chunk in (*map(text, pieces), FINISH)]


def log(rows: Iterable[tuple[str, Any]]) -> Events:
    """A log of `Event` rows, numbered from 0."""
    return Events.of([event(name, seq, data) for seq, (name, data) in enumerate(rows)])


def line_of(item: Event) -> bytes:
    """The line of an event as a live append writes it."""
    return b'{"type":%b,"seq":%d,"time":%d,"data":%b}' % (
        encode(item.type),
        item.seq,
        item.time,
        bytes(item.data),
    )


def as_lines(events: Events) -> Events:
    """The same log with chunk rows as stored lines."""
    return events_of(*(line_of(e) if e.type == CHUNK else e for e in events))


def as_packed(events: Events) -> Events:
    """The same log with runs of deltas packed."""
    segment = Segment()
    listed = list(events)
    for row in pack(listed, line_of):
        if b'"seq0"' in row[:40]:
            segment.append(read_packed_row(row))
        else:
            segment.append(listed[segment.length])
    assert segment.length == len(listed)
    return Events((segment,), 0, segment.length)


def packed_rows(events: Events) -> int:
    return sum(isinstance(row, PackedRow) for row in events.rows())


def values(chunks: Sequence[bytes]) -> list[Any]:
    return [json.loads(chunk) for chunk in chunks]


def digest_of(value: Any) -> str:
    """The digest of a plain ASCII value without fractions, by the standard library alone."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
