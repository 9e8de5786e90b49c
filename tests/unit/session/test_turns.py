"""Turn brackets: the last one, an open one, and the prefix a forked subagent inherits."""

from __future__ import annotations

import pytest

from seedline.session.sequence import Events
from seedline.session.turns import completed_turn_prefix, has_open_turn, last_bracket
from tests.unit.session.make import event, events_of, packed


def log(*types: str) -> Events:
    return events_of(*(event(event_type, seq) for seq, event_type in enumerate(types)))


@pytest.mark.parametrize(
    ("types", "prefix", "is_open"),
    [
        ([], 0, False),
        (["plugin/note"], 0, False),
        (["turn/start"], 0, True),
        (["turn/start", "step/start"], 0, True),
        (["turn/start", "turn/end"], 2, False),
        (["turn/start", "turn/end", "session/title"], 2, False),
        (["turn/start", "turn/end", "session/end-seed", "turn/start", "step/start"], 2, True),
        (["turn/start", "turn/end", "turn/start", "turn/end", "agent/inbox/spliced"], 4, False),
        (["turn/end", "plugin/note"], 1, False),
    ],
)
def test_prefix_and_open_turn(types: list[str], prefix: int, is_open: bool) -> None:
    assert completed_turn_prefix(log(*types)) == prefix
    assert has_open_turn(log(*types)) is is_open


def test_a_run_that_starts_late_counts_its_own_events() -> None:
    events = log("turn/start", "turn/end", "plugin/note", "turn/start", "turn/end", "plugin/note")
    assert completed_turn_prefix(events[3:]) == 2
    assert completed_turn_prefix(events[2:4]) == 0
    assert completed_turn_prefix(events[5:]) == 0


def test_chunks_are_skipped_unread() -> None:
    rows = [event("turn/start", 0), event("turn/end", 1), packed(2, *"abc"), b"never decoded"]
    assert completed_turn_prefix(events_of(*rows)) == 2
    bracket = last_bracket(events_of(*rows))
    assert bracket is not None
    assert bracket.seq == 1
