"""Who hangs where among recorded sessions, and by what key."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import LineageError, SessionPersistenceCorruptionError
from seedline.events.event import Event
from seedline.session.header import (
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
    SpawnFact,
)
from seedline.session.sequence import Events
from seedline.session.tree import Node, RecordedSession, SessionTree, build_tree
from tests.unit.session.make import assistant, event, result, user

Row = tuple[str, Any]


def log(*rows: Row) -> Events:
    """A log of the events given, numbered from 0."""
    return Events.of([event(name, seq, data) for seq, (name, data) in enumerate(rows)])


def recorded(
    session_id: str,
    parent: str | None = None,
    *rows: Row,
    spawn: SpawnFact | None = None,
    origin: Literal["subagent"] | None = "subagent",
    created_at: int = 0,
    depth: int | None = None,
    cut: int = 0,
    name: str = "",
) -> RecordedSession:
    header = SessionHeader(
        id=session_id,
        created_at=created_at,
        is_seeded=bool(cut),
        parent_session=parent,
        origin=origin if parent else None,
        delegation_depth=depth if depth is not None else int(bool(parent)),
        spawn=spawn,
    )
    return RecordedSession(header, SessionLogOffset(cut), log(*rows), name or f"{session_id}.jsonl")


def by_call(turn: int, step: int = 1, call: int = 0, n: int = 0) -> CallSpawn:
    return CallSpawn(turn, step, call, n, "c", "subagent")


def by_host(turn: int, n: int) -> HostSpawn:
    return HostSpawn(HostPlace(turn, n))


def texts_said(session: RecordedSession) -> tuple[bytes, ...]:
    """Sessions answer alike here when they hold the same `said` events."""
    return tuple(bytes(e.data) for e in session.own if e.type == "said")


def tree_of(*sessions: RecordedSession, primary: RecordedSession | None = None) -> SessionTree:
    return build_tree(sessions, texts_said, primary)


def keys(tree: SessionTree) -> dict[str, str]:
    return {node.session.header.id: node.key for node in tree.primary.walk()}


def node_of(tree: SessionTree, session: RecordedSession) -> Node:
    return next(n for n in (*tree.primary.walk(), *tree.outside()) if n.session is session)


# --- a parent's log ------------------------------------------------------------------------------------


def delegate(prompt: str, label: str, call_id: str = "c", tool: str = "subagent") -> dict[str, str]:
    arguments = json.dumps({"prompt": prompt, "description": label})
    return {"type": "tool-call", "id": call_id, "name": tool, "arguments": arguments}


def step_of(*blocks: dict[str, str], turn: int = 1, step: int = 1) -> list[Row]:
    """The rows of a step whose message makes the calls given: message and call rows, no results."""
    rows: list[Row] = [("assistant/message", assistant(list(blocks), turn=turn, step=step))]
    return rows + [call_row(block, turn, step) for block in blocks]


def call_row(block: dict[str, str], turn: int = 1, step: int = 1) -> Row:
    call = {"callId": block["id"], "name": block["name"], "arguments": block["arguments"]}
    return "tool/call", {"turn": turn, "step": step, **call}


def result_row(call_id: str, text: str, turn: int = 1, step: int = 1) -> Row:
    return "tool/result", result(call_id, text, turn=turn, step=step)


def member(child_id: str, number: int) -> Row:
    return "tool-workflow/agent-start", {"runId": "r", "seq": number, "label": "x", "childId": child_id}


WORKFLOW = {"type": "tool-call", "id": "w", "name": "workflow", "arguments": '{"script":"..."}'}


def asked(prompt: str, label: str | None) -> list[Row]:
    """What a child's log says of its task."""
    first: Row = (
        "agent/inbox/spliced",
        {"target": "next-turn", "start": 0, "inserted": [user(prompt)]},
    )
    descriptor: dict[str, Any] = {"version": 2, "mode": "one-shot", "provider": "spawn"}
    if label is not None:
        descriptor["label"] = label
    return [first, ("subagent/descriptor", descriptor)]


# --- the primary ---------------------------------------------------------------------------------------


def test_one_session_is_a_root_even_if_it_names_a_parent() -> None:
    tree = tree_of(recorded("a", "elsewhere"))
    assert (tree.primary.key, tree.primary.grade, tree.primary.method) == ("0", "exact", None)
    assert list(tree.outside()) == []


def test_the_only_session_without_a_parent_is_primary() -> None:
    child, root = recorded("child", "root", spawn=by_call(1)), recorded("root")
    assert tree_of(child, root).primary.session is root


def test_of_several_the_first_without_a_present_parent_is_primary() -> None:
    first, second = recorded("a", "elsewhere"), recorded("b", "elsewhere")
    assert tree_of(first, second).primary.session is first
    inner = recorded("c", "a", spawn=by_call(1))
    assert keys(tree_of(inner, first)) == {"a": "0", "c": "0/t1.s1.c0.n0"}


def test_the_primary_can_be_named() -> None:
    root, child = recorded("root"), recorded("child", "root", spawn=by_call(1))
    tree = tree_of(root, child, primary=child)
    assert tree.primary.session is child
    assert [node.session for node in tree.outside()] == [root]


# --- keys --------------------------------------------------------------------------------------------


def test_keys_are_paths_and_come_in_the_order_of_numbers() -> None:
    places = [
        by_call(10),
        by_call(9, 10),
        by_call(9, 9, 10),
        by_call(9, 9, 9, 10),
        by_call(9, 9, 9, 9),
        by_host(9, 0),
        by_host(8, 11),
        by_host(8, 2),
    ]
    children = [recorded(f"c{k}", "root", spawn=place) for k, place in enumerate(places)]
    deep = recorded("deep", "c1", spawn=by_host(0, 3))
    tree = tree_of(recorded("root"), deep, *children)
    assert [node.key for node in tree.primary.walk()] == [
        "0",
        "0/h8.2",
        "0/h8.11",
        "0/t9.s9.c9.n9",
        "0/t9.s9.c9.n10",
        "0/t9.s9.c10.n0",
        "0/t9.s10.c0.n0",
        "0/t9.s10.c0.n0/h0.3",
        "0/h9.0",
        "0/t10.s1.c0.n0",
    ]
    assert {node.grade for node in tree.primary.walk()} == {"exact"}


PLACES = st.builds(by_call, *[st.integers(0, 12)] * 4) | st.builds(by_host, *[st.integers(0, 12)] * 2)


@given(st.lists(PLACES, min_size=1, max_size=8, unique_by=lambda p: p.segment), st.randoms())
def test_keys_depend_neither_on_the_order_given_nor_on_ids_and_clocks(
    places: list[SpawnFact], chance: random.Random
) -> None:
    def walk() -> list[str]:
        names = chance.sample(range(100), len(places))
        clocks = [chance.randrange(9) for _ in places]
        sessions = [
            recorded(f"id{name}", "root", spawn=place, created_at=clock)
            for name, place, clock in zip(names, places, clocks, strict=True)
        ]
        sessions.append(recorded("root"))
        chance.shuffle(sessions)
        return [node.key for node in tree_of(*sessions).primary.walk()]

    assert walk() == walk()
    assert sorted(walk()) == sorted(["0", *(f"0/{place.segment}" for place in places)])


# --- what is refused -------------------------------------------------------------------------------------


def refused(*sessions: RecordedSession, primary: RecordedSession | None = None) -> LineageError:
    with pytest.raises(LineageError) as caught:
        tree_of(*sessions, primary=primary)
    return caught.value


def test_no_session_is_refused() -> None:
    assert refused().code == "no-session"


def test_a_duplicate_id_is_refused_with_both_files() -> None:
    error = refused(recorded("a", name="x.jsonl"), recorded("b"), recorded("a", name="y.jsonl"))
    assert (error.code, error.names) == ("duplicate-id", ("x.jsonl", "y.jsonl"))


@pytest.mark.parametrize("edge", ["subagent", None])
def test_a_cycle_is_refused(edge: Literal["subagent"] | None) -> None:
    a, b = recorded("a", "b", origin=edge), recorded("b", "a", origin=edge)
    assert refused(a, b).code == "cycle"
    assert refused(recorded("root"), a, b).code == "cycle"
    assert refused(a, b, primary=a).code == "cycle"
    assert refused(recorded("self", "self", origin=edge)).code == "cycle"


def test_one_stated_place_for_two_children_is_refused_with_both_files() -> None:
    twice = [recorded(name, "root", spawn=by_call(1, 2, 3, 4)) for name in "ab"]
    error = refused(recorded("root"), *twice)
    assert (error.code, error.names) == ("duplicate-key", ("a.jsonl", "b.jsonl"))
    assert "t1.s2.c3.n4" in str(error)


def test_the_same_place_below_two_parents_is_fine() -> None:
    sessions = [recorded("root"), recorded("a", "root", spawn=by_call(1))]
    assert keys(tree_of(*sessions, recorded("b", "a", spawn=by_call(1))))["b"] == "0/t1.s1.c0.n0/t1.s1.c0.n0"


def test_a_cut_beyond_the_log_names_the_file() -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match=r"^bad\.jsonl: "):
        tree_of(recorded("root"), recorded("bad", "root", cut=3))


# --- forks and strangers -------------------------------------------------------------------------------


def test_a_parent_without_origin_or_spawn_is_a_fork_edge() -> None:
    root, fork = recorded("root"), recorded("fork", "root", origin=None)
    below = recorded("below", "fork", spawn=by_call(2))
    tree = tree_of(root, fork, below)
    assert tree.primary.children == ()
    assert [node.session for node in tree.primary.forks] == [fork]
    assert [(n.session, n.key) for n in tree.outside()] == [(fork, "0"), (below, "0/t2.s1.c0.n0")]
    assert (node_of(tree, fork).grade, node_of(tree, fork).method) == ("ordered", "order-only")


def test_a_spawn_fact_alone_makes_a_tree_child() -> None:
    child = recorded("child", "root", origin=None, spawn=by_host(0, 0))
    assert keys(tree_of(recorded("root"), child)) == {"root": "0", "child": "0/h0.0"}


def test_sessions_that_belong_to_nothing_given_are_strangers() -> None:
    other, lost = recorded("other"), recorded("lost", "elsewhere", origin=None)
    tree = tree_of(recorded("root"), other, lost, primary=None)
    assert [node.session for node in tree.strangers] == [other, lost]
    assert node_of(tree, other).grade == "exact"
    assert (node_of(tree, lost).grade, node_of(tree, lost).method) == ("ordered", "parent-not-in-folder")


def test_a_fork_of_a_fork_is_found() -> None:
    one, two = recorded("one", "root", origin=None), recorded("two", "one", origin=None)
    assert [n.session for n in tree_of(recorded("root"), one, two).outside()] == [one, two]


# --- children whose parent is not there ----------------------------------------------------------------


def test_a_child_of_a_missing_parent_hangs_detached_below_the_primary_without_a_place() -> None:
    lost = recorded("lost", "elsewhere", spawn=by_call(1))
    known = recorded("known", "root", spawn=by_call(1))
    tree = tree_of(recorded("root"), lost, known)
    node = node_of(tree, lost)
    assert (node.key, node.grade, node.method, node.detached) == (
        "0/?0",
        "ordered",
        "parent-not-in-folder",
        True,
    )
    assert not node_of(tree, known).detached


TOKEN = "{{sessionId}}"


def test_a_shared_placeholder_is_no_id() -> None:
    child = recorded(TOKEN, TOKEN, spawn=by_call(3))
    tree = tree_of(recorded(TOKEN), child)
    node = node_of(tree, child)
    assert (node.key, node.grade, node.detached) == ("0/t3.s1.c0.n0", "exact", True)


def test_a_placeholder_parent_is_the_only_session_one_level_up() -> None:
    middle, deep = recorded(TOKEN, TOKEN, spawn=by_call(1)), recorded(TOKEN, TOKEN, spawn=by_call(1), depth=2)
    tree = tree_of(recorded(TOKEN), deep, middle)
    assert node_of(tree, deep).key == "0/t1.s1.c0.n0/t1.s1.c0.n0"


def test_with_several_sessions_one_level_up_a_placeholder_parent_stays_unknown() -> None:
    middle = [recorded(TOKEN, TOKEN, spawn=by_call(k)) for k in (1, 2)]
    deep = recorded(TOKEN, TOKEN, spawn=by_call(1), depth=2)
    tree = tree_of(recorded(TOKEN), *middle, deep)
    assert (node_of(tree, deep).key, node_of(tree, deep).method) == ("0/?0", "parent-not-in-folder")


@pytest.mark.parametrize("session_id", ["{{parent}}", "{{session:0}}"])
def test_a_placeholder_that_one_session_has_is_an_id(session_id: str) -> None:
    root, child = recorded(session_id), recorded("child", session_id, spawn=by_call(1))
    assert not node_of(tree_of(root, child), child).detached


@pytest.mark.parametrize("session_id", ["", TOKEN, "{{x}}"])
def test_sessions_without_a_usable_id_do_not_collide(session_id: str) -> None:
    assert len(list(tree_of(*[recorded(session_id) for _ in range(3)]).outside())) == 2


def test_a_placeholder_parent_below_its_own_child_is_a_cycle() -> None:
    root = recorded("root", depth=5)
    upper, lower = recorded("upper", "lower", depth=0), recorded("lower", TOKEN, depth=1)
    assert refused(root, upper, lower).code == "cycle"


# --- places recovered from the parent's log ---------------------------------------------------------------


def found(tree: SessionTree, child: RecordedSession) -> tuple[str, str, str | None]:
    node = node_of(tree, child)
    return node.key.removeprefix("0/"), node.grade, node.method


def test_the_id_in_the_result_of_a_delegating_call() -> None:
    rows = [
        *step_of(delegate("p", "l", "c1"), delegate("q", "m", "c2"), turn=3, step=4),
        result_row("c1", "started subagent kid-10", 3, 4),
        result_row("c2", "started subagent kid-1", 3, 4),
    ]
    child = recorded("kid-1", "root")
    tree = tree_of(recorded("root", None, *rows), child)
    assert found(tree, child) == ("t3.s4.c1.n0", "recovered", "id-in-result")
    place = node_of(tree, child).place
    assert place == CallSpawn(3, 4, 1, 0, "c2", "subagent")


def test_of_several_results_with_the_id_the_first_counts() -> None:
    rows = [
        *step_of(delegate("p", "l", "c1")),
        result_row("c1", "started kid"),
        *step_of(delegate("q", "m", "c2"), step=2),
        result_row("c2", "kid was here", step=2),
    ]
    child = recorded("kid", "root")
    assert found(tree_of(recorded("root", None, *rows), child), child)[0] == "t1.s1.c0.n0"


def test_the_id_in_a_workflow_row_inside_a_call() -> None:
    rows = [
        *step_of(WORKFLOW, turn=2),
        member("a", 1),
        member("b", 12),
        result_row("w", "a b", 2),
    ]
    children = [recorded(name, "root") for name in "ba"]
    tree = tree_of(recorded("root", None, *rows), *children)
    assert [found(tree, child) for child in children] == [
        ("t2.s1.c0.n11", "recovered", "id-in-event"),
        ("t2.s1.c0.n0", "recovered", "id-in-event"),
    ]


def test_a_workflow_row_belongs_to_the_open_call_that_delegates_nothing() -> None:
    rows = [*step_of(delegate("p", "l"), WORKFLOW), member("kid", 1)]
    child = recorded("kid", "root")
    assert found(tree_of(recorded("root", None, *rows), child), child)[0] == "t1.s1.c1.n0"


def test_a_workflow_row_inside_two_open_calls_proves_nothing() -> None:
    rows = [*step_of(WORKFLOW, {**WORKFLOW, "id": "w2"}), member("kid", 1)]
    child = recorded("kid", "root")
    assert found(tree_of(recorded("root", None, *rows), child), child) == ("?0", "ordered", "order-only")


def test_a_task_that_one_call_gave_and_one_child_got() -> None:
    rows = [*step_of(delegate("p", "l", "c1"), delegate("p", "m", "c2"), delegate("q", "l", "c3"))]
    children = [recorded(f"k{k}", "root", *asked(*task)) for k, task in enumerate((("q", "l"), ("p", "m")))]
    tree = tree_of(recorded("root", None, *rows), *children)
    assert [found(tree, child) for child in children] == [
        ("t1.s1.c2.n0", "recovered", "prompt-unique"),
        ("t1.s1.c1.n0", "recovered", "prompt-unique"),
    ]


@pytest.mark.parametrize(("prompt", "label"), [("p", "other"), ("other", "l"), ("p", None)])
def test_prompt_and_label_must_both_be_equal(prompt: str, label: str | None) -> None:
    rows = [*step_of(delegate("p", "l", "c1"), delegate("p2", "l2", "c2"))]
    child = recorded("kid", "root", *asked(prompt, label))
    assert found(tree_of(recorded("root", None, *rows), child), child) == ("?0", "ordered", "order-only")


def twins(*said: str) -> list[RecordedSession]:
    return [
        recorded(f"k{k}", "root", *asked("p", "l"), ("said", text), created_at=9 - k)
        for k, text in enumerate(said)
    ]


def test_equal_tasks_with_equal_scripts_are_twins_in_the_order_given() -> None:
    children = twins("same", "same")
    rows = step_of(delegate("p", "l", "c1"), delegate("p", "l", "c2"))
    tree = tree_of(recorded("root", None, *rows), *children)
    assert [found(tree, child) for child in children] == [
        ("t1.s1.c0.n0", "twins", "twins"),
        ("t1.s1.c1.n0", "twins", "twins"),
    ]


def test_equal_tasks_with_different_scripts_are_ordered_by_creation() -> None:
    children = twins("one", "two")
    rows = step_of(delegate("p", "l", "c1"), delegate("p", "l", "c2"))
    tree = tree_of(recorded("root", None, *rows), *children)
    assert [found(tree, child) for child in children] == [
        ("?1", "ordered", "order-only"),
        ("?0", "ordered", "order-only"),
    ]


def test_more_equal_calls_than_children_prove_nothing() -> None:
    rows = step_of(*(delegate("p", "l", f"c{k}") for k in range(3)))
    children = twins("same", "same")
    tree = tree_of(recorded("root", None, *rows), *children)
    assert {found(tree, child)[1] for child in children} == {"ordered"}


def test_the_last_child_goes_to_the_last_call() -> None:
    rows = step_of(delegate("p", "l", "c1"), delegate("q", "m", "c2"))
    silent, speaking = recorded("silent", "root"), recorded("speaking", "root", *asked("p", "l"))
    tree = tree_of(recorded("root", None, *rows), silent, speaking)
    assert found(tree, silent) == ("t1.s1.c1.n0", "recovered", "elimination")


def test_elimination_does_not_go_against_what_the_child_says() -> None:
    for task in (("other", None), ("other", "l")):
        child = recorded("kid", "root", *asked(*task))
        tree = tree_of(recorded("root", None, *step_of(delegate("p", "l"))), child)
        assert found(tree, child)[1] == "ordered"


def test_a_call_that_a_stated_place_took_is_not_given_again() -> None:
    rows = step_of(delegate("p", "l", "c1"), delegate("q", "m", "c2"))
    stated = recorded("stated", "root", spawn=by_call(1, 1, 0))
    silent = recorded("silent", "root")
    tree = tree_of(recorded("root", None, *rows), stated, silent)
    assert found(tree, silent) == ("t1.s1.c1.n0", "recovered", "elimination")


def test_only_own_events_are_searched() -> None:
    """A forked child repeats its parent's calls, and begins with an input that its parent got."""
    inherited = [*asked("old", "old"), *step_of(delegate("p", "l", "c0"))]
    root = recorded("root", None, *inherited, *step_of(delegate("p2", "l2", "c1"), turn=2))
    fork = recorded("fork", "root", *inherited, *asked("p2", "l2"), cut=len(inherited))
    inner = recorded("inner", "fork", *asked("p", "l"), depth=2)
    tree = tree_of(root, fork, inner)
    assert found(tree, fork) == ("t2.s1.c0.n0", "recovered", "prompt-unique")
    assert node_of(tree, inner).grade == "ordered"


def test_a_repeated_call_id_counts_once_per_block_and_once_per_step() -> None:
    rows = [
        *step_of(delegate("p", "l", "dup"), delegate("q", "m", "dup")),
        result_row("dup", "one"),
        result_row("dup", "started kid"),
        *step_of(delegate("r", "n", "dup"), step=2),
        result_row("dup", "kid", step=2),
    ]
    child = recorded("kid", "root")
    assert found(tree_of(recorded("root", None, *rows), child), child)[0] == "t1.s1.c1.n0"


def test_positions_come_from_the_message_and_not_from_the_order_of_rows() -> None:
    first, second = delegate("p", "l", "c1"), delegate("q", "m", "c2")
    message = step_of(first, second)[0]
    child = recorded("kid", "root", *asked("p", "l"))
    rows = [message, call_row(second), call_row(first)]
    assert found(tree_of(recorded("root", None, *rows), child), child)[0] == "t1.s1.c0.n0"


def test_without_a_message_calls_count_in_the_order_of_their_rows() -> None:
    rows = [call_row(delegate("p", "l", "c1")), call_row(delegate("q", "m", "c2"))]
    child = recorded("kid", "root", *asked("q", "m"))
    assert found(tree_of(recorded("root", None, *rows), child), child)[0] == "t1.s1.c1.n0"


ODD: list[Row] = [
    ("assistant/message", None),
    ("assistant/message", {"turn": 1, "step": 1, "content": [7, {"type": "tool-call", "id": 7}]}),
    ("tool/call", {"turn": "1", "step": 1, "callId": "c"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": None}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "c", "arguments": "{not json"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "c", "arguments": "[]"}),
    ("tool/result", [1]),
    ("tool/result", {"turn": 1, "step": 1, "message": {"content": "text"}}),
    ("tool-workflow/agent-start", {"seq": 0, "childId": "kid"}),
    ("agent/inbox/spliced", {"inserted": ["x"]}),
    ("subagent/descriptor", 1),
]


@given(st.permutations(ODD), st.permutations(ODD))
def test_payloads_of_any_shape_recover_nothing_and_break_nothing(ours: list[Row], theirs: list[Row]) -> None:
    child = recorded("kid", "root", *theirs)
    assert found(tree_of(recorded("root", None, *ours), child), child)[1] == "ordered"


def test_old_shapes_of_message_and_result_are_read_too() -> None:
    block = delegate("p", "l", "c1")
    rows: Iterable[Row] = [
        (
            "assistant/message",
            {"turn": 1, "step": 1, "content": [{"type": "text", "text": ""}, WORKFLOW, block]},
        ),
        call_row(block),
        (
            "tool/result",
            {"turn": 1, "step": 1, "callId": "c1", "content": [{"type": "text", "text": "started kid"}]},
        ),
    ]
    child = recorded("kid", "root")
    tree = tree_of(recorded("root", None, *rows), child)
    assert found(tree, child) == ("t1.s1.c1.n0", "recovered", "id-in-result")


def test_events_are_left_as_they_are() -> None:
    rows = step_of(delegate("p", "l"))
    root = recorded("root", None, *rows)
    before = list(root.events)
    tree_of(root, recorded("kid", "root"))
    assert all(isinstance(e, Event) for e in before)
    assert list(root.events) == before
