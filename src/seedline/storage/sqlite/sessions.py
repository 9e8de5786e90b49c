"""The row of a session, and what SQLite holds of texts."""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import Event
from seedline.jsonvalue import is_count
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.rows import HeaderColumns, event_columns, header_columns, header_of, to_bytes

_HEADER: Final = ", ".join(HeaderColumns._fields)
SELECT_SESSION: Final = (
    f"SELECT {_HEADER}, key, prefix_owner, prefix_count, incarnation, revision, epoch FROM sessions "
)
_INSERT: Final = (
    f"INSERT INTO sessions ({_HEADER}, prefix_owner, prefix_count, incarnation, revision, epoch) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1)"
)


class SessionRow(NamedTuple):
    """A row of `sessions`, in the order of `SELECT_SESSION`; a damaged one holds values of any kind."""

    id: bytes
    version: int
    created_at: int
    cwd: bytes | None
    parent_session: bytes | None
    seed_length: int | None
    origin: bytes | None
    delegation_depth: int | None
    agent_preset: bytes | None
    spawn: bytes | None
    key: int
    prefix_owner: int | None
    prefix_count: int
    incarnation: bytes
    revision: int
    epoch: int


def find_session(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Return the row of a session that is not deleted."""
    query = SELECT_SESSION + "WHERE id = ? AND deleted = 0"
    row = connection.execute(query, (_text(to_bytes(session_id)),)).fetchone()
    return row and SessionRow(*row)


def read_header(row: SessionRow) -> tuple[SessionHeader, SessionLogOffset]:
    """Return header and cut of a row, checked like a header line. Raises an `ArtifactError`."""
    header = header_of(HeaderColumns(*row[:10]))
    if not is_count(row.revision) or not row.incarnation:
        raise SessionPersistenceCorruptionError("its row has no revision")
    return header


def insert_session(
    connection: sqlite3.Connection,
    header: SessionHeader,
    cut: SessionLogOffset,
    *,
    prefix_owner: int | None,
    prefix_count: int,
    incarnation: str,
) -> int:
    """Store the row of a new session in its first epoch, and return its key."""
    columns = map(_text, header_columns(header, cut))
    key = connection.execute(_INSERT, (*columns, prefix_owner, prefix_count, incarnation)).lastrowid
    assert key is not None
    return key


def event_values(key: int, event: Event) -> tuple[Any, ...]:
    """Return the row of an event, its payload byte for byte."""
    seq, kind, at, data, sources, surface_op, ignorable = event_columns(event)
    return key, seq, _text(kind), at, data, _text(sources), _text(surface_op), ignorable


def _text(value: Any) -> Any:
    """Return what a text column holds of bytes: TEXT, or the bytes where they have a lone surrogate.

    SQLite takes only UTF-8 as TEXT. A BLOB never equals a TEXT, so no two texts are stored alike.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return value
