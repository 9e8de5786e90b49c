"""Sessions as files in dsh's version-0 layout, one file each (4).

A fork copies the bytes of its prefix with the kernel: the format demands that every file is whole. Writers
hold a `flock` on a side file, so that a killed process frees its sessions, and look before each batch
whether the file is the one they left. Readers wait for nobody.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from seedline.errors import (
    ArtifactError,
    LayoutMismatchError,
    NotASessionError,
    SessionExistsError,
    SessionNotFoundError,
    StorageError,
)
from seedline.session import lineage
from seedline.session.header import SessionHeader, SessionLogOffset, from_header_line
from seedline.session.sequence import Events
from seedline.storage import reading
from seedline.storage.base import (
    Capabilities,
    ListedSession,
    Prefix,
    RawArtifact,
    StoredSession,
    StoredSuffix,
    TornTail,
)
from seedline.storage.checks import check_new, check_prefix, check_seq
from seedline.storage.folders import make_folder, sync_folder
from seedline.storage.following import poll
from seedline.storage.jsonl.file import Encoding, LogFile, read_log, upgraded
from seedline.storage.jsonl.frames import MAGIC, read_frames, whole_frames
from seedline.storage.jsonl.places import Found, Places, twice
from seedline.storage.jsonl.scan import Scanner
from seedline.storage.jsonl.suffix import Head, UnsureError, prefix_end, read_head, tail_of, trimmed
from seedline.storage.jsonl.writer import Birth, CopiedPrefix, JsonlWriter, Spelling, Stored, failing
from seedline.storage.lease import Lease

POLL_SECONDS: Final = 0.02
"""How often a follower looks at the file."""
_STABLE_READS: Final = 5
"""How often a log is read again that was written to meanwhile."""


class JsonlBackend:
    """Sessions below the folder `root`, which the first writer creates, mode 0700. See `storage.base`.

    All files of one root have one `encoding`. `pack_chunks` stores runs of stream deltas as one row each;
    readers understand both.
    """

    name = "jsonl"
    capabilities = Capabilities(
        durable=True,
        shares_prefixes=False,
        raw_artifacts=True,
        locates=True,
        reasons={"shares_prefixes": "the format demands that every file holds its whole history"},
    )

    def __init__(
        self, root: str | os.PathLike[str], *, encoding: Encoding = "jsonl", pack_chunks: bool = True
    ) -> None:
        name = os.fspath(root)
        self._root = os.path.abspath(name)
        self._places = Places(self._root, encoding)
        self._spelling = Spelling(encoding, pack_chunks)
        self._writers: set[JsonlWriter] = set()
        self._is_closed = False
        with failing(self._root):
            if os.path.lexists(self._root):
                os.scandir(self._root).close()

    # --- writing -----------------------------------------------------------------------------------

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> JsonlWriter:
        """See `Backend.create`. A prefix longer than its owner's log raises `BatchRefusedError`."""
        check_new(header, inherited_event_count)
        self._refuse_existing(header.id)
        with self._leased(header.id) as lease:
            self._refuse_existing(header.id)
            copied = self._prefix(prefix) if prefix else None
            birth = Birth(header, inherited_event_count, copied)
            return self._writer(
                self._places.path_of(header), lease, header.id, birth, prefix.count if prefix else 0
            )

    def open(self, session_id: str) -> tuple[StoredSession, JsonlWriter]:
        """See `Backend.open`."""
        self._found(session_id)
        with self._leased(session_id) as lease:
            path = self._found(session_id)
            stored, log = self._read(path, session_id)
            state = _stored(path, log, stored)
            try:
                return stored, self._writer(path, lease, session_id, state, len(stored.events))
            except BaseException:
                os.close(state.descriptor)
                raise

    def delete(self, session_id: str) -> None:
        """See `Backend.delete`. The folder of the session goes with all that lies in it."""
        self._found(session_id)
        with self._leased(session_id) as lease:
            path = self._found(session_id)
            folder = os.path.dirname(path)
            with failing(path, session_id):
                os.unlink(path)
                sync_folder(folder)
                shutil.rmtree(folder)
                sync_folder(os.path.dirname(folder))
            lease.release()

    @contextmanager
    def _leased(self, session_id: str) -> Generator[Lease]:
        """Take the lock of a session, given back if the block raises."""
        lock = self._places.lock_of(session_id)
        with failing(lock, session_id):
            make_folder(os.path.dirname(lock))
            lease = Lease.take(lock, session_id)
        try:
            yield lease
        except BaseException:
            lease.release()
            raise

    def _writer(
        self, path: str, lease: Lease, session_id: str, state: Birth | Stored, next_seq: int
    ) -> JsonlWriter:
        writer = JsonlWriter(path, lease, session_id, self._spelling, state, next_seq, self._check_inside)
        self._writers = {known for known in self._writers if not known.is_closed} | {writer}
        return writer

    def _check_inside(self, folder: str) -> None:
        problem = self._places.escape_problem(folder)
        if problem:
            raise problem

    def _refuse_existing(self, session_id: str) -> None:
        try:
            path = self._found(session_id)
        except SessionNotFoundError:
            return
        raise SessionExistsError("a session of this id is stored", place=path, session_id=session_id)

    def _prefix(self, prefix: Prefix) -> CopiedPrefix:
        path = self._found(prefix.owner)
        with failing(path, prefix.owner):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._cut_out(descriptor, path, prefix)
            except BaseException:
                os.close(descriptor)
                raise

    def _cut_out(self, descriptor: int, path: str, prefix: Prefix) -> CopiedPrefix:
        """Say which bytes a prefix is; a log whose rows look unusual is taken as events instead."""
        head = self._head(descriptor, path, prefix.owner)[0]
        try:
            end = prefix_end(descriptor, head.body, os.fstat(descriptor).st_size, prefix.count)
        except UnsureError:
            events = self._read(path, prefix.owner)[1].events
            check_prefix(prefix.count, len(events), prefix.owner)
            return CopiedPrefix(descriptor, head.body, head.body, tuple(events[: prefix.count]))
        check_prefix(prefix.count, end.found, prefix.owner)
        return CopiedPrefix(descriptor, head.body, end.stop, end.rest)

    # --- reading -----------------------------------------------------------------------------------

    def read(self, session_id: str) -> StoredSession:
        """See `Backend.read`. What is torn is decided by 4.6 and 4.7."""
        return self._read(self._found(session_id), session_id)[0]

    def _read(self, path: str, session_id: str) -> tuple[StoredSession, LogFile]:
        revision, log = self._read_stable(path)
        self._check_form(log)
        self._places.check_identity(path, log.header, session_id)
        try:
            lineage.check_cut(len(log.events), log.inherited_event_count)
        except ArtifactError as error:
            raise error.located(path=path, line=1) from None
        events = upgraded(log)
        torn = log.torn
        stored = StoredSession(
            header=log.header,
            inherited_event_count=log.inherited_event_count,
            events=events,
            revision=revision,
            torn=TornTail(len(events), torn.bytes, torn.reason) if torn and torn.bytes else None,
        )
        return stored, log

    def _read_stable(self, path: str) -> tuple[str, LogFile]:
        """Read a file that nobody writes to meanwhile; under a busy writer, what was there."""
        revision = _revision(path)
        for _ in range(_STABLE_READS):
            before, log = revision, read_log(path)
            revision = _revision(path)
            if revision == before:
                break
        return before, log  # pyright: ignore[reportPossiblyUnboundVariable]  # the loop runs

    def _check_form(self, log: LogFile) -> None:
        if log.layout == "projected":
            raise LayoutMismatchError("a store holds complete logs, this one is projected", path=log.path)
        if log.encoding != self._places.encoding:
            reason = f"the name says {self._places.encoding}, the content is {log.encoding}"
            raise LayoutMismatchError(reason, path=log.path)

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """See `Backend.read_from`: some 30 KB before `seq` are read, or a frame.

        The whole log is read where that does not suffice: an old shape, a torn frame, damage.
        """
        check_seq(seq)
        path = self._found(session_id)
        try:
            header, cut, events = self._read_suffix(path, session_id, seq)
        except (UnsureError, ArtifactError, reading.EarlierNeeded):
            whole = self.read(session_id)
            header, cut = whole.header, whole.inherited_event_count
            events = _from(whole.events, seq)
        return StoredSuffix(header=header, inherited_event_count=cut, events=events)

    def _read_suffix(
        self, path: str, session_id: str, seq: int
    ) -> tuple[SessionHeader, SessionLogOffset, Events]:
        if seq == 0:
            raise UnsureError
        with failing(path, session_id), open(path, "rb", buffering=0) as file:
            head, header, cut = self._head(file.fileno(), path, session_id)
            size = os.fstat(file.fileno()).st_size
            tail = trimmed(tail_of(file.fileno(), head.body, size, seq), seq)
        scanner = Scanner.of_suffix(head.line, tail.first_seq)
        scanner.feed(tail.text)
        events = _from(scanner.finish().events, seq)
        return header, cut, reading.upgrade_suffix(events, session_id)

    def _head(
        self, descriptor: int, path: str, session_id: str | None
    ) -> tuple[Head, SessionHeader, SessionLogOffset]:
        """Return the head of an open file, its place checked. Raises an `ArtifactError`."""
        try:
            head = read_head(descriptor)
            if head is None:
                raise NotASessionError("the file holds no whole header line")
            header, cut = from_header_line(head.line)
        except UnsureError:
            read_log(path)
            raise LayoutMismatchError("its first frame is no header", path=path) from None
        except ArtifactError as error:
            raise error.located(path=path) from error.__cause__
        self._places.check_identity(path, header, session_id)
        return head, header, cut

    def revision(self, session_id: str) -> str:
        """See `Backend.revision`: device, inode, size and times of the file (4.8)."""
        return _revision(self._found(session_id))

    def list(self) -> Iterator[ListedSession]:
        """See `Backend.list`. An id that has two files is shown with each of them, as damaged."""
        with failing(self._root):
            self._check_open()
            listed = [one for found in self._places.walk() if (one := self._listed(found))]
        paths: dict[str, list[str]] = defaultdict(list)
        for one in listed:
            if one.session_id is not None:
                paths[one.session_id].append(one.place)
        for one in listed:
            places = paths.get(one.session_id or "", [])
            if len(places) > 1 and one.error is None:
                one = msgspec.structs.replace(one, error=twice(places))  # the same line, marked
            yield one

    def _listed(self, found: Found) -> ListedSession | None:
        """Return the line of one file, None where it is gone."""
        session_id, header, revision, error = None, None, None, found.problem
        if error is None:
            try:
                revision = _revision(found.path)
                with open(found.path, "rb", buffering=0) as file:
                    header = self._head(file.fileno(), found.path, None)[1]
            except (FileNotFoundError, SessionNotFoundError):
                return None
            except ArtifactError as problem:
                error = problem
            except OSError as problem:
                error = ArtifactError(f"cannot be read: {problem.strerror}", path=found.path)
            session_id = header and header.id
        return ListedSession(
            session_id=session_id, header=header, revision=revision, place=found.path, error=error
        )

    # --- following ---------------------------------------------------------------------------------

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        """See `Backend.follow`. Looks at the file every 20 ms."""
        check_seq(seq)
        path = self._found(session_id)
        return poll(
            seq,
            version=lambda: _revision(path),
            read_from=lambda first: self.read_from(session_id, first).events,
            stopped=lambda: stopped() or self._is_closed,
            wait_seconds=wait_seconds,
            poll_seconds=POLL_SECONDS,
        )

    # --- the rest ----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> str | None:
        """Return the path of the file, whether it is there or not. Raises `SessionIdRefusedError`."""
        return self._places.path_of(header)

    def raw(self, session_id: str) -> RawArtifact:
        """See `Backend.raw`. A torn last frame is left out; of a plain file every byte is there."""
        path = self._found(session_id)
        with failing(path, session_id), open(path, "rb") as file:
            _, header, cut = self._head(file.fileno(), path, session_id)
            data = file.read()
        if data.startswith(MAGIC):
            data = b"".join(read_frames(data, whole_frames(data)[0]))
        return RawArtifact(header=header, inherited_event_count=cut, filename="session.jsonl", content=data)

    def close(self) -> None:
        """See `Backend.close`."""
        self._is_closed = True
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def _found(self, session_id: str) -> str:
        self._check_open()
        with failing(self._root, session_id):
            return self._places.find(session_id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError("the store is closed", place=self._root)


def _stored(path: str, log: LogFile, stored: StoredSession) -> Stored:
    """Open the file of a log for appending."""
    torn = log.torn
    with failing(path, log.header.id):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    recovered = tuple(log.events[len(log.events) - log.recovered :]) if log.recovered else ()
    return Stored(
        descriptor,
        log.size,
        lacks_newline=torn is not None and torn.bytes == 0,
        torn=stored.torn,
        torn_at=torn.offset if torn else 0,
        recovered=recovered,
    )


def _from(events: Events, seq: int) -> Events:
    first = events.first_seq
    return events[seq - first :] if first + len(events) > seq else Events((), seq, seq)


def _revision(path: str) -> str:
    try:
        file = os.stat(path)
    except FileNotFoundError:
        raise SessionNotFoundError("there is no such file", path=path) from None
    facts = file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns
    return ":".join(map(str, facts))
