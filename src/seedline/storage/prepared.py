"""Stored sessions as they are looked at: checked, closed in the view, and kept ready while unchanged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import anyio
import msgspec

from seedline.clock import ManualClock
from seedline.errors import (
    EventRefusedError,
    HeaderRefusedError,
    SessionPersistenceCorruptionError,
    StorageError,
)
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.session.sequence import Events, Segment
from seedline.session.store import RestoredSession
from seedline.storage.base import Backend, StoredSession, TornTail
from seedline.storage.workers import Workers


class SessionInspection(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session, immutable: header, cut and events, of a cold one with its interrupted turn closed.

    The last `closers` events are the ones that close it: repair appends them, an inspection only shows
    them. `torn` is what lies behind the last good event, or what a repair cut off. Of a live session the
    events are those in memory, an open turn stays open.
    """

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events
    closers: int = 0
    torn: TornTail | None = None
    live: bool = False

    @property
    def closing_events(self) -> Events:
        """The events that close the interrupted turn."""
        return self.events[len(self.events) - self.closers :]

    def restored(self) -> RestoredSession:
        """Return what a live session is built from to continue this one."""
        return RestoredSession(
            header=self.header, inherited_event_count=self.inherited_event_count, events=self.events
        )


class View(msgspec.Struct, frozen=True):
    """An inspection, and the revision of the storage it shows."""

    inspection: SessionInspection
    revision: str


def view_of(backend: Backend, stored: StoredSession) -> View:
    """Check a stored session as a live one is checked, and close its interrupted turn in the view.

    Raises `SessionPersistenceCorruptionError` naming the place and the seq; a format refusal of the backend
    comes earlier.
    """
    place = backend.locate(stored.header) or f"{backend.name}:{stored.header.id}"
    try:
        added = closers(stored.events)
        inspection = SessionInspection(
            header=stored.header,
            inherited_event_count=stored.inherited_event_count,
            events=_followed_by(stored.events, added),
            closers=len(added),
            torn=stored.torn,
        )
        unpublished(inspection)
    except SessionPersistenceCorruptionError as error:
        raise error.located(path=place) from error.__cause__
    except (EventRefusedError, HeaderRefusedError) as error:
        seq = error.seq if isinstance(error, EventRefusedError) else None
        raise SessionPersistenceCorruptionError(error.reason, path=place, seq=seq) from error
    return View(inspection, stored.revision)


def unpublished(inspection: SessionInspection) -> Session:
    """Return a session over the events of an inspection that no store holds. Checks every event."""
    return Session.restore(
        inspection.header,
        clock=ManualClock(),  # the mark it ends in is thrown away with it
        inherited_event_count=inspection.inherited_event_count,
        events=inspection.events,
    )


def _followed_by(events: Events, added: Sequence[Event]) -> Events:
    if not added:
        return events
    segment = Segment(len(events))
    segment.extend_single(added)
    return Events((*events.segments, segment), 0, len(events) + len(added))


class _Read:
    """A read under way, which everybody who wants the session shares."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._view: View | None = None
        self._failure = StorageError("the read was cut short by the end of its coordinator")
        self._failed: Exception = self._failure

    def settle(self, outcome: View | Exception | None) -> None:
        if isinstance(outcome, View):
            self._view = outcome
        elif outcome is not None:
            self._failed = outcome
        self._done.set()

    async def view(self) -> View:
        await self._done.wait()
        if self._view is None:
            raise self._failed
        return self._view


class Prepared:
    """The views of cold sessions: the `size` last used ones stay ready. Never writes.

    A ready view is handed out only while the storage has its revision. Readers of one session share a read;
    one that is cancelled does not end it. A failed read leaves nothing behind.
    """

    def __init__(self, backend: Backend, workers: Workers, size: int, start: Callable[..., object]) -> None:
        self._backend = backend
        self._workers = workers
        self._size = size
        self._start = start
        self._ready: OrderedDict[str, View] = OrderedDict()
        self._reading: dict[str, _Read] = {}

    async def get(self, session_id: str) -> SessionInspection:
        """Return a session as it is stored at some moment after this call. Raises what `view_of` raises,
        and what `Backend.read` does.
        """
        while True:
            view = self._ready.get(session_id)
            if view is None:
                shared = self._reading.get(session_id)
                view = await (shared or self._begin(session_id)).view()
                if shared is None:
                    return view.inspection
            if await self._is_current(session_id, view):
                return view.inspection

    def drop(self, session_id: str) -> None:
        """Forget a session's view, also one that is just being read."""
        self._ready.pop(session_id, None)
        self._reading.pop(session_id, None)

    async def _is_current(self, session_id: str, view: View) -> bool:
        """Say whether the storage still has the view's revision; forget the view when it has not."""
        revision = None
        try:
            revision = await self._workers.run(self._backend.revision, session_id)
        finally:
            if revision != view.revision and self._ready.get(session_id) is view:
                del self._ready[session_id]
        if self._ready.get(session_id) is view:
            self._ready.move_to_end(session_id)
        return revision == view.revision

    def _begin(self, session_id: str) -> _Read:
        read = self._reading[session_id] = _Read()
        self._start(self._fill, session_id, read)
        return read

    async def _fill(self, session_id: str, read: _Read) -> None:
        outcome: View | Exception | None = None
        try:
            outcome = await self._workers.run(_read_view, self._backend, session_id)
        except Exception as error:
            outcome = error
        finally:
            if self._reading.get(session_id) is read:
                del self._reading[session_id]
                self._keep(session_id, outcome)
            read.settle(outcome)

    def _keep(self, session_id: str, outcome: View | Exception | None) -> None:
        if isinstance(outcome, View):
            self._ready[session_id] = outcome
            self._ready.move_to_end(session_id)
            while len(self._ready) > self._size:
                self._ready.popitem(last=False)


def _read_view(backend: Backend, session_id: str) -> View:
    return view_of(backend, backend.read(session_id))
