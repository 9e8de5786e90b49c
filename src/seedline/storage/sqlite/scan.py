"""Where a session's events lie, and reading them (dsh format version 0, 5.3)."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import CHUNK
from seedline.jsonvalue import is_count
from seedline.session.sequence import Events
from seedline.storage.base import TornTail
from seedline.storage.rows import RowScan
from seedline.storage.sqlite.rows import SessionRow

_READ_ROWS: Final = 2000
_NO_END: Final = 2**62
_ROWS: Final = (
    f"SELECT seq, time, data, nullif(type, '{CHUNK}'), source_event_seqs, surface_op, ignorable FROM events "
    "WHERE session_key = ? AND seq >= ? AND seq < ? ORDER BY seq"
)


def read_events(
    connection: sqlite3.Connection, row: SessionRow, start: int
) -> tuple[Events, TornTail | None]:
    """Return the events from seq `start` on as they are stored, and the torn tail.

    Raises `SessionPersistenceCorruptionError` for damage that a crash cannot explain: before an event that
    ends a turn, or in a part that other sessions read; and what the types of the events raise.
    """
    scan = RowScan(start)
    for piece in _pieces(connection, row):
        if piece.stop <= start:
            continue
        first = max(piece.start, start)
        scan.begin(first)
        cursor = connection.execute(_ROWS, (piece.key, first, piece.stop))
        while rows := cursor.fetchmany(_READ_ROWS):
            scan.take(rows)
        if piece.key != row.key:
            scan.check_whole(piece.stop)
    torn = scan.check_end(lambda: needed_count(connection, row.key))
    return scan.events(), torn


# --- where the events lie --------------------------------------------------------------------------


class _Piece(NamedTuple):
    """The events [start, stop) of a session are rows of the session `key`."""

    key: int
    start: int
    stop: int


def _pieces(connection: sqlite3.Connection, row: SessionRow) -> list[_Piece]:
    """Return where a session's events lie, oldest first. Raises `SessionPersistenceCorruptionError`."""
    pieces = [_Piece(row.key, row.prefix_count, _NO_END)]
    owner, count = row.prefix_owner, row.prefix_count
    query = "SELECT prefix_owner, prefix_count FROM sessions WHERE key = ?"
    while owner is not None:
        before, start = connection.execute(query, (owner,)).fetchone() or (None, count)
        if not is_count(start) or start >= count or (before is not None and before >= owner):
            raise SessionPersistenceCorruptionError(f"the row that owns its first {count} events is damaged")
        pieces.append(_Piece(owner, start, count))
        owner, count = before, start
    return pieces[::-1]


def next_seq(connection: sqlite3.Connection, key: int, prefix_count: int) -> int:
    """Return the seq that follows the last row of a session."""
    last = connection.execute("SELECT max(seq) FROM events WHERE session_key = ?", (key,)).fetchone()[0]
    return prefix_count if last is None else last + 1


def needed_count(connection: sqlite3.Connection, key: int) -> int:
    """Return how many leading events of a session its forks read."""
    query = "SELECT max(prefix_count) FROM sessions WHERE prefix_owner = ?"
    return connection.execute(query, (key,)).fetchone()[0] or 0
