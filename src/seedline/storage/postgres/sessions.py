"""Queries on the sessions and events of a store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import pq
from psycopg.types.numeric import Int8

from seedline.errors import SessionPersistenceCorruptionError
from seedline.jsonvalue import is_count
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage import reading
from seedline.storage.base import TornTail
from seedline.storage.postgres.connect import Connection
from seedline.storage.rows import HeaderColumns, Row, RowScan, header_of, to_bytes

_SESSION: Final = (
    "SELECT key, id, version, created_at, cwd, parent_session, seed_length, origin, delegation_depth, "
    "agent_preset, spawn, prefix_owner, prefix_count, incarnation, revision, epoch FROM sessions "
)
_BY_ID: Final = _SESSION + "WHERE id = %b AND NOT deleted"
_ALL: Final = _SESSION + "WHERE NOT deleted ORDER BY key"
_PREFIX: Final = "SELECT prefix_owner, prefix_count FROM sessions WHERE key = %b"
_EVENTS: Final = (
    "SELECT seq, time, data, nullif(type, 'assistant/chunk'::bytea), source_event_seqs, surface_op, "
    "ignorable FROM events WHERE session = %b AND seq >= %b AND seq < %b ORDER BY seq"
)
_NO_END: Final = 2**62
_PAGE: Final = 2000
# Older builds of libpq hand out single rows of a running query only.
_ROWS_AT_ONCE: Final = _PAGE if pq.version() >= 170000 else 1


class SessionRow(NamedTuple):
    """A stored session that was not deleted."""

    key: int
    header: HeaderColumns
    prefix_owner: int | None
    prefix_count: int
    incarnation: UUID
    revision: int
    epoch: int


def _session_row(row: tuple[Any, ...]) -> SessionRow:
    return SessionRow(row[0], HeaderColumns(*row[1:11]), *row[11:])


def find(connection: Connection, session_id: str) -> SessionRow | None:
    """Return the session of an id."""
    row = connection.execute(_BY_ID, (to_bytes(session_id),), binary=True).fetchone()
    return _session_row(row) if row else None


def find_all(connection: Connection) -> list[SessionRow]:
    """Return every session."""
    return list(map(_session_row, connection.execute(_ALL, binary=True)))


def header_and_cut(row: SessionRow) -> tuple[SessionHeader, SessionLogOffset]:
    """Return header and cut, checked. Raises an `ArtifactError`."""
    if not is_count(row.revision):
        raise SessionPersistenceCorruptionError("its row has no revision")
    return header_of(row.header)


class _Piece(NamedTuple):
    """The events [start, stop) of a session are rows of the session `key`."""

    key: int
    start: int
    stop: int


def _pieces(connection: Connection, row: SessionRow) -> list[_Piece]:
    """Return where a session's events lie, oldest first. Raises `SessionPersistenceCorruptionError`."""
    pieces = [_Piece(row.key, row.prefix_count, _NO_END)]
    owner, count = row.prefix_owner, row.prefix_count
    while owner is not None:
        found = connection.execute(_PREFIX, (Int8(owner),)).fetchone()
        before, start = found or (None, count)
        if not is_count(start) or start >= count or (before is not None and before >= owner):
            raise SessionPersistenceCorruptionError(f"the row that owns its first {count} events is damaged")
        pieces.append(_Piece(owner, start, count))
        owner, count = before, start
    return pieces[::-1]


def next_seq(connection: Connection, row: SessionRow) -> int:
    """Return the seq that follows what is stored."""
    query = "SELECT max(seq) FROM events WHERE session = %b"
    last = (connection.execute(query, (Int8(row.key),)).fetchone() or (None,))[0]
    return row.prefix_count if last is None else last + 1


def needed(connection: Connection, key: int) -> int:
    """Return how many leading events of a session its forks read."""
    query = "SELECT max(prefix_count) FROM sessions WHERE prefix_owner = %b"
    return (connection.execute(query, (Int8(key),)).fetchone() or (None,))[0] or 0


def scan(connection: Connection, row: SessionRow, start: int) -> tuple[Events, TornTail | None]:
    """Return the events from seq `start` on as they are stored, and the torn tail."""
    found = RowScan(start)
    for key, first, stop in _pieces(connection, row):
        if stop <= start:
            continue
        found.begin(max(first, start))
        for page in _pages(connection, key, max(first, start), stop):
            found.take(page)
        if key != row.key:
            found.check_whole(stop)
    torn = found.check_end(lambda: needed(connection, row.key))
    return found.events(), torn


def _pages(connection: Connection, key: int, start: int, stop: int) -> Iterator[list[Row]]:
    bounds = (Int8(key), Int8(start), Int8(stop))
    with connection.cursor() as cursor:
        rows = cursor.stream(_EVENTS, bounds, binary=True, size=_ROWS_AT_ONCE)
        while page := list(islice(rows, _PAGE)):
            yield page


def suffix(connection: Connection, row: SessionRow, seq: int, session_id: str) -> Events:
    """Return the events from `seq` on in the current form; all are read where an old shape needs it."""
    events, _ = scan(connection, row, seq)
    try:
        return reading.upgrade_suffix(events, session_id)
    except reading.EarlierNeeded:
        whole, _ = scan(connection, row, 0)
        return reading.upgrade(whole, session_id)[seq:]


# --- deleting --------------------------------------------------------------------------------------


def delete(connection: Connection, key: int) -> None:
    """Take a session out of every listing, and out of the store what no fork reads. Inside a transaction."""
    connection.execute("UPDATE sessions SET deleted = true WHERE key = %s", (key,))
    owner: int | None = key
    while owner is not None:
        owner = _collect(connection, owner)


def _collect(connection: Connection, key: int) -> int | None:
    """Remove what no session reads of a deleted one; return the session whose turn is next."""
    # The lock makes a fork that is about to name this session wait, or be seen by `needed`.
    query = "SELECT deleted, prefix_owner FROM sessions WHERE key = %s FOR UPDATE"
    deleted, before = connection.execute(query, (key,)).fetchone() or (False, None)
    if not deleted:
        return None
    kept = needed(connection, key)
    connection.execute("DELETE FROM events WHERE session = %s AND seq >= %s", (key, kept))
    if kept:
        return None
    connection.execute("DELETE FROM torn_events WHERE session = %s", (key,))
    connection.execute("DELETE FROM sessions WHERE key = %s", (key,))
    return before


def nearest_owner(connection: Connection, owner: int | None, count: int) -> int | None:
    """Return the session that holds the last event of a prefix as a row of its own. Inside a transaction.

    It stays as it is until the transaction ends. Raises `LookupError` when it is gone.
    """
    while owner is not None:
        found = connection.execute(_PREFIX + " FOR SHARE", (Int8(owner),)).fetchone()
        before, first = found or (None, 0)
        if found is None or first < count:
            query = "SELECT 1 FROM events WHERE session = %s AND seq = %s"
            if connection.execute(query, (owner, count - 1)).fetchone():
                return owner
            raise LookupError(owner)
        owner = before
    return None
