"""The right to write a session, held by an advisory lock of the connection: the server takes it back."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

import psycopg
from psycopg.types.numeric import Int8

from seedline.errors import SessionBusyError
from seedline.storage.postgres.connect import Connection, is_gone, owner_of
from seedline.storage.postgres.database import Database
from seedline.storage.rows import to_bytes

_GONE_SECONDS: Final = 5.0
"""How long the server may take to notice that a process of this machine is dead."""
_ATTEMPTS: Final = 50
_TRY: Final = (
    "WITH attempt AS MATERIALIZED (SELECT pg_try_advisory_lock(%(key)b) AS taken) "
    "SELECT taken, pid, application_name FROM attempt LEFT JOIN LATERAL ("
    "SELECT owner.pid, owner.application_name FROM pg_locks AS held "
    "JOIN pg_stat_activity AS owner USING (pid) WHERE NOT taken AND locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = %(high)b AND objid::bigint = %(low)b AND objsubid = 1"
    ") AS holder ON true"
)
_WRITER: Final = "SELECT writer FROM sessions WHERE id = %s AND NOT deleted"


class SessionLock:
    """A held lock on a session. A connection that is cut takes it along, until `regain`."""

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._session_id = session_id
        self._id = to_bytes(session_id)
        self._key = database.address.lock_key(self._id)
        self._connection: Connection | None = None

    @classmethod
    def take(cls, database: Database, session_id: str) -> SessionLock:
        """Take the lock at once. Raises `SessionBusyError` naming the owner, or `psycopg.Error`."""
        lock = cls(database, session_id)
        deadline = time.monotonic() + _GONE_SECONDS
        while holder := lock._try_twice():
            if not is_gone(holder) or time.monotonic() > deadline:
                raise lock._busy(holder)
            time.sleep(0.005)
        return lock

    def _busy(self, holder: str) -> SessionBusyError:
        place = self._database.address.place
        return SessionBusyError(f"{holder} is writing it", place=place, session_id=self._session_id)

    def _try_twice(self) -> str | None:
        """Return who has the lock, None when it is ours; over a new connection where the old one was cut."""
        try:
            return self._try()
        except psycopg.Error as error:
            if not self._database.lost_by(error):
                raise
        return self._try()

    def _try(self) -> str | None:
        with self._database.write_lock:
            connection = self._database.writer()
            if self._session_id in self._database.held:
                return f"process {os.getpid()}, this one,"
            holder = self._holder(connection)
            if holder is None:
                self._database.held[self._session_id] = self
                self._connection = connection
            return holder

    def _holder(self, connection: Connection) -> str | None:
        bits = self._key % 2**64
        words = {"key": Int8(self._key), "high": Int8(bits >> 32), "low": Int8(bits % 2**32)}
        for _ in range(_ATTEMPTS):
            taken, process, name = connection.execute(_TRY, words).fetchone() or (False, None, None)
            if taken:
                return None
            if process is not None:
                signed = owner_of(name or "") or self._signed(connection)
                return signed or f"another program, server process {process},"
            time.sleep(0.002)  # it ended between two looks
        return "another program"

    def _signed(self, connection: Connection) -> str | None:
        """Return who opened the session last: the server shows connections of other users to nobody."""
        with suppress(psycopg.errors.UndefinedTable):
            row = connection.execute(_WRITER, (self._id,)).fetchone()
            return row[0] if row else None
        return None

    def regain(self, connection: Connection) -> str | None:
        """See `Held.regain`."""
        holder = None if self._connection is connection else self._holder(connection)
        if holder is None:
            self._connection = connection
        return holder

    @property
    def channel(self) -> str:
        """The channel on which each change of the session is announced."""
        return channel(self._database, self._session_id)

    def demand(self, connection: Connection) -> None:
        """Raise `SessionBusyError` when the lock was lost with another connection and somebody has it."""
        holder = self.regain(connection)
        if holder is not None:
            raise self._busy(holder)

    @property
    def connection(self) -> Connection | None:
        """The connection that holds the lock."""
        return self._connection

    def release(self) -> None:
        """Give the session free. May be called again."""
        with self._database.write_lock:
            if self._database.held.get(self._session_id) is self:
                del self._database.held[self._session_id]
            connection, self._connection = self._connection, None
            if connection is not None and not connection.closed:
                with suppress(psycopg.Error):  # the lock is gone with the connection then
                    connection.execute("SELECT pg_advisory_unlock(%s)", (self._key,))


def channel(database: Database, session_id: str) -> str:
    """Return the name of the channel on which each change of a session is announced."""
    return f"seedline_{database.address.lock_key(to_bytes(session_id)) % 2**64:016x}"
