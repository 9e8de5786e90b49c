"""What every backend does to the events it has read, before a session is built from them (1.3 and 4.9)."""

from __future__ import annotations

from functools import reduce

from seedline.errors import (
    ArtifactError,
    EventRefusedError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import Event
from seedline.events.upgrade import STEERING, Upgrader
from seedline.events.vocabulary import KNOWN_TYPES
from seedline.session.guards import refuse_retired
from seedline.session.sequence import Events, Segment

_OWNERS = frozenset(name.partition("/")[0] for name in KNOWN_TYPES)


def type_problem(event: Event) -> ArtifactError | None:
    """Say why a stored event's type makes its log unreadable, None when it does not.

    A retired shape is corruption, ignorable or not. An unknown type is a format refusal unless it is marked
    ignorable; the old shapes that reading upgrades count as known.
    """
    try:
        refuse_retired(event.type, bytes(event.data), event.seq)
    except EventRefusedError as error:
        reason = f"{event.type!r} is a retired shape: {error.reason}"
        return SessionPersistenceCorruptionError(reason, seq=event.seq)
    if event.type in KNOWN_TYPES or event.ignorable is True or event.type == STEERING:
        return None
    # A damaged byte in a name looks like a name of another build.
    unknown = "unknown or damaged" if looks_damaged(event.type) else "unknown"
    return SessionFormatUnsupportedError(
        f"{unknown} event type {event.type!r}, which is not marked ignorable", seq=event.seq
    )


def looks_damaged(event_type: str) -> bool:
    """True for an unknown type that may be a known one with a damaged byte."""
    owner, slash, _ = event_type.partition("/")
    return not slash or owner in _OWNERS


def checked(events: Events, session_id: str) -> Events:
    """Return a whole stored log in the current form, its types judged first; a retired one counts most.

    Raises `SessionFormatUnsupportedError` or `SessionPersistenceCorruptionError`.
    """
    _check_types(events)
    return upgrade(events, session_id)


def checked_suffix(events: Events, session_id: str) -> Events:
    """`checked` for the end of a log. Raises `EarlierNeeded`, too."""
    _check_types(events)
    return upgrade_suffix(events, session_id)


def _check_types(events: Events) -> None:
    problem = reduce(graver, map(type_problem, events.without_chunks()), None)
    if problem is not None:
        raise problem


def graver(kept: ArtifactError | None, found: ArtifactError | None) -> ArtifactError | None:
    """Return which of two problems with types is reported: a retired shape, else the earlier one."""
    if kept is None or isinstance(kept, SessionPersistenceCorruptionError):
        return kept or found
    return found if isinstance(found, SessionPersistenceCorruptionError) else kept


class EarlierNeeded(Exception):  # noqa: N818  # an answer of `upgrade_suffix`, not a failure
    """A suffix cannot be brought to the current form without the events before it."""


def upgrade_suffix(events: Events, session_id: str) -> Events:
    """`upgrade` for the end of a log. Raises `EarlierNeeded` where an event refers to one before it."""

    def at(seq: int) -> Event:
        if seq < events.first_seq:
            raise EarlierNeeded
        return events.at_seq(seq)

    return _upgrade(events, Upgrader(session_id, at))


def upgrade(events: Events, session_id: str) -> Events:
    """Return the whole log `events` in the current form, sharing every row that has it already.

    Raises `SessionPersistenceCorruptionError` naming the seq of a malformed old shape.
    """
    return _upgrade(events, Upgrader(session_id, events.at_seq))


def _upgrade(events: Events, upgrader: Upgrader) -> Events:
    changed: dict[int, Event] = {}
    for row in events.without_chunks():
        current = upgrader.upgrade(row)
        if current is not row:
            changed[row.seq] = current
    return _replaced(events, changed) if changed else events


def _replaced(events: Events, changed: dict[int, Event]) -> Events:
    segment = Segment(events.first_seq)
    for row in events.rows():
        segment.append(changed.get(row.seq, row) if isinstance(row, Event) else row)
    return Events((segment,), events.first_seq, events.first_seq + len(events))
