"""The tables of layout 4, and the refusal of every other database before it is touched."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from seedline.errors import StoreLayoutError
from seedline.storage.sqlite.connect import connect, pragma

SCHEMA_VERSION: Final = 4
"""The table layout. Any other is refused untouched; there is no migration."""
APPLICATION_ID: Final = 0x53454544

EVENT_COLUMNS: Final = "seq, type, time, data, source_event_seqs, surface_op, ignorable"

_TABLES: Final = (
    """CREATE TABLE persistence_state (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    store_id TEXT NOT NULL
)""",
    """CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    cwd TEXT,
    parent_session TEXT,
    seed_length INTEGER,
    origin TEXT,
    delegation_depth INTEGER,
    agent_preset TEXT,
    spawn TEXT,
    prefix_owner INTEGER REFERENCES sessions (key) CHECK (prefix_owner < key),
    prefix_count INTEGER NOT NULL CHECK ((prefix_owner IS NULL) = (prefix_count = 0)),
    incarnation TEXT NOT NULL,
    revision INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0
)""",
    "CREATE UNIQUE INDEX sessions_by_id ON sessions (id) WHERE deleted = 0",
    "CREATE INDEX sessions_by_prefix ON sessions (prefix_owner, prefix_count) WHERE prefix_owner IS NOT NULL",
    """CREATE TABLE events (
    session_key INTEGER NOT NULL REFERENCES sessions (key),
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    time INTEGER NOT NULL,
    data BLOB NOT NULL,
    source_event_seqs TEXT,
    surface_op TEXT,
    ignorable INTEGER,
    PRIMARY KEY (session_key, seq)
) WITHOUT ROWID""",
    """CREATE TABLE torn_events (
    session_key INTEGER NOT NULL REFERENCES sessions (key),
    cut_at_revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT,
    time INTEGER,
    data BLOB,
    source_event_seqs TEXT,
    surface_op TEXT,
    ignorable INTEGER
)""",
    "CREATE INDEX torn_events_by_session ON torn_events (session_key)",
    "CREATE VIRTUAL TABLE search_text USING fts5 "
    "(body, content='', tokenize='unicode61 remove_diacritics 2')",
    """CREATE TABLE search_progress (
    session_key INTEGER PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    event_count INTEGER NOT NULL
)""",
)
# SQLite makes these by itself, and their texts differ between its versions.
_MADE_BY_SQLITE: Final = "name GLOB 'sqlite_*' OR name GLOB 'search_text_*'"


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty database one of layout 4, inside the caller's transaction."""
    for sql in _TABLES:
        connection.execute(sql)
    connection.execute("INSERT INTO persistence_state VALUES (1, ?)", (str(uuid.uuid4()),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def is_pristine(connection: sqlite3.Connection, path: str) -> bool:
    """True for a database that nothing was written to. Raises `StoreLayoutError` unless it is ours."""
    marks = _Marks(pragma(connection, "user_version"), pragma(connection, "application_id"))
    if marks == _UNMARKED:
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise StoreLayoutError("the database holds tables that are not Seedline's", place=path)
        return True
    _check_marks(marks, path)
    return False


def check_tables(connection: sqlite3.Connection, path: str) -> None:
    """Raises `StoreLayoutError` unless tables and indexes are those of layout 4."""
    query = f"SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND NOT ({_MADE_BY_SQLITE})"
    found = {_plain(sql.decode(errors="replace")): name for name, sql in connection.execute(query)}
    expected = set(map(_plain, _TABLES))
    for sql, name in found.items():
        if sql not in expected:
            table = name.decode(errors="replace")
            raise StoreLayoutError(f"its {table!r} is not that of layout {SCHEMA_VERSION}", place=path)
    missing = expected - found.keys()
    if missing:
        raise StoreLayoutError(f"it lacks {min(missing).partition('(')[0].strip()!r}", place=path)


def _plain(sql: str) -> str:
    return " ".join(sql.split())


def refuse_foreign(path: str) -> None:
    """Raise `StoreLayoutError` for a foreign database without touching it or its write-ahead log.

    An ordinary connection would recover the log, and fold it into the file when it is closed.
    """
    page = _logged_first_page(f"{path}-wal")
    if page is not None:
        _check_marks(_marks(page), path)
        return
    connection = connect(path, "mode=ro", "immutable=1")
    try:
        is_pristine(connection, path)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StoreLayoutError("the file is no SQLite database", place=path) from error
        raise
    finally:
        connection.close()


class _Marks(NamedTuple):
    version: int
    application: int


_UNMARKED: Final = _Marks(0, 0)


def _check_marks(marks: _Marks, path: str) -> None:
    version, application = marks
    if version == 0:
        reason = "the database has no layout number and is not Seedline's"
    elif version != SCHEMA_VERSION:
        reason = f"its layout is {version}, this build's is {SCHEMA_VERSION}"
    elif application != APPLICATION_ID:
        reason = f"the database belongs to application {application:#x}"
    else:
        return
    raise StoreLayoutError(reason, place=path)


# --- the write-ahead log (https://www.sqlite.org/fileformat2.html, section 4) ------------------------------

_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24


def _logged_first_page(path: str) -> bytes | None:
    """Return the database's first page as the write-ahead log at `path` has it last committed, if it does."""
    page, committed = None, None
    try:
        with open(path, "rb") as log:
            for number, is_commit, at in _frames(log):
                if number == 1:
                    log.seek(at)
                    page = log.read(100)
                committed = page if is_commit else committed
    except FileNotFoundError:
        return None
    return committed


def _frames(log: BinaryIO) -> Iterator[tuple[int, bool, int]]:
    """Yield page number, whether the frame commits, where its page lies; up to a frame of an older log."""
    header = log.read(_LOG_HEADER)
    if len(header) < _LOG_HEADER:
        return
    page_size, salts = int.from_bytes(header[8:12]), header[16:24]
    size = os.fstat(log.fileno()).st_size
    for at in range(_LOG_HEADER, size - page_size - _FRAME_HEADER + 1, _FRAME_HEADER + page_size):
        log.seek(at)
        frame = log.read(_FRAME_HEADER)
        if frame[8:16] != salts:
            return
        yield int.from_bytes(frame[:4]), any(frame[4:8]), at + _FRAME_HEADER


def _marks(page: bytes) -> _Marks:
    return _Marks(int.from_bytes(page[60:64], signed=True), int.from_bytes(page[68:72], signed=True))
