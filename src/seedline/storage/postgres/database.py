"""The connections of one store: one that writes and holds the locks, and a few that read.

A connection never crosses a fork of the process: the child severs its copies, so that the server sees the
end of the process that opened them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

import psycopg
from psycopg.pq import TransactionStatus

from seedline.errors import StorageError
from seedline.storage.postgres import layout
from seedline.storage.postgres.connect import Address, Connection

_IDLE_READERS: Final = 4
_ENDING_SECONDS: Final = 5.0
"""How long the server may take to end what a lost connection was doing."""
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_END_SERVER: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
)
_THIS_SERVER: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"


class Held(Protocol):
    """A right that a connection holds."""

    def regain(self, connection: Connection) -> str | None:
        """Take it on a new connection; return who has it, None when it is ours."""
        ...


class Database:
    """The connections to an address. `held` says which sessions this store writes, by id."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_closed = False
        self.write_lock = threading.RLock()
        self.held: dict[str, Held] = {}
        self._writer: Connection | None = None
        self._writer_server: tuple[Any, ...] | None = None
        self._has_tables = False
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._store_id = ""
        _watch_forks(self)

    # --- writing -----------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """False where the next writer will open a new connection, that holds no lock."""
        return self._writer is not None and not self._writer.closed

    def writer(self) -> Connection:
        """Return the connection that writes; the caller holds `write_lock` while using it.

        Raises `StoreLayoutError`, `StorageError`, `psycopg.Error`. Whatever a lost one was doing is over, and
        what it held is held again unless somebody else was quicker.
        """
        self._check_usable()
        if self._writer is None or self._writer.closed:
            self._forsake(self._writer)
            self._writer = self._open_writer()
            for held in self.held.values():
                held.regain(self._writer)
        return self._writer

    def _open_writer(self) -> Connection:
        connection = self._connect()
        try:
            if self._writer_server is not None:
                self._end_server(connection, self._writer_server)
            self._has_tables = not layout.is_pristine(connection, self.address)
            self._writer_server = connection.execute(_THIS_SERVER).fetchone()
        except BaseException:
            self._forsake(connection)
            raise
        return connection

    def _end_server(self, connection: Connection, server: tuple[Any, ...]) -> None:
        """Return when the server's side of a lost connection is gone, its transaction and locks with it."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while connection.execute(_END_SERVER, server).fetchone():
            if time.monotonic() > deadline:
                reason = f"server process {server[0]} of a lost connection does not end"
                raise StorageError(reason, place=self.address.place)
            time.sleep(0.005)

    def ensure_tables(self, connection: Connection) -> None:
        """Make the tables where there are none yet."""
        if not self._has_tables:
            layout.ensure_tables(connection, self.address)
            self._has_tables = True

    def lost_by(self, error: psycopg.Error) -> bool:
        """True when the connection that writes did not survive the error."""
        if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
            self.drop_writer()  # the end of the connection may not have arrived yet
        return not self.is_connected

    def drop_writer(self) -> None:
        """Close the connection that writes: what it was doing is unknown."""
        self._forsake(self._writer)

    # --- reading -----------------------------------------------------------------------------------

    @contextmanager
    def reading(self, session_id: str | None = None) -> Generator[Connection | None]:
        """Show the store as it is at one moment; None where nothing was ever written."""
        with self.address.translated(session_id):
            connection = self._begin()
            try:
                yield connection
            finally:
                if connection is not None:
                    self._end(connection)

    def _begin(self) -> Connection | None:
        self._check_usable()
        while (connection := self._take_idle()) is not None:
            try:
                connection.execute(_SNAPSHOT)
                return connection
            except psycopg.Error:  # it was cut while nobody used it
                self._forsake(connection)
        connection = self.open_reader()
        try:
            if connection is not None:
                connection.execute(_SNAPSHOT)
        except BaseException:
            self._forsake(connection)
            raise
        return connection

    def _take_idle(self) -> Connection | None:
        with suppress(IndexError):  # another thread may take the last one
            return self._idle.pop()
        return None

    def _end(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        if is_idle and not self.is_closed and len(self._idle) < _IDLE_READERS:
            self._idle.append(connection)
        else:
            self._forsake(connection)

    def open_reader(self) -> Connection | None:
        """Return a new connection, to be given to `close_reader`; None where nothing was ever written."""
        self._check_usable()
        connection = self._connect()
        try:
            is_pristine = layout.is_pristine(connection, self.address)
        except BaseException:
            self._forsake(connection)
            raise
        if is_pristine:
            self._forsake(connection)
            return None
        return connection

    def close_reader(self, connection: Connection) -> None:
        """Close what `open_reader` opened."""
        self._forsake(connection)

    # --- both --------------------------------------------------------------------------------------

    def store_id(self, connection: Connection) -> str:
        """Return the random name of the store."""
        self._store_id = self._store_id or layout.store_id(connection)
        return self._store_id

    def _connect(self) -> Connection:
        connection = self.address.connect()
        self._open.add(connection)
        return connection

    def _forsake(self, connection: Connection | None) -> None:
        if connection is not None:
            self._open.discard(connection)
            connection.close()

    def _check_usable(self) -> None:
        if self.is_closed:
            raise StorageError("the store is closed", place=self.address.place)

    def close(self) -> None:
        """Close every connection, and with them every lock. May be called again."""
        with self.write_lock:
            self.is_closed = True
            self.held.clear()
            self._writer, self._idle = None, []
            for connection in list(self._open):
                self._forsake(connection)

    def sever(self) -> None:
        """In a forked child: leave the connections to the process that opened them, and begin anew."""
        for connection in self._open:
            _sever(connection)
        self._open, self._idle, self._writer, self._writer_server = set(), [], None, None
        self.held = {}
        self.write_lock = threading.RLock()


# --- forks of the process --------------------------------------------------------------------------

_databases: Final[weakref.WeakSet[Database]] = weakref.WeakSet()
_severed: Final[list[Connection]] = []
_hooks: Final[list[int]] = []


def _watch_forks(database: Database) -> None:
    if not _hooks:
        _hooks.append(os.getpid())
        os.register_at_fork(after_in_child=_sever_all)
    _databases.add(database)


def _sever_all() -> None:
    for database in list(_databases):
        database.sever()


def _sever(connection: Connection) -> None:
    """Let go of the socket without a word to the server, and keep the object from ever being finished."""
    _severed.append(connection)
    if not connection.closed:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, connection.fileno(), inheritable=False)
        os.close(null)
