"""The right to append to one session."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from psycopg import errors
from psycopg.types.numeric import Int2, Int8

from seedline.errors import StaleWriterError, StorageError
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.base import TornTail
from seedline.storage.checks import check_batch
from seedline.storage.postgres import layout, sessions
from seedline.storage.postgres.connect import Connection, this_process
from seedline.storage.postgres.database import Database
from seedline.storage.postgres.lock import SessionLock
from seedline.storage.rows import HeaderColumns, event_columns, header_columns

_WITH_TYPE: Final = "seq, type, time, data, source_event_seqs, surface_op, ignorable"
_FENCE: Final = (
    "WITH fence AS (UPDATE sessions SET revision = revision + 1 WHERE key = %b AND epoch = %b "
    f"AND revision = %b AND NOT deleted AND (SELECT version FROM layout) = {layout.SCHEMA_VERSION} "
    "RETURNING key) "
)
_ENTER_FENCE: Final = _FENCE + "SELECT key, pg_notify(%b, '') FROM fence"
_APPEND_ONE: Final = (
    f"{_FENCE}, stored AS (INSERT INTO events (session, {_WITH_TYPE}) SELECT key, %b::bigint, %b::bytea, "
    "%b::bigint, %b::bytea, %b::bytea, %b::bytea, %b::smallint FROM fence) "
    "SELECT key, pg_notify(%b, '') FROM fence"
)
_COPY: Final = f"COPY events (session, {_WITH_TYPE}) FROM STDIN (FORMAT BINARY)"
_COPIED_TYPES: Final = ("int8", "int8", "bytea", "int8", "bytea", "bytea", "bytea", "int2")
_ENTER: Final = (
    "INSERT INTO sessions (id, version, created_at, cwd, parent_session, seed_length, origin, "
    "delegation_depth, agent_preset, spawn, prefix_owner, prefix_count, incarnation, revision, epoch, "
    "writer) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1, 1, %s) RETURNING key"
)
_SET_ASIDE: Final = (
    f"INSERT INTO torn_events (session, cut_at_revision, {_WITH_TYPE}) "
    f"SELECT session, (SELECT revision FROM sessions WHERE key = session), {_WITH_TYPE} "
    "FROM events WHERE session = %s AND seq >= %s"
)


class Birth(NamedTuple):
    """What the first batch of a session stores along with itself."""

    columns: HeaderColumns
    prefix_owner: int | None
    prefix_count: int
    incarnation: uuid.UUID

    @classmethod
    def of(
        cls, header: SessionHeader, cut: SessionLogOffset, prefix_owner: int | None, prefix_count: int
    ) -> Birth:
        return cls(header_columns(header, cut), prefix_owner, prefix_count, uuid.uuid4())


class Hold(NamedTuple):
    """The row that a writer writes to, as long as it carries this epoch and this revision."""

    key: int
    epoch: int
    revision: int


class _Deed(NamedTuple):
    """What one transaction stores: a batch, and the torn tail that it cuts before."""

    batch: tuple[Event, ...]
    cut: TornTail | None


_NOTHING: Final = _Deed((), None)


class PostgresWriter:
    """See `storage.base.Writer`.

    A connection that was cut is opened again if the lock can be taken again, and epoch and revision prove
    that nobody else has written. A batch whose commit went unanswered is looked for then, and stored once;
    where the server cannot be asked, `append` raises, and the same events given again are recognised. One
    `StaleWriterError` ends the writer.
    """

    def __init__(
        self,
        database: Database,
        lock: SessionLock,
        session_id: str,
        row: Birth | Hold,
        next_seq: int,
        torn: TornTail | None = None,
    ) -> None:
        self._database = database
        self._lock = lock
        self._settled_on = lock.connection
        self._session_id = session_id
        self._row = row
        self._next_seq = next_seq
        self._torn = torn
        self._doubt: _Deed | None = None
        self._landed: _Deed = _NOTHING
        self._process = os.getpid()
        self._end_reason: str | None = None

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
        return self._write(tuple(closers)) if closers or self._torn else None

    def close(self) -> None:
        """See `Writer.close`."""
        self._end("this writer is closed")

    def _end(self, reason: str) -> None:
        """Refuse every batch from here on, and give the session free."""
        self._end_reason = self._end_reason or reason
        if self._process == os.getpid():
            self._lock.release()

    # --- one batch ---------------------------------------------------------------------------------

    def _write(self, batch: tuple[Event, ...]) -> TornTail | None:
        if self._process != os.getpid():
            raise self._stale("this writer belongs to another process")
        if self._end_reason is not None:
            raise self._stale(self._end_reason)
        try:
            return self._write_now(batch)
        except StaleWriterError as error:
            self._end(error.reason)
            raise

    def _write_now(self, batch: tuple[Event, ...]) -> TornTail | None:
        database = self._database
        with database.address.translated(self._session_id), database.write_lock:
            was_connected = database.is_connected
            try:
                return self._attempt(batch)
            except psycopg.Error as error:
                if not (was_connected and database.lost_by(error)):
                    raise
            return self._attempt(batch)  # the connection was cut: over a new one, which asks what was stored

    def _attempt(self, batch: tuple[Event, ...]) -> TornTail | None:
        connection = self._database.writer()
        self._settle(connection)
        landed, self._landed = self._landed, _NOTHING
        if batch[: len(landed.batch)] == landed.batch:
            batch = batch[len(landed.batch) :]
        check_batch(batch, self._next_seq, self._session_id)
        kept_at = f"{self._database.address.place}#torn_events"
        cut = self._torn and msgspec.structs.replace(self._torn, kept_at=kept_at)
        if batch or cut:
            self._perform(connection, _Deed(batch, cut))
        return cut or landed.cut

    def _perform(self, connection: Connection, deed: _Deed) -> None:
        self._doubt = deed
        try:
            row = self._store(connection, deed)
        except errors.UniqueViolation as error:
            self._doubt = None
            raise self._stale("another hand has written these seqs") from error
        except psycopg.Error as error:
            if not self._database.lost_by(error):
                self._doubt = None  # the server says that it undid everything
            raise
        except StorageError:
            self._doubt = None  # ours, raised before the commit
            raise
        except BaseException:
            self._database.drop_writer()
            raise
        self._advance(row, deed)

    def _advance(self, row: Hold, deed: _Deed) -> None:
        self._doubt = None
        self._row = row
        self._torn = None
        self._next_seq += len(deed.batch)

    def _store(self, connection: Connection, deed: _Deed) -> Hold:
        """Store a batch in one transaction, which proves the epoch and wakes the followers."""
        row = self._row
        if isinstance(row, Hold) and deed.cut is None and len(deed.batch) == 1:
            return self._store_one(connection, row, deed.batch[0])
        self._database.ensure_tables(connection)
        with connection.transaction():
            hold = self._enter(connection, row) if isinstance(row, Birth) else self._fenced(connection, row)
            if deed.cut is not None:
                self._set_aside(connection, hold.key, deed.cut)
            if deed.batch:
                _copy(connection, hold.key, deed.batch)
        return hold

    def _store_one(self, connection: Connection, row: Hold, event: Event) -> Hold:
        columns = event_columns(event)
        values: tuple[Any, ...] = (Int8(columns.seq), columns.type, Int8(columns.time), *columns[3:6])
        ignorable = None if columns.ignorable is None else Int2(columns.ignorable)
        return self._passed(connection, row, _APPEND_ONE, (*values, ignorable))

    def _fenced(self, connection: Connection, row: Hold) -> Hold:
        return self._passed(connection, row, _ENTER_FENCE, ())

    def _passed(self, connection: Connection, row: Hold, query: Any, values: tuple[Any, ...]) -> Hold:
        """Run a statement that begins with the fence. Raises `StaleWriterError` when it did not let pass."""
        fence = map(Int8, row)
        answer = connection.execute(query, (*fence, *values, self._lock.channel), prepare=True)
        if answer.fetchone() is None:
            layout.is_pristine(connection, self._database.address)  # raises when the layout is another
            raise self._stale(f"epoch {row.epoch} is over: the session was opened again, changed or deleted")
        return row._replace(revision=row.revision + 1)

    def _enter(self, connection: Connection, birth: Birth) -> Hold:
        """Store the row of a new session."""
        try:
            owner = sessions.nearest_owner(connection, birth.prefix_owner, birth.prefix_count)
        except LookupError:
            reason = "the session that its prefix belongs to was deleted before the first batch"
            raise self._stale(reason) from None
        values = (*birth.columns, owner, birth.prefix_count, birth.incarnation, this_process())
        try:
            row = connection.execute(_ENTER, values).fetchone()
        except errors.UniqueViolation:
            raise self._stale("another writer has stored a session of this id") from None
        connection.execute("SELECT pg_notify(%s, '')", (self._lock.channel,))
        return Hold((row or (0,))[0], 1, 1)

    def _set_aside(self, connection: Connection, key: int, torn: TornTail) -> None:
        """Move the rows of a torn tail out of the log."""
        connection.execute(_SET_ASIDE, (key, torn.seq))
        query = "DELETE FROM events WHERE session = %s AND seq >= %s"
        count = connection.execute(query, (key, torn.seq)).rowcount
        if count != torn.size:
            raise self._stale(f"the torn tail had {torn.size} rows and has {count}")

    # --- a connection that was cut -----------------------------------------------------------------

    def _settle(self, connection: Connection) -> None:
        """Take the lock on a new connection, and learn what the old one stored. Raises `StaleWriterError`."""
        if self._settled_on is connection:
            return
        holder = self._lock.regain(connection)
        if holder is not None:
            raise self._stale(f"the connection was cut, and {holder} is writing the session")
        stored = self._stored(connection)
        doubt, self._doubt = self._doubt, None
        self._settled_on = connection
        if stored == (self._row if isinstance(self._row, Hold) else None):
            return
        if doubt is None or stored is None or stored != self._after_one(stored.key):
            raise self._stale("the connection was cut, and another writer has changed the session since")
        self._advance(stored, doubt)
        self._landed = doubt

    def _after_one(self, key: int) -> Hold:
        """Return what the row is after one more transaction of this writer."""
        row = self._row
        return row._replace(revision=row.revision + 1) if isinstance(row, Hold) else Hold(key, 1, 1)

    def _stored(self, connection: Connection) -> Hold | None:
        """Return the row of the session as it is, None when there is none."""
        try:
            row = sessions.find(connection, self._session_id)
        except errors.UndefinedTable:
            return None
        if row is None or (isinstance(self._row, Birth) and row.incarnation != self._row.incarnation):
            return None
        return Hold(row.key, row.epoch, row.revision)

    def _stale(self, reason: str) -> StaleWriterError:
        return StaleWriterError(reason, place=self._database.address.place, session_id=self._session_id)


def _copy(connection: Connection, key: int, batch: tuple[Event, ...]) -> None:
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(_COPIED_TYPES)
        for event in batch:
            copy.write_row((key, *event_columns(event)))
