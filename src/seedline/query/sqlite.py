"""Stretches of logs, and the words of events, in a SQLite store (table layout 4).

Its connections are its own, beside those of the store. Only `refresh` writes, and only to the two full-text
tables, which hold nothing that the logs do not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

from seedline.events.event import CHUNK
from seedline.query.corpus import Candidates, Corpus
from seedline.query.indexing import Behind, Entry, safe_phrase, take_in
from seedline.query.ranges import Piece, RowRanges
from seedline.query.words import Phrase
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.base import Backend
from seedline.storage.rows import Row, to_text
from seedline.storage.sqlite.database import Database
from seedline.storage.sqlite.rows import SessionRow, find_session, read_header
from seedline.storage.sqlite.scan import next_seq

_PIECES: Final = """WITH RECURSIVE piece (key, start, stop, owner) AS (
    SELECT key, prefix_count, 1 << 62, prefix_owner FROM sessions WHERE key = ?
    UNION ALL
    SELECT before.key, before.prefix_count, piece.start, before.prefix_owner
    FROM piece JOIN sessions AS before ON before.key = piece.owner AND before.key < piece.key
) SELECT key, start, stop FROM piece"""
_ROWS: Final = (
    f"SELECT seq, time, data, nullif(type, '{CHUNK}'), source_event_seqs, surface_op, ignorable FROM events "
    "WHERE session_key = ? AND seq >= ? AND seq < ? ORDER BY seq"
)
_BEHIND: Final = """SELECT key, id, covered, stop FROM (
    SELECT key, id, coalesce(event_count, seed_length, 0) AS covered,
        (SELECT max(seq) + 1 FROM events WHERE events.session_key = key) AS stop
    FROM sessions LEFT JOIN search_progress ON search_progress.session_key = key WHERE deleted = 0
) WHERE stop > covered"""
_ADVANCE: Final = (
    "INSERT INTO search_progress (session_key, event_count) VALUES (?, ?) ON CONFLICT (session_key) "
    "DO UPDATE SET event_count = excluded.event_count WHERE search_progress.event_count = ?"
)
_COVERED: Final = (
    "SELECT key, id, event_count FROM search_progress JOIN sessions ON key = session_key WHERE deleted = 0"
)
_MATCHING: Final = "SELECT rowid FROM search_text WHERE search_text MATCH ? ORDER BY rowid"
_SEQ_BITS: Final = 32
_SEQS: Final = 1 << _SEQ_BITS
"""An entry's row is numbered by the session's key and, below it, the seq; later seqs stay unindexed."""


class SqliteQueries:
    """`Ranges` and `TextIndex` over the database at `path`, the one of `backend`. Close it at the end."""

    def __init__(self, backend: Backend, path: str) -> None:
        self._database = Database(path)
        self._ranges = RowRanges(backend, self._showing)
        self._corpus = Corpus(backend, ranges=self._ranges)
        self.read_between = self._ranges.read_between
        self.event_count = self._ranges.event_count

    @contextmanager
    def _showing(self, session_id: str) -> Generator[_Stored | None]:
        with self._database.reading(session_id) as connection:
            row = connection and find_session(connection, session_id)
            yield None if connection is None or row is None else _Stored(connection, row)

    # --- the index ---------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See `TextIndex.refresh`."""
        take_in(self, self._corpus)

    def behind(self) -> list[Behind]:
        """See `Shelf.behind`."""
        with self._database.reading() as connection:
            rows = connection.execute(_BEHIND).fetchall() if connection else []
        return [
            Behind(key, session_id, covered)
            for key, name, covered, _ in rows
            if covered < _SEQS and (session_id := _id(name)) is not None
        ]

    def add(self, behind: Behind, covered: int, entries: list[Entry]) -> bool:
        """See `Shelf.add`."""
        if covered > _SEQS:
            return False
        with self._database.writing(behind.session_id) as connection:
            advanced = connection.execute(_ADVANCE, (behind.key, covered, behind.covered)).rowcount
            rows = ((behind.key << _SEQ_BITS | entry.seq, " ".join(entry.words)) for entry in entries)
            if advanced:
                connection.executemany("INSERT INTO search_text (rowid, body) VALUES (?, ?)", rows)
        return bool(advanced)

    def narrow(self, phrases: tuple[Phrase, ...]) -> Callable[[str], Candidates | None]:
        """See `TextIndex.narrow`."""
        query = " AND ".join(map(_term, phrases))
        known: dict[str, Candidates] = {}
        with self._database.reading() as connection:
            if connection is not None:
                seqs = _matching(connection, query)
                for key, name, covered in connection.execute(_COVERED):
                    known[_id(name) or ""] = Candidates(covered, tuple(seqs.get(key, ())))
        return known.get

    def close(self) -> None:
        """Close its connections."""
        self._database.close()


def _id(name: bytes) -> str | None:
    try:
        return to_text(name)
    except (UnicodeDecodeError, AttributeError):
        return None


def _term(phrase: Phrase) -> str:
    safe = safe_phrase(phrase)
    return f'"{" ".join(safe.words)}"{" *" if safe.is_open else ""}'


def _matching(connection: sqlite3.Connection, query: str) -> dict[int, list[int]]:
    """Return the seqs of the entries that match, in order, by the key of their session."""
    found: dict[int, list[int]] = {}
    rows = connection.execute(
        "SELECT rowid FROM search_text WHERE search_text MATCH ? ORDER BY rowid", (query,)
    )
    for (number,) in rows:
        found.setdefault(number >> _SEQ_BITS, []).append(number % _SEQS)
    return found


class _Stored:
    """See `ranges.StoredRows`."""

    def __init__(self, connection: sqlite3.Connection, row: SessionRow) -> None:
        self._connection = connection
        self._row = row
        self.header: SessionHeader
        self.inherited_event_count: SessionLogOffset
        self.header, self.inherited_event_count = read_header(row)

    def pieces(self) -> list[Piece]:
        """See `StoredRows.pieces`."""
        return [Piece(*row) for row in self._connection.execute(_PIECES, (self._row.key,))]

    def rows(self, piece: Piece) -> Iterator[Row]:
        """See `StoredRows.rows`."""
        return self._connection.execute(_ROWS, piece)

    def next_seq(self) -> int:
        """See `StoredRows.next_seq`."""
        return next_seq(self._connection, self._row.key, self._row.prefix_count)
