"""The cancel signal and the context of a call."""

from __future__ import annotations

from seedline.tools.base import Signal
from tests.unit.tools.harness import context


def test_the_first_cause_wins_and_callbacks_run_once() -> None:
    signal, seen = Signal(), list[str]()
    signal.on_abort(lambda: seen.append("a"))
    undo = signal.on_abort(lambda: seen.append("b"))
    undo()
    undo()
    assert not signal.aborted
    signal.abort({"kind": "user"})
    signal.abort({"kind": "parent"})
    assert (signal.cause, seen) == ({"kind": "user"}, ["a"])
    signal.on_abort(lambda: seen.append("late"))()
    assert seen == ["a", "late"]


def test_the_children_of_a_call_are_numbered() -> None:
    subject = context()
    assert [subject.next_child(), subject.next_child()] == [0, 1]
