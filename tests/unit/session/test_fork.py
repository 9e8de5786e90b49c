"""`SessionStore.fork`: refusals in their order, and what a child takes over."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from seedline.clock import ManualClock
from seedline.errors import ForkRefusedError
from seedline.ids import SeededIds
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, RestoredSession, SessionStore
from tests.unit.session.make import event, events_of, one_turn, packed


@pytest.fixture
def store() -> SessionStore:
    return SessionStore(ManualClock(100, 1), SeededIds())


def parent_of(store: SessionStore) -> Session:
    """Two turns (0..5 and 6..11), a note between them and the open third turn: 12 note, 13 start, 14 step."""
    options = CreateSessionOptions(cwd="/w", origin="subagent", delegation_depth=3, agent_preset="x")
    session = store.create("p", options)
    one_turn(session)
    one_turn(session, 2)
    session.append("plugin/note", {})
    session.append("turn/start", {"turn": 3})
    session.append("step/start", {"turn": 3, "step": 1})
    return session


def code_of(store: SessionStore, *arguments: Any) -> str:
    before = store.list()
    with pytest.raises(ForkRefusedError) as refused:
        store.fork(*arguments)
    assert store.list() == before
    return refused.value.code


def test_the_checks_come_in_order(store: SessionStore) -> None:
    parent = parent_of(store)
    stranger = SessionStore(ManualClock(), SeededIds()).prepare("p")
    unknown = SessionStore(ManualClock(), SeededIds()).prepare("unknown")
    store.create("taken")
    for source in (parent, "p", "unknown", stranger, unknown):
        assert code_of(store, source, -1, "taken") == "SESSION_ALREADY_EXISTS"
    for source in ("unknown", unknown):
        assert code_of(store, source, -1, "child") == "SESSION_NOT_FOUND"
    assert code_of(store, stranger, -1, "child") == "SESSION_NOT_LIVE"
    assert code_of(store, parent, -1, "child") == "INVALID_BOUNDARY"
    assert code_of(store, parent, 14, "child") == "OPEN_TURN"


@pytest.mark.parametrize("boundary", [-1, 15, 2**53, 1.5, 5.0, True, "5", [5]])
def test_a_boundary_names_an_event_of_the_source(store: SessionStore, boundary: Any) -> None:
    parent_of(store)
    assert code_of(store, "p", boundary) == "INVALID_BOUNDARY"


@pytest.mark.parametrize("boundary", [0, 3, 4, 6, 10, 13, 14, None])
def test_a_turn_must_not_be_open_at_the_boundary(store: SessionStore, boundary: int | None) -> None:
    parent_of(store)
    assert code_of(store, "p", boundary) == "OPEN_TURN"


@pytest.mark.parametrize("boundary", [5, 11, 12])
def test_a_turns_end_and_what_stands_between_turns_is_a_boundary(store: SessionStore, boundary: int) -> None:
    parent = parent_of(store)
    child = store.fork(parent, boundary)
    assert child.inherited_event_count == boundary + 1
    assert list(child.events[: boundary + 1]) == list(parent.events[: boundary + 1])
    assert [e.type for e in child.own_events] == ["session/end-seed"]
    assert child.first_live_seq == boundary + 1


@pytest.mark.parametrize("kind", ["completed", "error", "aborted", "interrupted", "someone/else"])
def test_a_turn_may_have_ended_for_any_reason(store: SessionStore, kind: str) -> None:
    session = store.create("p")
    session.append("turn/start", {"turn": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": kind}})
    assert store.fork(session).inherited_event_count == 2


def test_the_child_takes_the_directory_and_the_parent_and_no_more(store: SessionStore) -> None:
    parent_of(store)
    child = store.fork("p", 5, "c")
    assert child.header == SessionHeader(
        id="c", created_at=child.header.created_at, is_seeded=True, cwd="/w", parent_session="p"
    )
    assert store.get("c") is child


def test_times_of_a_fork_are_its_own(store: SessionStore) -> None:
    parent = parent_of(store)
    last = parent.events[-1].time
    child = store.fork(parent, 5)
    assert child.header.created_at == last + 1
    assert child.events[-1].time == last + 2
    assert child.events[5].time == parent.events[5].time


def test_ids_of_children_are_minted_like_any(store: SessionStore) -> None:
    parent_of(store)
    assert [store.fork("p", 5).id for _ in range(2)] == ["session-1", "session-2"]


def test_an_empty_source_gives_a_seeded_child_with_cut_zero(store: SessionStore) -> None:
    store.create("p")
    child = store.fork("p")
    assert (child.header.is_seeded, child.inherited_event_count) == (True, 0)
    assert [(e.type, e.seq) for e in child.events] == [("session/end-seed", 0)]
    assert code_of(store, "p", 0) == "INVALID_BOUNDARY"


def test_a_fork_of_a_whole_seeded_session_is_not_marked_twice(store: SessionStore) -> None:
    parent = store.create("p")
    one_turn(parent)
    child = store.fork("p")
    grandchild = store.fork(child)
    assert (child.seq, grandchild.seq, grandchild.inherited_event_count) == (7, 7, 7)
    assert grandchild.header.parent_session == child.id


def test_a_fork_before_the_cut_of_its_source(store: SessionStore) -> None:
    parent = store.create("p")
    one_turn(parent)
    one_turn(parent, 2)
    child = store.fork("p")
    one_turn(child, 3)
    grandchild = store.fork(child, 5)
    one_turn(grandchild, 2)
    assert [e.seq for e in grandchild.events] == list(range(13))
    assert grandchild.own_events[0].type == "session/end-seed"


def test_a_session_can_fork_while_it_works(store: SessionStore) -> None:
    parent = store.create("p")
    one_turn(parent)
    children: list[Session] = []
    parent.subscribe(lambda event: children.append(store.fork(parent, 5)) if event.seq == 8 else None)
    one_turn(parent, 2)
    [child] = children
    assert list(child.events[:6]) == list(parent.events[:6])
    assert child.seq == 7


def test_a_vetoed_child_is_not_live(store: SessionStore) -> None:
    parent_of(store)

    def veto(session: Session) -> None:
        raise RuntimeError("no children")

    store.on_created(veto)
    with pytest.raises(RuntimeError):
        store.fork("p", 5, "c")
    assert store.get("c") is None


def test_a_boundary_inside_a_packed_row(store: SessionStore) -> None:
    rows = [
        event("turn/start", 0, {"turn": 1}),
        event("turn/end", 1, {"turn": 1}),
        packed(2, "a", "b", "c"),
    ]
    header = SessionHeader(id="p", created_at=1)
    stored = RestoredSession(header=header, inherited_event_count=START, events=events_of(*rows))
    store.create(None, stored)
    child = store.fork("p", 3)
    assert [e.seq for e in child.events] == list(range(5))
    assert child.inherited_event_count == 4


def test_forking_a_long_log_copies_no_row(store: SessionStore) -> None:
    """100,000 events take some 17 MB; what fifty forks keep must not even be a thousandth of that each."""
    lines = [
        b'{"type":"assistant/chunk","seq":%d,"time":1790000000000,"data":{"turn":1,"step":1,"chunk":'
        b'{"type":"text-delta","index":0,"text":"%d"}}}' % (seq, seq)
        for seq in range(100_000)
    ]
    turn = [event("turn/start", 100_000, {"turn": 1}), event("turn/end", 100_001, {"turn": 1})]
    header = SessionHeader(id="p", created_at=1)
    log = events_of(*lines, *turn)
    stored = RestoredSession(header=header, inherited_event_count=START, events=log)
    parent = store.create(None, stored)
    store.fork(parent)
    tracemalloc.start()
    try:
        children = [store.fork(parent) for _ in range(50)]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(children) == 50
    assert kept / 50 < 8_000
    assert all(a is b for a, b in zip(children[0].events.rows(), lines, strict=False))
    before = [list(child.own_events) for child in children]
    parent.append("plugin/note", {"later": True})
    assert [list(child.own_events) for child in children] == before
