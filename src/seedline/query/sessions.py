"""Listing sessions, their titles, and how they descend from each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from seedline.errors import QueryError, SeedlineError, SessionNotFoundError
from seedline.events.event import Event, read_data
from seedline.events.vocabulary import SessionTitle
from seedline.query.clauses import is_within, refuse_empty, refuse_reversed
from seedline.query.corpus import UNREADABLE, Corpus, Log, SessionRecord, record_order
from seedline.query.cursor import Page, check_limit, seal, unseal

Availability = Literal["live", "persisted"]
MOST_SESSIONS: Final = 1000


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions: every clause that is given must hold, in a clause of several values one of them.

    Times are in milliseconds since the Unix epoch, both ends included. A None among `cwds` or `parents`
    stands for sessions without one. A session without a readable header fits no clause but `ids` and
    `availability`. Raises `QueryError` (`INVALID_FILTER`) for a clause that nothing can fit.
    """

    ids: tuple[str, ...] | None = None
    cwds: tuple[str | None, ...] | None = None
    parents: tuple[str | None, ...] | None = None
    created_from: int | None = None
    created_to: int | None = None
    availability: tuple[Availability, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("ids", "cwds", "parents", "availability"):
            refuse_empty(name, getattr(self, name))
        refuse_reversed("created", self.created_from, self.created_to)

    def fits(self, record: SessionRecord) -> bool:
        """True when every clause holds."""
        if self.ids is not None and record.session_id not in self.ids:
            return False
        if self.availability is not None and not any(getattr(record, name) for name in self.availability):
            return False
        return self._fits_header(record)

    def _fits_header(self, record: SessionRecord) -> bool:
        clauses = (self.cwds, self.parents, self.created_from, self.created_to)
        header = record.header
        if header is None:
            return all(clause is None for clause in clauses)
        return (
            (self.cwds is None or header.cwd in self.cwds)
            and (self.parents is None or header.parent_session in self.parents)
            and is_within(header.created_at, self.created_from, self.created_to)
        )


EVERY_SESSION: Final = SessionFilter()


def list_sessions(
    corpus: Corpus,
    where: SessionFilter = EVERY_SESSION,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> Page[SessionRecord]:
    """Return the sessions that fit, newest first, then by id; damaged ones without a header last.

    Sessions that come or go between two pages move no other one. Raises `QueryError` and `StorageError`.
    """
    check_limit(limit, MOST_SESSIONS)
    question = ["sessions", where]
    found = [record for record in corpus.records() if where.fits(record)]
    if cursor is not None:
        place = unseal(question, cursor, tuple[int, int, str])
        found = [record for record in found if record_order(record) > place]
    page = tuple(found[:limit])
    more = len(found) > limit
    return Page(page, seal(question, *record_order(page[-1])) if more else None)


# --- titles ------------------------------------------------------------------------------------------------


class Title(msgspec.Struct, frozen=True):
    """The title of a session, and the event that gave it."""

    text: str
    seq: int
    time: int


def title_of(log: Log) -> Title | None:
    """Return the latest title of a session, None where it has none. Reads the whole log, by pages.

    Raises an `ArtifactError`, and `StorageError`.
    """
    return latest_title(log.events(chunks=False))


def latest_title(events: Iterable[Event]) -> Title | None:
    """Return the last title among `events`. Raises `SessionPersistenceCorruptionError`."""
    last: Event | None = None
    for event in events:
        if event.type == "session/title":
            last = event
    if last is None:
        return None
    title: SessionTitle = read_data(last, SessionTitle)
    return Title(title.title, last.seq, last.time)


def read_titles(corpus: Corpus, session_ids: Iterable[str]) -> dict[str, Title | SeedlineError | None]:
    """Return the title of each session, in the order given; in place of it what makes one unreadable."""
    titles: dict[str, Title | SeedlineError | None] = {}
    for session_id in session_ids:
        try:
            titles[session_id] = title_of(corpus.open(session_id))
        except UNREADABLE as error:
            titles[session_id] = error
    return titles


# --- descent -----------------------------------------------------------------------------------------------


class Descendant(msgspec.Struct, frozen=True):
    """A session below another one; `depth` is 1 for its children. `is_fork` says that it is no tree child."""

    record: SessionRecord
    depth: int
    is_fork: bool


class SessionTrace(msgspec.Struct, frozen=True):
    """Where a session stands among the others.

    `ancestors` go outward, the parent first. `unresolved` is the id that the outermost one names as its
    parent and that no session has; None when that one is a root. `descendants` come depth first, the
    children of each session by creation, then id.
    """

    session: SessionRecord
    ancestors: tuple[SessionRecord, ...]
    unresolved: str | None
    descendants: tuple[Descendant, ...]


def trace_session(corpus: Corpus, session_id: str) -> SessionTrace:
    """Return the ancestors and the descendants of a session, by the headers alone.

    Raises `SessionNotFoundError`, `QueryError` (`INVALID_LINEAGE`) where sessions are their own ancestors,
    and `StorageError`.
    """
    records = [record for record in corpus.records() if record.header is not None]
    by_id = {record.session_id: record for record in records}
    if session_id not in by_id:
        raise SessionNotFoundError(f"no session has the id {session_id!r}")
    ancestors, unresolved = _ancestors(by_id, session_id)
    return SessionTrace(
        by_id[session_id], tuple(ancestors), unresolved, tuple(_descendants(records, session_id))
    )


def _parent(record: SessionRecord) -> str | None:
    return record.header.parent_session if record.header else None


def _ancestors(
    by_id: dict[str | None, SessionRecord], session_id: str
) -> tuple[list[SessionRecord], str | None]:
    ancestors: list[SessionRecord] = []
    seen = {session_id}
    parent = _parent(by_id[session_id])
    while parent in by_id and parent is not None:
        if parent in seen:
            raise _cycle(parent)
        seen.add(parent)
        ancestors.append(by_id[parent])
        parent = _parent(by_id[parent])
    return ancestors, parent


def _descendants(records: Sequence[SessionRecord], session_id: str) -> list[Descendant]:
    children: dict[str | None, list[SessionRecord]] = {}
    for record in sorted(records, key=_birth, reverse=True):
        children.setdefault(_parent(record), []).append(record)
    found: list[Descendant] = []
    waiting = [(record, 1) for record in children.pop(session_id, [])]
    while waiting:
        record, depth = waiting.pop()
        if record.session_id == session_id:
            raise _cycle(session_id)
        is_fork = record.header is not None and not record.header.is_tree_child
        found.append(Descendant(record, depth, is_fork))
        waiting += [(child, depth + 1) for child in children.pop(record.session_id, [])]
    return found


def _birth(record: SessionRecord) -> tuple[int, str]:
    return (record.header.created_at if record.header else 0), record.session_id or ""


def _cycle(session_id: str) -> QueryError:
    return QueryError("INVALID_LINEAGE", f"session {session_id!r} is among its own ancestors")
