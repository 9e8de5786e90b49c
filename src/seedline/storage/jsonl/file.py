"""A session log as one file: a path in, a log out; a log out to a path (dsh format version 0, section 4).

Reading never writes, and takes any of the layouts and encodings; which one a file has is decided by its
content, never by its name. Folders, locks and durability belong to the backend.
"""

from __future__ import annotations

import gc
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, BinaryIO, Final, Literal, cast

import msgspec

from seedline.errors import (
    ArtifactError,
    ArtifactTooLargeError,
    IdentityMismatchError,
    NotASessionError,
    OutputRefusedError,
    SessionIdRefusedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import encode_event, join_members, project_row, raw_members, read_header_line
from seedline.events.event import Event
from seedline.events.packing import PackedRow, pack
from seedline.ids import encode_segment, project_key
from seedline.jsonvalue import decode
from seedline.session import lineage
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage import reading
from seedline.storage.jsonl.frames import (
    MAGIC,
    check_size,
    compress_frame,
    default_limit,
    next_frame,
    read_frames,
    recover,
    scan_frame,
    whole_frames,
)
from seedline.storage.jsonl.scan import BOM, Layout, Scan, Scanner

Encoding = Literal["jsonl", "zstd"]
Path = str | os.PathLike[str]
FILE_NAMES: Final[dict[Encoding, str]] = {"jsonl": "session.jsonl", "zstd": "session.jsonl.zstd"}
READ_SIZE: Final = 1 << 18
FRAME_SIZE: Final = 1 << 16
"""Plaintext bytes from which a frame of a batch is closed."""


class Torn(msgspec.Struct, frozen=True):
    """What a crash left at the end of a file: `bytes` bytes from byte `offset` of the file on.

    `reason` is `unparsable`, `torn-frame`, or `missing-newline` for a whole last record, kept (0 bytes).
    """

    offset: int
    bytes: int
    reason: str


class LogFile(msgspec.Struct, frozen=True):
    """A log as its file holds it: events as stored, before old shapes are upgraded.

    `header_line` is the text of the header, without line end. `size` is the file's size in bytes.
    `row_text` gives the original text of an event that has a row of its own, without line end; a projected
    log's lacks seq and time. The last `recovered` events come from the torn last frame of a zstd file.
    """

    path: str
    encoding: Encoding
    layout: Layout
    header_line: bytes
    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events
    torn: Torn | None
    size: int
    row_text: Callable[[Event], bytes]
    recovered: int = 0


# --- reading ---------------------------------------------------------------------------------------


def read_log(path: Path, *, limit: int | None = None) -> LogFile:
    """Return the log of a file; nothing on disk changes.

    `limit` bounds the text in bytes; by default only that of a compressed file is bounded, to 32 MiB plus a
    hundred times its size. In a complete log the cut must lie within the events.
    Raises an `ArtifactError` that names path, line, offset and seq where they apply.
    """
    name = os.fspath(path)
    try:
        with collector_off(), open_artifact(name) as file:
            head = file.read(READ_SIZE)
            if head.startswith(MAGIC):
                return _read_zstd(name, head + file.read(), limit)
            return _read_plain(name, head, file, limit)
    except ArtifactError as error:
        raise error.located(path=name) from error.__cause__
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", path=name) from error


@contextmanager
def collector_off() -> Generator[None]:
    """Switch the cyclic garbage collector off: it would walk every row loaded so far, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_artifact(path: str) -> BinaryIO:
    """Open a file for reading. Raises `SessionNotFoundError`, `NotASessionError` or `OSError`."""
    try:
        # A pipe or a device would block or never end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise NotASessionError("not a regular file")
        return open(path, "rb", buffering=0)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise SessionNotFoundError("there is no such file") from error


def _read_plain(path: str, block: bytes, file: BinaryIO, limit: int | None) -> LogFile:
    scanner = Scanner()
    size = 0
    while block:
        size += len(block)
        if limit is not None and size > limit:
            raise ArtifactTooLargeError(f"the log holds more than {limit} bytes of text")
        scanner.feed(block)
        block = file.read(READ_SIZE)
    scan = scanner.finish()
    torn = scan.torn and Torn(scan.torn.offset, size - scan.torn.offset, scan.torn.reason)
    return _log_file(path, "jsonl", scan, torn, size)


def _read_zstd(path: str, data: bytes, limit: int | None) -> LogFile:
    limit = default_limit(len(data)) if limit is None else limit
    check_header_frame(data, limit)
    frames, end = whole_frames(data)
    check_size(data, frames, limit)
    starts = TextStarts()
    scanner = Scanner(starts.locate)
    for frame in frames:
        starts.begin(frame.start)
        for piece in read_frames(data, [frame]):
            scanner.feed(piece)
            starts.length += len(piece)
    scanner.settle()
    whole = scanner.count
    torn = None
    if end < len(data):
        _refuse_hidden_frames(data, end)
        torn = Torn(end, len(data) - end, "torn-frame")
        starts.begin(end)
        for piece in recover(data, end, limit - starts.length):
            scanner.feed(piece)
    scan = scanner.finish()
    return _log_file(path, "zstd", scan, torn, len(data), recovered=len(scan.events) - whole)


def _refuse_hidden_frames(data: bytes, torn_start: int) -> None:
    """Raise if whole frames lie in what looks like a torn last frame: then its length is damaged."""
    frame = next_frame(data, torn_start + 1)
    if frame:
        raise SessionPersistenceCorruptionError(
            f"the frame runs past the end of the file, yet a whole frame begins at byte {frame.start}",
            offset=torn_start,
        )


class TextStarts:
    """Where each frame's text begins, to name the frame of a line. `length` counts the text so far."""

    def __init__(self) -> None:
        self.length = 0
        self._texts: list[int] = []
        self._files: list[int] = []

    def begin(self, offset: int) -> None:
        """Say that the frame at this offset of the file comes next."""
        self._texts.append(self.length)
        self._files.append(offset)

    def locate(self, offset: int) -> int:
        """Return the file offset of the frame that holds an offset of the text."""
        return self._files[bisect_right(self._texts, offset) - 1]


def check_header_frame(data: bytes, limit: int) -> None:
    """Raise unless frame 1 holds exactly one line, a header; a foreign format is refused first."""
    first = scan_frame(data, 0)
    if first is None:
        raise NotASessionError("the file holds no whole frame, so no header")
    check_size(data, [first], limit)
    text = b"".join(read_frames(data, [first]))
    line, newline, rest = text.partition(b"\n")
    read_header_line(line.removeprefix(BOM), projected=True)
    if not newline or rest:
        what = "more than the header line" if newline else "no whole header line"
        raise SessionPersistenceCorruptionError(f"the first frame holds {what}", line=1, offset=0)


def _log_file(
    path: str, encoding: Encoding, scan: Scan, torn: Torn | None, size: int, recovered: int = 0
) -> LogFile:
    if scan.layout == "complete":
        try:
            lineage.check_cut(len(scan.events), scan.inherited_event_count)
        except SessionPersistenceCorruptionError as error:
            raise error.located(line=1) from None
    return LogFile(
        path,
        encoding,
        scan.layout,
        scan.header_line,
        scan.header,
        scan.inherited_event_count,
        scan.events,
        torn,
        size,
        scan.row_text,
        recovered,
    )


def upgraded(log: LogFile) -> Events:
    """Return the events in the current form, old shapes upgraded; rows that have it are shared.

    Raises `SessionPersistenceCorruptionError` naming path and seq.
    """
    try:
        return reading.upgrade(log.events, log.header.id)
    except SessionPersistenceCorruptionError as error:
        raise error.located(path=log.path) from error.__cause__


def check_identity(path: Path, header: SessionHeader) -> None:
    """Raise `IdentityMismatchError` if a file lies in a store's folder of another session.

    Only a file named like a log, two levels below a folder that is named like a project key, lies in one.
    """
    name = os.fspath(path)
    folder, file_name = os.path.split(os.path.abspath(name))
    project, segment = os.path.split(folder)
    root, key = os.path.split(project)
    if file_name not in FILE_NAMES.values() or not _is_project_key(key):
        return
    try:
        expected = os.path.join(root, project_key(header.cwd), encode_segment(header.id))
    except SessionIdRefusedError as error:
        raise IdentityMismatchError(
            f"no session folder can belong to its header: {error}", path=name
        ) from None
    if expected != folder and not _same(os.path.join(expected, file_name), name):
        reason = f"the folder is {os.path.join(key, segment)!r}, the header belongs in "
        raise IdentityMismatchError(f"{reason}{os.path.relpath(expected, root)!r}", path=name)


def _is_project_key(name: str) -> bool:
    return name == project_key(None) or (len(name) > 4 and name.startswith("--") and name.endswith("--"))


def _same(expected: str, path: str) -> bool:
    try:
        return os.path.samefile(expected, path)
    except (OSError, ValueError):
        return False


# --- writing ---------------------------------------------------------------------------------------


def write_log(
    path: Path,
    header_line: bytes,
    events: Events,
    *,
    layout: Literal["complete", "projected"],
    packed: bool,
    encoding: Encoding,
    row_text: Callable[[Event], bytes] = encode_event,
) -> None:
    """Write a whole log as one batch to a file that does not exist yet, mode 0600.

    The header line is carried as it stands; for a complete log a missing `version` or `delegationDepth` is
    added as 0. Packed runs are found over the whole log. A row that is written alone gets the text
    `row_text` gives, with seq and time added for a complete log; a projected row never has them.
    Raises `OutputRefusedError`; no file is left behind then.
    """

    def complete(event: Event) -> bytes:
        return _complete_row(event, row_text(event))

    text = row_text if layout == "projected" else complete
    rows = pack(events, text) if packed else _single_rows(events, text)
    if layout == "projected":
        rows = map(project_row, rows)
    else:
        header_line = _complete_header(header_line)
    write_rows(path, header_line, rows, encoding)


def _single_rows(events: Events, text: Callable[[Event], bytes]) -> Iterator[bytes]:
    for row in events.rows():
        if isinstance(row, PackedRow):
            yield from map(encode_event, row.expand())
        else:
            yield row if isinstance(row, bytes) else text(row)


def _complete_row(event: Event, line: bytes) -> bytes:
    """Return a row with its seq and time, in the order of a live append if it lacked them."""
    members = raw_members(line)
    if members.keys() >= {"seq", "time"}:
        return line
    head = {"type": members["type"], "seq": b"%d" % event.seq, "time": b"%d" % event.time}
    return join_members({**head, "data": members["data"], **members})


def _complete_header(line: bytes) -> bytes:
    """Add what a complete log's header needs at its end, the rest of the text untouched."""
    members = cast("dict[str, Any]", decode(line))
    missing = [name for name in ("version", "delegationDepth") if name not in members]
    end = line.rindex(b"}")
    return line[:end] + b"".join(b',"%b":0' % name.encode() for name in missing) + line[end:]


def write_rows(path: Path, header_line: bytes, rows: Iterable[bytes], encoding: Encoding) -> None:
    """Write a header line and rows, all without line end, to a new file. Raises `OutputRefusedError`."""
    name = os.fspath(path)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError) as error:
        raise OutputRefusedError(name, _write_problem(error)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            for text in chain((header_line + b"\n",), frame_texts(rows)):
                file.write(compress_frame(text) if encoding == "zstd" else text)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise OutputRefusedError(name, _write_problem(error)) from error
        raise


def _write_problem(error: OSError | ValueError) -> str:
    if isinstance(error, FileExistsError):
        return "the file exists"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def frame_texts(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield rows in texts of about a frame's size, each of whole lines."""
    batch: list[bytes] = []
    size = 0
    for row in rows:
        batch += (row, b"\n")
        size += len(row) + 1
        if size >= FRAME_SIZE:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)
