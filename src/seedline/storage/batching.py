"""The way of one live session's events to its store: windows, writes, flushes, the end.

The log in memory is the buffer: what waits for a write are the events between `stored`, as many as are
durable, and `accepted`, as many as the session was heard to have. A failed write moves neither, so its
events stay in front of newer ones and nothing is copied or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from seedline.clock import Clock
from seedline.errors import BatchRefusedError, StaleWriterError
from seedline.events.event import Event
from seedline.session.header import SessionLogOffset
from seedline.session.log import Session
from seedline.storage.base import Backend, Prefix, Writer
from seedline.storage.claims import Claim, Kept, Wanted, claim
from seedline.storage.notices import Notify, Repaired, WriteFailed
from seedline.storage.workers import Chain, Workers


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all lanes of a coordinator share.

    `start` runs a task in the background. `kept` returns the session of an id that is written without a live
    one, `claimed` is told that a lane has the stored session, `finished` that a lane is through.
    """

    backend: Backend
    workers: Workers
    clock: Clock
    window_ms: int
    notify: Notify
    start: Callable[..., object]
    kept: Callable[[str], Kept | None]
    claimed: Callable[[str], None]
    finished: Callable[[Lane], None]


@dataclass(frozen=True)
class Inheritance:
    """A stored session that begins like this one; `lane` is its way to the store while it may grow there."""

    prefix: Prefix
    lane: Lane | None


class Lane:
    """Stores the events of one live session in order, one write at a time.

    The first event that waits opens a window of fixed length; when it ends, everything that waits is one
    batch. Events that come during a write open the next window. A failed background write is told once and
    opens no window; the next event does. The writer is taken with the first write and held until `finish`.
    """

    def __init__(
        self,
        session: Session,
        chain: Chain,
        around: Surroundings,
        *,
        inheritance: Inheritance | None = None,
        predecessor: Lane | None = None,
    ) -> None:
        self.session = session
        self.accepted = 0
        self.stored = 0
        self.leaving = False
        """True once its session is no longer live: nothing more is accepted."""
        self.owns = False
        """True once it had the writer: what it has not written yet belongs to the stored session."""
        self._chain = chain
        self._around = around
        self._inheritance = inheritance
        self._predecessor = predecessor
        self._writer: Writer | None = None
        self._window: anyio.CancelScope | None = None
        self._failed_flushes = 0
        self._failure: Exception | None = None
        self._told = ""
        self._finished = False

    # --- what the store tells ----------------------------------------------------------------------

    def accept(self, count: int) -> None:
        """Take note that the session has `count` events."""
        if self.leaving:
            return
        self.accepted = count
        if self._window is None and self.waiting > 0:
            self._window = anyio.CancelScope()
            self._around.start(self._wait_and_write, self._window)

    def take_over(self, writer: Writer) -> None:
        """Continue a stored session that was opened for exactly this one."""
        self._own(writer)

    def leave(self) -> None:
        """Accept nothing more."""
        self.leaving = True

    @property
    def waiting(self) -> int:
        """How many events wait to be stored."""
        return self.accepted - self.stored

    @property
    def idle(self) -> bool:
        """True while there is nothing to write and no writer to give back."""
        return not self.waiting and self._writer is None

    # --- the window --------------------------------------------------------------------------------

    async def _wait_and_write(self, window: anyio.CancelScope) -> None:
        try:
            with window:
                await self._around.clock.sleep(self._around.window_ms)
                async with self._chain.turn():
                    self._end_window(window)
                    await self._write_unattended()
        finally:
            self._end_window(window)

    def _end_window(self, window: anyio.CancelScope) -> None:
        if self._window is window:
            self._window = None

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None

    async def _write_unattended(self) -> None:
        try:
            if self.waiting:
                await self._write()
        except Exception as error:
            self.tell(error)

    def tell(self, error: Exception) -> None:
        """Tell of a failure that nobody waits for, once until a write succeeds or another one comes."""
        if self._told != repr(error):
            self._told = repr(error)
            self._around.notify(WriteFailed(self.session.id, error))

    # --- flush -------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when every event accepted so far, and those accepted meanwhile, are durable.

        One that comes while another one is under way shares its end. Raises what the write raises; the
        events stay, and the next event or flush tries again.
        """
        self._close_window()
        failed = self._failed_flushes
        async with self._chain.turn():
            if self._failure is not None and failed != self._failed_flushes:
                raise self._failure
            try:
                await self._drain()
            except Exception as error:
                self._failed_flushes += 1
                self._failure = error
                raise

    async def stored_up_to(self, count: int) -> None:
        """Return when the first `count` events are durable. Raises what `flush` raises."""
        if self.stored < count:
            await self.flush()

    async def _drain(self) -> None:
        while self.waiting:
            await self._write()
        self._close_window()

    # --- the end: whoever calls these has the turn of the chain ------------------------------------

    async def finish(self) -> None:
        """Write what waits and give the session free. May be called again, also after it raised."""
        if self._finished:
            return
        self._close_window()
        await self._drain()
        await self._give_back()
        self._finished = True
        self._around.finished(self)

    async def step_aside(self) -> None:
        """`finish` for whoever needs the id next; one that never owned the stored session may fail."""
        try:
            await self.finish()
        except Exception:
            if self.owns:
                raise

    # --- writing -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        writer = self._writer or await self._claim()
        start, stop = self.stored, self.accepted
        await self._append(writer, tuple(self.session.events[start:stop]))
        self.stored = stop
        self._told = ""

    async def _append(self, writer: Writer, batch: tuple[Event, ...]) -> None:
        try:
            await self._around.workers.run(writer.append, batch)
        except (StaleWriterError, BatchRefusedError):
            # What is stored is not known: the next attempt opens the session again and compares.
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await self._around.workers.run(writer.close)

    async def _claim(self) -> Writer:
        if self._predecessor is not None:
            await self._predecessor.step_aside()
            self._predecessor = None
        wanted = Wanted(
            header=self.session.header,
            inherited_event_count=self.session.inherited_event_count,
            events=self.session.events[: self.accepted],
            prefix=await self._prefix(),
            kept=self._around.kept(self.session.id),
        )
        claimed = await self._around.workers.run(claim, self._around.backend, wanted)
        self._own(claimed.writer)
        self._tell_cut(claimed)
        return claimed.writer

    def _own(self, writer: Writer) -> None:
        self._writer = writer
        self.stored = writer.next_seq
        self.owns = True
        self._around.claimed(self.session.id)

    def _tell_cut(self, claimed: Claim) -> None:
        if claimed.torn is not None:
            self._around.notify(Repaired(self.session.id, claimed.torn, ()))

    async def _prefix(self) -> Prefix | None:
        """Return the stored history to begin with, durable up to the cut, at least one event short of all.

        A session is stored with its first batch, so one that has nothing of its own writes its last
        inherited event itself.
        """
        if self._inheritance is None:
            return None
        prefix, lane = self._inheritance.prefix, self._inheritance.lane
        if lane is not None:
            await lane.stored_up_to(prefix.count)
        count = min(prefix.count, self.accepted - 1)
        return Prefix(prefix.owner, SessionLogOffset(count)) if count else None
