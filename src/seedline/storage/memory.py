"""Sessions in the memory of this process: the reference of what `storage.base` promises."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from threading import RLock

from seedline.errors import (
    ArtifactError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    StaleWriterError,
    UnsupportedOperationError,
)
from seedline.events.event import Event
from seedline.session import lineage
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events, Segment
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
from seedline.storage.checks import check_batch, check_new, check_prefix, check_seq
from seedline.storage.following import poll

PLACE = "memory:"
_POLL_SECONDS = 0.01


class _Log:
    """A session: the prefix it shares, and the rows it grows."""

    def __init__(self, header: SessionHeader, cut: SessionLogOffset, prefix: Events, revision: int) -> None:
        self.header = header
        self.cut = cut
        self.revision = revision
        self._own = Segment(len(prefix))
        self._parts = (*prefix.segments, self._own)

    def __len__(self) -> int:
        return self._own.base + self._own.length

    @property
    def events(self) -> Events:
        return Events(self._parts, 0, len(self))

    def extend(self, events: Sequence[Event], revision: int) -> None:
        self._own.extend_single(events)
        self.revision = revision


class MemoryWriter:
    """See `storage.base.Writer`."""

    def __init__(self, backend: MemoryBackend, session_id: str, born: _Log | None, next_seq: int) -> None:
        self._backend = backend
        self._session_id = session_id
        self._born = born
        self._next_seq = next_seq

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def next_seq(self) -> int:
        return self._next_seq

    def append(self, events: Sequence[Event]) -> None:
        """See `Writer.append`."""
        batch = tuple(events)
        if not batch:
            return
        self._backend.store(self, batch, self._born)
        self._born = None
        self._next_seq += len(batch)

    def repair(self, closers: Sequence[Event]) -> TornTail | None:
        """See `Writer.repair`; memory tears nothing, so None."""
        self.append(closers)
        return None

    def close(self) -> None:
        """See `Writer.close`."""
        self._backend.release(self)


class MemoryBackend:
    """See `storage.base.Backend`. `leases` says which writer has which session."""

    name = "memory"
    capabilities = Capabilities(
        durable=False,
        shares_prefixes=True,
        raw_artifacts=False,
        locates=False,
        reasons={
            "durable": "sessions live as long as the process",
            "raw_artifacts": "events are objects, there is no text of a session",
            "locates": "no other program can open this process's memory",
        },
    )

    def __init__(self) -> None:
        self.leases: dict[str, MemoryWriter] = {}
        self._logs: dict[str, _Log] = {}
        self._revisions = count(1)
        self._lock = RLock()

    # --- writing -----------------------------------------------------------------------------------

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> MemoryWriter:
        """See `Backend.create`. Raises `BatchRefusedError` for a prefix longer than its owner's log."""
        check_new(header, inherited_event_count)
        with self._lock:
            if header.id in self._logs:
                reason = "a session of this id is stored"
                raise SessionExistsError(reason, place=PLACE, session_id=header.id)
            shared = Events((), 0, 0)
            if prefix is not None:
                stored = self.read(prefix.owner).events
                check_prefix(prefix.count, len(stored), prefix.owner)
                shared = stored[: prefix.count]
            born = _Log(header, inherited_event_count, shared, 0)
            return self._lease(header.id, born, len(shared))

    def open(self, session_id: str) -> tuple[StoredSession, MemoryWriter]:
        """See `Backend.open`."""
        with self._lock:
            stored = self.read(session_id)
            return stored, self._lease(session_id, None, len(stored.events))

    def _lease(self, session_id: str, born: _Log | None, next_seq: int) -> MemoryWriter:
        self._refuse_busy(session_id)
        writer = self.leases[session_id] = MemoryWriter(self, session_id, born, next_seq)
        return writer

    def _refuse_busy(self, session_id: str) -> None:
        if session_id in self.leases:
            reason = f"process {os.getpid()}, this one, is writing it"
            raise SessionBusyError(reason, place=PLACE, session_id=session_id)

    def store(self, writer: MemoryWriter, batch: tuple[Event, ...], born: _Log | None) -> None:
        """Add a writer's batch, the first one with the session. Raises what `Writer.append` raises."""
        with self._lock:
            if self.leases.get(writer.session_id) is not writer:
                reason = "this writer was closed, or another one has the session"
                raise StaleWriterError(reason, place=PLACE, session_id=writer.session_id)
            check_batch(batch, writer.next_seq, writer.session_id)
            if born is not None:
                self._logs[writer.session_id] = born
            self._logs[writer.session_id].extend(batch, next(self._revisions))

    def release(self, writer: MemoryWriter) -> None:
        """Take a writer's session back."""
        with self._lock:
            if self.leases.get(writer.session_id) is writer:
                del self.leases[writer.session_id]

    def delete(self, session_id: str) -> None:
        """See `Backend.delete`."""
        with self._lock:
            self._log(session_id)
            self._refuse_busy(session_id)
            del self._logs[session_id]

    # --- reading -----------------------------------------------------------------------------------

    def read(self, session_id: str) -> StoredSession:
        """See `Backend.read`."""
        with self._lock:
            log = self._log(session_id)
            events, revision = log.events, str(log.revision)
        try:
            lineage.check_cut(len(events), log.cut)
            events = reading.checked(events, session_id)
        except ArtifactError as error:
            raise error.located(path=f"{PLACE}{session_id}") from error.__cause__
        return StoredSession(
            header=log.header, inherited_event_count=log.cut, events=events, revision=revision
        )

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """See `Backend.read_from`."""
        check_seq(seq)
        with self._lock:
            log = self._log(session_id)
            events = log.events
        try:
            events = reading.checked_suffix(_from(events, seq), session_id)
        except reading.EarlierNeeded:
            events = _from(self.read(session_id).events, seq)
        except ArtifactError as error:
            raise error.located(path=f"{PLACE}{session_id}") from error.__cause__
        return StoredSuffix(header=log.header, inherited_event_count=log.cut, events=events)

    def revision(self, session_id: str) -> str:
        """See `Backend.revision`."""
        with self._lock:
            return str(self._log(session_id).revision)

    def list(self) -> Iterator[ListedSession]:
        """See `Backend.list`."""
        with self._lock:
            logs = [(session_id, log.header, str(log.revision)) for session_id, log in self._logs.items()]
        for session_id, header, revision in logs:
            yield ListedSession(
                session_id=session_id, header=header, revision=revision, place=f"{PLACE}{session_id}"
            )

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        """See `Backend.follow`."""
        check_seq(seq)
        self.revision(session_id)
        return poll(
            seq,
            version=lambda: self.revision(session_id),
            read_from=lambda first: self.read_from(session_id, first).events,
            stopped=stopped,
            wait_seconds=wait_seconds,
            poll_seconds=_POLL_SECONDS,
        )

    # --- the rest ----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> str | None:
        """Return None: see `capabilities`."""
        return None

    def raw(self, session_id: str) -> RawArtifact:
        """Raises `UnsupportedOperationError`: see `capabilities`."""
        reason = self.capabilities.reasons["raw_artifacts"]
        raise UnsupportedOperationError(reason, place=PLACE, session_id=session_id)

    def close(self) -> None:
        """See `Backend.close`. The sessions stay until the backend itself is gone."""
        with self._lock:
            self.leases.clear()

    def _log(self, session_id: str) -> _Log:
        log = self._logs.get(session_id)
        if log is None:
            raise SessionNotFoundError("no session of this id is stored", path=f"{PLACE}{session_id}")
        return log


def _from(events: Events, seq: int) -> Events:
    return events[seq:] if seq < len(events) else Events((), seq, seq)
