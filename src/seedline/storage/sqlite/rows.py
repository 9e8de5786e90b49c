"""The rows of a session and of its events, and what SQLite holds of texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import Event
from seedline.jsonvalue import is_count
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.rows import HeaderColumns, header_columns, header_of, to_bytes
from seedline.storage.sqlite.layout import EVENT_COLUMNS

_HEADER: Final = ", ".join(HeaderColumns._fields)
SELECT_SESSION: Final = (
    f"SELECT {_HEADER}, key, prefix_owner, prefix_count, incarnation, revision, epoch FROM sessions "
)
_INSERT: Final = (
    f"INSERT INTO sessions ({_HEADER}, prefix_owner, prefix_count, incarnation, revision, epoch) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1)"
)
_INSERT_PLAIN: Final = "INSERT INTO events (session_key, seq, type, time, data) VALUES (?, ?, ?, ?, ?)"
_INSERT_EVENT: Final = f"INSERT INTO events (session_key, {EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


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


def insert_events(connection: sqlite3.Connection, key: int, events: Sequence[Event]) -> None:
    """Store events as rows of the session `key`, each payload byte for byte."""
    for is_plain, run in groupby(events, _is_plain):
        if is_plain:
            connection.executemany(_INSERT_PLAIN, (_plain_values(key, event) for event in run))
        else:
            connection.executemany(_INSERT_EVENT, (_values(key, event) for event in run))


def _is_plain(event: Event) -> bool:
    return event.surface_op is UNSET and event.source_event_seqs is UNSET and event.ignorable is UNSET


def _plain_values(key: int, event: Event) -> tuple[Any, ...]:
    # Of what an event needs, `sqlite3` binds numbers, str and bytearray at once; for the rest, None included,
    # it first looks for an adapter.
    return key, event.seq, _type(event.type), event.time, bytearray(event.data)


def _values(key: int, event: Event) -> tuple[Any, ...]:
    sources, surface_op = event.source_event_seqs, event.surface_op
    return (
        *_plain_values(key, event),
        None if sources is UNSET else msgspec.json.encode(sources).decode(),
        None if surface_op is UNSET else msgspec.json.encode(surface_op).decode(),
        None if event.ignorable is UNSET else 1,
    )


@lru_cache(256)
def _type(name: str) -> str | bytes:
    return _text(to_bytes(name))


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
