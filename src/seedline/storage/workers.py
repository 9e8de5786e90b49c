"""Where the blocking calls of a backend run, and in which order those of one session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Workers:
    """Threads for blocking calls, at most `threads` at once, so that slow tools cannot starve the store.

    A call that has begun runs to its end, whatever happens to the task that waits for it.
    """

    def __init__(self, threads: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._active = 0
        self._idle = anyio.Event()
        self._idle.set()

    async def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return what `call` returns, or raise what it raises."""
        self._begin()
        try:
            return await anyio.to_thread.run_sync(call, *args, limiter=self._limiter)
        finally:
            self._end()

    async def idle(self) -> None:
        """Return when no call is under way."""
        while self._active:
            await self._idle.wait()

    def _begin(self) -> None:
        if not self._active:
            self._idle = anyio.Event()
        self._active += 1

    def _end(self) -> None:
        self._active -= 1
        if not self._active:
            self._idle.set()


class Chain:
    """The operations on one session id: one at a time, first come, first served."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for the operations before this one; how they ended does not matter.

        A cancel while it waits takes effect at once; one that comes later waits for the end of the body.
        """
        async with self._lock:
            with anyio.CancelScope(shield=True):
                yield
