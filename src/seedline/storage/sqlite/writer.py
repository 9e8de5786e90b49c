"""The right to append to one session of a database."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from seedline.errors import StaleWriterError
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.base import TornTail
from seedline.storage.checks import check_batch
from seedline.storage.lease import Lease
from seedline.storage.sqlite.database import Database
from seedline.storage.sqlite.layout import EVENT_COLUMNS
from seedline.storage.sqlite.rows import find_session, insert_events, insert_session
from seedline.storage.sqlite.scan import next_seq

_SAVE_TORN: Final = (
    f"INSERT INTO torn_events (session_key, cut_at_revision, {EVENT_COLUMNS}) "
    f"SELECT session_key, (SELECT revision FROM sessions WHERE key = session_key), {EVENT_COLUMNS} "
    "FROM events WHERE session_key = ? AND seq >= ?"
)


class Birth(NamedTuple):
    """What the first batch of a session stores along with itself."""

    header: SessionHeader
    cut: SessionLogOffset
    prefix_owner: int | None
    prefix_count: int


class Hold(NamedTuple):
    """The row that a writer writes to, as long as it carries this epoch of this incarnation."""

    key: int
    incarnation: bytes
    epoch: int


class SqliteWriter:
    """See `storage.base.Writer`."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        session_id: str,
        row: Birth | Hold,
        next_seq: int,
        torn: TornTail | None = None,
    ) -> None:
        self._database = database
        self._lease = lease
        self._session_id = session_id
        self._row = row
        self._next_seq = next_seq
        self._torn = torn
        self.is_closed = False

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def next_seq(self) -> int:
        """The seq that the next append begins with."""
        return self._next_seq

    def append(self, events: Sequence[Event]) -> None:
        """See `Writer.append`. A torn tail that was not repaired is cut along with the first batch."""
        batch = tuple(events)
        if batch:
            self._write(batch)

    def repair(self, closers: Sequence[Event]) -> TornTail | None:
        """See `Writer.repair`. The cut rows lie in the table `torn_events` afterwards."""
        batch = tuple(closers)
        return self._write(batch) if batch or self._torn else None

    def _write(self, batch: tuple[Event, ...]) -> TornTail | None:
        if self.is_closed:
            raise self._stale("this writer is closed")
        check_batch(batch, self._next_seq, self._session_id)
        with self._database.writing(self._session_id) as connection:
            hold = self._held(connection)
            cut = self._cut(connection, hold.key)
            insert_events(connection, hold.key, batch)
            connection.execute("UPDATE sessions SET revision = revision + 1 WHERE key = ?", (hold.key,))
        self._row = hold
        self._torn = None
        self._next_seq += len(batch)
        return cut

    def _held(self, connection: sqlite3.Connection) -> Hold:
        """Return the session's row, which the first batch stores. Raises `StaleWriterError`."""
        row = self._row
        hold = self._enter(connection, row) if isinstance(row, Birth) else self._fenced(connection, row)
        if not self._lease.is_held():
            raise self._stale(
                "its lock was taken away, or belongs to the process that this one was forked from"
            )
        return hold

    def _enter(self, connection: sqlite3.Connection, birth: Birth) -> Hold:
        if find_session(connection, self._session_id):
            raise self._stale("another writer has stored a session of this id")
        owner = self._nearest_owner(connection, birth)
        incarnation = str(uuid.uuid4())
        key = insert_session(
            connection,
            birth.header,
            birth.cut,
            prefix_owner=owner,
            prefix_count=birth.prefix_count,
            incarnation=incarnation,
        )
        return Hold(key, incarnation.encode(), 1)

    def _nearest_owner(self, connection: sqlite3.Connection, birth: Birth) -> int | None:
        """Return the session that holds the last event of the prefix as a row of its own."""
        owner = birth.prefix_owner
        query = "SELECT prefix_owner, prefix_count FROM sessions WHERE key = ?"
        while owner is not None:
            before, count = connection.execute(query, (owner,)).fetchone() or (None, 0)
            if count < birth.prefix_count:
                self._check_row(connection, owner, birth.prefix_count - 1)
                return owner
            owner = before
        return None

    def _check_row(self, connection: sqlite3.Connection, owner: int, seq: int) -> None:
        query = "SELECT 1 FROM events WHERE session_key = ? AND seq = ?"
        if not connection.execute(query, (owner, seq)).fetchone():
            raise self._stale("the session that its prefix belongs to was deleted before the first batch")

    def _fenced(self, connection: sqlite3.Connection, hold: Hold) -> Hold:
        """Prove that nobody took the session over, or wrote behind this writer."""
        query = "SELECT incarnation, epoch, prefix_count FROM sessions WHERE key = ? AND deleted = 0"
        incarnation, epoch, prefix_count = connection.execute(query, (hold.key,)).fetchone() or (b"", 0, 0)
        if (incarnation, epoch) != (hold.incarnation, hold.epoch):
            raise self._stale(f"epoch {hold.epoch} is over: the session was opened again, or deleted")
        if self._torn is None:
            stored = next_seq(connection, hold.key, prefix_count)
            if stored != self._next_seq:
                reason = f"seq {stored} follows what is stored, this writer goes on from {self._next_seq}"
                raise self._stale(reason)
        return hold

    def _cut(self, connection: sqlite3.Connection, key: int) -> TornTail | None:
        """Move the rows of a torn tail out of the log."""
        if self._torn is None:
            return None
        rows = (key, self._torn.seq)
        connection.execute(_SAVE_TORN, rows)
        cut = connection.execute("DELETE FROM events WHERE session_key = ? AND seq >= ?", rows).rowcount
        if cut != self._torn.size:
            raise self._stale(f"the torn tail had {self._torn.size} rows and has {cut}")
        return msgspec.structs.replace(self._torn, kept_at=f"{self._database.path}#torn_events")

    def _stale(self, reason: str) -> StaleWriterError:
        return StaleWriterError(reason, place=self._database.path, session_id=self._session_id)

    def close(self) -> None:
        """See `Writer.close`."""
        self.is_closed = True
        self._lease.release()
