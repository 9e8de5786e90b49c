"""Sessions in one database file.

A fork stores no history: its row names the session that owns its prefix, and its own rows begin at the cut.
Writers hold a `flock` on a side file, so that a killed process frees its sessions, and an epoch in the row,
so that one whose side file was taken away is fenced. Readers have connections of their own and wait for
nobody.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from seedline.errors import (
    ArtifactError,
    SessionExistsError,
    SessionIdRefusedError,
    SessionNotFoundError,
    StoreUrlError,
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
from seedline.storage.folders import make_folder
from seedline.storage.following import poll
from seedline.storage.lease import Lease
from seedline.storage.rows import to_text
from seedline.storage.sqlite.connect import pragma, translated
from seedline.storage.sqlite.database import Database
from seedline.storage.sqlite.rows import SELECT_SESSION, SessionRow, find_session, read_header
from seedline.storage.sqlite.scan import needed_count, next_seq, read_events
from seedline.storage.sqlite.writer import Birth, Hold, SqliteWriter

POLL_SECONDS: Final = 0.02
"""How often a follower asks whether anything was committed."""


class SqliteBackend:
    """Sessions in the database at `path`, which the first batch creates, mode 0600. See `storage.base`.

    Opening a foreign database, or one of another layout, raises `StoreLayoutError` and changes nothing.
    """

    name = "sqlite"
    capabilities = Capabilities(
        durable=True,
        shares_prefixes=True,
        raw_artifacts=False,
        locates=False,
        reasons={
            "raw_artifacts": "a session is stored as rows, there is no text of it",
            "locates": "a session is rows of a database that only SQLite may open",
        },
    )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        if not name or name == ":memory:" or "\0" in name:
            raise StoreUrlError("SQLite sessions need the path of a file", place=name)
        self._path = os.path.abspath(name)
        self._database = Database(self._path)
        self._writers: set[SqliteWriter] = set()

    # --- writing -----------------------------------------------------------------------------------

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> SqliteWriter:
        """See `Backend.create`. A prefix longer than its owner's log raises `BatchRefusedError`.

        An owner that is deleted before the first batch makes the writer stale.
        """
        check_new(header, inherited_event_count)
        self._refuse_existing(header.id)
        with self._leased(header.id) as lease:
            self._refuse_existing(header.id)
            owner = self._prefix_owner(prefix) if prefix else None
            count = prefix.count if prefix else 0
            birth = Birth(header, inherited_event_count, owner, count)
            return self._enlisted(SqliteWriter(self._database, lease, header.id, birth, count))

    def open(self, session_id: str) -> tuple[StoredSession, SqliteWriter]:
        """See `Backend.open`. Every writer that was opened before is fenced."""
        self.revision(session_id)
        with self._leased(session_id) as lease:
            with self._database.writing(session_id) as connection:
                row = self._found(connection, session_id)
                connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (row.key,))
            stored = self.read(session_id)
            hold = Hold(row.key, row.incarnation, row.epoch + 1)
            writer = SqliteWriter(self._database, lease, session_id, hold, len(stored.events), stored.torn)
            return stored, self._enlisted(writer)

    def delete(self, session_id: str) -> None:
        """See `Backend.delete`. What no fork reads leaves the database."""
        self.revision(session_id)
        with self._leased(session_id) as lease:
            with self._database.writing(session_id) as connection:
                key = self._found(connection, session_id).key
                connection.execute("UPDATE sessions SET deleted = 1 WHERE key = ?", (key,))
                _collect(connection, key)
            lease.release()

    @contextmanager
    def _leased(self, session_id: str) -> Generator[Lease]:
        """Take the lock of a session, given back if the block raises."""
        folder = f"{self._path}.locks"
        with translated(self._path, session_id):
            make_folder(folder)
            lease = Lease.take(os.path.join(folder, encode_segment(session_id)), session_id)
        try:
            yield lease
        except BaseException:
            lease.release()
            raise

    def _enlisted(self, writer: SqliteWriter) -> SqliteWriter:
        self._writers = {known for known in self._writers if not known.is_closed} | {writer}
        return writer

    def _refuse_existing(self, session_id: str) -> None:
        with self._database.reading(session_id) as connection:
            if connection and find_session(connection, session_id):
                reason = "a session of this id is stored"
                raise SessionExistsError(reason, place=self._path, session_id=session_id)

    def _prefix_owner(self, prefix: Prefix) -> int | None:
        with self._database.reading(prefix.owner) as connection:
            connection, row = self._looked_up(connection, prefix.owner)
            stored = next_seq(connection, row.key, row.prefix_count)
            if prefix.count == stored > 0:
                # Only the last rows of a log can be torn.
                stored -= 1 - len(read_events(connection, row, stored - 1)[0])
            check_prefix(prefix.count, stored, prefix.owner)
        return row.key if prefix.count else None

    # --- reading -----------------------------------------------------------------------------------

    def read(self, session_id: str) -> StoredSession:
        """See `Backend.read`. The torn rule is that of dsh's SQLite rows (5.3)."""
        with self._read_row(session_id) as (connection, row):
            header, cut = read_header(row)
            events, torn = read_events(connection, row, 0)
            lineage.check_cut(len(events), cut)
            revision = _revision(self._database.revisions(connection), row)
            events = reading.upgrade(events, header.id)
        return StoredSession(
            header=header, inherited_event_count=cut, events=events, revision=revision, torn=torn
        )

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """See `Backend.read_from`: rows before `seq` are read only where an old shape refers to one."""
        check_seq(seq)
        with self._read_row(session_id) as (connection, row):
            header, cut = read_header(row)
            return StoredSuffix(
                header=header, inherited_event_count=cut, events=_suffix(connection, row, header.id, seq)
            )

    def revision(self, session_id: str) -> str:
        """See `Backend.revision`."""
        with self._read_row(session_id) as (connection, row):
            return _revision(self._database.revisions(connection), row)

    def list(self) -> Iterator[ListedSession]:
        """See `Backend.list`. Reads the rows of one moment, and no event."""
        with self._database.reading() as connection:
            if connection is None:
                return
            rows = connection.execute(SELECT_SESSION + "WHERE deleted = 0 ORDER BY key").fetchall()
            revisions = self._database.revisions(connection)
        for row in rows:
            yield self._listed(SessionRow(*row), revisions)

    def _listed(self, row: SessionRow, revisions: str) -> ListedSession:
        place = f"{self._path}#{row.key}"
        session_id, header, damage = None, None, None
        with suppress(UnicodeDecodeError, AttributeError):
            session_id = to_text(row.id)
        try:
            header, _ = read_header(row)
        except ArtifactError as error:
            damage = error.located(path=place)
        return ListedSession(
            session_id=session_id,
            header=header,
            revision=_revision(revisions, row),
            place=place,
            error=damage,
        )

    @contextmanager
    def _read_row(self, session_id: str) -> Generator[tuple[sqlite3.Connection, SessionRow]]:
        with self._located(session_id), self._database.reading(session_id) as connection:
            yield self._looked_up(connection, session_id)

    # --- following ---------------------------------------------------------------------------------

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        """See `Backend.follow`. Asks SQLite every 20 ms whether anything was committed."""
        check_seq(seq)
        self.revision(session_id)
        return self._follow(session_id, seq, stopped, wait_seconds)

    def _follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], wait_seconds: float
    ) -> Iterator[Events]:
        with self._database.watching(session_id) as connection:
            yield from poll(
                seq,
                version=lambda: self._commits(connection, session_id),
                read_from=lambda first: self.read_from(session_id, first).events,
                stopped=lambda: stopped() or self._database.is_closed,
                wait_seconds=wait_seconds,
                poll_seconds=POLL_SECONDS,
            )

    def _commits(self, connection: sqlite3.Connection | None, session_id: str) -> int | None:
        """Return a number that differs after every commit of another connection."""
        with translated(self._path, session_id):
            return connection and pragma(connection, "data_version")

    # --- the rest ----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> str | None:
        """Return None: see `capabilities`."""
        return None

    def raw(self, session_id: str) -> RawArtifact:
        """Raises `UnsupportedOperationError`: see `capabilities`."""
        reason = self.capabilities.reasons["raw_artifacts"]
        raise UnsupportedOperationError(reason, place=self._path, session_id=session_id)

    def close(self) -> None:
        """See `Backend.close`."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()
        self._database.close()

    def _looked_up(
        self, connection: sqlite3.Connection | None, session_id: str
    ) -> tuple[sqlite3.Connection, SessionRow]:
        if connection is None:
            raise self._missing(session_id)
        return connection, self._found(connection, session_id)

    def _found(self, connection: sqlite3.Connection, session_id: str) -> SessionRow:
        row = find_session(connection, session_id)
        if row is None:
            raise self._missing(session_id)
        return row

    def _missing(self, session_id: str) -> SessionNotFoundError:
        return SessionNotFoundError("no session of this id is stored", path=self._place(session_id))

    @contextmanager
    def _located(self, session_id: str) -> Generator[None]:
        try:
            yield
        except ArtifactError as error:
            raise error.located(path=self._place(session_id)) from error.__cause__

    def _place(self, session_id: str) -> str:
        with suppress(SessionIdRefusedError):
            return f"{self._path}#{encode_segment(session_id)}"
        return f"{self._path}#{session_id[:80]!r}"


def _revision(revisions: str, row: SessionRow) -> str:
    """Return the revision: which file, which store, which life of the id, how many changes."""
    return f"{revisions}:incarnation:{row.incarnation.decode(errors='replace')}:revision:{row.revision}"


def _suffix(connection: sqlite3.Connection, row: SessionRow, session_id: str, seq: int) -> Events:
    events, _ = read_events(connection, row, seq)
    try:
        return reading.upgrade_suffix(events, session_id)
    except reading.EarlierNeeded:
        whole, _ = read_events(connection, row, 0)
        return reading.upgrade(whole, session_id)[seq:] if len(whole) > seq else Events((), seq, seq)


def _collect(connection: sqlite3.Connection, key: int | None) -> None:
    """Remove what no session reads any more: of a deleted one, and of the deleted ones it read."""
    query = "SELECT deleted, prefix_owner FROM sessions WHERE key = ?"
    while key is not None:
        deleted, before = connection.execute(query, (key,)).fetchone() or (0, None)
        if not deleted:
            return
        needed = needed_count(connection, key)
        connection.execute("DELETE FROM events WHERE session_key = ? AND seq >= ?", (key, needed))
        if needed:
            return
        connection.execute("DELETE FROM torn_events WHERE session_key = ?", (key,))
        connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        key = before
