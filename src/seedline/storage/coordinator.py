"""The write coordinator: between the live sessions of this process and the backend that keeps them.

It implements dsh's coordinator (format version 0, section 7) over the seam of `storage.base`. What differs:

* **Leases.** A session is written by the one holder of its `Writer`. A live session takes it with its first
  write, a resumed one before it is read, and gives it back when it is disposed and drained. What another
  process holds is refused with `SessionBusyError`: at the flush of a live session, at once for a cold one.
* **The log is the buffer.** Nothing is copied aside; see `storage.batching`.
* **A claim compares headers whole**, but for `created_at`: another cut or parent would make another history
  of the same events.
* **`load` of a session that needs no repair takes no lease**, so it can be read while another process
  writes it. One with an open turn or a torn tail is repaired, for which nobody else may be writing it.
* **A fresh read answers without a second look at the revision**, so that a busy writer cannot keep an
  inspection from ending.
* **A resumed session is built by whoever resumes it**, from the reserved events; that it is the reserved one
  is seen by the rows it shares. The mark `session/end-seed` then carries the time of the resume.
* **A fork is stored over its parent's events** as `storage.base.Prefix`, wherever both share their rows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

import anyio
import anyio.abc
import msgspec

from seedline.clock import Clock, SystemClock
from seedline.errors import (
    EventRefusedError,
    ForkRefusedError,
    JsonSyntaxError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    SettingRefusedError,
    StaleWriterError,
    StorageError,
)
from seedline.events.event import Event
from seedline.jsonvalue import decode, is_count
from seedline.session.guards import refuse_retired
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.listeners import Undo
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.store import SessionStore
from seedline.session.turns import has_open_turn
from seedline.storage.base import Backend, ListedSession, Prefix, StoredSuffix
from seedline.storage.batching import Inheritance, Lane, Surroundings
from seedline.storage.checks import check_seq
from seedline.storage.claims import Kept, Opened, open_repaired
from seedline.storage.notices import Notify, Repaired, log_notice
from seedline.storage.prepared import Prepared, SessionInspection, unpublished
from seedline.storage.workers import Chain, Workers

_MAX_WINDOW_MS = 2**31 - 1


class CoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`window_ms` is how long the first waiting event waits at most before it is written, unless a write is
    under way; `prepared` how many cold sessions stay ready in memory; `threads` how many backend calls run
    at once. Raises `SettingRefusedError`.
    """

    window_ms: int = 200
    prepared: int = 5
    threads: int = 16

    def __post_init__(self) -> None:
        limits = {"window_ms": _MAX_WINDOW_MS, "prepared": _MAX_WINDOW_MS, "threads": 1000}
        for name, most in limits.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise SettingRefusedError(name, value, f"a whole number from 1 to {most}")


class _Hold:
    """A cold session that is being repaired, or is reserved for the live session to come."""

    def __init__(self, kept: Kept | None) -> None:
        self.kept = kept
        self.opened: Opened | None = None
        self.released = anyio.Event()

    def fits(self, session: Session) -> bool:
        """True for a session built over exactly the reserved events."""
        if self.opened is None:
            return False
        inspection = self.opened.inspection
        return (
            session.header == inspection.header
            and session.inherited_event_count == inspection.inherited_event_count
            and session.first_live_seq == len(inspection.events)
            and shares_rows(session.events, inspection.events, len(inspection.events))
        )


class Coordinator:
    """Keeps the live sessions of a store on one backend, which it owns and closes.

    Use it as an async context manager, entered before the agents of its sessions run and left after them.
    Entering adopts the sessions that are live by then. Leaving stops accepting, writes everything that
    waits, gives every session free and closes the backend, also under a cancel; what fails on the way is
    raised, several failures as an `ExceptionGroup`. Not thread-safe: the tasks of one event loop use it.

    Sessions need no call: whatever a live session appends is written at the end of its window, and
    `SessionStore.flush` is the durability point. The operations here are for cold sessions. Cancelling one
    that waits for its turn undoes it; one that has begun is carried through.
    """

    def __init__(
        self,
        backend: Backend,
        sessions: SessionStore,
        *,
        settings: CoordinatorSettings | None = None,
        clock: Clock | None = None,
        notify: Notify = log_notice,
    ) -> None:
        settings = settings or CoordinatorSettings()
        self.backend = backend
        self.sessions = sessions
        self._notify = notify
        self._workers = Workers(settings.threads)
        self._prepared = Prepared(backend, self._workers, settings.prepared, self._start)
        self._around = Surroundings(
            backend=backend,
            workers=self._workers,
            clock=clock or SystemClock(),  # not the sessions' own: waiting must not move the time of events
            window_ms=settings.window_ms,
            notify=notify,
            start=self._start,
            kept=lambda session_id: self._kept.get(session_id),
            claimed=self._claimed,
            finished=self._finished,
        )
        self._chains: WeakValueDictionary[str, Chain] = WeakValueDictionary()
        self._lanes: dict[str, Lane] = {}  # the latest of each id
        self._unfinished: dict[Lane, None] = {}
        self._kept: dict[str, Kept] = {}
        self._holds: dict[str, _Hold] = {}
        self._grant: Session | None = None  # the cold parent of the fork that is being made
        self._undo: list[Undo] = []
        self._group: anyio.abc.TaskGroup | None = None
        self._open = False

    # --- from entering to leaving ------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._open = True
        sessions = self.sessions
        self._undo = [
            sessions.on_created(self._on_created),
            sessions.on_event(self._on_event),
            sessions.on_flush(self._on_flush),
            sessions.on_disposed(self._on_disposed),
        ]
        for session in sessions.list():
            self._on_created(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._group is not None, "entered first"
        failures: list[Exception] = []
        with anyio.CancelScope(shield=True):
            await self._close(failures)
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            _raise_all(error, failures)

    async def _close(self, failures: list[Exception]) -> None:
        """Drain everything and close the backend; add what failed."""
        self._open = False
        for undo in self._undo:
            undo()
        async with anyio.create_task_group() as drains:
            for lane in [*self._unfinished]:
                lane.leave()
                drains.start_soon(self._drain, lane, failures)
        for chain in [*self._chains.values()]:
            async with chain.turn():
                pass
        await self._workers.idle()
        try:
            await self._workers.run(self.backend.close)
        except Exception as error:
            failures.append(error)

    async def _drain(self, lane: Lane, failures: list[Exception]) -> None:
        try:
            async with self._turn(lane.session.id):
                await lane.finish()
        except Exception as error:
            failures.append(error)

    async def idle(self) -> None:
        """Return when no operation is under way; events may still wait for the end of their window."""
        for chain in [*self._chains.values()]:
            async with chain.turn():
                pass
        await self._workers.idle()

    # --- live sessions -----------------------------------------------------------------------------

    def _on_created(self, session: Session) -> None:
        """Take a session up, once. Vetoes one whose id is reserved for another, or under repair."""
        earlier = self._lanes.get(session.id)
        if earlier is not None and earlier.session is session:
            return
        hold = self._holds.get(session.id)
        if hold is not None and not hold.fits(session):
            raise self._busy(session.id, "it is reserved, or under repair, in this process")
        lane = Lane(
            session,
            self._chain(session.id),
            self._around,
            inheritance=self._inheritance(session),
            predecessor=earlier,
        )
        self._lanes[session.id] = lane
        self._unfinished[lane] = None
        if hold is not None and hold.opened is not None:
            lane.take_over(hold.opened.writer)
            self._end_hold(session.id, hold)
        lane.accept(session.seq)

    def _on_event(self, session: Session, event: Event) -> None:
        lane = self._lane(session)
        if lane is not None:
            lane.accept(event.seq + 1)

    def _on_flush(self, session: Session) -> Awaitable[None] | None:
        lane = self._lane(session)
        return None if lane is None else lane.flush()

    def _on_disposed(self, session: Session) -> None:
        lane = self._lane(session)
        if lane is None:
            return
        lane.leave()
        if lane.idle:
            self._finished(lane)
        else:
            self._start(self._retire, lane)

    async def _retire(self, lane: Lane) -> None:
        try:
            async with self._turn(lane.session.id):
                await lane.finish()
        except Exception as error:
            lane.tell(error)

    def _inheritance(self, session: Session) -> Inheritance | None:
        """Return the session that a fork's prefix can be read through: one known to have the same rows."""
        cut, parent = session.inherited_event_count, session.header.parent_session
        if not cut or parent is None:
            return None
        lane = self._lanes.get(parent)
        if (
            lane is not None
            and cut <= lane.accepted
            and shares_rows(session.events, lane.session.events, cut)
        ):
            return Inheritance(Prefix(parent, cut), lane)
        cold = self._grant
        if cold is not None and cold.id == parent and shares_rows(session.events, cold.events, cut):
            return Inheritance(Prefix(parent, cut), None)
        return None

    # --- cold sessions: reading --------------------------------------------------------------------

    async def list(self) -> tuple[ListedSession, ...]:
        """Return what is stored, damaged sessions with their error, in no particular order."""
        self._refuse_closed()
        return await self._workers.run(lambda: tuple(self.backend.list()))

    async def inspect(self, session_id: str) -> SessionInspection:
        """Return a session without writing anything: the live one, else as `view_of` shows what is stored.

        Raises `SessionNotFoundError` or another `ArtifactError`, and `StorageError` while events of an
        earlier live session of this id cannot be written.
        """
        self._refuse_closed()
        live = self.sessions.get(session_id)
        if live is None:
            await self._settled(session_id)
            live = self.sessions.get(session_id)
        return await self._prepared.get(session_id) if live is None else _of_live(live)

    async def load(self, session_id: str) -> SessionInspection:
        """Return a session whose last turn is closed and everything of which is stored.

        A live one is flushed first, and refused with `SessionBusyError` while its turn is open. A cold one
        is repaired where a crash left it unfinished, which is told as `Repaired` and said in `torn` and
        `closers`. Raises what `inspect` and `reserved` raise.
        """
        while True:
            self._refuse_closed()
            if (live := self.sessions.get(session_id)) is not None:
                return await self._load_live(live)
            await self._settled(session_id)
            inspection = await self._prepared.get(session_id)
            if self.sessions.get(session_id) is not None:
                continue
            if inspection.torn is None and not inspection.closers:
                return inspection
            async with self._reserved_unless_live(session_id) as repaired:
                if repaired is not None:
                    return repaired

    async def _load_live(self, session: Session) -> SessionInspection:
        await self.sessions.flush(session)
        inspection = _of_live(session)
        if not inspection.events:
            place = f"{self.backend.name}:{session.id}"
            raise SessionNotFoundError("the session is live and has no event yet", path=place)
        if has_open_turn(inspection.events):
            raise self._busy(session.id, "it is live in this process and its turn is open")
        return inspection

    async def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """Return the stored events from `seq` on: no repair, no closers, nothing that only waits.

        Raises `ValueError` for a `seq` that is no count, and what `Backend.read_from` raises.
        """
        self._refuse_closed()
        check_seq(seq)
        async with self._turn(session_id):
            return await self._workers.run(self.backend.read_from, session_id, seq)

    # --- cold sessions: continuing -----------------------------------------------------------------

    def reserved(self, session_id: str) -> AbstractAsyncContextManager[SessionInspection]:
        """Open a cold session, repaired, for a live one to be made of `SessionInspection.restored()` inside.

        That live session continues the stored one: only what it adds is written. Without one the session
        is free again afterwards. Waits for another reservation of this process. Raises `SessionBusyError`
        for a live session and for one that another process writes, `SessionNotFoundError` or another
        `ArtifactError`, `StorageError`.
        """
        return self._reserved(session_id)

    async def resume(self, session_id: str) -> Session:
        """Return a live session that continues a stored one. Raises what `reserved` raises."""
        async with self._reserved(session_id) as inspection:
            return self.sessions.create(None, inspection.restored())

    @asynccontextmanager
    async def _reserved(self, session_id: str) -> AsyncGenerator[SessionInspection, None]:
        async with self._reserved_unless_live(session_id) as inspection:
            if inspection is None:
                raise self._busy(session_id, "it is live in this process")
            yield inspection

    @asynccontextmanager
    async def _reserved_unless_live(self, session_id: str) -> AsyncGenerator[SessionInspection | None, None]:
        hold = await self._hold(session_id)
        if hold is None or hold.opened is None:
            yield None
            return
        try:
            yield hold.opened.inspection
        finally:
            async with self._undelayed_turn(session_id):
                await self._release(session_id, hold)

    async def _hold(self, session_id: str) -> _Hold | None:
        """Return the reservation of a session, None when the session is live."""
        while True:
            self._refuse_closed()
            async with self._turn(session_id):
                await self._step_aside(session_id)
                if self.sessions.get(session_id) is not None:
                    return None
                other = self._holds.get(session_id)
                if other is None:
                    return await self._open_held(session_id)
            await other.released.wait()

    async def _open_held(self, session_id: str) -> _Hold:
        hold = self._holds[session_id] = _Hold(self._kept.pop(session_id, None))
        try:
            hold.opened = await self._open_repaired(session_id, hold.kept)
        except BaseException:
            self._end_hold(session_id, hold)
            self._keep_again(session_id, hold)
            raise
        return hold

    async def _open_repaired(self, session_id: str, kept: Kept | None) -> Opened:
        opened = await self._workers.run(open_repaired, self.backend, session_id, kept)
        self._prepared.drop(session_id)
        inspection = opened.inspection
        if inspection.torn is not None or inspection.closers:
            types = tuple(event.type for event in inspection.closing_events)
            self._notify(Repaired(session_id, inspection.torn, types))
        return opened

    async def _release(self, session_id: str, hold: _Hold) -> None:
        """End a reservation; unless a live session has taken it over, give the stored session free."""
        if self._holds.get(session_id) is not hold:
            return
        try:
            if hold.kept is None and hold.opened is not None:
                await self._workers.run(hold.opened.writer.close)
        finally:
            self._end_hold(session_id, hold)
            self._keep_again(session_id, hold)

    def _end_hold(self, session_id: str, hold: _Hold) -> None:
        del self._holds[session_id]
        hold.released.set()

    def _keep_again(self, session_id: str, hold: _Hold) -> None:
        if hold.kept is not None:
            self._kept[session_id] = hold.kept

    # --- cold sessions: writing without a live one -------------------------------------------------

    async def create(self, header: SessionHeader, inherited_event_count: SessionLogOffset) -> None:
        """Begin a session that `append` fills or a live session claims; nothing is stored before that.

        The id is taken at once, until `release`. Raises `SessionExistsError`, `SessionBusyError`, and what
        `Backend.create` raises.
        """
        async with self._writing(header.id):
            if header.id in self._kept:
                reason = "a session of this id was created here already"
                raise SessionExistsError(reason, place=self.backend.name, session_id=header.id)
            writer = await self._workers.run(self.backend.create, header, inherited_event_count, None)
            self._kept[header.id] = Kept(header, inherited_event_count, writer)

    def append(self, session_id: str, events: Sequence[Event]) -> Coroutine[Any, Any, None]:
        """Store a batch as `events` is at the moment of the call; durable when the awaitable returns.

        A stored session is opened for it, and repaired, and stays taken until `release` or until a live
        session claims it. An empty batch does nothing. Raises `BatchRefusedError`, `EventRefusedError` for
        a retired shape or a payload that is no JSON, `SessionBusyError` for a live or reserved session,
        and what `reserved` raises.
        """
        return self._append(session_id, tuple(events))

    async def _append(self, session_id: str, batch: tuple[Event, ...]) -> None:
        async with self._writing(session_id):
            for event in batch:
                _check_payload(event)
            if not batch:
                return
            kept = self._kept.get(session_id) or await self._adopt(session_id)
            try:
                await self._workers.run(kept.writer.append, batch)
            except StaleWriterError:
                await self._let_go(session_id)
                raise
            finally:
                self._prepared.drop(session_id)

    async def _adopt(self, session_id: str) -> Kept:
        opened = await self._open_repaired(session_id, None)
        inspection = opened.inspection
        kept = Kept(inspection.header, inspection.inherited_event_count, opened.writer)
        self._kept[session_id] = kept
        return kept

    async def release(self, session_id: str) -> None:
        """Give a session free that `create` or `append` took. Other sessions are left alone."""
        self._refuse_closed()
        async with self._turn(session_id):
            await self._let_go(session_id)

    async def delete(self, session_id: str) -> None:
        """Remove a stored session. Raises `SessionBusyError` for a live or reserved one, and what
        `Backend.delete` raises.
        """
        async with self._writing(session_id):
            await self._let_go(session_id)
            await self._workers.run(self.backend.delete, session_id)
            self._prepared.drop(session_id)

    async def _let_go(self, session_id: str) -> None:
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            await self._workers.run(kept.writer.close)

    @asynccontextmanager
    async def _writing(self, session_id: str) -> AsyncGenerator[None, None]:
        """The turn of an operation that writes a session which is neither live nor reserved."""
        self._refuse_closed()
        async with self._turn(session_id):
            await self._step_aside(session_id)
            if self.sessions.get(session_id) is not None:
                raise self._busy(session_id, "it is live in this process")
            if session_id in self._holds:
                raise self._busy(session_id, "it is reserved in this process")
            yield

    # --- fork --------------------------------------------------------------------------------------

    async def fork(
        self, source: Session | str, boundary: int | None = None, child_id: str | None = None
    ) -> Session:
        """Create a live session that inherits the events of a live or stored one through seq `boundary`.

        Without a boundary everything is inherited, of a stored session after the repair that `load` makes;
        with one its stored events suffice, and another process may be writing it. Otherwise as
        `SessionStore.fork`. The child is stored with its first batch, and copies no history where the
        backend shares prefixes. Raises `ForkRefusedError`, and what `load` or `inspect` raises.
        """
        if isinstance(source, Session):
            return self.sessions.fork(source, boundary, child_id)
        while self.sessions.get(source) is None:
            read = self.load if boundary is None else self.inspect
            inspection = await read(source)
            if self.sessions.get(source) is None:
                stored = len(inspection.events) - (0 if boundary is None else inspection.closers)
                return await self._fork_cold(inspection, stored, boundary, child_id)
        return self.sessions.fork(source, boundary, child_id)

    async def _fork_cold(
        self, inspection: SessionInspection, stored: int, boundary: int | None, child_id: str | None
    ) -> Session:
        if boundary is not None and is_count(boundary) and boundary >= stored:
            reason = f"{boundary} is no seq of a stored log of {stored} events"
            raise ForkRefusedError("INVALID_BOUNDARY", reason)
        whole = msgspec.structs.replace(inspection, events=inspection.events[:stored])
        parent = await self._workers.run(unpublished, whole)
        chosen = self.sessions.ids.fresh() if child_id is None else child_id
        with self._granting(parent):
            return self.sessions.fork_stored(parent, stored - 1 if boundary is None else boundary, chosen)

    @contextmanager
    def _granting(self, parent: Session) -> Generator[None, None, None]:
        self._grant = parent
        try:
            yield
        finally:
            self._grant = None

    # --- parts -------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        assert self._group is not None, "enter the coordinator first"
        self._group.start_soon(work, *args)

    def _chain(self, session_id: str) -> Chain:
        chain = self._chains.get(session_id)
        if chain is None:
            chain = self._chains[session_id] = Chain()
        return chain

    def _turn(self, session_id: str) -> AbstractAsyncContextManager[None]:
        return self._chain(session_id).turn()

    @asynccontextmanager
    async def _undelayed_turn(self, session_id: str) -> AsyncGenerator[None, None]:
        """A turn that a cancel cannot keep from coming: what was taken has to be given back."""
        with anyio.CancelScope(shield=True):
            async with self._turn(session_id):
                yield

    def _lane(self, session: Session) -> Lane | None:
        lane = self._lanes.get(session.id)
        return lane if lane is not None and lane.session is session else None

    def _claimed(self, session_id: str) -> None:
        self._kept.pop(session_id, None)
        self._prepared.drop(session_id)

    def _finished(self, lane: Lane) -> None:
        self._unfinished.pop(lane, None)
        if self._lanes.get(lane.session.id) is lane:
            del self._lanes[lane.session.id]

    async def _settled(self, session_id: str) -> None:
        """Wait for the end of an earlier live session of this id. Raises what keeps its events unwritten."""
        if session_id in self._lanes:
            async with self._turn(session_id):
                await self._step_aside(session_id)

    async def _step_aside(self, session_id: str) -> None:
        lane = self._lanes.get(session_id)
        if lane is not None and lane.leaving:
            await lane.step_aside()

    def _busy(self, session_id: str, reason: str) -> SessionBusyError:
        return SessionBusyError(reason, place=self.backend.name, session_id=session_id)

    def _refuse_closed(self) -> None:
        if not self._open:
            raise StorageError("the coordinator is not open", place=self.backend.name)


def _raise_all(error: BaseException | None, failures: list[Exception]) -> None:
    """Raise what failed while a coordinator was left, together with what it was left by."""
    if failures and error is not None:
        raise BaseExceptionGroup("a failure, and sessions that were not stored", [error, *failures])
    if len(failures) > 1:
        raise ExceptionGroup(f"{len(failures)} failures while the store was closed", failures)
    if failures:
        raise failures[0]


def _of_live(session: Session) -> SessionInspection:
    return SessionInspection(
        header=session.header,
        inherited_event_count=session.inherited_event_count,
        events=session.events,
        live=True,
    )


def shares_rows(events: Events, others: Events, count: int) -> bool:
    """True when the first `count` events of both logs are the same rows in memory."""
    ours, theirs = events[:count].segments, others[:count].segments
    return len(ours) == len(theirs) and all(a is b for a, b in zip(ours, theirs, strict=True))


def _check_payload(event: Event) -> None:
    """Raise `EventRefusedError` for what no log may hold: a retired shape, a payload that is no JSON."""
    refuse_retired(event.type, bytes(event.data), event.seq)
    try:
        decode(bytes(event.data))
    except JsonSyntaxError as error:
        reason = f"not lossless JSON: {error.reason}"
        raise EventRefusedError("data", event.type, reason, event.seq) from error
