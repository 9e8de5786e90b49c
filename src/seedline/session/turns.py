"""Turns as brackets in a log: where the last one ends, and whether one is open."""

from __future__ import annotations

from seedline.events.event import Event
from seedline.session.sequence import Events

_BRACKETS = frozenset({"turn/start", "turn/end"})


def last_bracket(events: Events) -> Event | None:
    """Return the last `turn/start` or `turn/end`, None before the first turn."""
    return next((event for event in events.without_chunks_reversed() if event.type in _BRACKETS), None)


def has_open_turn(events: Events) -> bool:
    """True when the last turn that started has not ended."""
    last = last_bracket(events)
    return last is not None and last.type == "turn/start"


def completed_turn_prefix(events: Events) -> int:
    """Return how many leading events a forked subagent inherits: those through the last `turn/end`.

    0 when no turn has ended; the child is then unseeded. Whatever follows the last `turn/end` (the turn
    that delegates, titles, switches, queued input) is not inherited.
    """
    ends = (event.seq for event in events.without_chunks_reversed() if event.type == "turn/end")
    return next(ends, events.first_seq - 1) + 1 - events.first_seq
