"""The end of a log, found without reading what lies before it.

Seqs grow along a file, so a plain one is searched by halves; a compressed one is walked frame by frame from
its end. Both give up, by `UnsureError`, where anything looks unusual: then the whole log has to be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from seedline.errors import ArtifactError
from seedline.events.codec import RowError, read_row
from seedline.events.event import Event
from seedline.events.packing import PackedRow
from seedline.storage.jsonl.frames import MAGIC, Frame, read_frames, scan_frame
from seedline.storage.jsonl.scan import BOM, is_blank

NEAR: Final = 1 << 15
"""Bytes of rows that are read rather than searched on."""
_BLOCK: Final = 1 << 12


class UnsureError(Exception):
    """The end of this log cannot be told without the rest; never leaves the backend."""


class Head(NamedTuple):
    """The header line, without line end, and the offset of the file at which the body begins."""

    line: bytes
    body: int


class Tail(NamedTuple):
    """The body from a row (of a compressed file: a frame) on that begins at `offset` with `first_seq`."""

    offset: int
    first_seq: int
    text: bytes


def read_head(descriptor: int) -> Head | None:
    """Return the head of a plain or compressed log, None where the file ends inside its first line."""
    size, data = 8192, b""
    while True:
        data = os.pread(descriptor, size, 0)
        head = _zstd_head(data) if data.startswith(MAGIC) else _plain_head(data)
        if head or len(data) < size:
            return head
        size *= 4


def _plain_head(data: bytes) -> Head | None:
    line, newline, _ = data.partition(b"\n")
    return Head(line.removeprefix(BOM), len(line) + 1) if newline else None


def _zstd_head(data: bytes) -> Head | None:
    frame = scan_frame(data, 0)
    if frame is None:
        return None
    text = b"".join(read_frames(data, [frame]))
    if not text.endswith(b"\n") or text.count(b"\n") != 1:
        raise UnsureError
    return Head(text[:-1].removeprefix(BOM), frame.stop)


def tail_of(descriptor: int, body: int, size: int, seq: int) -> Tail:
    """Return the last part of the body that begins at or before `seq`. Raises `UnsureError`."""
    if os.pread(descriptor, len(MAGIC), 0) == MAGIC:
        return _zstd_tail(os.pread(descriptor, size, 0), body, seq)
    return _plain_tail(descriptor, body, size, seq)


def trimmed(tail: Tail, seq: int) -> Tail:
    """Return what is left of a tail without the rows that end before `seq`. Raises `UnsureError`."""
    at, first = 0, tail.first_seq
    while (end := tail.text.find(b"\n", at)) >= 0:
        line = tail.text[at:end]
        count = 0 if is_blank(line) else len(_events(line, first))
        if first + count > seq:
            break
        at, first = end + 1, first + count
    return Tail(tail.offset + at, first, tail.text[at:])


# --- plain -----------------------------------------------------------------------------------------


def _plain_tail(descriptor: int, body: int, size: int, seq: int) -> Tail:
    low, first_seq, high = body, 0, size
    while high - low > NEAR:
        middle = (low + high) // 2
        row = _row_after(descriptor, middle, high)
        if row is None or row[1] > seq:
            high = middle
        else:
            low, first_seq = row
    return Tail(low, first_seq, os.pread(descriptor, size - low, low))


def _row_after(descriptor: int, offset: int, stop: int) -> tuple[int, int] | None:
    """Return offset and first seq of the first whole row that begins behind a line end in [offset, stop)."""
    lines = _lines_after(descriptor, offset, stop)
    for start, line in lines:
        if not is_blank(line):
            return start, _read(line).seq
    return None


def _lines_after(descriptor: int, offset: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines that begin behind the first line end at or after `offset`, with their offsets."""
    data, size = b"", _BLOCK
    while True:
        data = os.pread(descriptor, min(size, stop - offset), offset)
        first, _, rest = data.partition(b"\n")
        if b"\n" in rest or len(data) < size:
            break
        size *= 4
    at = offset + len(first) + 1
    for line in rest.split(b"\n")[:-1]:
        yield at, line
        at += len(line) + 1


def _read(line: bytes) -> Event | PackedRow:
    try:
        return read_row(line)
    except RowError as error:
        raise UnsureError from error


# --- compressed ------------------------------------------------------------------------------------


def _zstd_tail(data: bytes, body: int, seq: int) -> Tail:
    texts: list[bytes] = []
    stop = len(data)
    offset, first_seq = stop, 0
    while stop > body:
        frame = _frame_before(data, body, stop)
        texts.append(_text(data, frame))
        offset, first_seq, stop = frame.start, _read(texts[-1].partition(b"\n")[0]).seq, frame.start
        if first_seq <= seq:
            break
    return Tail(offset, first_seq, b"".join(reversed(texts)))


def _frame_before(data: bytes, body: int, stop: int) -> Frame:
    """Return the frame that ends at `stop`. Its magic number may lie inside of it by chance, too."""
    end = stop
    while (start := data.rfind(MAGIC, body, end)) >= 0:
        try:
            frame = scan_frame(data, start)
        except ArtifactError:
            frame = None
        if frame and frame.stop == stop:
            return frame
        end = start + len(MAGIC) - 1
    raise UnsureError


def _text(data: bytes, frame: Frame) -> bytes:
    try:
        text = b"".join(read_frames(data, [frame]))
    except ArtifactError as error:
        raise UnsureError from error
    if not text.endswith(b"\n"):
        raise UnsureError
    return text


# --- prefixes --------------------------------------------------------------------------------------


class PrefixEnd(NamedTuple):
    """Where a prefix ends: the bytes of the body before `stop`, then the events `rest`, of a row cut in two.

    `found` is how many events that makes: fewer than were asked for where the log is shorter.
    """

    stop: int
    rest: tuple[Event, ...]
    found: int


def prefix_end(descriptor: int, body: int, size: int, count: int) -> PrefixEnd:
    """Return where the first `count` events of a log end. Raises `UnsureError`."""
    if count == 0:
        return PrefixEnd(body, (), 0)
    tail = tail_of(descriptor, body, size, count - 1)
    if os.pread(descriptor, len(MAGIC), 0) == MAGIC:
        return _end_in_frames(tail, size, count)
    return _end_in_rows(tail, count)


def _end_in_rows(tail: Tail, count: int) -> PrefixEnd:
    at, seq = tail.offset, tail.first_seq
    for line in tail.text.split(b"\n")[:-1]:
        start, at = at, at + len(line) + 1
        if is_blank(line):
            continue
        events = _events(line, seq)
        seq += len(events)
        if seq > count:
            return PrefixEnd(start, tuple(events[: count - seq]), count)
        if seq == count:
            return PrefixEnd(at, (), count)
    return PrefixEnd(at, (), seq)


def _end_in_frames(tail: Tail, size: int, count: int) -> PrefixEnd:
    """Take the events of the last frames again: they are few, and a frame cannot be cut."""
    events: list[Event] = []
    for line in tail.text.split(b"\n")[:-1]:
        if tail.first_seq + len(events) > count:
            break
        if not is_blank(line):
            events += _events(line, tail.first_seq + len(events))
    found = tail.first_seq + len(events)
    if found <= count:
        return PrefixEnd(size, (), found)
    return PrefixEnd(tail.offset, tuple(events[: count - tail.first_seq]), count)


def _events(line: bytes, seq: int) -> list[Event]:
    row = _read(line)
    if row.seq != seq:
        raise UnsureError
    return [row] if isinstance(row, Event) else list(row.expand())
