"""From the text of a log file to its header and events (dsh format version 0, 4.2, 4.6 and 4.11).

The scan goes through the text block by block and holds nothing but the rows it accepts. Rows of stream
deltas, nearly all of a log, are judged and counted in one call for each run of them and kept as text; every
other row is judged by `codec.read_row`. Errors carry line, offset and seq; who reads a file adds its path.

A line that does not read is an issue. Anything that reads after an issue makes it corruption; an issue with
nothing readable after it is a torn tail.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from seedline.errors import (
    ArtifactError,
    JsonSyntaxError,
    NotASessionError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import RowError, decode_event_line, encode_event, has_large_number, read_row
from seedline.events.event import CHUNK, Event, ReplaceOp, SurfaceOp
from seedline.events.packing import PACKED_TYPES, PackedRow
from seedline.jsonvalue import MAX_SAFE_INTEGER, decode
from seedline.session.header import SessionHeader, SessionLogOffset, from_header_line
from seedline.session.sequence import Events, Segment
from seedline.storage.reading import graver, type_problem

Layout = Literal["complete", "projected", "header-only"]
BOM: Final = b"\xef\xbb\xbf"


def is_blank(line: bytes) -> bool:
    """True for a line of spaces, tabs and carriage returns only."""
    return not line.strip(b" \t\r")


_ENDS: Final = {b"{": b"}", b"[": b"]", b'"': b'"', b"t": b"e", b"f": b"e", b"n": b"l"}


def may_read(line: bytes) -> bool:
    """False for a line that cannot be a JSON text, told by its ends: a quick look at many bad lines."""
    line = line.strip(b" \t\r")
    end = _ENDS.get(line[:1])
    return line[:1] in b"-0123456789" if end is None else line.endswith(end)


def layout_of(line: bytes) -> Layout | None:
    """Return the layout that a first body row decides, None when the row does not read."""
    try:
        decode_event_line(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return "complete"
    try:
        value = decode(line)
    except JsonSyntaxError:
        return None
    if not isinstance(value, dict):
        return "complete"
    record = cast("dict[str, Any]", value)
    kind = record.get("type")
    packed = isinstance(kind, str) and kind in PACKED_TYPES
    return "complete" if ("seq0" if packed else "seq") in record else "projected"


def sequence_problem(seq: int, expected: int) -> str:
    """Say what a whole row with another seq than the expected one proves."""
    cause = "two writers wrote this log" if seq < expected else "records are missing before it"
    return f"seq {seq} where {expected} follows: {cause}"


# --- rows ------------------------------------------------------------------------------------------

_Safe = Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]


class _Strict(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """Base of the shapes of a usual chunk row. They leave no byte unread, so no other check is needed."""


class _Delta(_Strict, tag_field="type"):
    index: _Safe


class _TextDelta(_Delta, tag="text-delta"):
    text: str


class _ReasoningDelta(_Delta, tag="reasoning-delta"):
    text: str


class _ToolDelta(_Delta, tag="tool-call-delta"):
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


class _BlockStart(_Delta, tag="block-start"):
    block_type: str


class _Text(_Strict, tag_field="type", tag="text"):
    text: str


class _Reasoning(_Strict, tag_field="type", tag="reasoning"):
    text: str


class _Call(_Strict, tag_field="type", tag="tool-call"):
    id: str
    name: str
    arguments: str


class _BlockEnd(_Delta, tag="block-end"):
    block: _Text | _Reasoning | _Call


class _Counts(_Strict):
    input_tokens: _Safe
    output_tokens: _Safe
    cache_read_tokens: _Safe | UnsetType = UNSET
    cache_write_tokens: _Safe | UnsetType = UNSET
    reasoning_tokens: _Safe | UnsetType = UNSET


class _Usage(_Strict, tag_field="type", tag="usage"):
    usage: _Counts


class _Kind(_Strict):
    kind: str


class _Finish(_Strict, tag_field="type", tag="finish"):
    reason: _Kind


class _ChunkData(_Strict):
    turn: _Safe
    step: _Safe
    chunk: _TextDelta | _ReasoningDelta | _ToolDelta | _BlockStart | _BlockEnd | _Usage | _Finish


class _ChunkRow(_Strict):
    type: Literal["assistant/chunk"]
    seq: int
    time: _Safe
    data: _ChunkData


_read_chunk: Final = msgspec.json.Decoder(_ChunkRow).decode
_CHUNK_START: Final = b'{"type":"assistant/chunk",'


class _ProjectedRow(_Strict):
    type: str
    data: Raw
    source_event_seqs: tuple[int, ...] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: Literal[True] | UnsetType = UNSET


_read_projected: Final = msgspec.json.Decoder(_ProjectedRow).decode
_PACKED_STARTS: Final = {
    f'{{"type":"{name}",'.encode(): f'{{"type":"{name}","seq0":%d,"time0":0,'.encode()
    for name in PACKED_TYPES
}


def read_projected_row(line: bytes, seq: int) -> Event | PackedRow:
    """Return what `read_row(line, seq)` returns, fast for rows in the usual spelling."""
    for start, completed in _PACKED_STARTS.items():
        if line.startswith(start + b'"data":'):
            try:
                return read_row(completed % seq + line[len(start) :])
            except RowError:
                return read_row(line, seq)
    try:
        row = _read_projected(line)
    except (msgspec.DecodeError, RecursionError):
        return read_row(line, seq)
    usual = line.isascii() and row.type not in PACKED_TYPES and not isinstance(row.surface_op, ReplaceOp)
    if not usual or has_large_number(line):
        return read_row(line, seq)
    return Event(row.type, seq, 0, row.data, row.source_event_seqs, row.surface_op, row.ignorable)


class RowTexts:
    """The original text of each row of one event, without line end; a projected log's lacks seq and time."""

    def __init__(self, events: Callable[[], Events]) -> None:
        self._events = events
        self._seqs = array("q")
        self._lines: list[bytes] = []

    def add(self, seq: int, line: bytes) -> None:
        self._seqs.append(seq)
        self._lines.append(line)

    def __call__(self, event: Event) -> bytes:
        """Return the text of `event` as its file has it; the usual spelling if the file does not have it."""
        events = self._events()
        if not 0 <= event.seq < len(events):
            return encode_event(event)
        row = next(iter(events[event.seq : event.seq + 1].rows()))
        if isinstance(row, bytes):
            return row if decode_event_line(row) == event else encode_event(event)
        index = bisect_left(self._seqs, event.seq)
        found = index < len(self._seqs) and self._seqs[index] == event.seq
        return self._lines[index] if found and row == event else encode_event(event)


# --- the scan --------------------------------------------------------------------------------------


class TornText(NamedTuple):
    """Where the torn tail begins in the text, and what it is."""

    offset: int
    reason: str


class Scan(NamedTuple):
    """What a text holds. `torn` is None where it ends cleanly."""

    header_line: bytes
    header: SessionHeader
    inherited_event_count: SessionLogOffset
    layout: Layout
    events: Events
    row_text: RowTexts
    torn: TornText | None


class _Issue(NamedTuple):
    reason: str
    line: int
    offset: int


class Scanner:
    """One scan. Feed the text in pieces of any size, then finish.

    `locate` turns an offset of the text into the offset of the file that errors name.
    """

    def __init__(self, locate: Callable[[int], int] = lambda offset: offset) -> None:
        self._locate = locate
        self._header_line: bytes | None = None
        self._header_at = 1
        self._header: tuple[SessionHeader, SessionLogOffset] | None = None
        self._layout: Layout | None = None
        self._segment = Segment()
        self._row_text = RowTexts(self._events)
        self._issue: _Issue | None = None
        self._type_problem: ArtifactError | None = None
        self._tail: list[bytes] = []
        self._text = b""  # the lines being taken, for the place of an error
        self._line = 1  # physical number of the first of them
        self._offset = 0  # where they begin in the text

    @classmethod
    def of_suffix(cls, header_line: bytes, start: int) -> Scanner:
        """Return a scanner of a complete log's rows from the event `start` on; feed it whole rows.

        Lines and offsets in its errors count from the first of those rows.
        """
        scanner = cls()
        scanner._header_line = header_line
        scanner._header = from_header_line(header_line)
        scanner._layout = "complete"
        scanner._segment = Segment(start)
        return scanner

    def _events(self) -> Events:
        return Events((self._segment,), self._segment.base, self.count)

    @property
    def count(self) -> int:
        """The seq that follows what is accepted so far."""
        return self._segment.base + self._segment.length

    # --- feeding -----------------------------------------------------------------------------------

    def feed(self, block: bytes) -> None:
        """Take the next piece of text.

        Raises `NotASessionError`, `SessionFormatUnsupportedError` or `SessionPersistenceCorruptionError`.
        """
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            text = b"".join((*self._tail, head))
            self._tail.clear()
            self._take(text)
        if tail:
            self._tail.append(tail)

    def settle(self) -> None:
        """Demand that all text fed so far is accepted: whole frames hold no torn record."""
        if self._header_line is None:
            raise self._no_header()
        if self._issue:
            raise self._damage(f"the line does not read ({self._issue.reason}) and is part of a whole frame")
        if self._tail:
            offset = self._locate(self._offset)
            raise SessionPersistenceCorruptionError(
                "the last whole frame ends inside a record", line=self._line, offset=offset
            )

    def finish(self) -> Scan:
        """Judge the end of the text and return what it holds. Raises what `feed` raises."""
        if self._header_line is None:
            raise self._no_header()
        torn = self._end(b"".join(self._tail))
        if self._type_problem:
            raise self._type_problem
        header, cut = self._header or from_header_line(self._header_line, projected=True)
        return Scan(
            self._header_line,
            header,
            cut,
            self._layout or "header-only",
            self._events(),
            self._row_text,
            torn,
        )

    def _no_header(self) -> NotASessionError:
        if self._tail and not is_blank(b"".join(self._tail)):
            return NotASessionError("the first line has no end", line=self._line)
        return NotASessionError("the file holds no header line")

    def _take(self, text: bytes) -> None:
        """Take whole lines, the last one without its line end."""
        if not text.strip(b" \t\r\n"):
            self._pass(text)
            return
        self._text = text
        lines = text.split(b"\n")
        if b"\r" in text:
            lines = [line.removesuffix(b"\r") for line in lines]
        if self._line == 1:
            lines[0] = lines[0].removeprefix(BOM)
        start = 0 if self._layout or self._issue else self._begin(lines)
        if self._issue:
            self._check_damaged(lines, start)
        elif self._layout == "projected":
            self._take_projected(lines, start)
        else:
            self._take_complete(lines, start)
        self._pass(text)

    def _pass(self, text: bytes) -> None:
        self._line += text.count(b"\n") + 1
        self._offset += len(text) + 1

    def _begin(self, lines: list[bytes]) -> int:
        """Find the header and the first body row; return the index of the first row to read."""
        for at, line in enumerate(lines):
            if is_blank(line):
                continue
            if self._header_line is None:
                # Refuses a foreign format before anything else; the layout decides what else must be there.
                from_header_line(line, projected=True)
                self._header_line, self._header_at = line, self._line + at
            elif self._choose_layout(line):
                return at
            else:
                self._read(line, at, read_row)
                return at + 1
        return len(lines)

    def _choose_layout(self, line: bytes) -> bool:
        assert self._header_line is not None
        self._layout = layout_of(line)
        if self._layout is None:
            return False
        if self._layout == "complete" and self._header_at > 1:
            raise NotASessionError("line 1 is blank")
        self._header = from_header_line(self._header_line, projected=self._layout == "projected")
        return True

    # --- rows --------------------------------------------------------------------------------------

    def _take_complete(self, lines: list[bytes], start: int) -> None:
        rest = iter(lines)
        for _ in range(start):
            next(rest)
        at = start
        while at < len(lines):
            at = self._take_chunks(lines, at, rest)
            # One failed call per run of other rows, not per row.
            while at < len(lines):
                self._read(lines[at], at, read_row)
                at += 1
                if self._issue:
                    return self._check_damaged(lines, at)
                if at == len(lines) or lines[at].startswith(_CHUNK_START):
                    break
                next(rest)

    def _take_chunks(self, lines: list[bytes], at: int, rest: Iterator[bytes]) -> int:
        """Accept the usual chunk rows from `at` on; return the index of the first line that is none."""
        found: list[_ChunkRow] = []
        # CPython's list.extend keeps what came before an exception, so its length tells the failing line.
        with suppress(msgspec.DecodeError, RecursionError):
            found.extend(map(_read_chunk, rest))
        stop = at + len(found)
        seqs = [row.seq for row in found]
        if seqs != list(range(self.count, self.count + len(seqs))):
            wrong = next(k for k, seq in enumerate(seqs) if seq != self.count + k)
            raise self._out_of_order(seqs[wrong], self.count + wrong, at + wrong)
        self._segment.extend_single(lines[at:stop])
        return stop

    def _take_projected(self, lines: list[bytes], start: int) -> None:
        def read(line: bytes) -> Event | PackedRow:
            return read_projected_row(line, self.count)

        for at in range(start, len(lines)):
            self._read(lines[at], at, read)
            if self._issue:
                return self._check_damaged(lines, at + 1)

    def _read(self, line: bytes, at: int, read: Callable[[bytes], Event | PackedRow]) -> None:
        """Accept one line; an unparsable one becomes the issue."""
        if is_blank(line):
            return
        try:
            row = read(line)
        except RowError as error:
            if error.fault != "unparsable":
                raise self._corrupt(error.reason, at, error.seq) from None
            self._issue = _Issue(error.reason, *self._place(at))
        else:
            self._accept(row, line, at)

    def _accept(self, row: Event | PackedRow, line: bytes, at: int) -> None:
        if row.seq != self.count:
            raise self._out_of_order(row.seq, self.count, at)
        if isinstance(row, Event):
            self._check_type(row, at)
            if self._layout == "complete" and _is_plain_chunk(row, line):
                self._segment.extend_single((line,))
                return
            self._row_text.add(row.seq, line)
        self._segment.append(row)

    def _check_type(self, event: Event, at: int) -> None:
        problem = type_problem(event)
        if problem is None:
            return
        line, offset = self._place(at)
        located = problem.located(line=line, offset=self._locate(offset))
        self._type_problem = graver(self._type_problem, located)

    def _check_damaged(self, lines: list[bytes], start: int) -> None:
        """Raise if anything reads among lines that stand after the issue."""
        for at in range(start, len(lines)):
            if _reads(lines[at]):
                raise self._reads_after_issue(at)

    # --- the end -----------------------------------------------------------------------------------

    def _end(self, tail: bytes) -> TornText | None:
        """Judge the bytes after the last line end."""
        if not tail or is_blank(tail) or self._issue:
            return self._torn(tail)
        self._text = tail
        if self._layout is None and not self._choose_layout(tail):
            return self._torn(tail)
        try:
            row = read_projected_row(tail, self.count) if self._layout == "projected" else read_row(tail)
        except RowError as error:
            if error.fault == "envelope":
                raise self._corrupt(error.reason, 0, error.seq) from None
            return self._torn(tail)
        self._accept(row, tail, 0)
        return TornText(self._offset + len(tail), "missing-newline")

    def _torn(self, tail: bytes) -> TornText | None:
        if self._issue is None:
            return TornText(self._offset, "unparsable") if tail else None
        self._text = tail
        if _reads(tail, a_record=True):
            raise self._reads_after_issue(0)
        return TornText(self._issue.offset, "unparsable")

    # --- errors ------------------------------------------------------------------------------------

    def _place(self, at: int) -> tuple[int, int]:
        """Return the physical line and the text offset of the line at index `at`."""
        before = self._text.split(b"\n", at)[:at]
        return self._line + at, self._offset + sum(len(line) + 1 for line in before)

    def _corrupt(self, reason: str, at: int, seq: int | None = None) -> SessionPersistenceCorruptionError:
        line, offset = self._place(at)
        return SessionPersistenceCorruptionError(reason, line=line, offset=self._locate(offset), seq=seq)

    def _out_of_order(self, seq: int, expected: int, at: int) -> SessionPersistenceCorruptionError:
        return self._corrupt(sequence_problem(seq, expected), at, seq)

    def _reads_after_issue(self, at: int) -> SessionPersistenceCorruptionError:
        assert self._issue
        line = self._place(at)[0]
        return self._damage(f"the line does not read ({self._issue.reason}), yet line {line} after it does")

    def _damage(self, reason: str) -> SessionPersistenceCorruptionError:
        assert self._issue
        offset = self._locate(self._issue.offset)
        return SessionPersistenceCorruptionError(reason, line=self._issue.line, offset=offset)


def _is_plain_chunk(event: Event, line: bytes) -> bool:
    """True for a chunk row of the four envelope keys whose text decodes as it stands."""
    if event.type != CHUNK or (event.source_event_seqs, event.surface_op, event.ignorable) != (UNSET,) * 3:
        return False
    try:
        return decode_event_line(line) == event
    except (msgspec.DecodeError, RecursionError):
        return False


def _reads(line: bytes, *, a_record: bool = False) -> bool:
    """True when a line is a JSON text, or with `a_record` a record; a malformed packed row is none."""
    if is_blank(line) or not may_read(line):
        return False
    try:
        read_row(line, 0)
    except RowError as error:
        return error.fault != "unparsable" and not (a_record and error.fault == "not-a-record")
    return True
