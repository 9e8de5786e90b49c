"""Clocks: the machine's, and one that moves by hand."""

from __future__ import annotations

import time

import anyio
import pytest

from seedline.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_gives_whole_milliseconds_of_the_epoch() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now()
    assert type(now) is int
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_system_clock_sleeps_in_milliseconds() -> None:
    start = time.monotonic()
    anyio.run(SystemClock().sleep, 20)
    assert 0.02 <= time.monotonic() - start < 5


def test_a_manual_clock_stands_still_unless_told() -> None:
    clock = ManualClock(1000)
    assert [clock.now(), clock.now()] == [1000, 1000]
    clock.advance(50)
    assert clock.now() == 1050
    clock.advance(-100)
    assert clock.now() == 950


def test_a_manual_clock_may_step_at_each_reading() -> None:
    clock = ManualClock(5, step=10)
    assert [clock.now() for _ in range(3)] == [5, 15, 25]


def test_two_manual_clocks_read_equally_often_agree() -> None:
    one, other = ManualClock(1, step=3), ManualClock(1, step=3)
    assert [one.now() for _ in range(9)] == [other.now() for _ in range(9)]


def test_a_manual_sleep_passes_at_once() -> None:
    clock = ManualClock(0)
    start = time.monotonic()
    anyio.run(clock.sleep, 3_600_000)
    assert clock.now() == 3_600_000
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_sleep_lets_others_run_and_can_be_cancelled(clock: Clock) -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def sleeper() -> None:
            await clock.sleep(0)
            seen.append("slept")

        async with anyio.create_task_group() as group:
            group.start_soon(sleeper)
            seen.append("started")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await clock.sleep(10_000)
            seen.append("not cancelled")
        return seen

    assert anyio.run(main) == ["started", "slept"]
