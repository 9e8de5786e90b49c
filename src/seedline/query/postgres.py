"""Stretches of logs, and the words of events, in a PostgreSQL store.

Its connections are its own, beside those of the store. Only `refresh` writes, and only to two tables that
the first one makes in the store's schema; they hold nothing that the logs do not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, cast

from psycopg.types.numeric import Int8

from seedline.query.corpus import Candidates, Corpus
from seedline.query.indexing import Behind, Entry, safe_phrase, take_in
from seedline.query.ranges import Piece, RowRanges
from seedline.query.words import Phrase
from seedline.storage.base import Backend
from seedline.storage.postgres import sessions
from seedline.storage.postgres.connect import Address, Connection
from seedline.storage.postgres.database import Database
from seedline.storage.rows import Row, to_text

_PIECES: Final = """WITH RECURSIVE piece (key, start, stop, owner) AS (
    SELECT key, prefix_count, 1::bigint << 62, prefix_owner FROM sessions WHERE key = %b
    UNION ALL
    SELECT before.key, before.prefix_count, piece.start, before.prefix_owner
    FROM piece JOIN sessions AS before ON before.key = piece.owner AND before.key < piece.key
) SELECT key, start, stop FROM piece"""
_ROWS: Final = (
    "SELECT seq, time, data, nullif(type, 'assistant/chunk'::bytea), source_event_seqs, surface_op, "
    "ignorable FROM events WHERE session = %s AND seq >= %s AND seq < %s ORDER BY seq"
)
_ROWS_AT_ONCE: Final = 50

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS search_progress (
    session bigint PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    event_count bigint NOT NULL
)""",
    """CREATE TABLE IF NOT EXISTS search_text (
    session bigint NOT NULL REFERENCES search_progress (session) ON DELETE CASCADE,
    seq bigint NOT NULL,
    body tsvector,
    PRIMARY KEY (session, seq)
)""",
    "CREATE INDEX IF NOT EXISTS search_text_by_word ON search_text USING gin (body)",
    "CREATE INDEX IF NOT EXISTS search_text_unread ON search_text (session, seq) WHERE body IS NULL",
)
_HAS_TABLES: Final = "SELECT to_regclass('search_text') IS NOT NULL"
_EVERY: Final = (
    "SELECT key, id, coalesce(seed_length, 0), (SELECT max(seq) + 1 FROM events WHERE session = key) "
    "FROM sessions WHERE NOT deleted"
)
_COVERED: Final = (
    "SELECT key, id, event_count FROM search_progress JOIN sessions ON key = session WHERE NOT deleted"
)
_ADVANCE: Final = (
    "INSERT INTO search_progress (session, event_count) SELECT key, %s FROM sessions WHERE key = %s "
    "ON CONFLICT (session) DO UPDATE SET event_count = excluded.event_count "
    "WHERE search_progress.event_count = %s"
)
_ADD: Final = "INSERT INTO search_text (session, seq, body) VALUES (%s, %s, array_to_tsvector(%s::text[]))"
_MATCHING: Final = (
    "SELECT session, seq FROM search_text WHERE body @@ %s::tsquery "
    "UNION ALL SELECT session, seq FROM search_text WHERE body IS NULL"
)
_MOST_BYTES: Final = 500_000
"""PostgreSQL refuses a larger `tsvector` than 1 MB; an event with more words is always looked at."""


class PostgresQueries:
    """`Ranges` and `TextIndex` over the schema that `backend` keeps its sessions in. Close it at the end."""

    def __init__(self, backend: Backend, url: str, schema: str = "seedline") -> None:
        self._address = Address(url, schema)
        self._database = Database(self._address)
        self._ranges = RowRanges(backend, self._showing)
        self._corpus = Corpus(backend, ranges=self._ranges)
        self.read_between = self._ranges.read_between
        self.event_count = self._ranges.event_count

    @contextmanager
    def _showing(self, session_id: str) -> Generator[_Stored | None]:
        with self._database.reading(session_id) as connection:
            row = connection and sessions.find(connection, session_id)
            yield None if connection is None or row is None else _Stored(connection, row)

    # --- the index ---------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See `TextIndex.refresh`."""
        take_in(self, self._corpus)

    def behind(self) -> list[Behind]:
        """See `Shelf.behind`."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            covered = {key: count for key, _, count in _covered(connection)}
            rows = cast("list[tuple[int, bytes, int, int | None]]", connection.execute(_EVERY).fetchall())
        return [
            Behind(key, session_id, covered.get(key, cut))
            for key, name, cut, stop in rows
            if (stop or 0) > covered.get(key, cut) and (session_id := _id(name)) is not None
        ]

    def add(self, behind: Behind, covered: int, entries: list[Entry]) -> bool:
        """See `Shelf.add`."""
        database = self._database
        with self._address.translated(behind.session_id), database.write_lock:
            connection = database.writer()
            self._ensure_tables(connection)
            with connection.transaction():
                advanced = connection.execute(_ADVANCE, (covered, behind.key, behind.covered)).rowcount
                if advanced:
                    rows = [(behind.key, entry.seq, _lexemes(entry)) for entry in entries]
                    connection.cursor().executemany(_ADD, rows)
        return bool(advanced)

    def _ensure_tables(self, connection: Connection) -> None:
        if _has_tables(connection):
            return
        with connection.transaction():
            # Two processes that make one table at a time may both fail, in spite of IF NOT EXISTS.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._address.lock_key(b""),))
            for statement in _TABLES:
                connection.execute(statement)

    def narrow(self, phrases: tuple[Phrase, ...]) -> Callable[[str], Candidates | None]:
        """See `TextIndex.narrow`."""
        known: dict[str, Candidates] = {}
        with self._database.reading() as connection:
            if connection is not None and _has_tables(connection):
                seqs = _matching(connection, " & ".join(map(_term, phrases)))
                for key, name, covered in _covered(connection):
                    known[_id(name) or ""] = Candidates(covered, tuple(sorted(seqs.get(key, ()))))
        return known.get

    def close(self) -> None:
        """Close its connections."""
        self._database.close()


def _id(name: bytes) -> str | None:
    try:
        return to_text(name)
    except UnicodeDecodeError:
        return None


def _has_tables(connection: Connection) -> bool:
    return (connection.execute(_HAS_TABLES).fetchone() or (False,))[0]


def _covered(connection: Connection) -> list[tuple[int, bytes, int]]:
    if not _has_tables(connection):
        return []
    return cast("list[tuple[int, bytes, int]]", connection.execute(_COVERED).fetchall())


def _lexemes(entry: Entry) -> list[str] | None:
    words = sorted(set(entry.words))
    return words if sum(map(len, words)) + 8 * len(words) <= _MOST_BYTES else None


def _term(phrase: Phrase) -> str:
    *words, last = safe_phrase(phrase).words
    return " & ".join([*map(_quoted, words), _quoted(last) + (":*" if phrase.is_open else "")])


def _quoted(word: str) -> str:
    return f"'{word}'"


def _matching(connection: Connection, query: str) -> dict[int, list[int]]:
    """Return the seqs of the entries that match, by the key of their session."""
    found: dict[int, list[int]] = {}
    for key, seq in connection.execute(_MATCHING, (query,)):
        found.setdefault(key, []).append(seq)
    return found


class _Stored:
    """See `ranges.StoredRows`."""

    def __init__(self, connection: Connection, row: sessions.SessionRow) -> None:
        self._connection = connection
        self._row = row
        self.header, self.inherited_event_count = sessions.header_and_cut(row)

    def pieces(self) -> list[Piece]:
        """See `StoredRows.pieces`."""
        found = self._connection.execute(_PIECES, (Int8(self._row.key),), binary=True)
        return [Piece(*cast("tuple[int, int, int]", row)) for row in found]

    def rows(self, piece: Piece) -> Iterator[Row]:
        """See `StoredRows.rows`."""
        with self._connection.cursor("page", binary=True) as cursor:
            cursor.execute(_ROWS, piece)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                yield from rows

    def next_seq(self) -> int:
        """See `StoredRows.next_seq`."""
        return sessions.next_seq(self._connection, self._row)
