"""The right to append to one session file (4.8)."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from seedline.errors import BatchRefusedError, StaleWriterError, StorageError
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.events.packing import pack
from seedline.session.header import SessionHeader, SessionLogOffset, to_header_line
from seedline.storage.base import TornTail
from seedline.storage.checks import check_batch
from seedline.storage.folders import make_folder, sync_folder
from seedline.storage.jsonl.file import Encoding, frame_texts
from seedline.storage.jsonl.frames import compress_frame
from seedline.storage.lease import Lease

_PIECE: Final = 1 << 20


class Spelling(NamedTuple):
    """How events become bytes of a file."""

    encoding: Encoding
    pack_chunks: bool

    def header(self, header: SessionHeader, cut: SessionLogOffset) -> bytes:
        """Return the header line; compressed, it has a frame of its own."""
        return self._encoded(to_header_line(header, cut) + b"\n")

    def batch(self, events: Sequence[Event]) -> bytes:
        """Return a batch as whole lines. Packed runs never span two batches.

        Raises `BatchRefusedError` for a payload of several lines: a line of the log is a record.
        """
        rows = pack(events, _line) if self.pack_chunks else map(_line, events)
        return b"".join(map(self._encoded, frame_texts(rows)))

    def _encoded(self, text: bytes) -> bytes:
        return compress_frame(text) if self.encoding == "zstd" else text


def _line(event: Event) -> bytes:
    line = encode_event(event)
    if b"\n" in line:
        raise BatchRefusedError(f"the payload of seq {event.seq} has a line end between its tokens")
    return line


class CopiedPrefix(NamedTuple):
    """Bytes [start, stop) of the open file `descriptor`, then `rest`: what a fork begins with."""

    descriptor: int
    start: int
    stop: int
    rest: tuple[Event, ...]


class Birth(NamedTuple):
    """What the first batch of a session stores along with itself."""

    header: SessionHeader
    cut: SessionLogOffset
    prefix: CopiedPrefix | None


class Stored(NamedTuple):
    """An open session file, and what this writer knows of it.

    Its first `size` bytes are the log. `lacks_newline`: the last record has no line end yet. `torn` lies at
    the offset `torn_at`; the `recovered` events were read from it and are stored again.
    """

    descriptor: int
    size: int
    lacks_newline: bool = False
    torn: TornTail | None = None
    torn_at: int = 0
    recovered: tuple[Event, ...] = ()


class JsonlWriter:
    """See `storage.base.Writer`. A failed write is rolled back; where that fails too, before the next one."""

    def __init__(
        self,
        path: str,
        lease: Lease,
        session_id: str,
        spelling: Spelling,
        state: Birth | Stored,
        next_seq: int,
        check_place: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._lease = lease
        self._session_id = session_id
        self._spelling = spelling
        self._state = state
        self._next_seq = next_seq
        self._check_place = check_place
        self._is_unsettled = False
        self.is_closed = False

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def next_seq(self) -> int:
        """The seq that the next append begins with."""
        return self._next_seq

    def append(self, events: Sequence[Event]) -> None:
        """See `Writer.append`. A torn tail that was not repaired is cut before the first batch."""
        if events:
            self._write(tuple(events))

    def repair(self, closers: Sequence[Event]) -> TornTail | None:
        """See `Writer.repair`. The cut bytes lie in `session.jsonl.torn-<offset>` afterwards."""
        torn = isinstance(self._state, Stored) and self._state.torn
        return self._write(tuple(closers)) if closers or torn else None

    def _write(self, batch: tuple[Event, ...]) -> TornTail | None:
        if self.is_closed:
            raise self._stale("this writer is closed")
        check_batch(batch, self._next_seq, self._session_id)
        cut = None
        with failing(self._path, self._session_id):
            if isinstance(self._state, Birth):
                self._state = self._publish(self._state, batch)
            else:
                cut = self._cut()
                self._extend(batch)
        self._next_seq += len(batch)
        return cut

    # --- the first batch ---------------------------------------------------------------------------

    def _publish(self, birth: Birth, batch: tuple[Event, ...]) -> Stored:
        """Write a file under another name, then link it to its own, which fails where one is."""
        folder = os.path.dirname(self._path)
        make_folder(folder)
        self._check_place(folder)
        self._check_lease()
        _remove_leftovers(self._path)
        scratch = f"{self._path}.{secrets.token_hex(8)}.tmp"
        descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = self._fill(descriptor, birth, batch)
            self._link(scratch, folder)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            with suppress(OSError):
                os.unlink(scratch)
        if birth.prefix:
            os.close(birth.prefix.descriptor)
        return Stored(descriptor, size)

    def _fill(self, descriptor: int, birth: Birth, batch: tuple[Event, ...]) -> int:
        write_all(descriptor, self._spelling.header(birth.header, birth.cut))
        rest: tuple[Event, ...] = ()
        if birth.prefix:
            _copy(birth.prefix, descriptor)
            rest = birth.prefix.rest
        write_all(descriptor, self._spelling.batch(rest + batch))
        os.fsync(descriptor)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
        return os.fstat(descriptor).st_size

    def _link(self, scratch: str, folder: str) -> None:
        self._check_lease()
        try:
            os.link(scratch, self._path, follow_symlinks=False)
        except FileExistsError:
            raise self._stale("another writer has stored a session of this id") from None
        try:
            sync_folder(folder)
        except BaseException:
            os.unlink(self._path)
            raise

    # --- every other batch -------------------------------------------------------------------------

    def _extend(self, batch: tuple[Event, ...]) -> None:
        state = self._fenced()
        text = (b"\n" if state.lacks_newline else b"") + self._spelling.batch(state.recovered + batch)
        try:
            write_all(state.descriptor, text)
            sync_data(state.descriptor)
        except BaseException as error:
            self._roll_back(state, error)
            raise
        self._state = Stored(state.descriptor, state.size + len(text))

    def _roll_back(self, state: Stored, error: BaseException) -> None:
        self._is_unsettled = True
        try:
            self._settle(state)
        except OSError as second:
            reason = f"{error}; taking the batch back failed, too: {second}"
            raise StorageError(reason, place=self._path, session_id=self._session_id) from error

    def _settle(self, state: Stored) -> None:
        os.ftruncate(state.descriptor, state.size)
        os.fsync(state.descriptor)
        self._is_unsettled = False

    def _fenced(self) -> Stored:
        """Prove that nobody took the session over, or wrote behind this writer."""
        self._check_lease()
        state = self._state
        assert isinstance(state, Stored)
        file = os.fstat(state.descriptor)
        try:
            is_ours = os.path.samestat(file, os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise self._stale("its file was replaced or removed")
        if self._is_unsettled:
            self._settle(state)
        elif file.st_size != state.size:
            reason = f"the file has {file.st_size} bytes where this writer left {state.size}"
            raise self._stale(reason)
        return state

    def _cut(self) -> TornTail | None:
        """Save the bytes of a torn tail beside the log, then cut them off."""
        state = self._state
        assert isinstance(state, Stored)
        if state.torn is None:
            return None
        self._fenced()
        kept_at = _save(self._path, state)
        os.ftruncate(state.descriptor, state.torn_at)
        os.fsync(state.descriptor)
        self._state = Stored(state.descriptor, state.torn_at, recovered=state.recovered)
        return msgspec.structs.replace(state.torn, kept_at=kept_at)

    def _check_lease(self) -> None:
        if not self._lease.is_held():
            raise self._stale(
                "its lock was taken away, or belongs to the process that this one was forked from"
            )

    def _stale(self, reason: str) -> StaleWriterError:
        return StaleWriterError(reason, place=self._path, session_id=self._session_id)

    def close(self) -> None:
        """See `Writer.close`."""
        if self.is_closed:
            return
        self.is_closed = True
        state = self._state
        prefix = state.prefix if isinstance(state, Birth) else None
        if isinstance(state, Stored):
            os.close(state.descriptor)
        elif prefix:
            os.close(prefix.descriptor)
        self._lease.release()


# --- files -----------------------------------------------------------------------------------------


@contextmanager
def failing(path: str, session_id: str | None = None) -> Generator[None]:
    """Raise the errors of the file system as `StorageError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(reason, place=error.filename or path, session_id=session_id) from error


def write_all(descriptor: int, text: bytes) -> None:
    """Write every byte; the kernel may take fewer at a time."""
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_data(descriptor: int) -> None:
    """Put a file's bytes and size on the medium."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _copy(prefix: CopiedPrefix, target: int) -> None:
    at = prefix.start
    while at < prefix.stop:
        copied = _copy_some(prefix.descriptor, target, at, prefix.stop - at)
        if not copied:
            raise OSError(0, "the log that the prefix is taken from became shorter")
        at += copied


def _copy_some(source: int, target: int, offset: int, size: int) -> int:
    # Only Linux copies inside the kernel, and not between all file systems.
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):
            return os.copy_file_range(source, target, size, offset)
    data = os.pread(source, min(size, _PIECE), offset)
    write_all(target, data)
    return len(data)


def _remove_leftovers(path: str) -> None:
    """Remove what a writer that was killed before its first batch was stored left behind."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder):
        if entry.startswith(f"{name}.") and entry.endswith(".tmp"):
            os.unlink(os.path.join(folder, entry))


def _save(path: str, state: Stored) -> str:
    """Keep the bytes of a torn tail; return where. Nothing that was kept before is overwritten."""
    data = os.pread(state.descriptor, state.size - state.torn_at, state.torn_at)
    name = f"{path}.torn-{state.torn_at}"
    number = 1
    while True:
        place = name if number == 1 else f"{name}.{number}"
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        except BaseException:
            os.unlink(place)
            raise
        finally:
            os.close(descriptor)
        sync_folder(os.path.dirname(place))
        return place
