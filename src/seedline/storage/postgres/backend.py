"""The store: sessions in one schema of a PostgreSQL database."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg

from seedline.errors import (
    ArtifactError,
    SessionExistsError,
    SessionIdRefusedError,
    SessionNotFoundError,
    StorageError,
    UnsupportedOperationError,
)
from seedline.ids import encode_segment
from seedline.session import lineage
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage import reading
from seedline.storage.base import (
    Capabilities,
    ListedSession,
    Prefix,
    RawArtifact,
    StoredSession,
    StoredSuffix,
)
from seedline.storage.checks import check_new, check_prefix, check_seq
from seedline.storage.postgres import sessions
from seedline.storage.postgres.connect import Address, Connection, this_process
from seedline.storage.postgres.database import Database
from seedline.storage.postgres.follower import Follower
from seedline.storage.postgres.lock import SessionLock
from seedline.storage.postgres.sessions import SessionRow
from seedline.storage.postgres.writer import Birth, Hold, PostgresWriter
from seedline.storage.rows import to_text

_TAKE_OVER: Final = "UPDATE sessions SET epoch = epoch + 1, writer = %s WHERE key = %s AND NOT deleted"


class PostgresBackend:
    """Sessions in the schema `schema`, which the first batch creates. See `storage.base`.

    It needs connections that stay the same server process, so no pooler that shares them by transaction.
    A server of another layout raises `StoreLayoutError` and is not changed.
    """

    name = "postgresql"
    capabilities = Capabilities(
        durable=True,
        shares_prefixes=True,
        raw_artifacts=False,
        locates=False,
        reasons={
            "raw_artifacts": "a session is stored as rows, there is no text of it",
            "locates": "a session is rows of a database that only its server may open",
        },
    )

    def __init__(self, url: str, schema: str = "seedline") -> None:
        """Connect to nothing yet. Raises `StoreUrlError`."""
        self._address = Address(url, schema)
        self._place = self._address.place
        self._database = Database(self._address)
        self._writers: weakref.WeakSet[PostgresWriter] = weakref.WeakSet()

    # --- writing -----------------------------------------------------------------------------------

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> PostgresWriter:
        """See `Backend.create`. A prefix longer than its owner's log raises `BatchRefusedError`."""
        check_new(header, inherited_event_count)
        self._refuse_existing(header.id)
        with self._locked(header.id) as lock:
            self._refuse_existing(header.id)
            owner = self._prefix_owner(prefix) if prefix else None
            count = prefix.count if prefix else 0
            birth = Birth.of(header, inherited_event_count, owner, count)
            return self._enlisted(PostgresWriter(self._database, lock, header.id, birth, count))

    def open(self, session_id: str) -> tuple[StoredSession, PostgresWriter]:
        """See `Backend.open`. Every writer that was opened before is fenced."""
        self._require(session_id)
        with self._locked(session_id) as lock:
            hold = self._take_over(session_id, lock)
            stored = self.read(session_id)
            writer = PostgresWriter(self._database, lock, session_id, hold, len(stored.events), stored.torn)
            return stored, self._enlisted(writer)

    def _take_over(self, session_id: str, lock: SessionLock) -> Hold:
        """Begin a new epoch. A batch of the last one is committed by then, or never will be."""
        database = self._database
        with self._located(session_id), self._address.translated(session_id), database.write_lock:
            connection = database.writer()
            lock.demand(connection)
            row = self._found(sessions.find(connection, session_id), session_id)
            connection.execute(_TAKE_OVER, (this_process(), row.key))
            row = self._found(sessions.find(connection, session_id), session_id)
            return Hold(row.key, row.epoch, row.revision)

    def delete(self, session_id: str) -> None:
        """See `Backend.delete`. What no fork reads leaves the database."""
        self._require(session_id)
        with self._locked(session_id, keep=False) as lock, self._located(session_id):
            database = self._database
            with self._address.translated(session_id), database.write_lock:
                connection = database.writer()
                lock.demand(connection)
                with connection.transaction():
                    row = self._found(sessions.find(connection, session_id), session_id)
                    sessions.delete(connection, row.key)
                    connection.execute("SELECT pg_notify(%s, '')", (lock.channel,))

    @contextmanager
    def _locked(self, session_id: str, *, keep: bool = True) -> Generator[SessionLock]:
        """Take a session's lock, and give it back at the end unless the block succeeds and it is to keep."""
        with self._address.translated(session_id):
            lock = SessionLock.take(self._database, session_id)
        try:
            yield lock
        except BaseException:
            lock.release()
            raise
        if not keep:
            lock.release()

    def _enlisted(self, writer: PostgresWriter) -> PostgresWriter:
        self._writers.add(writer)
        return writer

    def _refuse_existing(self, session_id: str) -> None:
        with self._database.reading(session_id) as connection:
            if connection and sessions.find(connection, session_id):
                reason = "a session of this id is stored"
                raise SessionExistsError(reason, place=self._place, session_id=session_id)

    def _prefix_owner(self, prefix: Prefix) -> int | None:
        with self._showing(prefix.owner) as (connection, row):
            stored = sessions.next_seq(connection, row)
            if prefix.count == stored > 0:
                # Only the last rows of a log can be torn.
                stored -= 1 - len(sessions.scan(connection, row, stored - 1)[0])
            check_prefix(prefix.count, stored, prefix.owner)
            return row.key if prefix.count else None

    # --- reading -----------------------------------------------------------------------------------

    def read(self, session_id: str) -> StoredSession:
        """See `Backend.read`. The torn rule is that of rows (5.3)."""
        with self._showing(session_id) as (connection, row):
            header, cut = sessions.header_and_cut(row)
            events, torn = sessions.scan(connection, row, 0)
            lineage.check_cut(len(events), cut)
            events = reading.upgrade(events, header.id)
            revision = self._revision(connection, row)
        return StoredSession(
            header=header, inherited_event_count=cut, events=events, revision=revision, torn=torn
        )

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """See `Backend.read_from`: rows before `seq` are read only where an old shape refers to one."""
        check_seq(seq)
        with self._showing(session_id) as (connection, row):
            header, cut = sessions.header_and_cut(row)
            events = sessions.suffix(connection, row, seq, header.id)
        return StoredSuffix(header=header, inherited_event_count=cut, events=events)

    def revision(self, session_id: str) -> str:
        """See `Backend.revision`."""
        with self._showing(session_id) as (connection, row):
            return self._revision(connection, row)

    def _revision(self, connection: Connection, row: SessionRow) -> str:
        """Return the revision: which store, which life of the id, how many changes."""
        store = self._database.store_id(connection)
        return f"store:{store}:incarnation:{row.incarnation}:revision:{row.revision}"

    def list(self) -> Iterator[ListedSession]:
        """See `Backend.list`. Reads the rows of one moment, and no event."""
        with self._database.reading() as connection:
            rows = sessions.find_all(connection) if connection else []
            revisions = [self._revision(connection, row) for row in rows] if connection else []
        yield from map(self._listed, rows, revisions)

    def _listed(self, row: SessionRow, revision: str) -> ListedSession:
        session_id = None
        with suppress(UnicodeDecodeError):
            session_id = to_text(row.header.id)
        place = self._place if session_id is None else self._place_of(session_id)
        try:
            header, _ = sessions.header_and_cut(row)
        except ArtifactError as error:
            error = error.located(path=place)
            return ListedSession(
                session_id=session_id, header=None, revision=revision, place=place, error=error
            )
        return ListedSession(session_id=session_id, header=header, revision=revision, place=place)

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        """See `Backend.follow`. The server announces each commit; a cut connection is opened again."""
        check_seq(seq)
        self._require(session_id)
        return self._follow(session_id, seq, stopped, wait_seconds)

    def _follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], wait_seconds: float
    ) -> Iterator[Events]:
        seen: str | None = None
        due = time.monotonic() + wait_seconds
        with Follower(self._database, session_id) as follower:
            while not stopped() and not self._database.is_closed:
                events, seen = self._news(follower, session_id, seq, seen)
                if len(events) or time.monotonic() >= due:
                    due = time.monotonic() + wait_seconds
                    seq += len(events)
                    yield events
                else:
                    follower.wait(due - time.monotonic())

    def _news(
        self, follower: Follower, session_id: str, seq: int, seen: str | None
    ) -> tuple[Events, str | None]:
        """Return what was stored since the revision `seen`, and the revision it belongs to."""
        nothing = Events((), seq, seq)
        if not follower.is_due():
            return nothing, seen
        try:
            with self._showing(session_id) as (connection, row):
                follower.succeeded()
                revision = self._revision(connection, row)
                if revision == seen:
                    return nothing, seen
                return sessions.suffix(connection, row, seq, session_id), revision
        except StorageError as error:
            if self._database.is_closed or not isinstance(error.__cause__, psycopg.OperationalError):
                raise
            follower.failed(error)
            return nothing, seen

    # --- the rest ----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> str | None:
        """Return None: see `capabilities`."""
        return None

    def raw(self, session_id: str) -> RawArtifact:
        """Raises `UnsupportedOperationError`: see `capabilities`."""
        reason = self.capabilities.reasons["raw_artifacts"]
        raise UnsupportedOperationError(reason, place=self._place, session_id=session_id)

    def close(self) -> None:
        """Close writers and connections. May be called again."""
        for writer in list(self._writers):
            writer.close()
        self._database.close()

    def _require(self, session_id: str) -> None:
        """Raise `SessionNotFoundError` unless the session is stored."""
        with self._showing(session_id):
            pass

    @contextmanager
    def _showing(self, session_id: str) -> Generator[tuple[Connection, SessionRow]]:
        """Show a stored session as it is at one moment. Raises `SessionNotFoundError`."""
        with self._located(session_id), self._database.reading(session_id) as connection:
            row = self._found(connection and sessions.find(connection, session_id), session_id)
            assert connection
            yield connection, row

    def _found(self, row: SessionRow | None, session_id: str) -> SessionRow:
        if row is None:
            raise SessionNotFoundError("no session of this id is stored", path=self._place_of(session_id))
        return row

    @contextmanager
    def _located(self, session_id: str) -> Generator[None]:
        try:
            yield
        except ArtifactError as error:
            raise error.located(path=self._place_of(session_id)) from error.__cause__

    def _place_of(self, session_id: str) -> str:
        with suppress(SessionIdRefusedError):
            return f"{self._place}#{encode_segment(session_id)}"
        return f"{self._place}#{session_id[:80]!r}"
