"""The connections of one store: one that writes, and a few that read.

Other code of the process must not open the database file: closing any descriptor of it drops the locks that
SQLite holds on it. A connection never crosses a fork of the process, see `_before_fork`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from seedline.errors import StorageError, StoreLayoutError
from seedline.storage.folders import make_folder, sync_folder
from seedline.storage.sqlite.connect import connect, pragma, settle, translated, use_write_ahead_log
from seedline.storage.sqlite.layout import (
    SCHEMA_VERSION,
    check_tables,
    create_tables,
    is_pristine,
    refuse_foreign,
)

_IDLE_READERS: Final = 4
_opening: Final = threading.Lock()


class Database:
    """The database at `path`, which the first transaction creates, mode 0600 in a folder 0700."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_closed = False
        self._writer: sqlite3.Connection | None = None
        self._writer_file: tuple[int, int] | None = None
        self._schema_version = 0
        self._write_lock = threading.RLock()
        self._open: set[sqlite3.Connection] = set()
        self._idle: list[sqlite3.Connection] = []
        self._file: tuple[int, int] | None = None
        self._store_id = ""
        _watch_forks(self)

    # --- writing -----------------------------------------------------------------------------------

    @contextmanager
    def writing(self, session_id: str) -> Generator[sqlite3.Connection]:
        """Run one transaction that is on the medium when the block is left; an exception undoes it."""
        with self._write_lock, translated(self.path, session_id):
            connection = self._begun()
            try:
                self._check_layout(connection)
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _begun(self) -> sqlite3.Connection:
        self._check_usable()
        if self._writer is not None and self._current_file() != self._writer_file:
            self._drop_writer()
        if self._writer is None:
            self._writer = self._open_writer()
            self._writer_file = self._current_file()
        self._writer.execute("BEGIN IMMEDIATE")
        return self._writer

    def _open_writer(self) -> sqlite3.Connection:
        _create_file(self.path)
        refuse_foreign(self.path)
        connection = self._connect("mode=rw")
        try:
            self._own(connection)
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _own(self, connection: sqlite3.Connection) -> None:
        """Create the tables if there are none, or prove that they are ours; then set the journal mode."""
        settle(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if is_pristine(connection, self.path):
                create_tables(connection)
            check_tables(connection, self.path)
            self._schema_version = pragma(connection, "schema_version")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        use_write_ahead_log(connection)

    def _check_layout(self, connection: sqlite3.Connection) -> None:
        current = pragma(connection, "schema_version")
        if current != self._schema_version or pragma(connection, "user_version") != SCHEMA_VERSION:
            if is_pristine(connection, self.path):
                raise StoreLayoutError("another program emptied the database", place=self.path)
            check_tables(connection, self.path)
            self._schema_version = current

    def _drop_writer(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            self._disconnect(connection)

    # --- reading -----------------------------------------------------------------------------------

    @contextmanager
    def reading(self, session_id: str | None = None) -> Generator[sqlite3.Connection | None]:
        """Show the database as it is at one moment; None where nothing was ever written."""
        with translated(self.path, session_id):
            connection = self._take_reader()
            if connection is None:
                yield None
                return
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("ROLLBACK")
            except BaseException:
                self._disconnect(connection)
                raise
            self._give_back(connection)

    @contextmanager
    def watching(self, session_id: str) -> Generator[sqlite3.Connection | None]:
        """Lend a reading connection outside of any transaction; None where nothing was ever written."""
        with translated(self.path, session_id):
            connection = self._open_reader()
        try:
            yield connection
        finally:
            if connection is not None:
                self._disconnect(connection)

    def _take_reader(self) -> sqlite3.Connection | None:
        self._check_usable()
        self._current_file()
        with suppress(IndexError):
            return self._idle.pop()
        return self._open_reader()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        # What stands on a read-only medium may change behind an immutable connection once it is writable.
        if self.is_closed or len(self._idle) >= _IDLE_READERS or not self._is_writable():
            self._disconnect(connection)
        else:
            self._idle.append(connection)

    def _open_reader(self) -> sqlite3.Connection | None:
        self._check_usable()
        with _opening:
            if not os.path.exists(self.path) or os.path.getsize(self.path) == 0:
                return None
        refuse_foreign(self.path)
        connection = self._connect(*self._reading_options())
        try:
            settle(connection)
            connection.execute("PRAGMA query_only = 1")
            if is_pristine(connection, self.path):
                self._disconnect(connection)
                return None
            check_tables(connection, self.path)
        except BaseException:
            self._disconnect(connection)
            raise
        return connection

    def _reading_options(self) -> tuple[str, ...]:
        """Say how SQLite opens the file: beside its log it needs a shared index, which it has to create."""
        if self._is_writable():
            return ("mode=rw",)
        is_logged = os.path.exists(f"{self.path}-wal")
        return ("mode=ro",) if is_logged else ("mode=ro", "immutable=1")

    def _is_writable(self) -> bool:
        return all(os.access(place, os.W_OK) for place in (self.path, os.path.dirname(self.path)))

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # other threads take from the list meanwhile
            while True:
                self._disconnect(self._idle.pop())

    # --- both --------------------------------------------------------------------------------------

    def revisions(self, connection: sqlite3.Connection) -> str:
        """Return what the revisions of every session begin with: which file, which store."""
        device, inode = self._current_file() or (0, 0)
        if not self._store_id:
            row = connection.execute("SELECT store_id FROM persistence_state").fetchone()
            self._store_id = row[0].decode(errors="replace") if row else ""
        return f"file:{device}:{inode}:store:{self._store_id}"

    def close(self) -> None:
        """Close every connection that is not in use, those in use when they are given back."""
        with self._write_lock:
            self.is_closed = True
            self._drop_writer()
            self._drop_idle()

    def _connect(self, *options: str) -> sqlite3.Connection:
        connection = connect(self.path, *options)
        self._open.add(connection)
        return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        if connection in self._open:  # otherwise it belongs to the process that this one was forked from
            self._open.discard(connection)
            connection.close()

    def _current_file(self) -> tuple[int, int] | None:
        """Return which file lies at the path; readers of one that was taken away would go on with that."""
        try:
            file = os.stat(self.path)
            current = file.st_dev, file.st_ino
        except FileNotFoundError:
            current = None
        if current != self._file:
            self._file, self._store_id = current, ""
            self._drop_idle()
        return current

    def _check_usable(self) -> None:
        if self.is_closed:
            raise StorageError("the store is closed", place=self.path)
        if self.path in _inherited:
            reason = "the database was in use when this process was forked: start a new process instead"
            raise StorageError(reason, place=self.path)

    # --- forks of the process ----------------------------------------------------------------------

    def rest(self) -> None:
        """Close what is not in use; it is opened again when it is needed."""
        self._drop_idle()
        if self._write_lock.acquire(blocking=False):
            try:
                self._drop_writer()
            finally:
                self._write_lock.release()

    def disown(self) -> None:
        """In a forked child: never touch, and never close, what the parent's other threads were using."""
        if self._open:
            _inherited.setdefault(self.path, []).extend(self._open)
        self._open, self._idle, self._writer = set(), [], None
        self._write_lock = threading.RLock()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: dict[str, list[sqlite3.Connection]] = {}
"""By path: connections that belong to a parent process. SQLite's memory of its locks came with them."""
_fork_hooks: list[int] = []


def _watch_forks(database: Database) -> None:
    _databases.add(database)
    if not _fork_hooks:
        _fork_hooks.append(os.getpid())
        os.register_at_fork(before=_before_fork, after_in_parent=_opening.release, after_in_child=_in_child)


def _before_fork() -> None:
    """No connection may cross a fork: the child would believe in locks that only its parent holds."""
    for database in list(_databases):
        database.rest()
    _opening.acquire()


def _in_child() -> None:
    _opening.release()
    for database in list(_databases):
        database.disown()


# --- files -----------------------------------------------------------------------------------------


def _create_file(path: str) -> None:
    folder = os.path.dirname(path)
    make_folder(folder)
    # Closing the descriptor drops SQLite's locks on the file: no connection may be opened before.
    with _opening:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
    sync_folder(folder)
