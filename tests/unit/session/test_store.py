"""Live sessions: each lifecycle step, its order, and what happens when a listener interferes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from seedline.clock import ManualClock
from seedline.errors import (
    EventRefusedError,
    HeaderRefusedError,
    SessionError,
    SessionPersistenceCorruptionError,
    StoreRefusedError,
)
from seedline.events.event import Event
from seedline.ids import SeededIds
from seedline.session.header import (
    START,
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
)
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, RestoredSession, SessionStore, SharedPrefix
from tests.unit.session.make import event, events_of, one_turn, user


class Diary:
    """Everything a store tells its observers, in order."""

    def __init__(self, store: SessionStore) -> None:
        self.lines: list[str] = []
        store.on_created(lambda session: self.lines.append(f"created {session.id}"))
        store.on_event(lambda session, event: self.lines.append(f"event {session.id} {event.seq}"))
        store.on_disposed(lambda session: self.lines.append(f"disposed {session.id}"))


def new_store() -> SessionStore:
    return SessionStore(ManualClock(100, 1), SeededIds())


@pytest.fixture
def store() -> SessionStore:
    return new_store()


@pytest.fixture
def diary(store: SessionStore) -> Diary:
    return Diary(store)


def refused_code(action: Callable[[], Any]) -> str:
    with pytest.raises(StoreRefusedError) as refused:
        action()
    return refused.value.code


# --- prepare ----------------------------------------------------------------------------------------


def test_prepare_publishes_nothing(store: SessionStore, diary: Diary) -> None:
    session = store.prepare("a")
    assert (session.id, session.header.version, session.header.created_at) == ("a", 0, 100)
    assert store.get("a") is None
    assert store.list() == []
    session.append("plugin/note", {})
    assert diary.lines == []


def test_ids_are_minted_in_order_and_skip_those_in_use(store: SessionStore) -> None:
    store.create("session-2")
    assert [store.create().id for _ in range(3)] == ["session-1", "session-3", "session-4"]
    assert store.prepare().id == "session-5"
    assert store.prepare().id == "session-6"


def test_every_option_reaches_the_header(store: SessionStore) -> None:
    spawn = HostSpawn(HostPlace(turn=1, n=0))
    options = CreateSessionOptions(
        seed=[event("plugin/note", 0)],
        inherited_event_count=SessionLogOffset(1),
        cwd="/w",
        parent_session="p",
        created_at=7,
        is_seeded=True,
        origin="subagent",
        delegation_depth=2,
        agent_preset="x",
        spawn=spawn,
    )
    session = store.prepare("a", options)
    assert session.header == SessionHeader(
        id="a",
        created_at=7,
        is_seeded=True,
        cwd="/w",
        parent_session="p",
        origin="subagent",
        delegation_depth=2,
        agent_preset="x",
        spawn=spawn,
    )
    assert session.inherited_event_count == 1
    assert [e.type for e in session.events] == ["plugin/note", "session/end-seed"]


def test_a_creation_time_of_zero_is_a_time(store: SessionStore) -> None:
    assert store.prepare("a", CreateSessionOptions(created_at=0)).header.created_at == 0


def test_no_seed_and_an_empty_seed_differ(store: SessionStore) -> None:
    assert store.prepare("a").seq == 0
    assert store.prepare("b", CreateSessionOptions(seed=[])).seq == 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (CreateSessionOptions(cwd="relative"), "cwd"),
        (CreateSessionOptions(cwd="{{cwd}}"), "cwd"),
        (CreateSessionOptions(cwd=5), "cwd"),  # type: ignore[arg-type]  # the point of the case
        (CreateSessionOptions(created_at=-1), "createdAt"),
        (CreateSessionOptions(created_at=1.5), "createdAt"),  # type: ignore[arg-type]  # the point of the case
        (CreateSessionOptions(inherited_event_count=SessionLogOffset(1)), "isSeeded"),
        (
            CreateSessionOptions(is_seeded=True, inherited_event_count=SessionLogOffset(-1)),
            "inheritedEventCount",
        ),
        (CreateSessionOptions(delegation_depth=-1), "delegationDepth"),
        (CreateSessionOptions(origin="human"), "origin"),  # type: ignore[arg-type]  # the point of the case
    ],
)
def test_a_wrong_option_is_named(store: SessionStore, options: CreateSessionOptions, field: str) -> None:
    with pytest.raises(HeaderRefusedError) as refused:
        store.prepare("a", options)
    assert refused.value.field == field
    assert store.create("a").id == "a"


def test_a_wrong_id_or_seed_leaves_the_store_as_it_was(store: SessionStore, diary: Diary) -> None:
    with pytest.raises(HeaderRefusedError):
        store.create("")
    with pytest.raises(EventRefusedError):
        store.create("a", CreateSessionOptions(seed=[event("plugin/note", 3)]))
    assert (store.list(), diary.lines) == ([], [])


def test_two_preparations_of_one_id_may_coexist_and_one_enters(store: SessionStore) -> None:
    one, two = store.prepare("a"), store.prepare("a")
    store.enter(two)
    assert refused_code(lambda: store.enter(one)) == "already-live"
    assert refused_code(lambda: store.prepare("a")) == "already-live"
    assert store.get("a") is two


def stored(header: SessionHeader, cut: int = 0) -> RestoredSession:
    rows = [event("turn/start", 0, {"turn": 1}), event("turn/end", 1, {"turn": 1})]
    return RestoredSession(
        header=header, inherited_event_count=SessionLogOffset(cut), events=events_of(*rows)
    )


def test_a_restored_session_keeps_its_header_and_cut(store: SessionStore) -> None:
    header = SessionHeader(id="old", created_at=5, is_seeded=True, cwd="{{cwd}}", parent_session="p")
    session = store.create(None, stored(header, cut=1))
    assert session.header is header
    assert (session.inherited_event_count, session.first_live_seq, session.seq) == (1, 2, 3)
    assert store.get("old") is session


def test_a_restored_session_is_called_what_its_header_says(store: SessionStore) -> None:
    header = SessionHeader(id="old", created_at=5)
    assert store.prepare("old", stored(header)).id == "old"
    with pytest.raises(HeaderRefusedError) as refused:
        store.prepare("new", stored(header))
    assert refused.value.field == "id"
    store.create("old")
    assert refused_code(lambda: store.prepare(None, stored(header))) == "already-live"


def test_a_restored_log_shorter_than_its_cut_is_corrupt(store: SessionStore) -> None:
    header = SessionHeader(id="old", created_at=5, is_seeded=True)
    with pytest.raises(SessionPersistenceCorruptionError):
        store.create(None, stored(header, cut=3))
    assert store.list() == []


def test_a_child_may_have_the_working_directory_of_its_live_parent_whatever_it_is(
    store: SessionStore,
) -> None:
    options = CreateSessionOptions(cwd="{{cwd}}", parent_session="old")
    with pytest.raises(HeaderRefusedError):
        store.prepare("child", options)
    store.create(None, stored(SessionHeader(id="old", created_at=5, cwd="{{cwd}}")))
    assert store.prepare("child", options).header.cwd == "{{cwd}}"
    assert store.fork("old", None, "fork").header.cwd == "{{cwd}}"
    with pytest.raises(HeaderRefusedError):
        store.prepare("child", CreateSessionOptions(cwd="{{other}}", parent_session="old"))


# --- enter and announce -----------------------------------------------------------------------------


def test_a_session_lives_in_one_store_at_a_time(store: SessionStore) -> None:
    session = store.prepare("a")
    detach = store.enter(session)
    assert refused_code(lambda: new_store().enter(session)) == "already-attached"
    detach()
    other = new_store()
    other.enter(session)
    assert other.get("a") is session


def test_events_are_told_from_entering_on(store: SessionStore, diary: Diary) -> None:
    session = store.prepare("a")
    session.append("plugin/note", {})
    detach = store.enter(session)
    session.append("plugin/note", {})
    store.announce(session)
    session.append("plugin/note", {})
    detach()
    session.append("plugin/note", {})
    assert diary.lines == ["event a 1", "created a", "event a 2", "disposed a"]


def test_created_is_told_once(store: SessionStore, diary: Diary) -> None:
    session = store.prepare("a")
    assert refused_code(lambda: store.announce(session)) == "not-live"
    store.enter(session)
    store.announce(session)
    assert refused_code(lambda: store.announce(session)) == "already-announced"
    assert diary.lines == ["created a"]


def test_announcing_is_not_reentrant(store: SessionStore) -> None:
    codes: list[str] = []
    store.on_created(lambda session: codes.append(refused_code(lambda: store.announce(session))))
    store.create("a")
    assert codes == ["already-announced"]


def test_a_stranger_of_the_same_id_is_not_live(store: SessionStore) -> None:
    live, stranger = store.create("a"), new_store().prepare("a")
    assert refused_code(lambda: store.announce(stranger)) == "not-live"
    store.detach(stranger)
    assert store.get("a") is live


def test_list_is_fresh_and_in_order_of_entering(store: SessionStore) -> None:
    for name in "bca":
        store.create(name)
    listed = store.list()
    assert [session.id for session in listed] == ["b", "c", "a"]
    listed.clear()
    assert len(store.list()) == 3


def test_a_created_listener_may_append(store: SessionStore, diary: Diary) -> None:
    store.on_created(lambda session: session.append("plugin/note", {}) and None)
    session = store.create("a")
    assert session.seq == 1
    assert diary.lines == ["created a", "event a 0"]


def test_observers_can_leave(store: SessionStore, diary: Diary) -> None:
    heard: list[str] = []
    undos = [
        store.on_created(lambda _: heard.append("created")),
        store.on_event(lambda *_: heard.append("event")),
        store.on_disposed(lambda _: heard.append("disposed")),
    ]
    for undo in undos:
        undo()
        undo()
    session = store.create("a")
    session.append("plugin/note", {})
    store.detach(session)
    assert heard == []
    assert diary.lines == ["created a", "event a 0", "disposed a"]


def test_a_failing_event_observer_is_logged_and_starves_nobody(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(session: Session, _: Event) -> None:
        raise ValueError("broken observer")

    store.on_event(fail)
    diary = Diary(store)
    session = store.create("a")
    with caplog.at_level(logging.ERROR, "seedline.session"):
        session.append("plugin/note", {})
    assert diary.lines == ["created a", "event a 0"]
    assert "broken observer" in caplog.text


# --- veto -------------------------------------------------------------------------------------------


def veto(_: Session) -> None:
    raise RuntimeError("vetoed")


def test_a_veto_ends_the_telling_and_the_creation(store: SessionStore) -> None:
    heard: list[str] = []
    store.on_created(lambda session: heard.append(f"first {session.id}"))
    undo = store.on_created(veto)
    store.on_created(lambda session: heard.append(f"third {session.id}"))
    store.on_disposed(lambda session: heard.append(f"disposed {session.id}"))
    with pytest.raises(RuntimeError, match="vetoed"):
        store.create("a")
    assert heard == ["first a", "disposed a"]
    assert store.get("a") is None
    undo()
    assert store.create("a").id == "a"


def test_after_a_veto_of_announce_the_caller_detaches(store: SessionStore, diary: Diary) -> None:
    store.on_created(veto)
    session = store.prepare("a")
    detach = store.enter(session)
    with pytest.raises(RuntimeError):
        store.announce(session)
    assert store.get("a") is session
    detach()
    assert diary.lines == ["created a", "disposed a"]


def test_what_never_was_announced_is_not_disposed(store: SessionStore, diary: Diary) -> None:
    detach = store.enter(store.prepare("a"))
    detach()
    assert diary.lines == []
    assert store.get("a") is None


# --- detach -----------------------------------------------------------------------------------------


def test_detach_is_idempotent_and_a_stale_one_spares_the_successor(store: SessionStore, diary: Diary) -> None:
    first = store.prepare("a")
    detach = store.enter(first)
    store.announce(first)
    detach()
    detach()
    second = store.create("a")
    detach()
    store.detach(first)
    assert store.get("a") is second
    assert diary.lines == ["created a", "disposed a", "created a"]


def test_a_stale_detach_spares_the_same_session_entered_again(store: SessionStore) -> None:
    session = store.prepare("a")
    stale = store.enter(session)
    stale()
    store.enter(session)
    stale()
    assert store.get("a") is session


def test_a_detach_during_creation_waits_for_its_end(store: SessionStore) -> None:
    lines: list[str] = []

    def leave(session: Session) -> None:
        store.detach(session)
        store.detach(session)
        lines.append(f"live {store.get(session.id) is session}")

    store.on_created(leave)
    store.on_created(lambda session: lines.append(f"created {session.id}"))
    store.on_disposed(lambda session: lines.append(f"disposed {session.id}"))
    store.create("a")
    assert lines == ["live True", "created a", "disposed a"]
    assert store.get("a") is None


def test_a_detach_during_a_publication_waits_for_its_end(store: SessionStore) -> None:
    lines: list[str] = []

    def leave(session: Session, _: Event) -> None:
        store.detach(session)
        lines.append(f"live {store.get(session.id) is session}")

    store.on_event(leave)
    store.on_event(lambda session, event: lines.append(f"event {event.seq}"))
    store.on_disposed(lambda session: lines.append(f"disposed, publishing {session.publishing}"))
    session = store.create("a")
    session.append("plugin/note", {})
    assert lines == ["live True", "event 0", "disposed, publishing False"]
    session.append("plugin/note", {})
    assert len(lines) == 3


def test_a_detach_by_a_guard_waits_too_also_when_it_vetoes(store: SessionStore, diary: Diary) -> None:
    session = store.create("a")

    def leave(_: Event) -> None:
        store.detach(session)
        assert store.get("a") is session
        raise RuntimeError("veto")

    session.guard(leave)
    with pytest.raises(RuntimeError):
        session.append("plugin/note", {})
    assert store.get("a") is None
    assert diary.lines == ["created a", "disposed a"]


def test_a_detach_in_a_publication_inside_a_creation_waits_for_both(store: SessionStore) -> None:
    lines: list[str] = []

    def append(session: Session) -> None:
        session.append("plugin/note", {})
        lines.append(f"after append live {store.get(session.id) is session}")

    store.on_created(append)
    store.on_created(lambda session: lines.append("created"))
    store.on_event(lambda session, _: store.detach(session))
    store.on_disposed(lambda session: lines.append("disposed"))
    store.create("a")
    assert lines == ["after append live True", "created", "disposed"]


def test_a_creation_inside_a_publication_may_detach(store: SessionStore) -> None:
    lines: list[str] = []
    session = store.prepare("a")
    detach = store.enter(session)
    session.subscribe(lambda _: store.announce(session))
    store.on_created(lambda _: detach())
    store.on_disposed(lambda s: lines.append(f"disposed, publishing {s.publishing}"))
    session.append("plugin/note", {})
    assert lines == ["disposed, publishing False"]


def test_a_failing_disposal_listener_is_contained(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.on_disposed(veto)
    diary = Diary(store)
    session = store.create("a")
    with caplog.at_level(logging.ERROR, "seedline.session"):
        store.detach(session)
    assert diary.lines == ["created a", "disposed a"]
    assert "vetoed" in caplog.text


# --- spawn places -----------------------------------------------------------------------------------


def spawned(parent: str, call: int = 0, tool: str = "subagent") -> CreateSessionOptions:
    spawn = CallSpawn(turn=1, step=1, call=call, n=0, call_id=f"id-{tool}", tool=tool)
    return CreateSessionOptions(parent_session=parent, origin="subagent", spawn=spawn)


def test_live_siblings_differ_in_their_place(store: SessionStore) -> None:
    store.create("a", spawned("p"))
    assert refused_code(lambda: store.create("b", spawned("p", tool="other"))) == "spawn-taken"
    assert store.get("b") is None
    store.create("b", spawned("p", call=1))
    store.create("c", spawned("q"))
    store.create("d", CreateSessionOptions(parent_session="p", spawn=HostSpawn(HostPlace(turn=1, n=0))))
    with pytest.raises(StoreRefusedError, match=r"'a' stands at its place t1\.s1\.c0\.n0 below 'p'"):
        store.create("e", spawned("p"))


def test_a_place_is_free_again_when_its_child_left(store: SessionStore) -> None:
    store.detach(store.create("a", spawned("p")))
    assert store.create("b", spawned("p")).id == "b"


def test_forks_without_a_place_do_not_collide(store: SessionStore) -> None:
    store.create("p")
    assert [store.fork("p").header.spawn for _ in range(2)] == [None, None]


# --- shared prefixes --------------------------------------------------------------------------------


def test_a_shared_prefix_seeds_a_child_of_any_kind(store: SessionStore) -> None:
    parent = store.create("p")
    one_turn(parent)
    parent.append("turn/start", {"turn": 2})
    options = CreateSessionOptions(
        seed=SharedPrefix(source=parent, count=SessionLogOffset(6)),
        inherited_event_count=SessionLogOffset(6),
        parent_session="p",
        is_seeded=True,
        origin="subagent",
        delegation_depth=1,
    )
    child = store.create("c", options)
    assert all(a is b for a, b in zip(child.events[:6], parent.events, strict=False))
    assert (child.seq, child.inherited_event_count, child.header.depth) == (7, 6, 1)


@pytest.mark.parametrize(
    ("count", "cut", "seeded", "field"),
    [
        (6, 5, True, "inheritedEventCount"),
        (6, 0, True, "inheritedEventCount"),
        (7, 7, True, "inheritedEventCount"),
        (-1, -1, True, "inheritedEventCount"),
        (6, 6, False, "isSeeded"),
    ],
)
def test_a_shared_prefix_and_its_cut_must_agree(
    store: SessionStore, count: int, cut: int, seeded: bool, field: str
) -> None:
    parent = store.create("p")
    one_turn(parent)
    options = CreateSessionOptions(
        seed=SharedPrefix(source=parent, count=SessionLogOffset(count)),
        inherited_event_count=SessionLogOffset(cut),
        is_seeded=seeded,
    )
    with pytest.raises(HeaderRefusedError) as refused:
        store.create("c", options)
    assert refused.value.field == field


# --- flush ------------------------------------------------------------------------------------------


def in_a_loop(action: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(action)


def test_a_flush_without_listeners_keeps_nothing(store: SessionStore) -> None:
    session = store.create("a")
    assert in_a_loop(lambda: store.flush(session)) is False
    store.on_flush(lambda _: None)
    assert in_a_loop(lambda: store.flush(session)) is False


def test_a_flush_needs_a_live_session(store: SessionStore) -> None:
    called: list[str] = []
    store.on_flush(lambda session: called.append(session.id))
    session = store.prepare("a")
    with pytest.raises(StoreRefusedError) as refused:
        in_a_loop(lambda: store.flush(session))
    assert refused.value.code == "not-live"
    store.create("a")
    with pytest.raises(StoreRefusedError):
        in_a_loop(lambda: store.flush(session))
    assert called == []


def test_a_flush_starts_all_listeners_at_once_and_waits_for_all(store: SessionStore) -> None:
    lines: list[str] = []

    def keeper(name: str, turns: int) -> Callable[[Session], Awaitable[None]]:
        def start(session: Session) -> Awaitable[None]:
            lines.append(f"start {name} at {session.seq}")
            return finish()

        async def finish() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            lines.append(f"end {name}")

        return start

    for name, turns in (("slow", 5), ("quick", 0)):
        store.on_flush(keeper(name, turns))
    store.on_flush(lambda _: None)
    session = store.create("a")
    session.append("plugin/note", {})
    assert in_a_loop(lambda: store.flush(session)) is True
    assert lines == ["start slow at 1", "start quick at 1", "end quick", "end slow"]


def test_the_first_failure_in_order_of_registration_is_raised_after_all_ended(store: SessionStore) -> None:
    lines: list[str] = []

    async def late_failure(_: Session) -> None:
        for _step in range(5):
            await anyio.lowlevel.checkpoint()
        lines.append("late")
        raise OSError("first by order")

    async def early_failure(_: Session) -> None:
        lines.append("early")
        raise OSError("first by time")

    def failing_start(_: Session) -> None:
        lines.append("start")
        raise OSError("at once")

    async def good(_: Session) -> None:
        await anyio.lowlevel.checkpoint()
        lines.append("good")

    for listener in (late_failure, early_failure, failing_start, good):
        store.on_flush(listener)
    session = store.create("a")
    with pytest.raises(OSError, match="first by order"):
        in_a_loop(lambda: store.flush(session))
    assert sorted(lines) == ["early", "good", "late", "start"]
    assert lines[-1] == "late"


def test_a_failing_start_is_a_failure_in_its_place(store: SessionStore) -> None:
    def failing_start(_: Session) -> None:
        raise OSError("at once")

    async def failing_end(_: Session) -> None:
        raise OSError("later")

    store.on_flush(failing_start)
    store.on_flush(failing_end)
    session = store.create("a")
    with pytest.raises(OSError, match="at once"):
        in_a_loop(lambda: store.flush(session))


def test_a_listener_that_was_cancelled_is_no_success(store: SessionStore) -> None:
    async def cancelled(_: Session) -> None:
        raise asyncio.CancelledError

    store.on_flush(cancelled)
    session = store.create("a")
    with pytest.raises(SessionError, match="a flush listener was cancelled"):
        in_a_loop(lambda: store.flush(session))


def test_a_cancelled_flush_leaves_nothing_running(store: SessionStore) -> None:
    lines: list[str] = []

    async def slow(_: Session) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            lines.append("stopped")

    store.on_flush(slow)
    store.on_flush(slow)
    session = store.create("a")

    async def act() -> None:
        with anyio.move_on_after(0.01):
            await store.flush(session)
        lines.append("moved on")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.flush(session)

    in_a_loop(act)
    assert lines[:3] == ["stopped", "stopped", "moved on"]


def test_times_and_ids_come_from_what_was_handed_in() -> None:
    clock, ids = ManualClock(5), SeededIds(3)
    store = SessionStore(clock, ids)
    assert (store.clock, store.ids) == (clock, ids)
    session = store.create("a")
    clock.advance(10)
    assert session.header.created_at == 5
    assert session.append("user/message", user(), surface_op="append").time == 15
    assert session.inherited_event_count == START
