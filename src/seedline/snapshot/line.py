"""Where one replayed session stands: its record, its run, and how far the two agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.lowlevel

from seedline.agent.inbox import Inbox
from seedline.events.event import Event
from seedline.replay.compare import Comparer
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.snapshot.derived import handed_in
from seedline.snapshot.record import Record, value_of


class Line:
    """The run and the record of one session in lockstep.

    Every event of the run goes to the comparer, and after it every recorded event that the loop does not
    make is appended at once. `closed` says that the run is over: it diverged, failed, or was given up; later
    events are not looked at. `given` holds the seqs of messages whose content came from the record.
    """

    def __init__(self, record: Record, comparer: Comparer, stop: Callable[[], None]) -> None:
        self.record = record
        self.comparer = comparer
        self._stop = stop
        self._session: Session | None = None
        self._inbox: Inbox | None = None
        self._feeding = False
        self._holding = True
        self.failure: Exception | None = None
        self.closed = False
        self.given: set[int] = set()
        self._change: anyio.Event | None = None  # made when somebody waits: most events wake nobody
        self.on_event: Callable[[Event], None] | None = None

    @property
    def session(self) -> Session:
        assert self._session is not None, "the line has a session before anything is fed"
        return self._session

    @property
    def seq(self) -> int:
        """The seq of the next event of the run."""
        return self._session.seq if self._session else self.record.start

    def begin(self, session: Session, inbox: Inbox) -> None:
        """Join a session just built: check the end-seed mark it wrote, feed what comes before any turn."""
        self._session, self._inbox = session, inbox
        for seq in range(self.record.start, session.seq):
            self._compare(session.events.at_seq(seq))
        session.subscribe(self._take)
        self.drain()

    # --- the end -----------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Stop because the record cannot drive the run any further. What ended the run first stands."""
        if not self.closed:
            self.failure = error
            self.close()

    def close(self) -> None:
        """Stop the run; later events are no longer looked at."""
        if not self.closed:
            self.closed = True
            self.notify()
            self._stop()

    async def change(self) -> None:
        """Return after the next `notify`."""
        self._change = self._change or anyio.Event()
        await self._change.wait()

    def notify(self) -> None:
        """Wake whoever waits for the session to go on."""
        waiting, self._change = self._change, None
        if waiting is not None:
            waiting.set()

    # --- one event ---------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if not self.closed:
            self._compare(event, fed=self._feeding)
            self.session.after_publishing.append(self._after)

    def _compare(self, event: Event, *, fed: bool = False) -> None:
        if not self.comparer.take(event, fed=fed):
            self.close()

    def _after(self) -> None:
        """Go on after an event is in the log: feed what follows, then let the waiting look again."""
        if self.closed:
            return
        try:
            if self.record.crash_seq is not None and self.seq >= self.record.crash_seq:
                self._crash()
                return
            self.drain()
            self.notify()
            if self.on_event:
                self.on_event(self.session.events[-1])
        except Exception as error:
            self.fail(error)

    def _crash(self) -> None:
        """The recorded process died here: what follows was appended by repair."""
        for event in closers(self.session.events):
            self._compare(event)
        self.comparer.finish()
        self.close()

    # --- feeding -----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Append at once every recorded event that follows here and that the loop does not make."""
        while not self.closed and not self._feeding and self.record.is_fed(self.seq):
            if self._holding and self.record.held(self.seq):
                return
            self._feed(cast("Event", self.record.at(self.seq)))

    def release(self) -> None:
        """Feed what arrived after the loop had looked for input."""
        self._holding = False
        self.drain()
        self._holding = True

    def _feed(self, event: Event) -> None:
        self._feeding = True
        try:
            given = handed_in(event, self.session, cast("Inbox", self._inbox))
            self.session.append(
                event.type,
                given.data,
                surface_op=given.surface_op,
                source_event_seqs=given.source_event_seqs,
                ignorable=event.ignorable is True,
            )
        except Exception as error:
            self.fail(error)
        finally:
            self._feeding = False


class RecordClock:
    """Tells the recorded time of the event about to be appended. Sleeps take no time."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def now(self) -> int:
        record = self._line.record
        event = record.at(self._line.seq) or record.at(len(record) - 1)
        return event.time if event else record.header.created_at

    async def sleep(self, milliseconds: int) -> None:
        await anyio.lowlevel.checkpoint()


class RecordIds:
    """Gives the recorded id to the message about to be appended; past the record, one that says so."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._extra = 0

    def fresh(self) -> str:
        event = self._line.record.next_owned(self._line.seq)
        recorded = _recorded_id(event) if event else None
        if recorded is not None:
            return recorded
        self._extra += 1
        return f"unrecorded-{self._extra}"


def _recorded_id(event: Event) -> str | None:
    message: Any = value_of(event).get("message")
    if event.type == "agent/inbox/spliced":
        inserted: Any = value_of(event).get("inserted")
        message = cast("list[Any]", inserted)[0] if isinstance(inserted, list) and inserted else None
    found = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None
