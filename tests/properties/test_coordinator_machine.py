"""The coordinator against a naive model: sessions that live, fork, resume and die over a disk that fails.

The model knows of each session the one true log, and how much of it was acknowledged. What is stored is at
every moment a beginning of that log, never shorter than what was acknowledged. A crash makes what is stored
the true log; whoever opens it may add the closers of an interrupted turn and a mark, nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from seedline.errors import BatchRefusedError, SessionNotFoundError, StaleWriterError, StorageError
from seedline.events.event import Event
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.session.sequence import Events
from seedline.session.turns import has_open_turn
from seedline.storage.memory import MemoryBackend
from seedline.testing.coordinator_contract import Process
from tests.conftest import SWEEP


class CrashError(StorageError):
    """The process is dead: nothing it does from here on has an effect."""


class Truth:
    """One session: its true log, and how many of its events were acknowledged."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.acknowledged = 0
        self.turns = 0


class CoordinatorMachine(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal())
        self.memory = MemoryBackend()
        self.truths: dict[str, Truth] = {}
        self.broken = False
        self.number = 0

    @initialize()
    def start(self) -> None:
        self.process = self.portal.call(Process, self.memory)
        self.running = self.portal.wrap_async_context_manager(self.process.store)
        self.running.__enter__()
        self.broken = False

    # --- live sessions -----------------------------------------------------------------------------

    @rule(target=names)
    def create(self) -> str:
        self.number += 1
        name = f"s{self.number}"
        self.portal.call(self.process.sessions.create, name)
        self.truths[name] = Truth([])
        return name

    @rule(name=names, count=st.integers(1, 3))
    def append(self, name: str, count: int) -> None:
        session = self.live(name)
        if session is not None:
            for _ in range(count):
                self.portal.call(self.say, session, self.truths[name])
            self.truths[name].events = list(session.events)

    def say(self, session: Session, truth: Truth) -> None:
        """Open a turn, or close the open one."""
        if has_open_turn(session.events):
            reason = {"kind": "completed"}
            session.append("turn/end", {"turn": truth.turns, "reason": reason})
        else:
            truth.turns += 1
            session.append("turn/start", {"turn": truth.turns})

    @rule(name=names)
    def flush(self, name: str) -> None:
        session = self.live(name)
        if session is None:
            return
        try:
            assert self.portal.call(self.process.sessions.flush, session)
        except StorageError:
            assert self.broken
        else:
            self.truths[name].acknowledged = len(self.truths[name].events)
            assert self.stored(name) == self.truths[name].events

    @rule()
    def end_windows(self) -> None:
        self.portal.call(self.process.end_windows)

    @rule(name=names)
    def dispose(self, name: str) -> None:
        session = self.live(name)
        if session is None:
            return
        self.portal.call(self.process.dispose, session)
        if not self.broken:
            assert self.stored(name) == self.truths[name].events
            assert name not in self.memory.leases

    @rule(target=names, parent=names, back=st.integers(0, 5))
    def fork(self, parent: str, back: int) -> Any:
        truth = self.truths[parent]
        ends = [event.seq for event in truth.events if event.type == "turn/end"]
        if not ends:
            return multiple()
        boundary = ends[-1 - back % len(ends)]
        self.number += 1
        name = f"s{self.number}"
        try:
            child = self.portal.call(self.process.store.fork, parent, boundary, name)
        except StorageError:
            assert self.broken
            return multiple()
        assert list(child.events)[: boundary + 1] == truth.events[: boundary + 1]
        self.truths[name] = Truth(list(child.events))
        return name

    # --- cold sessions -----------------------------------------------------------------------------

    @rule(name=names)
    def resume(self, name: str) -> None:
        if self.live(name) is not None:
            return
        try:
            session = self.portal.call(self.process.store.resume, name)
        except SessionNotFoundError:
            assert self.truths[name].events == []
        except StorageError:
            assert self.broken
        else:
            self.mended(name, list(session.events))

    @rule(name=names)
    def load(self, name: str) -> None:
        if self.live(name) is not None:
            return
        try:
            loaded = self.portal.call(self.process.store.load, name)
        except SessionNotFoundError:
            assert self.truths[name].events == []
        except StorageError:
            assert self.broken
        else:
            self.mended(name, list(loaded.events))
            assert self.stored(name) == list(loaded.events)

    @rule(name=names)
    def inspect(self, name: str) -> None:
        truth = self.truths[name]
        try:
            shown = self.portal.call(self.process.store.inspect, name)
        except SessionNotFoundError:
            assert truth.events == []
        except StorageError:
            assert self.broken
        else:
            assert list(shown.events)[: len(shown.events) - shown.closers] == truth.events

    def mended(self, name: str, events: list[Event]) -> None:
        """Take over what opening a session made of it, after a look at what it may have added."""
        truth = self.truths[name]
        added = events[len(truth.events) :]
        assert events[: len(truth.events)] == truth.events
        closing = closers(Events.of(truth.events))
        assert added[: len(closing)] == closing
        assert [event.type for event in added[len(closing) :]] in ([], ["session/end-seed"])
        truth.events = events
        truth.acknowledged = max(truth.acknowledged, len(self.stored(name)))

    # --- the disk and the process ------------------------------------------------------------------

    @rule(
        error=st.sampled_from([StorageError("full"), StaleWriterError("cut off"), BatchRefusedError("no")]),
        after=st.booleans(),
        times=st.sampled_from([1, float("inf")]),
    )
    def break_disk(self, error: StorageError, after: bool, times: float) -> None:
        """Let appends fail; with `after` although they were stored."""
        self.broken = True
        self.process.backend.fail("append", "repair", error=error, after=after, times=times)

    @precondition(lambda self: self.broken)
    @rule()
    def mend_disk(self) -> None:
        """Mend it, and let whatever is left of a failure come out of the next attempts."""
        self.process.backend.mend()
        for _ in range(2):
            for session in self.portal.call(self.process.sessions.list):
                try:
                    self.portal.call(self.process.sessions.flush, session)
                except (StaleWriterError, BatchRefusedError):
                    continue
                truth = self.truths[session.id]
                truth.acknowledged = len(truth.events)
            for name in self.cold():
                try:
                    self.portal.call(self.process.store.inspect, name)
                except (StaleWriterError, BatchRefusedError, SessionNotFoundError):
                    continue
        self.broken = False

    @rule()
    def crash(self) -> None:
        backend = self.process.backend
        backend.fail("create", "open", "append", "repair", "give-back", "close", error=CrashError("dead"))
        try:
            self.running.__exit__(None, None, None)
        except* CrashError:
            pass
        self.memory.leases.clear()
        for name, truth in self.truths.items():
            stored = self.stored(name)
            assert len(stored) >= truth.acknowledged
            truth.events = stored
        self.start()

    @precondition(lambda self: not self.broken)
    @rule()
    def restart(self) -> None:
        self.running.__exit__(None, None, None)
        assert self.memory.leases == {}
        for name, truth in self.truths.items():
            assert self.stored(name) == truth.events
            truth.acknowledged = len(truth.events)
        self.start()

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def what_is_stored_is_a_beginning_of_the_truth(self) -> None:
        if not hasattr(self, "process"):
            return
        self.portal.call(self.process.settle)
        for name, truth in self.truths.items():
            stored = self.stored(name)
            assert stored == truth.events[: len(stored)]
            assert len(stored) >= truth.acknowledged

    def teardown(self) -> None:
        if hasattr(self, "process"):
            self.crash()
            self.running.__exit__(None, None, None)
        self.stack.close()

    # --- looking -----------------------------------------------------------------------------------

    def live(self, name: str) -> Session | None:
        return self.portal.call(self.process.sessions.get, name)

    def cold(self) -> list[str]:
        return [name for name in self.truths if self.live(name) is None]

    def stored(self, name: str) -> list[Event]:
        try:
            return list(self.memory.read(name).events)
        except SessionNotFoundError:
            return []


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(
    max_examples=500 if SWEEP else 40, stateful_step_count=40, deadline=None
)
