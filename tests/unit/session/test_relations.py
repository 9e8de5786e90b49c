"""The relational checker: each relation broken once, and the same rules as a guard."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from seedline.errors import EventRefusedError
from seedline.events.event import CHUNK, Event
from seedline.session.relations import Relation, guard_relations, problems_in
from tests.unit.session.make import (
    FINISH,
    assistant,
    call,
    calls,
    chunk,
    event,
    new_session,
    one_turn,
    replace,
    request,
    result,
    user,
)

Step = tuple[str, Any]
TURN: Step = ("turn/start", {"turn": 1})
STEP: Step = ("step/start", {"turn": 1, "step": 1})
END_STEP: Step = ("step/end", {"turn": 1, "step": 1})
END_TURN: Step = ("turn/end", {"turn": 1})
ANSWER: Step = ("assistant/message", assistant(calls("c")))
CALL: Step = ("tool/call", call("c"))
RESULT: Step = ("tool/result", result("c"))


def not_started(call_id: str, *, is_error: bool = True, code: str = "TOOL_NOT_STARTED") -> Step:
    data = result(call_id, error={"name": "E", "code": code})
    data["message"]["content"][0]["isError"] = is_error
    return "tool/result", data


def log(*steps: Step) -> list[Event]:
    found: list[Event] = []
    for seq, (event_type, data) in enumerate(steps):
        replacing = event_type.endswith("!")
        op: Any = replace(0, 0) if replacing else "append"
        name = event_type.rstrip("!")
        on_surface = name in ("user/message", "assistant/message", "tool/result")
        found.append(event(name, seq, data, op=op) if on_surface else event(name, seq, data))
    return found


GOOD: list[list[Step]] = [
    [],
    [("plugin/note", {}), ("user/message", user()), ("session/end-seed", {}), ("session/title", 5)],
    [TURN, STEP, (CHUNK, chunk(FINISH)), ANSWER, CALL, RESULT, END_STEP, END_TURN],
    [TURN, END_TURN, ("turn/start", {"turn": 2}), ("step/start", {"turn": 2, "step": 1})],
    [TURN, STEP, END_STEP, ("step/start", {"turn": 1, "step": 2})],
    [TURN, ("todo/write", {}), ("request/header", request()), ("request/context", {}), END_TURN],
    [TURN, STEP, not_started("never called"), END_STEP],
    [TURN, STEP, CALL, CALL, RESULT, RESULT],
    [TURN, STEP, CALL, RESULT, END_STEP, ("tool/result!", result("c")), END_TURN],
    [TURN, STEP, ("user/message", user()), ("compaction/start", {}), END_STEP, ("user/message", user())],
]


@pytest.mark.parametrize("steps", GOOD)
def test_right_logs(steps: list[Step]) -> None:
    assert problems_in(log(*steps)) == []


BAD: list[tuple[Relation, list[Step]]] = [
    ("turn-nesting", [TURN, ("turn/start", {"turn": 2})]),
    ("turn-nesting", [END_TURN]),
    ("turn-nesting", [TURN, ("turn/end", {"turn": 2})]),
    ("turn-nesting", [TURN, ("turn/end", {})]),
    ("turn-nesting", [TURN, ("turn/end", {"turn": True})]),
    ("turn-number", [("turn/start", {"turn": 2})]),
    ("turn-number", [("turn/start", {"turn": 0})]),
    ("turn-number", [("turn/start", {})]),
    ("turn-number", [("turn/start", [])]),
    ("turn-number", [TURN, END_TURN, TURN]),
    ("step-nesting", [STEP]),
    ("step-nesting", [TURN, ("step/start", {"turn": 2, "step": 1})]),
    ("step-nesting", [TURN, STEP, ("step/start", {"turn": 1, "step": 2})]),
    ("step-nesting", [TURN, STEP, END_TURN]),
    ("step-nesting", [TURN, END_STEP]),
    ("step-nesting", [TURN, STEP, ("step/end", {"turn": 1, "step": 2})]),
    ("step-nesting", [TURN, STEP, ("step/end", {"turn": 2, "step": 1})]),
    ("step-number", [TURN, ("step/start", {"turn": 1, "step": 2})]),
    ("step-number", [TURN, STEP, END_STEP, STEP]),
    ("outside-step", [TURN, (CHUNK, chunk(FINISH))]),
    ("outside-step", [TURN, STEP, (CHUNK, chunk(FINISH, step=2))]),
    ("outside-step", [TURN, STEP, (CHUNK, chunk(FINISH, turn=2))]),
    ("outside-step", [ANSWER]),
    ("outside-step", [TURN, STEP, END_STEP, ANSWER]),
    ("outside-step", [TURN, CALL]),
    ("outside-step", [TURN, RESULT]),
    ("outside-step", [TURN, STEP, CALL, ("tool/result", result("c", step=2))]),
    ("outside-step", [TURN, STEP, END_STEP, not_started("c")]),
    ("outside-turn", [("todo/write", {})]),
    ("outside-turn", [("request/header", request())]),
    ("outside-turn", [TURN, END_TURN, ("request/context", {})]),
    ("outside-turn", [("tool/result!", result("c"))]),
    ("result-without-call", [TURN, STEP, RESULT]),
    ("result-without-call", [TURN, STEP, ANSWER, RESULT]),
    ("result-without-call", [TURN, STEP, CALL, RESULT, RESULT]),
    ("result-without-call", [TURN, STEP, CALL, ("tool/result", result("d"))]),
    ("result-without-call", [TURN, STEP, not_started("c", is_error=False)]),
    ("result-without-call", [TURN, STEP, not_started("c", code="TOOL_OUTCOME_UNKNOWN")]),
    (
        "result-without-call",
        [TURN, STEP, CALL, END_STEP, ("step/start", {"turn": 1, "step": 2}), ("tool/result", result(step=2))],
    ),
]


@pytest.mark.parametrize(("relation", "steps"), BAD)
def test_each_relation_broken_by_the_last_event(relation: Relation, steps: list[Step]) -> None:
    assert problems_in(log(*steps[:-1])) == []
    [problem] = problems_in(log(*steps))
    assert (problem.relation, problem.seq) == (relation, len(steps) - 1)
    assert problem.event_type == steps[-1][0].rstrip("!")
    assert problem.reason


def test_the_seq_must_grow() -> None:
    rows = [
        event("plugin/note", 0),
        event("plugin/note", 5),
        event("plugin/note", 5),
        event("plugin/note", 6),
    ]
    [problem] = problems_in(rows)
    assert (problem.relation, problem.seq) == ("seq-order", 5)


def test_every_relation_is_reachable() -> None:
    assert {relation for relation, _ in BAD} | {"seq-order"} == set(get_args(Relation))


def test_one_mistake_is_one_problem() -> None:
    skipped = [("turn/start", {"turn": 5}), ("turn/end", {"turn": 5}), ("turn/start", {"turn": 6})]
    assert [p.seq for p in problems_in(log(*skipped))] == [0]
    lost_end = [TURN, STEP, ("turn/start", {"turn": 2}), ("step/start", {"turn": 2, "step": 1})]
    assert [p.seq for p in problems_in(log(*lost_end))] == [2]
    stray = [TURN, STEP, RESULT, CALL, RESULT, END_STEP, END_TURN]
    assert [p.seq for p in problems_in(log(*stray))] == [2]


def test_the_guard_refuses_and_the_log_stays_right() -> None:
    session = new_session()
    one_turn(session)
    undo = guard_relations(session)
    for wrong in (("turn/start", {"turn": 1}), ("turn/end", {"turn": 1}), ("todo/write", {})):
        with pytest.raises(EventRefusedError, match="relation") as refused:
            session.append(*wrong)
        assert refused.value.code == "relation"
        assert refused.value.seq == 6
    one_turn(session, 2)
    assert session.seq == 12
    assert problems_in(session.events) == []
    undo()
    session.append("turn/end", {"turn": 9})
    assert session.seq == 13


def test_the_guard_does_not_count_what_another_guard_refused() -> None:
    session = new_session()
    guard_relations(session)

    def refuse(_: Event) -> None:
        raise RuntimeError("not yet")

    undo = session.guard(refuse)
    with pytest.raises(RuntimeError):
        session.append("turn/start", {"turn": 1})
    undo()
    assert session.append("turn/start", {"turn": 1}).seq == 0


def test_a_guard_does_not_judge_what_was_there_before() -> None:
    session = new_session()
    session.append("turn/start", {"turn": 3})
    guard_relations(session)
    session.append("turn/end", {"turn": 3})
    with pytest.raises(EventRefusedError, match="its number is 1, 4 is next"):
        session.append("turn/start", {"turn": 1})
