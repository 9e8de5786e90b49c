"""Sessions under any order of appends, refusals, forks, snapshots and lifecycle steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from seedline.clock import ManualClock
from seedline.errors import EventRefusedError, ForkRefusedError, StoreRefusedError
from seedline.events.codec import encode_event, read_row
from seedline.events.event import CHUNK, Event
from seedline.ids import SeededIds
from seedline.jsonvalue import canonical
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.store import RestoredSession, SessionStore
from tests.unit.session.make import chunk, delta, event, events_of, packed, replace, user

SAFE = 2**53 - 1
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates included
# Whole floats between 2**53 and 1e21 are written with all their digits and read back as integers.
FLOATS = st.floats(-SAFE, SAFE) | st.floats(1e21, allow_infinity=False)
NUMBERS = st.integers(-SAFE, SAFE) | FLOATS.filter(lambda number: str(number) != "-0.0")
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def joined(value: Any) -> Any:
    """`value` as JSON holds it: surrogates that meet are one character, whole numbers have no point."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE:
        return int(value)
    if isinstance(value, list):
        return [joined(member) for member in value]
    if isinstance(value, dict):
        return {joined(name): joined(member) for name, member in value.items()}
    return value


@given(VALUES)
def test_any_lossless_value_comes_back_and_survives_its_row(value: Any) -> None:
    session = Session.create(
        SessionHeader(id="s", created_at=1), clock=ManualClock(), inherited_event_count=START
    )
    stored = session.append("plugin/note", value)
    assert repr(stored.value) == repr(joined(value))
    line = encode_event(stored)
    assert b"\n" not in line
    assert read_row(line) == stored
    by_the_standard_library = json.loads(line)["data"]
    assert canonical(by_the_standard_library) == canonical(joined(value))


# --- logs that share rows -----------------------------------------------------------------------------


class Twin:
    """A session and what its log must be, as a plain list of (type, value) pairs."""

    def __init__(self, session: Session, rows: list[tuple[str, Any]]) -> None:
        self.session = session
        self.rows = rows
        self.snapshots: list[tuple[Events, int]] = []

    def check(self) -> None:
        log = self.session.events
        assert self.session.seq == len(log) == len(self.rows)
        assert [(e.type, e.value) for e in log] == self.rows
        assert [e.seq for e in log] == list(range(len(self.rows)))
        plain = [at for at, (event_type, _) in enumerate(self.rows) if event_type != CHUNK]
        assert [e.seq for e in log.without_chunks()] == plain
        assert [e.seq for e in log.without_chunks_reversed()] == plain[::-1]
        for at in {0, len(self.rows) // 2, len(self.rows) - 1} & set(range(len(self.rows))):
            assert log[at].value == self.rows[at][1]
        cut = self.session.inherited_event_count
        assert [(e.type, e.value) for e in self.session.own_events] == self.rows[cut:]
        for snapshot, length in self.snapshots:
            assert [(e.type, e.value) for e in snapshot] == self.rows[:length]


class SharedLogs(RuleBasedStateMachine):
    """Sessions that append, fork and are forked from, at any boundary and at any depth."""

    twins = Bundle("twins")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Twin] = []

    def add(self, twin: Twin) -> Twin:
        self.all.append(twin)
        return twin

    @initialize(target=twins, texts=st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
    def stored(self, texts: list[str]) -> Any:
        """A restored log: an event, a packed row, a chunk's line, an event."""
        count = len(texts)
        line = encode_event(event(CHUNK, count + 1, chunk(delta("line"))))
        log = events_of(
            event("plugin/note", 0, 0), packed(1, *texts), line, event("plugin/note", count + 2, "last")
        )
        rows = [("plugin/note", 0), *[(CHUNK, chunk(delta(text))) for text in texts]]
        rows += [(CHUNK, chunk(delta("line"))), ("plugin/note", "last"), ("session/end-seed", {})]
        header = SessionHeader(id="stored", created_at=1)
        session = Session.restore(header, clock=ManualClock(), inherited_event_count=START, events=log)
        return multiple(self.add(Twin(session, rows)))

    @rule(twin=twins, value=st.sampled_from([None, 1, "x", [], {"a": [1]}]))
    def append(self, twin: Twin, value: Any) -> None:
        stored = twin.session.append("plugin/note", value)
        twin.rows.append(("plugin/note", stored.value))

    @rule(twin=twins, text=st.sampled_from("xyz"))
    def append_chunk(self, twin: Twin, text: str) -> None:
        twin.session.append(CHUNK, chunk(delta(text)))
        twin.rows.append((CHUNK, chunk(delta(text))))

    @rule(twin=twins, wrong=st.sampled_from(["data", "retired", "marker", "source", "range"]))
    def append_wrong(self, twin: Twin, wrong: str) -> None:
        arguments: dict[str, Any] = {
            "data": {"event_type": "plugin/note", "data": object()},
            "retired": {"event_type": "mode/set", "data": {}},
            "marker": {"event_type": "user/message", "data": user()},
            "source": {
                "event_type": "user/message",
                "data": user(),
                "surface_op": "append",
                "source_event_seqs": [10**6],
            },
            "range": {"event_type": "user/message", "data": user(), "surface_op": replace(10**6, 10**6)},
        }[wrong]
        with pytest.raises(EventRefusedError):
            twin.session.append(**arguments)

    @rule(target=twins, twin=twins, back=st.integers(0, 12))
    def fork(self, twin: Twin, back: int) -> Twin:
        stop = max(0, twin.session.seq - back)
        header = SessionHeader(id="fork", created_at=1, is_seeded=True)
        child = twin.session.fork(header, stop, ManualClock())
        rows = twin.rows[:stop]
        if not rows or rows[-1][0] != "session/end-seed":
            rows.append(("session/end-seed", {}))
        assert child.inherited_event_count == child.first_live_seq == stop
        return self.add(Twin(child, rows))

    @rule(target=twins, twin=twins)
    def reopen(self, twin: Twin) -> Twin:
        session = Session.restore(
            twin.session.header,
            clock=ManualClock(),
            inherited_event_count=twin.session.inherited_event_count,
            events=twin.session.events,
        )
        rows = list(twin.rows)
        if rows[-1][0] != "session/end-seed":
            rows.append(("session/end-seed", {}))
        return self.add(Twin(session, rows))

    @rule(twin=twins)
    def snapshot(self, twin: Twin) -> None:
        twin.snapshots.append((twin.session.events, len(twin.rows)))

    @invariant()
    def every_log_is_its_own(self) -> None:
        for twin in self.all:
            twin.check()


TestSharedLogs = SharedLogs.TestCase
TestSharedLogs.settings = settings(stateful_step_count=20)


# --- the store ------------------------------------------------------------------------------------------


class Lifecycle(RuleBasedStateMachine):
    """Sessions that are prepared, entered, announced, detached, forked and restored in any order.

    The model: who is live under which id, who was announced, and the diary that this must give.
    """

    prepared = Bundle("prepared")
    entered = Bundle("entered")

    def __init__(self) -> None:
        super().__init__()
        self.store = SessionStore(ManualClock(), SeededIds())
        self.live: dict[str, Session] = {}
        self.announced: set[int] = set()
        self.diary: list[tuple[str, int]] = []
        self.expected: list[tuple[str, int]] = []
        self.store.on_created(lambda session: self.diary.append(("created", id(session))))
        self.store.on_disposed(lambda session: self.diary.append(("disposed", id(session))))
        self.store.on_event(lambda session, e: self.diary.append((f"event {e.seq}", id(session))))
        self.kept: list[Session] = []  # so that no id() is used again

    @rule(target=prepared, name=st.sampled_from(["a", "b", "c", None]))
    def prepare(self, name: str | None) -> Any:
        if name in self.live:
            with pytest.raises(StoreRefusedError):
                self.store.prepare(name)
            return multiple()
        session = self.store.prepare(name)
        assert session.id not in self.live
        self.kept.append(session)
        return session

    @rule(target=entered, session=prepared)
    def enter(self, session: Session) -> Any:
        if session.id in self.live:
            with pytest.raises(StoreRefusedError):
                self.store.enter(session)
            return multiple()
        detach = self.store.enter(session)
        self.live[session.id] = session
        self.announced.discard(id(session))
        return session, detach

    @rule(stay=entered)
    def announce(self, stay: tuple[Session, Any]) -> None:
        session = stay[0]
        if self.live.get(session.id) is not session or id(session) in self.announced:
            with pytest.raises(StoreRefusedError):
                self.store.announce(session)
            return
        self.store.announce(session)
        self.announced.add(id(session))
        self.expected.append(("created", id(session)))

    @rule(session=prepared)
    def append(self, session: Session) -> None:
        stored = session.append("plugin/note", {})
        if self.live.get(session.id) is session:
            self.expected.append((f"event {stored.seq}", id(session)))

    @rule(session=prepared)
    def detach_by_session(self, session: Session) -> None:
        self.store.detach(session)
        if self.live.get(session.id) is session:
            self.leave(session)

    @rule(stay=consumes(entered), twice=st.booleans())
    def detach_by_handle(self, stay: tuple[Session, Any], twice: bool) -> None:
        session, detach = stay
        before = dict(self.live)
        detach()
        if self.store.get(session.id) is None and before.get(session.id) is session:
            self.leave(session)
        if twice:
            detach()

    def leave(self, session: Session) -> None:
        del self.live[session.id]
        if id(session) in self.announced:
            self.expected.append(("disposed", id(session)))

    @precondition(lambda self: self.live)
    @rule(target=prepared, data=st.data(), name=st.sampled_from(["a", "b", "c", "d", None]))
    def fork(self, data: st.DataObject, name: str | None) -> Any:
        source = data.draw(st.sampled_from(sorted(self.live)))
        if name in self.live:
            with pytest.raises(ForkRefusedError) as refused:
                self.store.fork(source, None, name)
            assert refused.value.code == "SESSION_ALREADY_EXISTS"
            return multiple()
        parent = self.live[source]
        child = self.store.fork(source, None, name)
        assert list(child.events[: parent.seq]) == list(parent.events)
        self.kept.append(child)
        self.live[child.id] = child
        self.announced.add(id(child))
        self.expected.append(("created", id(child)))
        return child

    @rule(target=prepared, session=prepared)
    def restore(self, session: Session) -> Any:
        stored = RestoredSession(
            header=session.header,
            inherited_event_count=SessionLogOffset(session.inherited_event_count),
            events=session.events,
        )
        if session.id in self.live:
            with pytest.raises(StoreRefusedError):
                self.store.prepare(None, stored)
            return multiple()
        again = self.store.prepare(None, stored)
        self.kept.append(again)
        return again

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        assert {session.id: session for session in self.store.list()} == self.live
        assert [session.id for session in self.store.list()] == list(self.live)
        assert all(self.store.get(name) is session for name, session in self.live.items())
        assert self.diary == self.expected


TestLifecycle = Lifecycle.TestCase


def told(session: Session) -> list[Event]:
    heard: list[Event] = []
    session.subscribe(heard.append)
    return heard


@given(st.lists(st.sampled_from(["good", "bad", "failing listener"]), max_size=12))
def test_listeners_hear_exactly_what_was_appended(steps: list[str]) -> None:
    session = Session.create(
        SessionHeader(id="s", created_at=1), clock=ManualClock(), inherited_event_count=START
    )
    first = told(session)
    fails = False

    def failing(_: Event) -> None:
        if fails:
            raise ValueError("listener")

    session.subscribe(failing)
    last = told(session)
    for step in steps:
        fails = step == "failing listener"
        if step == "bad":
            with pytest.raises(EventRefusedError):
                session.append("plugin/note", object())
        else:
            session.append("plugin/note", step)
    assert first == last == list(session.events)
