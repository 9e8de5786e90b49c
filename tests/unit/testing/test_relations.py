"""The shipped form of the relational checker."""

from __future__ import annotations

import pytest

from seedline.testing.relations import assert_relations
from tests.unit.session.make import event, new_session, one_turn


def test_a_right_log_passes() -> None:
    session = new_session()
    one_turn(session)
    assert_relations(session.events)


def test_the_failure_lists_every_problem() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_relations([event("turn/end", 0, {"turn": 1}), event("todo/write", 1)])
    assert str(failed.value).splitlines() == [
        "broken relations:",
        "seq 0, turn/end: turn-nesting: it names turn 1, no turn is open",
        "seq 1, todo/write: outside-turn: no turn is open",
    ]
