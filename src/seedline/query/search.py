"""Full-text search over what sessions wrote themselves.

The words of an event decide whether it matches (`query.words`), on every backend. An index only spares the
reading of events that cannot match; whatever it does not cover is read and looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from seedline.errors import QueryError, SeedlineError, StorageError
from seedline.events.event import Event
from seedline.query.corpus import UNREADABLE, Candidates, Corpus, Log, SessionRecord, record_order
from seedline.query.cursor import check_limit, seal, unseal
from seedline.query.sessions import EVERY_SESSION, SessionFilter
from seedline.query.text import SEARCHED, text_of_event
from seedline.query.words import Phrase, matches, read_query, snippet
from seedline.session.sequence import Events

MOST_HITS: Final = 100
BUDGET: Final = 200_000
_NEAR: Final = 50


class Hit(msgspec.Struct, frozen=True):
    """An event that matches. `snippet` is up to 240 characters of its text around the first match."""

    session_id: str
    seq: int
    time: int
    type: str
    snippet: str


class Hits(msgspec.Struct, frozen=True):
    """Some matches: the newest sessions first, the events of each in order.

    `cursor` goes on with the search, None when everything was looked at; a page may be short, or empty, and
    still have one. `unreadable` names the sessions met on the way that cannot be read, and why.
    """

    hits: tuple[Hit, ...]
    cursor: str | None
    unreadable: dict[str, SeedlineError]


class SessionHits(msgspec.Struct, frozen=True):
    """A session with matches among its own events, the first one shown."""

    session: SessionRecord
    first: Hit


class FoundSessions(msgspec.Struct, frozen=True):
    """Some sessions with matches, newest first; see `Hits` for the rest."""

    sessions: tuple[SessionHits, ...]
    cursor: str | None
    unreadable: dict[str, SeedlineError]


def search_events(
    corpus: Corpus,
    query: str,
    where: SessionFilter = EVERY_SESSION,
    *,
    limit: int = 20,
    cursor: str | None = None,
    budget: int = BUDGET,
) -> Hits:
    """Return the events with all the words of `query`, among those that fitting sessions wrote themselves.

    See `words.read_query` for phrases and beginnings. After about `budget` events that had to be read the
    page ends, and the cursor goes on. Raises `QueryError` and `StorageError`.
    """
    check_limit(limit, MOST_HITS)
    search = _Search(corpus, read_query(query), where, budget)
    question = ["search", query, where]
    place = None if cursor is None else _Place(*unseal(question, cursor, tuple[int, int, str, int]))
    hits: list[Hit] = []
    for hit in search.hits(place):
        hits.append(hit)
        if len(hits) == limit:
            break
    return Hits(tuple(hits), _cursor(question, search), search.unreadable)


def search_sessions(
    corpus: Corpus,
    query: str,
    where: SessionFilter = EVERY_SESSION,
    *,
    limit: int = 20,
    cursor: str | None = None,
    budget: int = BUDGET,
) -> FoundSessions:
    """Return the fitting sessions in which an event has all the words of `query`. See `search_events`."""
    check_limit(limit, MOST_HITS)
    search = _Search(corpus, read_query(query), where, budget)
    question = ["search-sessions", query, where]
    place = None if cursor is None else _Place(*unseal(question, cursor, tuple[int, int, str, int]))
    found: list[SessionHits] = []
    for session in search.sessions(place):
        found.append(session)
        if len(found) == limit:
            break
    return FoundSessions(tuple(found), _cursor(question, search), search.unreadable)


class _Place(NamedTuple):
    """Where a search goes on: in the session of this order, behind the seq; the next session behind -1."""

    rank: int
    age: int
    name: str
    seq: int


_WHOLE_SESSION: Final = 2**53 - 1


def _cursor(question: object, search: _Search) -> str | None:
    return None if search.place is None else seal(question, *search.place)


class _Search:
    """A search under way. `place` is the last event looked at, None once nothing is left."""

    def __init__(
        self, corpus: Corpus, phrases: tuple[Phrase, ...], where: SessionFilter, budget: int
    ) -> None:
        if budget < 1:
            raise QueryError("INVALID_LIMIT", f"a budget of {budget} events finds nothing")
        self.place: _Place | None = None
        self.unreadable: dict[str, SeedlineError] = {}
        self._corpus = corpus
        self._phrases = phrases
        self._where = where
        self._left = budget
        self._narrowed = _narrowed(corpus, phrases)

    def hits(self, place: _Place | None) -> Iterator[Hit]:
        """Yield what matches behind `place`."""
        for record in self._records(place):
            seq = place.seq if place is not None and record_order(record) == place[:3] else -1
            yield from self._hits_of(record, seq)
            if self._left <= 0:
                return
        self.place = None

    def sessions(self, place: _Place | None) -> Iterator[SessionHits]:
        """Yield the sessions behind `place` in which something matches."""
        for record in self._records(place):
            seq = place.seq if place is not None and record_order(record) == place[:3] else -1
            hit = next(self._hits_of(record, seq), None)
            if hit is not None:
                self.place = _Place(*record_order(record), _WHOLE_SESSION)
                yield SessionHits(record, hit)
            if self._left <= 0:
                return
        self.place = None

    def _records(self, place: _Place | None) -> Iterator[SessionRecord]:
        for record in self._corpus.records():
            if record.header is None or not self._where.fits(record):
                continue
            if place is None or record_order(record) >= place[:3]:
                yield record

    def _hits_of(self, record: SessionRecord, seq: int) -> Iterator[Hit]:
        """Yield what matches in one session behind `seq`, up to where it cannot be read."""
        session_id = record.session_id or ""
        order = record_order(record)
        try:
            log = self._corpus.open(session_id)
            for part in _parts(log, self._narrowed(session_id), seq + 1):
                for event in part.to_look_at():
                    text = text_of_event(event)
                    if text and matches(self._phrases, text):
                        self.place = _Place(*order, event.seq)
                        yield _hit(session_id, event, self._phrases, text)
                self.place = _Place(*order, part.last)
                self._left -= len(part.events)
                if self._left <= 0:
                    return
        except UNREADABLE as error:
            self.unreadable[session_id] = error


def _narrowed(corpus: Corpus, phrases: tuple[Phrase, ...]) -> Callable[[str], Candidates | None]:
    if corpus.index is None:
        return lambda session_id: None
    with suppress(StorageError):  # a medium that cannot be written keeps what it has, and the rest is read
        corpus.index.refresh()
    return corpus.index.narrow(phrases)


def _hit(session_id: str, event: Event, phrases: tuple[Phrase, ...], text: str) -> Hit:
    return Hit(session_id, event.seq, event.time, event.type, snippet(phrases, text))


# --- what has to be read -----------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Events that were read, and which of them may match."""

    events: Events
    wanted: Container[int]

    @property
    def last(self) -> int:
        return self.events.first_seq + len(self.events) - 1

    def to_look_at(self) -> Iterator[Event]:
        """Yield the events that may match."""
        return (
            event
            for event in self.events.without_chunks()
            if event.type in SEARCHED and event.seq in self.wanted
        )


def _parts(log: Log, known: Candidates | None, start: int) -> Iterator[_Part]:
    """Yield what has to be read of a session's own events from `start` on."""
    start = max(start, log.inherited_event_count)
    if known is not None and not log.is_live:
        seqs = known.seqs[bisect_left(known.seqs, start) :]
        wanted = frozenset(seqs)
        for first, last in _stretches(seqs):
            yield from (_Part(page, wanted) for page in log.pages(first, last + 1))
        start = max(start, known.covered)
    yield from (_Part(page, range(page.first_seq, page.first_seq + len(page))) for page in log.pages(start))


def _stretches(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of seqs that lie so close together that reading on costs less than asking anew."""
    begins = [k for k in range(len(seqs)) if k == 0 or seqs[k] - seqs[k - 1] > _NEAR]
    for begin, end in pairwise([*begins, len(seqs)]):
        yield seqs[begin], seqs[end - 1]
