"""Time as an argument: whoever needs the time is handed a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Replay and tests pass their own."""

    def now(self) -> int:
        """Return whole milliseconds since the Unix epoch."""
        ...

    async def sleep(self, milliseconds: int) -> None:
        """Return after `milliseconds`; cancellable."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, milliseconds: int) -> None:
        import anyio  # costs 50 ms: commands that only read a log never sleep

        await anyio.sleep(milliseconds / 1000)


class ManualClock:
    """A clock that moves by `step` at each reading, and at once over any sleep.

    Two runs that read it equally often see equal times.
    """

    def __init__(self, start: int = 0, step: int = 0) -> None:
        self._now = start
        self._step = step

    def now(self) -> int:
        current = self._now
        self._now += self._step
        return current

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds

    async def sleep(self, milliseconds: int) -> None:
        self.advance(milliseconds)
        import anyio.lowlevel  # costs 50 ms: commands that only read a log never sleep

        await anyio.lowlevel.checkpoint()
