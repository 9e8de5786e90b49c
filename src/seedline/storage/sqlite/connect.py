"""Opening connections, and their errors in our terms."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from seedline.errors import SessionPersistenceCorruptionError, StorageError

BUSY_SECONDS: Final = 5.0
"""How long a write waits for the writers of other sessions."""
_SETTINGS: Final = {"foreign_keys": 1, "trusted_schema": 0, "mmap_size": 0, "synchronous": 2}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def connect(path: str, *options: str) -> sqlite3.Connection:
    """Open the database file with options of SQLite's URIs; texts read as bytes."""
    uri = f"file:{quote(os.fsencode(path))}?{'&'.join(options)}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = bytes  # a damaged text must not end the walk over the other rows
    return connection


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    """Return the value of a setting."""
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def settle(connection: sqlite3.Connection) -> None:
    """Apply the settings that every connection has. Raises `StorageError` if one does not stick."""
    for name, value in _SETTINGS.items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if name != "mmap_size" and pragma(connection, name) != value:
            raise StorageError(f"this SQLite does not take {name} = {value}")


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Set the journal mode WAL. Raises `StorageError` where the medium has none."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = pragma(connection, "journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait here by itself.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != b"wal":
            raise StorageError(f"the database stays in journal mode {mode.decode()!r}: its medium has no WAL")
        return


@contextmanager
def translated(path: str, session_id: str | None = None) -> Generator[None]:
    """Raise the errors of SQLite and of the file system as ours, naming the database at `path`."""
    try:
        yield
    except sqlite3.Error as error:
        code: int = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _DAMAGED:
            reason = f"the database is damaged: {error}"
            raise SessionPersistenceCorruptionError(reason, path=path) from error
        raise StorageError(f"SQLite: {error}", place=path, session_id=session_id) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(reason, place=error.filename or path, session_id=session_id) from error
