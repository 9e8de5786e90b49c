"""The relational checker for tests: turns, steps, calls and results in their places.

`problems_in` looks at a log, `guard_relations` keeps a session right while it grows, `assert_relations`
fails a test. The rules live in `seedline.session.relations`.
"""

from __future__ import annotations

from collections.abc import Iterable

from seedline.events.event import Event
from seedline.session.relations import Problem, Relation, guard_relations, problems_in

__all__ = ["Problem", "Relation", "assert_relations", "guard_relations", "problems_in"]


def assert_relations(events: Iterable[Event]) -> None:
    """Raise `AssertionError` that lists every broken relation of a log, one a line."""
    found = [f"seq {p.seq}, {p.event_type}: {p.relation}: {p.reason}" for p in problems_in(events)]
    if found:
        raise AssertionError("\n".join(["broken relations:", *found]))
