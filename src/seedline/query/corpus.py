"""The sessions that can be asked about: what is stored, overlaid by what is live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final, Protocol

import msgspec

from seedline.errors import (
    ArtifactError,
    QueryError,
    SeedlineError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    StorageError,
    SurfaceRefusedError,
)
from seedline.events.event import Event
from seedline.query.ranges import PAGE, Ranges, WholeLogs, no_events
from seedline.query.words import Phrase
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.store import SessionStore
from seedline.session.surface import Replacement, Surface
from seedline.session.tree import RecordedSession
from seedline.storage.base import Backend, ListedSession


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One session of a corpus.

    Of a damaged one the header, and even the id, may be missing; `error` says what is wrong. `place` is a
    path or a row id, for people. `revision` changes with every append to what is stored; None where nothing
    is.
    """

    session_id: str | None
    header: SessionHeader | None
    live: bool
    persisted: bool
    place: str | None = None
    revision: str | None = None
    error: SeedlineError | None = None


class Candidates(msgspec.Struct, frozen=True):
    """What an index knows of one session: the seqs before `covered` that may match, in order."""

    covered: int
    seqs: tuple[int, ...] = ()


class TextIndex(Protocol):
    """Narrows a full-text search down. It may name events that do not match, and must miss none."""

    def refresh(self) -> None:
        """Take in what was stored since. Raises `StorageError`, and what is indexed stays as it was."""
        ...

    def narrow(self, phrases: tuple[Phrase, ...]) -> Callable[[str], Candidates | None]:
        """Return what gives the candidates of a session by its id, None for one that is not indexed.

        Only the events that a session wrote itself are indexed. Raises `StorageError`.
        """
        ...


class Corpus:
    """Stored sessions overlaid by live ones: a live session is read from memory and never from storage.

    `ranges` reads stretches of logs, by default whole logs through the backend; `index` speeds searches up.
    It blocks, like the backend. With live sessions it is called from the thread that they run in.
    """

    def __init__(
        self,
        stored: Backend | None = None,
        live: SessionStore | None = None,
        *,
        ranges: Ranges | None = None,
        index: TextIndex | None = None,
    ) -> None:
        self._stored = stored
        self._live = live
        self._ranges = ranges or (WholeLogs(stored) if stored is not None else None)
        self.index = index

    # --- sessions ----------------------------------------------------------------------------------

    def records(self) -> list[SessionRecord]:
        """Return every session, newest first, then by id; those without a header last.

        A stored session whose header contradicts the live one of its id carries the error
        `SOURCE_CONFLICT`. Raises `StorageError`.
        """
        live = {session.id: session for session in self._live.list()} if self._live else {}
        records = [_record(listed, live.pop(listed.session_id or "", None)) for listed in self._listed()]
        records += [_of_live(session) for session in live.values()]
        return sorted(records, key=record_order)

    def _listed(self) -> Iterator[ListedSession]:
        return self._stored.list() if self._stored is not None else iter(())

    # --- logs --------------------------------------------------------------------------------------

    def open(self, session_id: str) -> Log:
        """Return a session's log to read from; of a live one, as it is now.

        Raises `SessionNotFoundError` or another `ArtifactError`, and `StorageError`.
        """
        live = self._live.get(session_id) if self._live else None
        if live is not None:
            return _live_log(live)
        ranges = self._ranges
        if ranges is None:
            raise _not_live(session_id)
        head = ranges.read_between(session_id, 0, 0)
        return Log(
            head.header,
            head.inherited_event_count,
            is_live=False,
            read=lambda start, stop: ranges.read_between(session_id, start, stop).events,
            count=lambda: ranges.event_count(session_id),
        )

    def read(self, session_id: str) -> RecordedSession:
        """Return a whole session under its id, to build trees from; an open turn stays open.

        Raises `SessionNotFoundError` or another `ArtifactError`, and `StorageError`.
        """
        live = self._live.get(session_id) if self._live else None
        if live is not None:
            return RecordedSession(live.header, live.inherited_event_count, live.events, session_id)
        if self._stored is None:
            raise _not_live(session_id)
        stored = self._stored.read(session_id)
        return RecordedSession(stored.header, stored.inherited_event_count, stored.events, session_id)


class Log:
    """One session's log, read a page at a time.

    `header` and `inherited_event_count` are those of the moment it was opened. Of a stored session the
    events are read when asked for, so those that were appended since are there; `surface` is taken when it is
    first asked for and then stays. Reading raises an `ArtifactError`, or `StorageError`.
    """

    def __init__(
        self,
        header: SessionHeader,
        inherited_event_count: SessionLogOffset,
        *,
        is_live: bool,
        read: Callable[[int, int], Events],
        count: Callable[[], int],
    ) -> None:
        self.header = header
        self.inherited_event_count = inherited_event_count
        self.is_live = is_live
        self._read = read
        self._count = count

    def count(self) -> int:
        """Return how many events there are; those of a torn tail may count."""
        return self._count()

    def between(self, start: int, stop: int) -> Events:
        """Return the events from seq `start` to before `stop`; fewer where they are large."""
        return self._read(start, stop) if start < stop else no_events(start)

    def pages(self, start: int = 0, stop: int | None = None, size: int = PAGE) -> Iterator[Events]:
        """Yield the events from seq `start` on in order, some at a time."""
        at = start
        while stop is None or at < stop:
            page = self.between(at, at + size if stop is None else min(at + size, stop))
            if not page:
                return
            yield page
            at += len(page)

    def events(self, start: int = 0, stop: int | None = None, *, chunks: bool = True) -> Iterator[Event]:
        """Yield the events from seq `start` on in order, at wish without `assistant/chunk` ones."""
        for page in self.pages(start, stop):
            yield from page if chunks else page.without_chunks()

    def at(self, seq: int) -> Event:
        """Return one event. Raises `QueryError` (`EVENT_NOT_FOUND`)."""
        found = self.between(seq, seq + 1) if seq >= 0 else ()
        if not found:
            raise QueryError("EVENT_NOT_FOUND", f"session {self.header.id!r} has no event with seq {seq}")
        return found[0]

    @cached_property
    def surface(self) -> SurfaceMap:
        """Where each message stands. Reads the whole log, a page at a time, and keeps numbers only.

        Raises `SessionPersistenceCorruptionError` naming the seq of a marker that cannot take effect.
        """
        surface = Surface()
        try:
            for event in self.events(chunks=False):
                surface.commit(event, surface.admit(event, self.at))
        except SurfaceRefusedError as error:
            raise SessionPersistenceCorruptionError(error.reason, seq=error.seq) from error
        return SurfaceMap(surface.nodes, surface.replacements)


class SurfaceMap:
    """The surface at the end of a log, and how it came to be."""

    def __init__(self, nodes: tuple[int, ...], replacements: tuple[Replacement, ...]) -> None:
        self.nodes = nodes
        self.replacements = replacements
        self._current = frozenset(nodes)
        self._replacers = {seq: each.seq for each in replacements for seq in each.shadowed}

    def is_current(self, seq: int) -> bool:
        """True for an event that the model sees."""
        return seq in self._current

    def replacer(self, seq: int) -> int | None:
        """Return the event that took the place of `seq`, None where none did."""
        return self._replacers.get(seq)

    def replaced_by(self, seq: int) -> tuple[int, ...]:
        """Return the events that `seq` took the place of."""
        return next((each.shadowed for each in self.replacements if each.seq == seq), ())


# --- records -----------------------------------------------------------------------------------------------

_LAST: Final = 1


def record_order(record: SessionRecord) -> tuple[int, int, str]:
    """Return what records are sorted by: newest first, then by id; those without a header last."""
    if record.header is None:
        return _LAST, 0, f"{record.session_id or ''}\0{record.place or ''}"
    return 0, -record.header.created_at, record.header.id


def _record(listed: ListedSession, live: Session | None) -> SessionRecord:
    record = SessionRecord(
        session_id=listed.session_id,
        header=listed.header,
        live=live is not None,
        persisted=True,
        place=listed.place,
        revision=listed.revision,
        error=listed.error,
    )
    if live is None:
        return record
    return msgspec.structs.replace(
        record, header=live.header, error=listed.error or _conflict(listed.header, live.header)
    )


def _of_live(session: Session) -> SessionRecord:
    return SessionRecord(session_id=session.id, header=session.header, live=True, persisted=False)


def _conflict(stored: SessionHeader | None, live: SessionHeader) -> QueryError | None:
    if stored is None or _identity(stored) == _identity(live):
        return None
    reason = f"the stored header of session {live.id!r} is not that of the live session"
    return QueryError("SOURCE_CONFLICT", reason)


def _identity(header: SessionHeader) -> tuple[object, ...]:
    return (
        header.version,
        header.id,
        header.created_at,
        header.cwd,
        header.parent_session,
        header.is_seeded,
        header.depth,
    )


def _not_live(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"no session {session_id!r} is live, and there is no store")


def _live_log(session: Session) -> Log:
    events = session.events
    return Log(
        session.header,
        session.inherited_event_count,
        is_live=True,
        read=lambda start, stop: events[start:stop],
        count=lambda: len(events),
    )


UNREADABLE: Final = (ArtifactError, QueryError, StorageError)
"""What one session can fail with while the others are fine."""
