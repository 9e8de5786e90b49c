"""What a child inherited and what is its own. The only code that slices a log by the cut."""

from __future__ import annotations

from seedline.errors import SessionPersistenceCorruptionError
from seedline.session.header import SessionLogOffset
from seedline.session.sequence import Events


def own(events: Events, inherited_event_count: SessionLogOffset) -> Events:
    """Return the events this session wrote itself: those from the cut on.

    Everything that a session is asked about itself (script, result, usage, descriptor, queue) is read from
    here. Raises `SessionPersistenceCorruptionError` when the cut lies beyond the log.
    """
    check_cut(len(events), inherited_event_count)
    return events[inherited_event_count:]


def inherited(events: Events, inherited_event_count: SessionLogOffset) -> Events:
    """Return the events that came from the parent: those before the cut."""
    check_cut(len(events), inherited_event_count)
    return events[:inherited_event_count]


def check_cut(count: int, inherited_event_count: SessionLogOffset) -> None:
    """Raise `SessionPersistenceCorruptionError` when a stored log is shorter than its inherited prefix."""
    if inherited_event_count > count:
        raise SessionPersistenceCorruptionError(
            f"the header says {inherited_event_count} events are inherited, the log has {count}"
        )
