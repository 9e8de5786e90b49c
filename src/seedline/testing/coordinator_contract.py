"""What the write coordinator promises on every backend, as a class of tests.

A backend's author runs it with a few lines; the numbers are those of dsh's coordinator contract (format
version 0, 6.2), letters are ours:

    class TestMine(CoordinatorContract):
        @pytest.fixture
        def open_backend(self, tmp_path):
            return lambda: MyBackend(tmp_path)

`open_backend` opens one and the same place each time, as another process would. Needs pytest with the anyio
plugin.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec import UNSET, Raw

from seedline.clock import ManualClock
from seedline.errors import (
    ArtifactError,
    BatchRefusedError,
    EventRefusedError,
    ForkRefusedError,
    HeaderRefusedError,
    SessionBusyError,
    SessionExistsError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import Event, ReplaceOp
from seedline.ids import SeededIds
from seedline.jsonvalue import encode
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.session.listeners import Undo
from seedline.session.log import Session
from seedline.session.store import CreatedListener, CreateSessionOptions, SessionStore
from seedline.storage.base import Backend, Prefix, TornTail
from seedline.storage.coordinator import Coordinator
from seedline.storage.notices import Notice, Repaired
from seedline.testing.faulty import FaultyBackend, HeldClock

OpenBackend = Callable[[], Backend]
TORN = TornTail(seq=8, size=7, reason="half a record")


class Process:
    """A store of live sessions and the coordinator that keeps them, as one process has them.

    Windows end only when `clock` is rung.
    """

    def __init__(self, backend: Backend, sessions: SessionStore | None = None) -> None:
        self.backend = FaultyBackend(backend)
        self.sessions = sessions or SessionStore(ManualClock(1000, 1), SeededIds())
        self.clock = HeldClock()
        self.notices: list[Notice] = []
        self.store = Coordinator(self.backend, self.sessions, clock=self.clock, notify=self.notices.append)

    async def flush(self, session: Session) -> None:
        """Flush a live session; it must be kept by somebody."""
        assert await self.sessions.flush(session)

    async def dispose(self, session: Session) -> None:
        """Dispose a live session and wait until it is given back."""
        self.sessions.detach(session)
        await self.settle()

    async def end_windows(self) -> None:
        """Ring the clock and wait until what that started has ended."""
        self.clock.ring()
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing happens any more."""
        await anyio.wait_all_tasks_blocked()
        await self.store.idle()
        await anyio.wait_all_tasks_blocked()

    async def stored(self, session_id: str) -> list[str]:
        """Return the types of the stored events."""
        suffix = await self.store.read_from(session_id, 0)
        return [event.type for event in suffix.events]


@asynccontextmanager
async def process(backend: Backend, sessions: SessionStore | None = None) -> AsyncGenerator[Process, None]:
    """Run one process; an orderly end drains it."""
    running = Process(backend, sessions)
    async with running.store:
        yield running


@contextmanager
def left_by(failure: type[Exception], match: str | None = None) -> Generator[None, None, None]:
    """Expect that a process inside is left by a failure, and everything else holds."""
    with pytest.raises(failure, match=match):
        yield


Start = Callable[..., AbstractAsyncContextManager[Process]]


# --- what sessions say -------------------------------------------------------------------------------

TURN = ["turn/start", "user/message", "step/start", "assistant/message", "step/end", "turn/end"]


def user_data(text: str = "hi") -> dict[str, Any]:
    source = {"kind": "user"}
    return {"id": f"u-{text}", "role": "user", "content": [{"type": "text", "text": text}], "source": source}


def answer_data(turn: int, content: list[Any] | None = None) -> dict[str, Any]:
    blocks = [{"type": "text", "text": "ok"}] if content is None else content
    source = {"kind": "model", "provider": "p", "model": "m"}
    message = {"id": f"a-{turn}", "role": "assistant", "content": blocks, "source": source}
    return {"turn": turn, "step": 1, "message": message}


def open_turn(session: Session, turn: int = 1) -> None:
    """Append the beginning of a turn."""
    session.append("turn/start", {"turn": turn})
    session.append("user/message", user_data(), surface_op="append")
    session.append("step/start", {"turn": turn, "step": 1})


def close_turn(session: Session, turn: int = 1) -> None:
    """Append the rest of a turn."""
    session.append("assistant/message", answer_data(turn), surface_op="append")
    session.append("step/end", {"turn": turn, "step": 1})
    session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


def one_turn(session: Session, turn: int = 1) -> None:
    """Append a complete turn of six events."""
    open_turn(session, turn)
    close_turn(session, turn)


def event(event_type: str, seq: int, data: Any, **envelope: Any) -> Event:
    """An event as a reader of rows builds it."""
    parts = {"source_event_seqs": UNSET, "surface_op": UNSET, "ignorable": UNSET, **envelope}
    return Event(event_type, seq, 1000 + seq, Raw(encode(data)), **parts)


def turn_events(first: int = 0, turn: int = 1) -> list[Event]:
    """A complete turn of two events."""
    return [
        event("turn/start", first, {"turn": turn}),
        event("turn/end", first + 1, {"turn": turn, "reason": {"kind": "completed"}}),
    ]


def header_of(session_id: str = "s", **fields: Any) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1000, **fields)


def types(events: Any) -> list[str]:
    return [one.type for one in events]


class CoordinatorContract:
    """Provide `open_backend`; see the module."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """Return what opens the one place of a test."""
        raise NotImplementedError("return a function that opens a backend over an empty place of this test")

    @pytest.fixture(params=["asyncio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> str:
        """The event loops to run on."""
        return request.param

    @pytest.fixture
    def start(self, open_backend: OpenBackend) -> Start:
        """Start a process on the place of this test."""

        def started(sessions: SessionStore | None = None) -> AbstractAsyncContextManager[Process]:
            return process(open_backend(), sessions)

        return started

    pytestmark = pytest.mark.anyio

    # --- write and read ----------------------------------------------------------------------------

    async def test_what_is_flushed_is_stored(self, start: Start) -> None:
        """1. Append to a live session, flush, load: six events, the working directory kept."""
        async with start() as one:
            session = one.sessions.create("s", CreateSessionOptions(cwd="/tmp"))
            one_turn(session)
            await one.flush(session)
            loaded = await one.store.load("s")
            assert types(loaded.events) == TURN
            assert loaded.header.cwd == "/tmp"
            assert await one.stored("s") == TURN

    async def test_a_window_stores_what_waits_without_a_flush(self, start: Start) -> None:
        """a. One window from the first waiting event; its end writes everything as one batch."""
        async with start() as one:
            session = one.sessions.create("s")
            one_turn(session)
            await one.settle()
            assert one.clock.asked == [200]
            assert one.backend.batches("s") == []
            await one.end_windows()
            assert one.backend.batches("s") == [(0, 1, 2, 3, 4, 5)]

    async def test_an_open_live_turn_is_not_loaded(self, start: Start) -> None:
        """2. A load of a live session with an open turn is refused; its real ending loads afterwards."""
        async with start() as one:
            session = one.sessions.create("s")
            open_turn(session)
            with pytest.raises(SessionBusyError, match="turn is open"):
                await one.store.load("s")
            assert await one.stored("s") == TURN[:3]
            close_turn(session)
            await one.flush(session)
            await one.dispose(session)
            loaded = await one.store.load("s")
            assert loaded.events[-1].value["reason"] == {"kind": "completed"}
            assert not loaded.closers

    async def test_a_load_looks_again_whether_the_session_is_live(self, start: Start) -> None:
        """3. A cold load that races with a same-id live creation refuses while the live turn is open."""
        async with start() as one:
            await one.store.create(header_of(), START)
            seed = [event("turn/start", 0, {"turn": 1})]
            await one.store.append("s", seed)
            refused = anyio.Event()
            async with anyio.create_task_group() as tasks:
                with one.backend.blocked("read") as barrier:
                    tasks.start_soon(_load_refused, one, refused)
                    await anyio.to_thread.run_sync(barrier.reached.wait)
                    one.sessions.create("s", CreateSessionOptions(seed=seed))
            assert refused.is_set()
            one.sessions.list()[0].append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
            loaded = await one.store.load("s")
            assert types(loaded.events) == ["turn/start", "session/end-seed", "turn/end"]

    async def test_an_empty_live_session_is_not_found(self, start: Start) -> None:
        """4. Loading an empty live session: not found. Nothing of it is stored."""
        async with start() as one:
            session = one.sessions.create("s")
            with pytest.raises(SessionNotFoundError):
                await one.store.load("s")
            await one.flush(session)
            assert await one.store.list() == ()

    async def test_the_fork_boundary_survives(self, start: Start) -> None:
        """5. `is_seeded` and a cut come back beside the header, wherever the events are read."""
        async with start() as one:
            parent = one.sessions.create("parent")
            one_turn(parent)
            child = one.sessions.fork(parent, 5, "child")
            one_turn(child, 2)
            await one.flush(child)
            await one.dispose(child)
            for read in (one.store.load, one.store.inspect):
                shown = await read("child")
                assert shown.header.is_seeded
                assert shown.header.parent_session == "parent"
                assert shown.inherited_event_count == 6
            assert (await one.store.read_from("child", 7)).inherited_event_count == 6

    async def test_depth_and_parent_survive(self, start: Start) -> None:
        """6 and 38. The delegation depth and the parent come back."""
        async with start() as one:
            options = CreateSessionOptions(parent_session="p", delegation_depth=2, origin="subagent")
            session = one.sessions.create("s", options)
            one_turn(session)
            await one.flush(session)
            await one.dispose(session)
            header = (await one.store.load("s")).header
            assert (header.depth, header.parent_session, header.origin) == (2, "p", "subagent")

    async def test_what_is_read_cannot_be_changed(self, start: Start) -> None:
        """7 and 8. Stored events stay what they were, and what is read is immutable."""
        async with start() as one:
            await one.store.create(header_of(), START)
            await one.store.append("s", turn_events())
            for shown in (await one.store.load("s"), await one.store.inspect("s")):
                with pytest.raises(AttributeError):
                    setattr(shown.events[0], "seq", 7)  # noqa: B010  # a plain assignment is a type error
                with pytest.raises(AttributeError):
                    setattr(shown.header, "cwd", "/x")  # noqa: B010  # a plain assignment is a type error
                shown.events[0].value["turn"] = 9
                assert shown.events[0].value == {"turn": 1}

    # --- old shapes and foreign types --------------------------------------------------------------

    async def test_messages_without_an_identity_get_one(
        self, start: Start, open_backend: OpenBackend
    ) -> None:
        """9. Old messages load with minted ids; a replacement takes over the id of its target."""
        content = [{"type": "text", "text": "out"}]
        old = {"turn": 1, "step": 1, "callId": "c", "content": content, "isError": False}
        call = {"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}
        events = [
            event("turn/start", 0, {"turn": 1}),
            event("step/start", 1, {"turn": 1, "step": 1}),
            event("assistant/message", 2, answer_data(1, [call]), surface_op="append"),
            event("tool/call", 3, {"turn": 1, "step": 1, "callId": "c", "name": "t", "arguments": "{}"}),
            event("tool/result", 4, old, surface_op="append", source_event_seqs=(3,)),
            event("tool/result", 5, old, surface_op=ReplaceOp("replace", 4, 4), source_event_seqs=(3, 4)),
            event("step/end", 6, {"turn": 1, "step": 1}),
            event("turn/end", 7, {"turn": 1, "reason": {"kind": "completed"}}),
        ]
        _put(open_backend, events)
        async with start() as one:
            shown = await one.store.inspect("s")
            ids = [shown.events[seq].value["message"]["id"] for seq in (4, 5)]
            assert ids == ["legacy-message:s:4"] * 2
            [suffix_id] = [
                one.value["message"]["id"]
                for one in (await one.store.read_from("s", 5)).events
                if one.type == "tool/result"
            ]
            assert suffix_id == ids[1]

    async def test_old_logs_load_in_the_current_form(self, start: Start, open_backend: OpenBackend) -> None:
        """10. Triggers, steering and old endings are read in the current form everywhere."""
        steering = {"turn": 1, "content": [{"type": "text", "text": "x"}], "source": {"kind": "user"}}
        events = [
            event("turn/start", 0, {"turn": 1, "trigger": {"kind": "user"}}),
            event("steering/message", 1, steering, surface_op="append"),
            event("turn/end", 2, {"turn": 1, "reason": {"kind": "disposed"}}),
        ]
        _put(open_backend, events)
        async with start() as one:
            suffix = await one.store.read_from("s", 1)
            for shown in (await one.store.inspect("s"), await one.store.load("s")):
                assert types(shown.events) == ["turn/start", "user/message", "turn/end"]
                assert shown.events[0].value == {"turn": 1}
                assert shown.events[2].value["reason"]["kind"] == "aborted"
                assert list(suffix.events) == list(shown.events[1:])

    @pytest.mark.parametrize(
        ("event_type", "data", "envelope"),
        [
            ("user/message", {**user_data(), "role": "assistant"}, {"surface_op": "append"}),
            ("assistant/message", {"turn": 1, "step": 1}, {"surface_op": "append"}),
            ("turn/start", {"turn": 1, "trigger": {}}, {}),
            ("turn/end", {"turn": 1, "reason": {"kind": "completed", "more": 1}}, {}),
        ],
    )
    async def test_malformed_messages_are_refused(
        self, start: Start, open_backend: OpenBackend, event_type: str, data: Any, envelope: Any
    ) -> None:
        """11. What no log may hold is corruption, named by its seq; nothing is repaired."""
        _put(open_backend, [event("turn/start", 0, {"turn": 1}), event(event_type, 1, data, **envelope)])
        async with start() as one:
            for read in (one.store.inspect, one.store.load):
                with pytest.raises(SessionPersistenceCorruptionError) as caught:
                    await read("s")
                assert caught.value.seq == 1
            assert not [made for made in one.backend.made if made.call in ("append", "repair")]

    async def test_an_unknown_type_is_kept_only_when_marked(
        self, start: Start, open_backend: OpenBackend
    ) -> None:
        """11 and 37. Null data of an ignorable unknown type is kept; a required one is a format refusal."""
        _put(open_backend, [event("new/thing", 0, None, ignorable=True), *turn_events(1)])
        _put(open_backend, [event("new/thing", 0, None), *turn_events(1)], "other")
        async with start() as one:
            assert (await one.store.load("s")).events[0].value is None
            for read in (one.store.inspect, one.store.load):
                with pytest.raises(SessionFormatUnsupportedError, match="new/thing"):
                    await read("other")

    # --- writing without a live session ------------------------------------------------------------

    async def test_a_batch_is_taken_as_it_is_at_the_call(self, start: Start) -> None:
        """12. What the caller does to its list afterwards is ignored."""
        async with start() as one:
            await one.store.create(header_of(), START)
            batch = turn_events()
            stored = one.store.append("s", batch)
            batch.clear()
            await stored
            assert await one.stored("s") == ["turn/start", "turn/end"]

    async def test_an_append_adopts_a_stored_session(self, start: Start) -> None:
        """31. Append on an id that only storage knows continues it; the seqs have to follow."""
        async with start() as one:
            await one.store.create(header_of(), START)
            await one.store.append("s", turn_events())
            await one.store.release("s")
            await one.store.append("s", turn_events(2, 2))
            for wrong in (turn_events(2), turn_events(5), [turn_events(4)[0], turn_events(6)[0]]):
                with pytest.raises(BatchRefusedError):
                    await one.store.append("s", wrong)
            assert types((await one.store.load("s")).events) == ["turn/start", "turn/end"] * 2

    async def test_an_empty_batch_stores_nothing(self, start: Start) -> None:
        """32. An empty batch does nothing, and makes nothing appear."""
        async with start() as one:
            await one.store.create(header_of(), START)
            await one.store.append("s", [])
            assert await one.store.list() == ()

    async def test_unknown_ids_are_not_found(self, start: Start) -> None:
        """33. Every operation on an unknown id says so."""
        async with start() as one:
            for ask in (
                one.store.load,
                one.store.inspect,
                one.store.resume,
                one.store.fork,
                one.store.delete,
            ):
                with pytest.raises(SessionNotFoundError):
                    await ask("nobody")
            with pytest.raises(SessionNotFoundError):
                await one.store.append("nobody", turn_events())
            with pytest.raises(SessionNotFoundError):
                await one.store.read_from("nobody", 0)

    async def test_an_id_is_created_once(self, start: Start) -> None:
        """34. A second create is refused, whether the first has stored anything or not."""
        async with start() as one:
            await one.store.create(header_of(), START)
            with pytest.raises(SessionExistsError):
                await one.store.create(header_of(), START)
            await one.store.append("s", turn_events())
            await one.store.release("s")
            with pytest.raises(SessionExistsError):
                await one.store.create(header_of(), START)

    async def test_headers_of_other_versions_are_refused(self, start: Start) -> None:
        """35 and 36, ours: what could not be read again is refused at create, and the id stays free."""
        async with start() as one:
            for version in (99, -1):
                with pytest.raises(HeaderRefusedError, match="version"):
                    await one.store.create(header_of(version=version), START)
            await one.store.create(header_of(), START)

    async def test_retired_shapes_are_refused(self, start: Start) -> None:
        """b. A retired type never enters a log, ignorable or not."""
        async with start() as one:
            await one.store.create(header_of(), START)
            with pytest.raises(EventRefusedError):
                await one.store.append("s", [event("mode/set", 0, {}, ignorable=True)])

    # --- continuing --------------------------------------------------------------------------------

    async def test_a_fork_is_stored_once(self, start: Start) -> None:
        """13. The seed is stored once, the mark last; a second flush writes nothing."""
        async with start() as one:
            parent = one.sessions.create("parent")
            one_turn(parent)
            child = one.sessions.fork(parent, None, "child")
            await one.flush(child)
            batches = one.backend.batches("child")
            await one.flush(child)
            assert one.backend.batches("child") == batches
            assert await one.stored("child") == [*TURN, "session/end-seed"]

    async def test_a_fork_copies_no_history(self, start: Start) -> None:
        """c. A fork is stored over its parent's events, durable before; only its own are written."""
        async with start() as one:
            parent = one.sessions.create("parent")
            one_turn(parent)
            child = one.sessions.fork(parent, 5, "child")
            one_turn(parent, 2)
            await one.flush(child)
            created = [
                made for made in one.backend.made if made.call == "create" and made.session_id == "child"
            ]
            assert [made.prefix for made in created] == [Prefix("parent", SessionLogOffset(6))]
            assert one.backend.batches("child") == [(6,)]
            assert await one.stored("child") == [*TURN, "session/end-seed"]

    async def test_a_fork_with_nothing_of_its_own_is_stored(self, start: Start) -> None:
        """d. A fork right after its parent's mark writes no mark, and is stored all the same."""
        async with start() as one:
            parent = one.sessions.create("parent", CreateSessionOptions(seed=turn_events()))
            child = one.sessions.fork(parent, None, "child")
            await one.flush(child)
            await one.dispose(child)
            loaded = await one.store.load("child")
            assert types(loaded.events) == ["turn/start", "turn/end", "session/end-seed"]
            assert loaded.inherited_event_count == 3

    async def test_a_stored_session_is_forked(self, start: Start) -> None:
        """e. A cold session is forked without becoming live, at its end or at a turn, history shared."""
        async with start() as one:
            await one.store.create(header_of("parent"), START)
            await one.store.append("parent", [*turn_events(), *turn_events(2, 2)])
            await one.store.release("parent")
            whole, first = await one.store.fork("parent"), await one.store.fork("parent", 1, "first")
            assert one.sessions.get("parent") is None
            for child, count in ((whole, 4), (first, 2)):
                await one.flush(child)
                assert child.inherited_event_count == count
                assert one.backend.batches(child.id) == [(count,)]
            for boundary in (4, 9, -1):
                with pytest.raises(ForkRefusedError, match="INVALID_BOUNDARY"):
                    await one.store.fork("parent", boundary)
            with pytest.raises(ForkRefusedError, match="OPEN_TURN"):
                await one.store.fork("parent", 2)

    async def test_another_process_resumes(self, start: Start) -> None:
        """14. A second process loads the log and goes on with it as a seed: six, the mark, a new turn."""
        async with start() as one:
            one_turn(one.sessions.create("s"))
        async with start() as two:
            seed = (await two.store.load("s")).events
            session = two.sessions.create("s", CreateSessionOptions(seed=seed))
            session.append("turn/start", {"turn": 2})
            session.append("turn/end", {"turn": 2, "reason": {"kind": "completed"}})
            await two.flush(session)
            assert await two.stored("s") == [*TURN, "session/end-seed", "turn/start", "turn/end"]
            assert two.backend.batches("s") == [(6, 7, 8)]

    async def test_resume_goes_on_where_the_log_ends(self, start: Start) -> None:
        """f. Resume: the live log is the stored one and the mark; only what is new is written."""
        async with start() as one:
            one_turn(one.sessions.create("s", CreateSessionOptions(created_at=77)))
        async with start() as two:
            session = await two.store.resume("s")
            assert types(session.events) == [*TURN, "session/end-seed"]
            assert session.header.created_at == 77
            assert two.backend.batches("s") == []
            one_turn(session, 2)
            await two.flush(session)
            assert two.backend.batches("s") == [tuple(range(6, 13))]
            with pytest.raises(SessionBusyError):
                await two.store.resume("s")

    async def test_storage_attached_later_adopts_live_sessions(self, start: Start) -> None:
        """15, 17 and 18. Sessions that are live are taken up, stored before or not, with what they wrote."""
        sessions = SessionStore(ManualClock(1000, 1), SeededIds())
        session = sessions.create("s")
        one_turn(session)
        async with start(sessions) as one:
            await one.flush(session)
        one_turn(session, 2)
        async with start(sessions) as two:
            await two.flush(session)
            assert two.backend.batches("s") == [tuple(range(6, 12))]
            assert await two.stored("s") == TURN * 2

    async def test_teardown_drains(self, start: Start) -> None:
        """16. Leaving the coordinator stores what waits."""
        async with start() as one:
            one_turn(one.sessions.create("s"))
        async with start() as two:
            assert await two.stored("s") == TURN

    async def test_adopting_cuts_a_torn_tail_and_closes_no_live_turn(self, start: Start) -> None:
        """19. A live session ends its turn itself; what a crash tore behind it is cut, and that is told."""
        sessions = SessionStore(ManualClock(1000, 1), SeededIds())
        session = sessions.create("s")
        open_turn(session)
        async with start(sessions):
            pass
        close_turn(session)
        async with start(sessions) as two:
            two.backend.tear("s", TORN)
            await two.flush(session)
            assert await two.stored("s") == TURN
            [told] = two.notices
            assert isinstance(told, Repaired)
            assert told.torn is not None
            assert told.closers == ()

    async def test_a_flush_before_anything_was_set_up_stores_once(self, start: Start) -> None:
        """39. Flushes that come before the first write has found its session store everything once."""
        async with start() as one:
            session = one.sessions.create("s")
            one_turn(session)
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one.flush, session)
            assert one.backend.batches("s") == [(0, 1, 2, 3, 4, 5)]

    # --- collisions --------------------------------------------------------------------------------

    async def test_a_new_session_cannot_have_a_stored_id(self, start: Start) -> None:
        """20 and 25. Refused at the flush: the stored log is untouched, the live one keeps its events.

        Whoever leaves with them unwritten is told.
        """
        async with start() as one:
            one_turn(one.sessions.create("s"))
        with left_by(SessionExistsError, match="seq 0"):
            async with start() as two:
                await two.store.load("s")
                session = two.sessions.create("s")
                session.append("turn/start", {"turn": 9})
                for _ in range(2):
                    with pytest.raises(SessionExistsError, match="seq 0"):
                        await two.flush(session)
                assert await two.stored("s") == TURN
                assert session.seq == 1
                await two.dispose(session)
                assert types((await two.store.load("s")).events) == TURN

    async def test_a_session_disposed_empty_frees_its_id(self, start: Start) -> None:
        """21. Before its first append nothing of it is anywhere."""
        async with start() as one:
            one.sessions.detach(one.sessions.create("s"))
            session = one.sessions.create("s")
            one_turn(session)
            await one.flush(session)
            assert await one.stored("s") == TURN

    async def test_disposal_drains(self, start: Start) -> None:
        """22. What waits is written when a session is disposed; a same-id newcomer waits and is refused."""
        with left_by(SessionExistsError):
            async with start() as one:
                first = one.sessions.create("s")
                one_turn(first)
                one.sessions.detach(first)
                second = one.sessions.create("s")
                second.append("turn/start", {"turn": 9})
                with pytest.raises(SessionExistsError):
                    await one.flush(second)
                assert await one.stored("s") == TURN

    async def test_an_operation_waits_for_the_end_of_a_live_session(self, start: Start) -> None:
        """22. A load right after the disposal sees everything."""
        async with start() as one:
            session = one.sessions.create("s")
            one_turn(session)
            one.sessions.detach(session)
            assert types((await one.store.load("s")).events) == TURN

    async def test_a_second_notice_of_creation_changes_nothing(self, start: Start) -> None:
        """23. A session is taken up once."""
        sessions = _Twice(ManualClock(1000, 1), SeededIds())
        async with start(sessions) as one:
            session = sessions.create("s")
            one_turn(session)
            await one.flush(session)
            assert one.backend.batches("s") == [(0, 1, 2, 3, 4, 5)]

    async def test_a_live_session_claims_a_created_id(self, start: Start) -> None:
        """24. An id that was created and not filled is claimed: the seed and the mark are stored."""
        async with start() as one:
            await one.store.create(header_of(), START)
            session = one.sessions.create("s", CreateSessionOptions(seed=turn_events(), created_at=5))
            await one.flush(session)
            assert await one.stored("s") == ["turn/start", "turn/end", "session/end-seed"]
            await one.dispose(session)
            assert (await one.store.inspect("s")).header.created_at == 1000

    async def test_a_session_equal_to_the_stored_one_claims_it(self, start: Start) -> None:
        """26. A seed that is the stored log, its mark included, claims it and writes nothing."""
        async with start() as one:
            one.sessions.create("s", CreateSessionOptions(seed=turn_events()))
        async with start() as two:
            seed = (await two.store.load("s")).events
            session = two.sessions.create("s", CreateSessionOptions(seed=seed))
            await two.flush(session)
            assert two.backend.batches("s") in ([], [()])
            with pytest.raises(SessionBusyError):
                await two.store.append("s", turn_events(3, 2))

    async def test_a_session_that_extends_the_stored_one_claims_it(self, start: Start) -> None:
        """27. Only what is new is written, and the stored header stays."""
        async with start() as one:
            await one.store.create(header_of(), START)
            await one.store.append("s", turn_events())
            seed = [*(await one.store.load("s")).events, *turn_events(2, 2)]
            session = one.sessions.create("s", CreateSessionOptions(seed=seed, created_at=5))
            await one.flush(session)
            assert one.backend.batches("s") == [(0, 1), (2, 3, 4)]
            await one.dispose(session)
            assert (await one.store.load("s")).header.created_at == 1000

    @pytest.mark.parametrize(("stored", "claimed"), [("/a", "/b"), ("/a", None), (None, "/a")])
    @pytest.mark.parametrize("loaded", [False, True])
    async def test_another_working_directory_never_claims(
        self, start: Start, stored: str | None, claimed: str | None, loaded: bool
    ) -> None:
        """28 to 30. Equal events in another folder are another session, also after a load."""
        with left_by(SessionExistsError, match="working directory"):
            async with start() as one:
                await one.store.create(header_of(cwd=stored), START)
                await one.store.append("s", turn_events())
                await one.store.release("s")
                if loaded:
                    await one.store.load("s")
                options = CreateSessionOptions(seed=turn_events(), cwd=claimed)
                with pytest.raises(SessionExistsError, match="working directory"):
                    await one.flush(one.sessions.create("s", options))
                assert await one.stored("s") == ["turn/start", "turn/end"]

    async def test_another_cut_never_claims(self, start: Start) -> None:
        """g. The same events with another cut have another owner: what was inherited would count as own."""
        with left_by(SessionExistsError, match="fork seed"):
            async with start() as one:
                await one.store.create(header_of(is_seeded=True), SessionLogOffset(2))
                await one.store.append("s", [*turn_events(), event("session/end-seed", 2, {})])
                seed = [*turn_events(), event("session/end-seed", 2, {})]
                with pytest.raises(SessionExistsError, match="fork seed"):
                    await one.flush(one.sessions.create("s", CreateSessionOptions(seed=seed)))

    # --- repair ------------------------------------------------------------------------------------

    async def test_a_load_repairs_and_tells(self, start: Start) -> None:
        """40. A torn tail is cut, an open turn closed, both are told; a later append goes on behind them."""
        sessions = SessionStore(ManualClock(1000, 1), SeededIds())
        open_turn(sessions.create("s"))
        async with start(sessions):
            pass
        async with start() as two:
            two.backend.tear("s", TORN)
            loaded = await two.store.load("s")
            assert types(loaded.events) == [*TURN[:3], "step/end", "turn/end"]
            assert loaded.events[-1].value["reason"] == {"kind": "interrupted"}
            assert loaded.closers == 2
            assert loaded.torn is not None
            assert loaded.torn.kept_at == "beside the log"
            assert two.notices == [Repaired("s", loaded.torn, ("step/end", "turn/end"))]
            await two.store.append("s", turn_events(5, 2))
            again = await two.store.load("s")
            assert (len(again.events), again.closers, again.torn) == (7, 0, None)

    async def test_an_inspection_shows_closers_and_writes_nothing(self, start: Start) -> None:
        """h. It shows what a repair would append; the revision stays, and a resume appends just that."""
        sessions = SessionStore(ManualClock(1000, 1), SeededIds())
        open_turn(sessions.create("s"))
        async with start(sessions):
            pass
        async with start() as two:
            before = [listed.revision for listed in await two.store.list()]
            shown = await two.store.inspect("s")
            assert types(shown.closing_events) == ["step/end", "turn/end"]
            assert [listed.revision for listed in await two.store.list()] == before
            assert await two.stored("s") == TURN[:3]
            session = await two.store.resume("s")
            assert list(session.events[:-1]) == list(shown.events)
            assert await two.stored("s") == types(shown.events)

    # --- leases ------------------------------------------------------------------------------------

    async def test_a_second_process_is_refused_while_the_first_writes(self, start: Start) -> None:
        """i. One writer: the second is refused at its flush, and may still read."""
        with left_by(SessionBusyError):
            async with start() as one, start() as two:
                session = one.sessions.create("s")
                one_turn(session)
                await one.flush(session)
                with pytest.raises(SessionBusyError):
                    await two.store.resume("s")
                with pytest.raises(SessionBusyError):
                    await two.store.append("s", turn_events(6, 2))
                assert types((await two.store.load("s")).events) == TURN
                newcomer = two.sessions.create("s")
                newcomer.append("turn/start", {"turn": 9})
                with pytest.raises(SessionBusyError):
                    await two.flush(newcomer)

    async def test_an_open_turn_of_another_process_is_not_closed(self, start: Start) -> None:
        """j. A load that would repair what another process writes is refused; an inspection is not."""
        async with start() as one, start() as two:
            session = one.sessions.create("s")
            open_turn(session)
            await one.flush(session)
            assert (await two.store.inspect("s")).closers == 2
            with pytest.raises(SessionBusyError):
                await two.store.load("s")
            close_turn(session)
            await one.flush(session)
            assert not (await two.store.load("s")).closers
            await one.dispose(session)

    async def test_a_disposed_session_is_free_for_others(self, start: Start) -> None:
        """k. The lease ends with the live session."""
        async with start() as one:
            session = await self._resumed(one)
            await one.dispose(session)
            async with start() as two:
                again = await two.store.resume("s")
                assert types(again.events) == [*TURN, "session/end-seed"]
                await two.dispose(again)

    async def _resumed(self, one: Process) -> Session:
        first = one.sessions.create("s")
        one_turn(first)
        await one.dispose(first)
        return await one.store.resume("s")

    async def test_a_reservation_that_nobody_takes_ends(self, start: Start) -> None:
        """l. A reserved session is refused to others here, and free afterwards, unchanged."""
        async with start() as one:
            first = one.sessions.create("s")
            one_turn(first)
            await one.dispose(first)
            async with one.store.reserved("s") as inspection:
                with pytest.raises(SessionBusyError):
                    one.sessions.create("s", CreateSessionOptions(seed=list(inspection.events)))
                with pytest.raises(SessionBusyError):
                    await one.store.append("s", turn_events(6, 2))
                assert one.sessions.get("s") is None
            assert await one.stored("s") == TURN
            await one.store.append("s", turn_events(6, 2))

    # --- one damaged session -----------------------------------------------------------------------

    async def test_a_deleted_session_is_gone_and_its_fork_stays(self, start: Start) -> None:
        """m. Deleting a parent leaves what its forks read; a live session is not deleted."""
        async with start() as one:
            parent = one.sessions.create("parent")
            one_turn(parent)
            child = one.sessions.fork(parent, 5, "child")
            await one.flush(child)
            with pytest.raises(SessionBusyError):
                await one.store.delete("parent")
            await one.dispose(parent)
            await one.dispose(child)
            await one.store.delete("parent")
            with pytest.raises(ArtifactError):
                await one.store.inspect("parent")
            assert types((await one.store.load("child")).events) == [*TURN, "session/end-seed"]


async def _load_refused(one: Process, refused: anyio.Event) -> None:
    with pytest.raises(SessionBusyError):
        await one.store.load("s")
    refused.set()


class _Twice(SessionStore):
    """A store that tells of each creation twice."""

    def on_created(self, listener: CreatedListener) -> Undo:
        first, second = super().on_created(listener), super().on_created(listener)

        def undo() -> None:
            first()
            second()

        return undo


def _put(open_backend: OpenBackend, events: list[Event], session_id: str = "s") -> None:
    """Store events as they are, past everything that would refuse them."""
    backend = open_backend()
    writer = backend.create(header_of(session_id), START)
    writer.append(events)
    writer.close()
    backend.close()
