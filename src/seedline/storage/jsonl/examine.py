"""Every line of a log file with its own verdict: where the scan stops at the first damage, this goes on.

`verify` lists from it what is wrong, `repair` decides what a copy can keep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from seedline.errors import (
    ArtifactError,
    ArtifactTooLargeError,
    NotASessionError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import RowError, RowFault, read_row
from seedline.events.event import Event
from seedline.events.packing import PackedRow
from seedline.session.header import START, SessionHeader, SessionLogOffset, from_header_line
from seedline.storage.jsonl.file import (
    Encoding,
    Path,
    TextStarts,
    check_header_frame,
    default_limit,
    open_artifact,
)
from seedline.storage.jsonl.frames import MAGIC, check_size, next_frame, read_frames, recover, scan_frame
from seedline.storage.jsonl.scan import BOM, Layout, is_blank, layout_of, may_read, read_projected_row

MOST_FAULTS: Final = 1000
"""How many neighbouring records with faults stand each by itself; further ones share one record."""

Fault = RowFault | Literal["frame", "cut-off"]
"""What is wrong with a record: its row, its frame, or that whole frames end before it does."""


class Line(NamedTuple):
    """One physical line, or a damaged frame in the place of the lines it held (`damage` says why).

    `offset` and `size` are in bytes of the file; in a compressed one `offset` is the frame's and `size` is
    that of the text. `ended` is false for text after the last line end. `firm` marks text of a whole frame,
    which is never part of a torn tail.
    """

    number: int
    offset: int
    size: int
    text: bytes
    ended: bool
    firm: bool = False
    damage: str | None = None


class Record(NamedTuple):
    """A line of the body that is not blank, with its row or its fault. `seq` is what it claims to be."""

    line: Line
    row: Event | PackedRow | None
    fault: Fault | None = None
    reason: str = ""
    seq: int | None = None

    @property
    def reads(self) -> bool:
        """True when the line is a JSON text, right or wrong; without its end only when it is an object."""
        if self.fault == "not-a-record":
            return self.line.ended
        return self.row is not None or self.fault == "envelope"

    @property
    def events(self) -> int:
        """How many events it holds."""
        return self.row.count if isinstance(self.row, PackedRow) else int(self.row is not None)


class Examination(NamedTuple):
    """A file whose header line reads. `header` is None where `header_problem` says which field is wrong.

    The last `tail` of the records are a torn tail, which begins at byte `torn_at` of the file's `size` bytes;
    `torn_at` is None where the file ends cleanly.
    """

    path: str
    encoding: Encoding
    size: int
    layout: Layout
    header_line: bytes
    header: SessionHeader | None
    inherited_event_count: SessionLogOffset
    header_problem: ArtifactError | None
    records: list[Record]
    tail: int
    torn_at: int | None


def examine(path: Path, *, limit: int | None = None) -> Examination:
    """Judge every line of a file; `limit` is that of `read_log`.

    Raises an `ArtifactError` when its header line does not read.
    """
    name = os.fspath(path)
    try:
        with open_artifact(name) as file:
            data = file.read()
        return _examine(name, data, limit)
    except ArtifactError as error:
        raise error.located(path=name) from error.__cause__
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", path=name) from error


def _examine(path: str, data: bytes, limit: int | None) -> Examination:
    encoding: Encoding = "zstd" if data.startswith(MAGIC) else "jsonl"
    torn_at = None
    if encoding == "zstd":
        parts = _parts(data, default_limit(len(data)) if limit is None else limit)
        lines = _part_lines(parts)
        torn_at = parts[-1].start if parts[-1].torn else None
    else:
        if limit is not None and len(data) > limit:
            raise ArtifactTooLargeError(f"the log holds more than {limit} bytes of text")
        lines = _text_lines(data, 1)
    first = _first_line(lines)
    records, layout = _records(lines)
    header, cut, problem = _read_header(first, layout)
    tail = _torn_tail(records)
    if tail and torn_at is None:
        torn_at = records[-tail].line.offset
    return Examination(
        path, encoding, len(data), layout, first.text, header, cut, problem, records, tail, torn_at
    )


def _first_line(lines: Iterator[Line]) -> Line:
    for line in lines:
        text = line.text.removeprefix(BOM) if line.number == 1 else line.text
        if not line.ended:
            raise NotASessionError("the first line has no end", line=line.number)
        if not is_blank(text):
            return line._replace(text=text)
    raise NotASessionError("the file holds no header line")


def _read_header(
    line: Line, layout: Layout
) -> tuple[SessionHeader | None, SessionLogOffset, ArtifactError | None]:
    # A foreign format is refused before anything else.
    try:
        header, cut = from_header_line(line.text, projected=True)
        if layout == "complete" and line.number > 1:
            raise NotASessionError("line 1 is blank")
        if layout == "complete":
            header, cut = from_header_line(line.text)
    except SessionPersistenceCorruptionError as error:
        return None, START, error.located(line=line.number)
    return header, cut, None


# --- lines -----------------------------------------------------------------------------------------


_BLANK_LINES = re.compile(rb"[ \t\r\n]*\n")


def _text_lines(text: bytes, number: int) -> Iterator[Line]:
    """Yield the lines of a text that are not blank, the first line being number `number`."""
    at = 0
    while at < len(text):
        blank = _BLANK_LINES.match(text, at)
        if blank:
            number += text.count(b"\n", at, blank.end())
            at = blank.end()
            continue
        end = text.find(b"\n", at)
        stop = len(text) if end < 0 else end
        line = text[at:stop]
        yield Line(number, at, len(line) + (end >= 0), line.removesuffix(b"\r"), end >= 0)
        at = stop + 1
        number += 1


class _Part(NamedTuple):
    """A stretch of a compressed file: one frame and its text, or bytes that are none and why."""

    start: int
    stop: int
    text: bytes
    torn: bool = False
    damage: str | None = None


def _parts(data: bytes, limit: int) -> list[_Part]:
    check_header_frame(data, limit)
    parts: list[_Part] = []
    at = 0
    while at < len(data):
        part = _part(data, at, limit)
        limit -= len(part.text)
        parts.append(part)
        at = part.stop
    return parts


def _part(data: bytes, at: int, limit: int) -> _Part:
    frame = None
    try:
        frame = scan_frame(data, at)
        if frame:
            check_size(data, [frame], limit)
            return _Part(at, frame.stop, b"".join(read_frames(data, [frame])))
        reason = "the frame runs past the end of the file, yet whole frames follow it"
    except SessionPersistenceCorruptionError as error:
        if frame:
            return _Part(at, frame.stop, b"", damage=error.reason)
        reason = error.reason
        after = next_frame(data, at + 1)
        return _Part(at, after.start if after else len(data), b"", damage=reason)
    after = next_frame(data, at + 1)
    if after:
        return _Part(at, after.start, b"", damage=reason)
    return _Part(at, len(data), b"".join(recover(data, at, limit)), torn=True)


def _part_lines(parts: list[_Part]) -> Iterator[Line]:
    """Yield the lines of neighbouring whole frames as one text, those of a torn frame apart."""
    number = 1
    whole: list[_Part] = []
    for part in [*parts, None]:
        if part and not part.damage and not part.torn:
            whole.append(part)
            continue
        yield from _stretch_lines(whole, number)
        number += sum(frame.text.count(b"\n") for frame in whole)
        whole = []
        if part and part.damage:
            yield Line(
                number, part.start, part.stop - part.start, b"", ended=True, firm=True, damage=part.damage
            )
        elif part:
            yield from _stretch_lines([part], number)


def _stretch_lines(parts: list[_Part], number: int) -> Iterator[Line]:
    starts = TextStarts()
    for part in parts:
        starts.begin(part.start)
        starts.length += len(part.text)
    for line in _text_lines(b"".join(part.text for part in parts), number):
        yield line._replace(offset=starts.locate(line.offset), firm=not parts[-1].torn)


# --- records ---------------------------------------------------------------------------------------


def _records(lines: Iterator[Line]) -> tuple[list[Record], Layout]:
    """Return the records of the body and its layout, which the first row that reads decides."""
    records: list[Record] = []
    layout: Layout = "header-only"
    count = faults = 0
    for line in lines:
        if faults > MOST_FAULTS and _joins(records[-1], line):
            records.append(_joined(records.pop(), line))
            continue
        if layout == "header-only" and line.damage is None:
            layout = layout_of(line.text) or layout
        record = _record(line, layout, count)
        if record.row:
            count = record.row.seq + record.events
        faults = 0 if record.reads else faults + 1
        records.append(record)
    return records, layout


def _joins(before: Record, line: Line) -> bool:
    """True for a hopeless line after one that does not read either."""
    alike = before.fault == "unparsable" and before.line.firm == line.firm and line.damage is None
    return alike and line.ended and not may_read(line.text)


def _joined(before: Record, line: Line) -> Record:
    """Return one record for an unparsable line and the unparsable ones before it."""
    first = before.line
    size = first.size + line.size
    whole = Line(first.number, first.offset, size, b"", ended=True, firm=line.firm)
    return Record(whole, None, "unparsable", "no line from here to the next record does")


def _record(line: Line, layout: Layout, count: int) -> Record:
    if line.damage is not None:
        return Record(line, None, "frame", line.damage)
    if line.firm and not line.ended:
        return Record(line, None, "cut-off", "a whole frame ends inside this record")
    try:
        row = read_projected_row(line.text, count) if layout == "projected" else read_row(line.text)
    except RowError as error:
        return Record(line, None, error.fault, error.reason, error.seq)
    return Record(line, row, seq=row.seq)


def _torn_tail(records: list[Record]) -> int:
    """Return how many of the last records are a torn tail: nothing among them reads."""
    count = 0
    for record in reversed(records):
        if record.reads or record.line.firm:
            break
        count += 1
    return count
