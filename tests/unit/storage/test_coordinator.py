"""The coordinator's own rules: windows, failures, cancels, the cache of prepared sessions, the end."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import anyio
import anyio.to_thread
import pytest

from seedline.clock import ManualClock
from seedline.errors import (
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    SettingRefusedError,
    StaleWriterError,
    StorageError,
)
from seedline.ids import SeededIds
from seedline.session.header import START
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, SessionStore
from seedline.storage.base import TornTail
from seedline.storage.coordinator import Coordinator, CoordinatorSettings
from seedline.storage.memory import MemoryBackend
from seedline.storage.notices import Repaired, WriteFailed
from seedline.testing.coordinator_contract import (
    TURN,
    Process,
    event,
    header_of,
    one_turn,
    open_turn,
    process,
    turn_events,
    types,
)

pytestmark = pytest.mark.anyio
GONE = "the disk is gone"
LOOPS = [
    "asyncio",
    pytest.param("trio", marks=pytest.mark.skipif(find_spec("trio") is None, reason="trio is not installed")),
]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


def say(session: Session, count: int = 1) -> None:
    """Append events of one kind: what they say does not matter here."""
    for _ in range(count):
        session.append("test/said", {}, ignorable=True)


async def reached(barrier: Any) -> None:
    await anyio.to_thread.run_sync(barrier.reached.wait)


# --- windows -----------------------------------------------------------------------------------------


async def test_later_events_do_not_extend_a_window(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.settle()
        say(session, 3)
        await one.settle()
        assert one.clock.asked == [200]
        await one.end_windows()
        assert one.backend.batches("s") == [(0, 1, 2, 3)]
        assert one.clock.sleepers == 0


async def test_sessions_have_windows_of_their_own(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        for name in ("a", "b"):
            say(one.sessions.create(name))
        await one.settle()
        assert one.clock.sleepers == 2
        await one.end_windows()
        assert one.backend.batches("a") == one.backend.batches("b") == [(0,)]


async def test_events_during_a_write_are_the_next_batch(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.settle()
        with one.backend.blocked("append") as barrier:
            one.clock.ring()
            await reached(barrier)
            say(session, 2)
            await anyio.wait_all_tasks_blocked()
            assert one.clock.asked == [200, 200]
        await one.settle()
        assert one.backend.batches("s") == [(0,)]
        await one.end_windows()
        assert one.backend.batches("s") == [(0,), (1, 2)]


async def test_a_window_that_ends_during_a_write_is_written_right_after_it(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.settle()
        with one.backend.blocked("append") as barrier:
            one.clock.ring()
            await reached(barrier)
            say(session)
            await anyio.wait_all_tasks_blocked()
            one.clock.ring()
            await anyio.wait_all_tasks_blocked()
            say(session)
            await anyio.wait_all_tasks_blocked()
            assert one.clock.asked == [200, 200]  # the third event goes with the second
        await one.settle()
        assert one.backend.batches("s") == [(0,), (1, 2)]


async def test_a_very_large_batch_is_written_as_one(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session, 100_000)
        one.backend.fail("append", times=1)
        await one.settle()
        await one.end_windows()
        await one.flush(session)
        assert [len(batch) for batch in one.backend.batches("s")] == [100_000, 100_000]


# --- flush -------------------------------------------------------------------------------------------


async def test_a_flush_ends_the_window(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.settle()
        await one.flush(session)
        await one.settle()
        assert one.clock.sleepers == 0
        say(session)
        await one.settle()
        assert one.clock.asked == [200, 200]


async def test_a_flush_writes_what_comes_meanwhile(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                tasks.start_soon(one.flush, session)
                await reached(barrier)
                say(session, 2)
        assert one.backend.batches("s") == [(0,), (1, 2)]
        await one.settle()
        assert one.clock.sleepers == 0


async def test_a_flush_joins_the_one_under_way_and_shares_its_failure(memory: MemoryBackend) -> None:
    failures: list[str] = []

    async def flush(one: Process, session: Session) -> None:
        try:
            await one.flush(session)
        except StorageError as error:
            failures.append(str(error))

    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        one.backend.fail("append", times=1)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                tasks.start_soon(flush, one, session)
                await reached(barrier)
                tasks.start_soon(flush, one, session)
                await anyio.wait_all_tasks_blocked()
        assert len(failures) == 2
        assert one.backend.batches("s") == [(0,)]
        await one.flush(session)
        assert await one.stored("s") == ["test/said"]


async def test_a_flush_swallows_the_failure_of_the_write_it_waits_for(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.settle()
        one.backend.fail("append", times=1)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                one.clock.ring()
                await reached(barrier)
                tasks.start_soon(one.flush, session)
                await anyio.wait_all_tasks_blocked()
        assert one.backend.batches("s") == [(0,), (0,)]
        assert await one.stored("s") == ["test/said"]


async def test_a_flush_without_a_coordinator_takes_no_part(memory: MemoryBackend) -> None:
    sessions = SessionStore(ManualClock(), SeededIds())
    async with process(memory, sessions):
        pass
    assert not await sessions.flush(sessions.create("s"))


# --- failures ----------------------------------------------------------------------------------------


async def test_a_background_failure_is_told_once_and_pauses(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        one.backend.fail("append")
        say(session, 2)
        await one.settle()
        await one.end_windows()
        assert one.clock.sleepers == 0
        [told] = one.notices
        assert isinstance(told, WriteFailed)
        assert GONE in str(told)
        say(session)
        await one.settle()
        await one.end_windows()
        assert len(one.notices) == 1
        one.backend.fail("append", error=StorageError("another one"))
        say(session)
        await one.settle()
        await one.end_windows()
        assert len(one.notices) == 2
        one.backend.mend()
        say(session)
        await one.settle()
        await one.end_windows()
        assert one.backend.batches("s")[-1] == (0, 1, 2, 3, 4)
        assert len(await one.stored("s")) == 5


async def test_a_failed_flush_raises_and_keeps_the_events(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session, 2)
        one.backend.fail("append")
        for _ in range(2):
            with pytest.raises(StorageError, match=GONE):
                await one.flush(session)
        one.backend.mend()
        say(session)
        await one.flush(session)
        assert one.backend.batches("s")[-1] == (0, 1, 2)
        assert len(await one.stored("s")) == 3


async def test_a_write_of_unknown_outcome_is_neither_lost_nor_repeated(memory: MemoryBackend) -> None:
    """The connection broke after the commit: the next attempt looks what is stored."""
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session, 2)
        one.backend.fail("append", error=StaleWriterError("the connection is gone"), times=1, after=True)
        with pytest.raises(StaleWriterError):
            await one.flush(session)
        say(session)
        await one.flush(session)
        assert one.backend.batches("s") == [(0, 1), (2,)]
        assert len(await one.stored("s")) == 3


async def test_what_another_hand_wrote_is_not_mixed_with(memory: MemoryBackend) -> None:
    with pytest.raises(SessionExistsError):
        await _fenced(memory)


async def _fenced(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.flush(session)
        memory.leases.clear()  # as if this process had been taken for dead
        _, writer = memory.open("s")
        writer.append(turn_events(1))
        writer.close()
        say(session)
        with pytest.raises(StaleWriterError):
            await one.flush(session)
        with pytest.raises(SessionExistsError, match="from seq 1 on"):
            await one.flush(session)
        assert await one.stored("s") == ["test/said", "turn/start", "turn/end"]


async def test_what_the_medium_lost_is_written_again(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.flush(session)
        memory.leases.clear()
        memory.delete("s")
        say(session)
        with pytest.raises(StaleWriterError):
            await one.flush(session)
        await one.flush(session)
        assert len(await one.stored("s")) == 2


async def test_a_failed_retirement_keeps_the_events_until_they_can_be_written(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
        await one.flush(session)
        say(session)
        one.backend.fail("append")
        await one.dispose(session)
        assert [type(told) for told in one.notices] == [WriteFailed]
        for ask in (one.store.inspect, one.store.load, one.store.resume):
            with pytest.raises(StorageError, match=GONE):
                await ask("s")
        one.backend.mend()
        assert len((await one.store.load("s")).events) == 2


async def test_a_child_is_stored_once_its_parent_can_be(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        parent = one.sessions.create("parent")
        one_turn(parent)
        child = one.sessions.fork(parent, None, "child")
        one.backend.fail("append", times=1)
        with pytest.raises(StorageError, match=GONE):
            await one.flush(child)
        assert await one.store.list() == ()
        await one.flush(child)
        assert one.backend.batches("child") == [(6,)]


async def test_a_child_of_a_deleted_parent_is_stored_whole(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        await one.store.create(header_of("parent"), START)
        await one.store.append("parent", turn_events())
        child = await one.store.fork("parent", 1, "child")
        await one.store.delete("parent")
        await one.flush(child)
        assert one.backend.batches("child") == [(0, 1, 2)]


# --- cancels -----------------------------------------------------------------------------------------


async def test_an_operation_that_waits_is_cancelled_at_once_and_never_runs(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        await one.store.create(header_of(), START)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                tasks.start_soon(one.store.append, "s", turn_events())
                await reached(barrier)
                with anyio.move_on_after(0.05) as scope:
                    await one.store.append("s", turn_events(2, 2))
                assert scope.cancelled_caught
        assert len(await one.stored("s")) == 2


async def test_an_operation_that_has_begun_is_carried_through(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        await one.store.create(header_of(), START)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                tasks.start_soon(one.store.append, "s", turn_events())
                await reached(barrier)
                tasks.cancel_scope.cancel()
        await one.store.append("s", turn_events(2, 2))
        assert len(await one.stored("s")) == 4


async def test_a_cancelled_flush_leaves_everything_in_order(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session, 2)
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("append") as barrier:
                tasks.start_soon(one.flush, session)
                await reached(barrier)
                tasks.cancel_scope.cancel()
                say(session)
        await one.flush(session)
        assert len(await one.stored("s")) == 3


async def test_a_reservation_that_is_cancelled_gives_the_session_back(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("open") as barrier:
                tasks.start_soon(one.store.resume, "s")
                await reached(barrier)
                tasks.cancel_scope.cancel()
        await one.settle()
        for session in one.sessions.list():
            await one.dispose(session)
        assert memory.leases == {}


# --- the cache ---------------------------------------------------------------------------------------


def _put(memory: MemoryBackend, events: list[Any], session_id: str = "s") -> None:
    writer = memory.create(header_of(session_id), START)
    writer.append(events)
    writer.close()


def _reads(one: Process) -> list[str]:
    return [made.session_id for made in one.backend.made if made.call == "read"]


async def test_an_unchanged_session_is_read_once(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        first = await one.store.inspect("s")
        assert await one.store.inspect("s") is first
        assert await one.store.load("s") is first
        assert _reads(one) == ["s"]
        _, writer = memory.open("s")
        writer.append(turn_events(2, 2))
        assert len((await one.store.inspect("s")).events) == 4
        assert _reads(one) == ["s", "s"]


async def test_the_least_recently_used_session_is_forgotten(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        names = "abcdef"
        for name in names:
            _put(memory, turn_events(), name)
        for name in "abcdeaf":  # five stay, and `b` is the one used longest ago
            await one.store.inspect(name)
        one.backend.made.clear()
        for name in "acdef":
            await one.store.inspect(name)
        assert _reads(one) == []
        await one.store.inspect("b")
        assert _reads(one) == ["b"]


async def test_readers_of_one_session_share_a_read(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("read") as barrier:
                for _ in range(3):
                    tasks.start_soon(one.store.inspect, "s")
                await reached(barrier)
                await anyio.wait_all_tasks_blocked()
        assert _reads(one) == ["s"]


async def test_a_reader_that_is_cancelled_does_not_end_the_read(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        shown: list[Any] = []

        async def look() -> None:
            shown.append(await one.store.inspect("s"))

        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("read") as barrier:
                with anyio.move_on_after(0.05) as scope:
                    await one.store.inspect("s")
                assert scope.cancelled_caught
                await reached(barrier)
                tasks.start_soon(look)
                await anyio.wait_all_tasks_blocked()
        assert len(shown) == 1
        assert _reads(one) == ["s"]


async def test_a_joined_read_that_is_out_of_date_is_repeated(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        counts: list[int] = []

        async def look() -> None:
            counts.append(len((await one.store.inspect("s")).events))

        async with anyio.create_task_group() as tasks:
            with one.backend.blocked("revision") as barrier:
                tasks.start_soon(look)
                await anyio.wait_all_tasks_blocked()
                await one.store.idle()
                tasks.start_soon(look)  # finds the view ready and asks for the revision
                await reached(barrier)
                _, writer = memory.open("s")
                writer.append(turn_events(2, 2))
        assert counts == [2, 4]


async def test_a_failed_read_leaves_nothing_behind(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        one.backend.fail("read", times=1)
        with pytest.raises(StorageError, match=GONE):
            await one.store.inspect("s")
        assert len((await one.store.inspect("s")).events) == 2


async def test_a_deleted_session_is_not_shown_from_the_cache(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        await one.store.inspect("s")
        memory.delete("s")
        with pytest.raises(SessionNotFoundError):
            await one.store.inspect("s")


async def test_reservations_of_one_session_wait_for_each_other(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        order: list[str] = []

        async def reserve(name: str) -> None:
            async with one.store.reserved("s"):
                order.append(name)
                await anyio.sleep(0.01)
                order.append(name)

        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(reserve, name)
        assert order[::2] == order[1::2]
        assert memory.leases == {}


async def test_a_log_that_cannot_be_continued_is_not_repaired(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, [event("turn/start", 0, {"turn": 1}), event("user/message", 1, {"role": "x"})])
        one.backend.tear("s", TornTail(seq=2, size=1, reason="half"))
        for ask in (one.store.load, one.store.resume):
            with pytest.raises(SessionPersistenceCorruptionError) as caught:
                await ask("s")
            assert caught.value.path == "memory:s"
        assert memory.leases == {}
        assert not [made for made in one.backend.made if made.call == "repair"]


async def test_a_failed_repair_gives_the_session_back(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events()[:1])
        one.backend.fail("repair", times=1)
        with pytest.raises(StorageError, match=GONE):
            await one.store.load("s")
        assert memory.leases == {}
        assert (await one.store.load("s")).closers == 1


# --- the end -----------------------------------------------------------------------------------------


async def test_teardown_names_every_session_that_could_not_be_stored(memory: MemoryBackend) -> None:
    one = Process(memory)
    await one.store.__aenter__()
    for name in ("a", "b"):
        say(one.sessions.create(name))
    one.backend.fail("append", "close")
    with pytest.raises(ExceptionGroup) as caught:
        await one.store.__aexit__(None, None, None)
    assert len(caught.value.exceptions) == 3
    assert one.backend.made[-1].call == "close"


async def test_teardown_closes_the_backend_after_a_failure(memory: MemoryBackend) -> None:
    one = Process(memory)
    await one.store.__aenter__()
    say(one.sessions.create("a"))
    one.backend.fail("append")
    with pytest.raises(StorageError, match=GONE):
        await one.store.__aexit__(None, None, None)
    assert one.backend.made[-1].call == "close"


async def test_a_failure_inside_and_one_at_the_end_are_both_raised(memory: MemoryBackend) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await _failing_twice(memory)
    assert {type(error) for error in caught.value.exceptions} == {KeyError, StorageError}


async def _failing_twice(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        say(one.sessions.create("a"))
        one.backend.fail("append")
        raise KeyError("inside")


async def test_a_failure_inside_comes_out_as_it_is(memory: MemoryBackend) -> None:
    with pytest.raises(KeyError):
        await _failing_once(memory)
    assert len(memory.read("a").events) == 1


async def _failing_once(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        say(one.sessions.create("a"))
        raise KeyError("inside")


async def test_teardown_drains_under_a_cancel(memory: MemoryBackend) -> None:
    with anyio.CancelScope() as scope:
        async with process(memory) as one:
            say(one.sessions.create("a"), 3)
            scope.cancel()
            await anyio.sleep(1)
    assert scope.cancelled_caught
    assert len(memory.read("a").events) == 3
    assert memory.leases == {}


async def test_a_closed_coordinator_refuses(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s")
        say(session)
    say(session)
    for ask in (one.store.inspect, one.store.load, one.store.resume, one.store.release):
        with pytest.raises(StorageError, match="not open"):
            await ask("s")
    assert len(memory.read("s").events) == 1


# --- settings and reports ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["window_ms", "prepared", "threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, 2**31, None, "5"])
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingRefusedError, match=name):
        CoordinatorSettings(**{name: value})


def test_the_ends_of_the_range_are_taken() -> None:
    CoordinatorSettings(window_ms=1, prepared=1, threads=1)
    CoordinatorSettings(window_ms=2**31 - 1)


async def test_without_a_listener_repairs_and_failures_are_logged(
    memory: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    _put(memory, turn_events()[:1])
    sessions = SessionStore(ManualClock(), SeededIds())
    with caplog.at_level(logging.WARNING, "seedline.storage"):
        async with Coordinator(memory, sessions) as store:
            await store.load("s")
    [record] = caplog.records
    assert "session 's': repaired: appended turn/end" in record.getMessage()


def test_a_repair_says_what_was_cut_and_where_it_is() -> None:
    torn = TornTail(seq=8, size=7, reason="half a record", kept_at="/there")
    told = str(Repaired("s", torn, ("turn/end",)))
    assert told == (
        "session 's': repaired: cut 7 torn from seq 8 on (half a record), kept at /there; appended turn/end"
    )


async def test_a_vetoed_creation_leaves_no_session(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        _put(memory, turn_events())
        async with one.store.reserved("s"):
            with pytest.raises(SessionBusyError, match="reserved"):
                one.sessions.create("s")
        assert one.sessions.list() == []
        assert types((await one.store.load("s")).events) == ["turn/start", "turn/end"]


async def test_a_live_session_is_inspected_as_it_is(memory: MemoryBackend) -> None:
    async with process(memory) as one:
        session = one.sessions.create("s", CreateSessionOptions(cwd="/x"))
        open_turn(session)
        shown = await one.store.inspect("s")
        assert (shown.live, types(shown.events), shown.header.cwd) == (True, TURN[:3], "/x")
        assert one.backend.made == []
