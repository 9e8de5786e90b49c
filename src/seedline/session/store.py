"""Live sessions: prepare, enter, announce, create, fork, flush, detach (dsh format version 0, 3.6 and 3.7).

The store knows no storage. Whoever keeps sessions observes it: `on_created`, `on_event`, `on_flush`,
`on_disposed`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Literal

from seedline.clock import Clock
from seedline.errors import ForkRefusedError, HeaderRefusedError, SessionError, StoreRefusedError
from seedline.events.event import Event
from seedline.ids import IdSource
from seedline.jsonvalue import is_count
from seedline.session.header import START, SessionHeader, SessionLogOffset, SpawnFact, check_absolute_cwd
from seedline.session.listeners import Undo, add_listener, tell_all
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.turns import has_open_turn

CreatedListener = Callable[[Session], None]
EventListener = Callable[[Session, Event], None]
FlushListener = Callable[[Session], "Awaitable[None] | None"]
DisposedListener = Callable[[Session], None]
Sessions = list[Session]
_Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class SharedPrefix:
    """A seed: the first `count` events of a session in this process, rows shared and not checked again."""

    source: Session
    count: SessionLogOffset


@dataclass(frozen=True, kw_only=True)
class CreateSessionOptions:
    """What a new session begins with.

    `seed` holds borrowed events, checked one by one, or a `SharedPrefix`; None and an empty seed differ:
    only a seeded log ends in `session/end-seed`. `inherited_event_count` is the cut and is said here, never
    computed; with a `SharedPrefix` it must be the prefix's count. `cwd` is absolute, or the live parent's
    own. `created_at` is in milliseconds, None for the clock's time.
    """

    seed: Iterable[Event] | SharedPrefix | None = None
    inherited_event_count: SessionLogOffset = START
    cwd: str | None = None
    parent_session: str | None = None
    created_at: int | None = None
    is_seeded: bool = False
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None
    spawn: SpawnFact | None = None


@dataclass(frozen=True, kw_only=True)
class RestoredSession:
    """A stored session to continue: its whole log, handed over, so that nobody else may add rows to it.

    Its working directory may be relative: recordings name placeholders such as `{{cwd}}`.
    """

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events


class _Stage(Enum):
    ENTERED = auto()
    ANNOUNCING = auto()
    ANNOUNCED = auto()


class _Entry:
    """One stay of a session in the store."""

    def __init__(self, session: Session, unsubscribe: Undo) -> None:
        self.session = session
        self.unsubscribe = unsubscribe
        self.stage = _Stage.ENTERED
        self.leaving = False


class SessionStore:
    """The sessions that are open in this process, by id.

    `clock` and `ids` are where every session of this store takes its times, and its makers their ids, from.
    Not thread-safe: one task at a time calls it.
    """

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self.clock = clock
        self.ids = ids
        self._entries: dict[str, _Entry] = {}
        self._places: dict[_Place, str] = {}  # of live tree children
        self._numbers = count(1)
        self._created: list[CreatedListener] = []
        self._event: list[EventListener] = []
        self._flush: list[FlushListener] = []
        self._disposed: list[DisposedListener] = []

    # --- observers ---------------------------------------------------------------------------------

    def on_created(self, listener: CreatedListener) -> Undo:
        """Call `listener` when a session is announced. It may raise to veto. Returns the undo."""
        return add_listener(self._created, listener)

    def on_event(self, listener: EventListener) -> Undo:
        """Call `listener` after each event of a live session; failures are logged. Returns the undo."""
        return add_listener(self._event, listener)

    def on_flush(self, listener: FlushListener) -> Undo:
        """Call `listener` when a session is flushed. Returns the undo.

        It takes part by returning an awaitable that ends when what it holds is durable, or that raises;
        None means that it takes no part.
        """
        return add_listener(self._flush, listener)

    def on_disposed(self, listener: DisposedListener) -> Undo:
        """Call `listener` when an announced session has left; failures are logged. Returns the undo."""
        return add_listener(self._disposed, listener)

    # --- reading -----------------------------------------------------------------------------------

    def get(self, session_id: str) -> Session | None:
        """Return the live session of this id."""
        entry = self._entries.get(session_id)
        return entry and entry.session

    def list(self) -> Sessions:
        """Return the live sessions in the order in which they entered."""
        return [entry.session for entry in self._entries.values()]

    # --- lifecycle ---------------------------------------------------------------------------------

    def prepare(
        self, session_id: str | None = None, options: CreateSessionOptions | RestoredSession | None = None
    ) -> Session:
        """Build and check a session that is not live yet; several may have one id, only one can enter.

        Without an id a new session is named `session-<n>`, a restored one as its header says.
        Raises `StoreRefusedError` (`already-live`), `HeaderRefusedError`, `EventRefusedError`,
        `SurfaceRefusedError`, or for a restored log `SessionPersistenceCorruptionError`.
        """
        if isinstance(options, RestoredSession):
            return self._prepare_restored(session_id, options)
        chosen = self._unused_id() if session_id is None else session_id
        self._refuse_live(chosen)
        return self._prepare_new(chosen, options or CreateSessionOptions())

    def enter(self, session: Session) -> Undo:
        """Make a prepared session live. Returns its `detach`, which may be called again without effect.

        Raises `StoreRefusedError`: `already-live` for its id, `already-attached` for the session itself,
        `spawn-taken` when a live child of the same parent has the same spawn place.
        """
        self._refuse_live(session.id)
        if session.attached:
            raise StoreRefusedError("already-attached", session.id, "it is in a store already")
        place = _spawn_place(session.header)
        if place and place in self._places:
            reason = f"{self._places[place]!r} stands at its place {place[1]} below {place[0]!r}"
            raise StoreRefusedError("spawn-taken", session.id, reason)
        entry = _Entry(session, session.subscribe(lambda event: self._tell_event(session, event)))
        session.attached = True
        self._entries[session.id] = entry
        if place:
            self._places[place] = session.id
        return lambda: self._leave(entry)

    def announce(self, session: Session) -> None:
        """Tell the created-listeners of a live session, once.

        The first exception of a listener propagates and ends the telling: it is a veto, and the caller
        detaches. Raises `StoreRefusedError` (`not-live`, `already-announced`).
        """
        entry = self._live_entry(session)
        if entry.stage is not _Stage.ENTERED:
            raise StoreRefusedError("already-announced", session.id, "it is announced once only")
        entry.stage = _Stage.ANNOUNCING
        try:
            for listener in tuple(self._created):
                listener(session)
        finally:
            entry.stage = _Stage.ANNOUNCED
            if entry.leaving:
                self._leave(entry)

    def create(
        self, session_id: str | None = None, options: CreateSessionOptions | RestoredSession | None = None
    ) -> Session:
        """`prepare`, `enter` and `announce` as one. A veto is raised, and the session is then not live."""
        return self._go_live(self.prepare(session_id, options))

    def detach(self, session: Session) -> None:
        """Take a session out and tell the disposed-listeners, if its announcing had begun.

        While its creation is announced or one of its appends is published this waits for the end of that.
        A session that is not live, or whose id another one has taken, is left alone.
        """
        entry = self._entries.get(session.id)
        if entry is not None and entry.session is session:
            self._leave(entry)

    async def flush(self, session: Session) -> bool:
        """Make what a live session holds durable; return whether anyone keeps it.

        Starts every flush listener in the order of registration, waits for all of them, then raises the
        first failure in that order. Raises `StoreRefusedError` (`not-live`).
        """
        self._live_entry(session)
        started = [_start(listener, session) for listener in tuple(self._flush)]
        outcomes = await _outcomes(session.id, [work for work in started if work is not None])
        for failure in filter(None, outcomes):
            raise failure
        return bool(outcomes)

    # --- fork --------------------------------------------------------------------------------------

    def fork(
        self, source: Session | str, boundary: int | None = None, child_id: str | None = None
    ) -> Session:
        """Create a live session that inherits the events of `source` through seq `boundary`, rows shared.

        Without a boundary everything is inherited; what `source` appends later never is. The child is
        seeded, its cut is the length of the prefix (0 for an empty source), its parent `source`, its working
        directory the parent's; origin, depth and preset are its own and start absent. Needs no storage.
        Raises `ForkRefusedError` with the first code that applies: `SESSION_ALREADY_EXISTS`,
        `SESSION_NOT_FOUND`, `SESSION_NOT_LIVE`, `INVALID_BOUNDARY`, `OPEN_TURN`.
        """
        if child_id is not None and child_id in self._entries:
            raise ForkRefusedError("SESSION_ALREADY_EXISTS", f"session {child_id!r} is live already")
        parent = self._fork_source(source)
        return self._fork(parent, boundary, self._unused_id() if child_id is None else child_id)

    def fork_stored(self, parent: Session, boundary: int | None, child_id: str) -> Session:
        """`fork` from a session that is not live but built over a stored log.

        Raises `ForkRefusedError`: `SESSION_ALREADY_EXISTS`, `INVALID_BOUNDARY`, `OPEN_TURN`.
        """
        if child_id in self._entries:
            raise ForkRefusedError("SESSION_ALREADY_EXISTS", f"session {child_id!r} is live already")
        return self._fork(parent, boundary, child_id)

    def _fork(self, parent: Session, boundary: int | None, child_id: str) -> Session:
        prefix = _fork_prefix(parent, boundary)
        options = CreateSessionOptions(
            seed=SharedPrefix(source=parent, count=prefix),
            inherited_event_count=prefix,
            cwd=parent.header.cwd,
            parent_session=parent.id,
            is_seeded=True,
        )
        return self._go_live(self._prepare_new(child_id, options))

    def _fork_source(self, source: Session | str) -> Session:
        source_id = source if isinstance(source, str) else source.id
        live = self.get(source_id)
        if live is None:
            raise ForkRefusedError("SESSION_NOT_FOUND", f"no live session has the id {source_id!r}")
        if isinstance(source, Session) and live is not source:
            raise ForkRefusedError("SESSION_NOT_LIVE", f"another session is live as {source_id!r}")
        return live

    # --- parts -------------------------------------------------------------------------------------

    def _prepare_restored(self, session_id: str | None, stored: RestoredSession) -> Session:
        if session_id is not None and session_id != stored.header.id:
            raise HeaderRefusedError("id", f"the header says {stored.header.id!r}, not {session_id!r}")
        self._refuse_live(stored.header.id)
        return Session.restore(
            stored.header,
            clock=self.clock,
            inherited_event_count=stored.inherited_event_count,
            events=stored.events,
        )

    def _prepare_new(self, session_id: str, options: CreateSessionOptions) -> Session:
        header = SessionHeader(
            id=session_id,
            created_at=self.clock.now() if options.created_at is None else options.created_at,
            is_seeded=options.is_seeded,
            cwd=options.cwd,
            parent_session=options.parent_session,
            origin=options.origin,
            delegation_depth=options.delegation_depth,
            agent_preset=options.agent_preset,
            spawn=options.spawn,
        )
        session = self._build(header, options)
        parent = self._entries.get(header.parent_session or "")
        if parent is None or parent.session.header.cwd != header.cwd:
            check_absolute_cwd(header)
        return session

    def _build(self, header: SessionHeader, options: CreateSessionOptions) -> Session:
        if isinstance(options.seed, SharedPrefix):
            return _fork_from(options.seed, header, options.inherited_event_count, self.clock)
        return Session.create(
            header,
            clock=self.clock,
            inherited_event_count=options.inherited_event_count,
            seed=options.seed,
        )

    def _unused_id(self) -> str:
        names = (f"session-{number}" for number in self._numbers)
        return next(name for name in names if name not in self._entries)

    def _refuse_live(self, session_id: str) -> None:
        if session_id in self._entries:
            raise StoreRefusedError("already-live", session_id, "a session of this id is live")

    def _live_entry(self, session: Session) -> _Entry:
        entry = self._entries.get(session.id)
        if entry is None or entry.session is not session:
            raise StoreRefusedError("not-live", session.id, "it is not live here")
        return entry

    def _go_live(self, session: Session) -> Session:
        detach = self.enter(session)
        try:
            self.announce(session)
        except BaseException:
            detach()
            raise
        return session

    def _leave(self, entry: _Entry) -> None:
        session = entry.session
        if self._entries.get(session.id) is not entry:
            return
        entry.leaving = True
        if entry.stage is _Stage.ANNOUNCING:
            return  # `announce` comes back here
        if session.publishing:
            session.after_publishing.append(lambda: self._leave(entry))
            return
        del self._entries[session.id]
        if place := _spawn_place(session.header):
            del self._places[place]
        session.attached = False
        entry.unsubscribe()
        if entry.stage is _Stage.ANNOUNCED:
            tell_all(tuple(self._disposed), f"session {session.id!r}, disposed", session)

    def _tell_event(self, session: Session, event: Event) -> None:
        tell_all(tuple(self._event), f"session {session.id!r}, seq {event.seq}", session, event)


def _spawn_place(header: SessionHeader) -> _Place | None:
    """Return the parent and the spawn segment of a tree child: its siblings must differ in the latter."""
    if header.parent_session is None or header.spawn is None:
        return None
    return header.parent_session, header.spawn.segment


def _fork_from(
    prefix: SharedPrefix, header: SessionHeader, inherited_event_count: SessionLogOffset, clock: Clock
) -> Session:
    length = prefix.source.seq
    if not is_count(prefix.count) or prefix.count > length:
        raise HeaderRefusedError(
            "inheritedEventCount", f"{prefix.count} events of a log of {length} cannot be inherited"
        )
    if inherited_event_count != prefix.count:
        raise HeaderRefusedError(
            "inheritedEventCount", f"it is {inherited_event_count} with a prefix of {prefix.count} events"
        )
    return prefix.source.fork(header, prefix.count, clock)


def _fork_prefix(parent: Session, boundary: int | None) -> SessionLogOffset:
    """Return how many events a fork at `boundary` inherits. Raises `ForkRefusedError`."""
    if boundary is None:
        boundary = parent.seq - 1
    elif not is_count(boundary) or boundary >= parent.seq:
        raise ForkRefusedError("INVALID_BOUNDARY", f"{boundary!r} is no seq of a log of {parent.seq} events")
    prefix = SessionLogOffset(boundary + 1)
    if has_open_turn(parent.events[:prefix]):
        raise ForkRefusedError("OPEN_TURN", f"a turn is open at seq {boundary} of {parent.id!r}")
    return prefix


def _start(listener: FlushListener, session: Session) -> Awaitable[None] | None:
    try:
        return listener(session)
    except Exception as error:
        return _failed(error)


async def _failed(error: Exception) -> None:
    raise error


async def _outcomes(session_id: str, started: list[Awaitable[None]]) -> list[Exception | None]:
    """Wait for all; return what each raised, None for the ones that ended well."""
    if not started:
        return []
    import anyio  # costs 50 ms: commands that only read a log never flush

    cut_short = SessionError(f"session {session_id!r}: a flush listener was cancelled. Flush again.")
    outcomes: list[Exception | None] = [cut_short] * len(started)

    async def wait(place: int, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            outcomes[place] = error
        else:
            outcomes[place] = None

    try:
        async with anyio.create_task_group() as group:
            for place, work in enumerate(started):
                group.start_soon(wait, place, work)
    finally:
        for work in started:
            if inspect.iscoroutine(work):
                work.close()  # after a cancel some never began
    return outcomes
