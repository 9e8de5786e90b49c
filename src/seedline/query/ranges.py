"""Reading stretches of stored logs, whatever the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import Final, NamedTuple, Protocol

from seedline.errors import ArtifactError
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage import reading
from seedline.storage.base import Backend, StoredSuffix
from seedline.storage.rows import Row, RowScan

PAGE: Final = 1000
"""How many events a walk over a log asks for at once."""
PAGE_BYTES: Final = 4 << 20
"""About how many bytes of payloads `RowRanges` returns at once; a single larger event comes alone."""
_PAST_THE_END: Final = 2**53 - 1


class Ranges(Protocol):
    """Stretches of stored logs, read without what lies behind them. Nothing is repaired.

    Both methods raise `SessionNotFoundError` or another `ArtifactError`, and `StorageError`.
    """

    def read_between(self, session_id: str, start: int, stop: int) -> StoredSuffix:
        """Return the events from seq `start` to before `stop`; fewer where they are large.

        Where an event `start` is stored there is at least one, unless `stop` leaves no room for any.
        """
        ...

    def event_count(self, session_id: str) -> int:
        """Return how many events are stored; those of a torn tail may count."""
        ...


class _Held(NamedTuple):
    session_id: str
    revision: str
    suffix: StoredSuffix


class WholeLogs:
    """`Ranges` over any backend: reads from `start` to the end, and keeps that of the last session asked for.

    It holds as much as the backend's `read_from` returns, which is fine for small logs.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: _Held | None = None

    def read_between(self, session_id: str, start: int, stop: int) -> StoredSuffix:
        """See `Ranges.read_between`."""
        if start >= stop:
            return self._backend.read_from(session_id, _PAST_THE_END)
        held = self._suffix(session_id, start)
        events = held.events[max(start - held.events.first_seq, 0) : stop - held.events.first_seq]
        return StoredSuffix(
            header=held.header, inherited_event_count=held.inherited_event_count, events=events
        )

    def event_count(self, session_id: str) -> int:
        """See `Ranges.event_count`."""
        events = self._suffix(session_id, 0).events
        return events.first_seq + len(events)

    def _suffix(self, session_id: str, start: int) -> StoredSuffix:
        """Return what is stored from some seq on that is no later than `start`."""
        revision = self._backend.revision(session_id)
        held = self._held
        if held is None or held[:2] != (session_id, revision) or held.suffix.events.first_seq > start:
            held = _Held(session_id, revision, self._backend.read_from(session_id, start))
            self._held = held
        return held.suffix


# --- stores of rows ----------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """The events [start, stop) of a session are rows of the session `key`."""

    key: int
    start: int
    stop: int


class StoredRows(Protocol):
    """One session in a database, as it is at one moment."""

    @property
    def header(self) -> SessionHeader: ...
    @property
    def inherited_event_count(self) -> SessionLogOffset: ...

    def pieces(self) -> list[Piece]:
        """Return where its events lie, in any order; too few where a row that owns some is gone."""
        ...

    def rows(self, piece: Piece) -> Iterator[Row]:
        """Yield the rows of a piece in order, reading little more than is asked for."""
        ...

    def next_seq(self) -> int:
        """Return the seq behind the last row."""
        ...


class RowRanges:
    """`Ranges` over a database. What does not read is left to the backend, which knows what that means.

    `showing` gives a session by its id, None where there is none.
    """

    def __init__(
        self, backend: Backend, showing: Callable[[str], AbstractContextManager[StoredRows | None]]
    ) -> None:
        self._backend = backend
        self._showing = showing

    def read_between(self, session_id: str, start: int, stop: int) -> StoredSuffix:
        """See `Ranges.read_between`."""
        found = self._read(session_id, start, stop)
        if found is not None:
            return found
        suffix = self._backend.read_from(session_id, start)
        return StoredSuffix(
            header=suffix.header,
            inherited_event_count=suffix.inherited_event_count,
            events=suffix.events[: max(stop - start, 0)],
        )

    def event_count(self, session_id: str) -> int:
        """See `Ranges.event_count`."""
        with suppress(ArtifactError), self._showing(session_id) as stored:
            if stored is not None:
                return stored.next_seq()
        return len(self._backend.read(session_id).events)

    def _read(self, session_id: str, start: int, stop: int) -> StoredSuffix | None:
        """Return what is asked for, None where anything about it is not as it should be."""
        try:
            with self._showing(session_id) as stored:
                return None if stored is None else _suffix(stored, start, stop)
        except (ArtifactError, reading.EarlierNeeded):
            return None


def _suffix(stored: StoredRows, start: int, stop: int) -> StoredSuffix | None:
    scan = RowScan(start)
    scan.begin(start)
    rows = list(_some_rows(stored, start, stop)) if start < stop else []
    scan.take(rows)
    if scan.check_end(lambda: 0) is not None or (not rows and start < min(stop, stored.next_seq())):
        return None
    return StoredSuffix(
        header=stored.header,
        inherited_event_count=stored.inherited_event_count,
        events=reading.upgrade_suffix(scan.events(), stored.header.id),
    )


def _some_rows(stored: StoredRows, start: int, stop: int) -> Iterator[Row]:
    """Yield rows in order until enough bytes have come together."""
    parts = (
        Piece(piece.key, max(piece.start, start), min(piece.stop, stop))
        for piece in sorted(stored.pieces(), key=lambda piece: piece.start)
    )
    size = 0
    for row in chain.from_iterable(stored.rows(part) for part in parts if part.start < part.stop):
        size += len(row[2]) if isinstance(row[2], bytes) else 0
        if size > PAGE_BYTES and row[0] != start:
            return
        yield row


def no_events(seq: int) -> Events:
    """Return an empty run at `seq`."""
    return Events((), seq, seq)
