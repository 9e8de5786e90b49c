"""Events of one session: by what they are, with what stands around them, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import UNSET

from seedline.errors import QueryError
from seedline.events.event import CHUNK, Event
from seedline.events.vocabulary import is_surface_eligible_type
from seedline.query.clauses import is_within, refuse_empty, refuse_reversed
from seedline.query.corpus import Log, SurfaceMap
from seedline.query.cursor import Page, check_limit, seal, unseal
from seedline.query.text import text_of_event
from seedline.session.header import SessionHeader

Surfacing = Literal["current", "shadowed", "log-only"]
"""Where an event stands: the model sees it, another one took its place, or it never joins the surface."""

MOST_EVENTS: Final = 10_000
MOST_AROUND: Final = 50


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events: every clause that is given must hold, in a clause of several values one of them.

    Both ends of a range are included; times are in milliseconds since the Unix epoch. `text` is found
    literally in an event's text, whatever the case, any white space standing for any other. Raises
    `QueryError` (`INVALID_FILTER`) for a clause that nothing can fit.
    """

    seq_from: int | None = None
    seq_to: int | None = None
    time_from: int | None = None
    time_to: int | None = None
    types: tuple[str, ...] | None = None
    surface: tuple[Surfacing, ...] | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        refuse_empty("types", self.types)
        refuse_empty("surface", self.surface)
        refuse_reversed("seq", self.seq_from, self.seq_to)
        refuse_reversed("time", self.time_from, self.time_to)
        if self.text is not None and not self.text.split():
            raise QueryError("INVALID_FILTER", "the text to look for is empty")


EVERY_EVENT: Final = EventFilter()


class FoundEvent(msgspec.Struct, frozen=True):
    """An event of a session. `surfacing` is None where it was not asked for.

    `inherited` says that it came from the parent, and is not this session's own work.
    """

    event: Event
    surfacing: Surfacing | None
    inherited: bool

    @property
    def text(self) -> str:
        """The text that searches look at, often empty."""
        return text_of_event(self.event)


def find_events(
    log: Log,
    where: EventFilter = EVERY_EVENT,
    *,
    limit: int = 100,
    cursor: str | None = None,
    surfacing: bool = False,
) -> Page[FoundEvent]:
    """Return the events that fit, in the order of the log.

    `surfacing`, and a clause about it, read the whole log once for each `Log`. A cursor stays good while the
    log grows. Raises `QueryError`, and what reading raises.
    """
    check_limit(limit, MOST_EVENTS)
    question = ["events", log.header.id, where]
    start = max(where.seq_from or 0, 0)
    if cursor is not None:
        start = max(start, 1 + unseal(question, cursor, tuple[int])[0])
    surface = log.surface if surfacing or where.surface is not None else None
    found: list[FoundEvent] = []
    for event in _fitting(log, where, start, surface):
        if len(found) == limit:
            return Page(tuple(found), seal(question, found[-1].event.seq))
        found.append(_found(log, event, surface))
    return Page(tuple(found))


def _fitting(log: Log, where: EventFilter, start: int, surface: SurfaceMap | None) -> Iterator[Event]:
    stop = None if where.seq_to is None else where.seq_to + 1
    pattern = None if where.text is None else _pattern(where.text)
    for event in log.events(start, stop, chunks=_wants_chunks(where)):
        if (
            (where.types is None or event.type in where.types)
            and is_within(event.time, where.time_from, where.time_to)
            and (where.surface is None or surfacing_of(event, surface) in where.surface)
            and (pattern is None or pattern.search(text_of_event(event)))
        ):
            yield event


def _wants_chunks(where: EventFilter) -> bool:
    """False where no chunk can fit, so that none has to be decoded."""
    has_type = where.types is None or CHUNK in where.types
    return has_type and where.text is None and (where.surface is None or "log-only" in where.surface)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def surfacing_of(event: Event, surface: SurfaceMap | None) -> Surfacing | None:
    """Return where an event stands on a surface, None without one."""
    if surface is None:
        return None
    if not is_surface_eligible_type(event.type):
        return "log-only"
    return "current" if surface.is_current(event.seq) else "shadowed"


def _found(log: Log, event: Event, surface: SurfaceMap | None) -> FoundEvent:
    return FoundEvent(event, surfacing_of(event, surface), event.seq < log.inherited_event_count)


# --- one event, and the surface ------------------------------------------------------------------------


class Window(msgspec.Struct, frozen=True):
    """An event and its neighbours, in the order of the log."""

    before: tuple[FoundEvent, ...]
    target: FoundEvent
    after: tuple[FoundEvent, ...]


def read_event(log: Log, seq: int, *, before: int = 0, after: int = 0, surfacing: bool = False) -> Window:
    """Return one event with up to 50 neighbours on each side, fewer at the ends of the log.

    Raises `QueryError` (`EVENT_NOT_FOUND`, `INVALID_WINDOW`), and what reading raises.
    """
    if not (0 <= before <= MOST_AROUND and 0 <= after <= MOST_AROUND):
        raise QueryError(
            "INVALID_WINDOW", f"a window of {before} and {after} is not within 0 and {MOST_AROUND}"
        )
    target = log.at(seq)
    surface = log.surface if surfacing else None
    first = max(seq - before, 0)
    found = [_found(log, event, surface) for event in log.events(first, seq + after + 1)]
    return Window(tuple(found[: seq - first]), _found(log, target, surface), tuple(found[seq - first + 1 :]))


class SurfaceView(msgspec.Struct, frozen=True):
    """What the model sees of a session: its messages in order. `last_seq` is None for an empty log."""

    header: SessionHeader
    last_seq: int | None
    events: tuple[Event, ...]


def read_surface(log: Log) -> SurfaceView:
    """Return the events on the surface of a session, in the order the model sees them.

    Raises what reading raises.
    """
    nodes, wanted = log.surface.nodes, frozenset(log.surface.nodes)
    found: dict[int, Event] = {}
    last: int | None = None
    for page in log.pages():
        last = page.first_seq + len(page) - 1
        found |= {event.seq: event for event in page.without_chunks() if event.seq in wanted}
    return SurfaceView(log.header, last, tuple(found[seq] for seq in nodes))


# --- what became of an event -------------------------------------------------------------------------------


class EventTrace(msgspec.Struct, frozen=True):
    """What an event was made from and what became of it, as seqs.

    `replacers` begins with the event that took its place and goes on with what took the place of that one.
    `replaced` are those whose place it took, `sources` those it cites, `cited_by` later ones that cite it.
    `sources` is None where the event says nothing of them.
    """

    target: FoundEvent
    replacers: tuple[int, ...]
    replaced: tuple[int, ...]
    sources: tuple[int, ...] | None
    cited_by: tuple[int, ...]


def trace_event(log: Log, seq: int) -> EventTrace:
    """Return what an event was made from and what became of it.

    Raises `QueryError` (`EVENT_NOT_FOUND`), and what reading raises.
    """
    event = log.at(seq)
    surface = log.surface
    sources = event.source_event_seqs
    return EventTrace(
        target=_found(log, event, surface),
        replacers=tuple(_replacers(surface, seq)),
        replaced=surface.replaced_by(seq),
        sources=None if sources is UNSET else sources,
        cited_by=tuple(later.seq for later in log.events(seq + 1, chunks=False) if _cites(later, seq)),
    )


def _replacers(surface: SurfaceMap, seq: int) -> Iterator[int]:
    at = surface.replacer(seq)
    while at is not None:
        yield at
        at = surface.replacer(at)


def _cites(event: Event, seq: int) -> bool:
    return event.source_event_seqs is not UNSET and seq in event.source_event_seqs
