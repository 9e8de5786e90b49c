"""What queries answer is what a plain walk over the log finds, on every store.

The model below works on lists of plain values and shares nothing with the code under test.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from seedline.errors import QueryError
from seedline.events.event import Event, ReplaceOp
from seedline.jsonvalue import encode
from seedline.query.events import (
    EventFilter,
    Surfacing,
    find_events,
    read_event,
    read_surface,
    trace_event,
)
from seedline.query.search import search_events, search_sessions
from seedline.query.sessions import SessionFilter, list_sessions, read_titles, trace_session
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix
from tests.unit.query.stores import KINDS, Store, add, opened, put
from tests.unit.session.make import assistant, call, chunk, delta, result, user

# --- logs --------------------------------------------------------------------------------------------------

WORDS = ["plum", "PLUM", "plums", "straße", "Äpfel", "q", "漢字", "naïve", "x-ray", "\ud83d", "end."]
texts = st.lists(st.sampled_from(WORDS), max_size=5).map("  ".join)
kinds = st.sampled_from(
    ["user", "assistant", "chunk", "tool", "todo", "title", "plugin", "turn", "end", "replace", "cut"]
)


class Session(NamedTuple):
    """A session of the model: what is put into a store. `parent` is its place among the others."""

    header: SessionHeader
    cut: int
    events: list[Event]
    parent: int | None


def made(seq: int, time: int, kind: str, data: Any, op: Any = UNSET, sources: Any = UNSET) -> Event:
    return Event(kind, seq, time, Raw(encode(data)), sources, op)


def title(text: str) -> dict[str, Any]:
    return {"title": text, "messageSeqs": [], "source": {"kind": "user"}}


def ended(kind: str, text: str) -> dict[str, Any]:
    reason: dict[str, Any] = {"kind": kind}
    if kind == "error":
        reason["error"] = {"message": text, "code": "UNKNOWN"}
    if kind == "aborted":
        reason["reason"] = {"kind": "user"}
    return {"turn": 1, "reason": reason}


class Writer:
    """Grows a log that every store takes, and knows its surface."""

    def __init__(self, draw: st.DrawFn, events: list[Event]) -> None:
        self.draw = draw
        self.events = list(events)

    def add(self, kind: str, data: Any, op: Any = UNSET, sources: Any = UNSET) -> None:
        self.events.append(made(len(self.events), self.draw(st.integers(-3, 5)), kind, data, op, sources))

    def grow(self, kind: str) -> None:
        text = self.draw(texts)
        match kind:
            case "user":
                self.add("user/message", user(text), "append")
            case "assistant":
                self.add("assistant/message", assistant([{"type": "text", "text": text}]), "append")
            case "chunk":
                self.add("assistant/chunk", chunk(delta(text)))
            case "tool":
                self.add("tool/call", {**call(), "arguments": text})
                self.add("tool/result", result(text=text), "append", (len(self.events) - 1,))
            case "todo":
                self.add("todo/write", {"todos": [{"content": text, "status": "pending"}]})
            case "title":
                self.add("session/title", title(text))
            case "plugin":
                self.add("feedback/record", {"text": text})
            case "turn":
                self.add("turn/start", {"turn": 1})
            case "replace":
                self.replace(text)
            case "cut":
                self.add("session/end-seed", {})
            case _:
                ends = ["completed", "aborted", "error", "max-tokens", "interrupted"]
                self.add("turn/end", ended(self.draw(st.sampled_from(ends)), text))

    def replace(self, text: str) -> None:
        nodes = surface_of(self.events)
        if nodes:
            first, last = sorted(self.draw(st.tuples(*[st.integers(0, len(nodes) - 1)] * 2)))
            op = ReplaceOp("replace", nodes[first], nodes[last])
            self.add("user/message", user(text), op, tuple(nodes[first : last + 1]))


def grown(draw: st.DrawFn, events: list[Event]) -> list[Event]:
    writer = Writer(draw, events)
    for kind in draw(st.lists(kinds, min_size=1, max_size=10)):
        writer.grow(kind)
    if len(writer.events) == len(events):
        writer.grow("user")
    return writer.events


@st.composite
def session_sets(draw: st.DrawFn) -> list[Session]:
    """A few sessions, some of them forks of others."""
    sessions: list[Session] = []
    for number in range(draw(st.integers(1, 4))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        cut = draw(st.integers(0, len(sessions[parent].events))) if parent is not None else 0
        prefix = sessions[parent].events[:cut] if parent is not None else []
        header = SessionHeader(
            id=f"s{number}",
            created_at=draw(st.integers(0, 3)),
            cwd=draw(st.sampled_from([None, "/a", "/b"])),
            parent_session=None if parent is None else f"s{parent}",
            is_seeded=parent is not None,
            origin=draw(st.sampled_from([None, "subagent"])) if parent is not None else None,
        )
        sessions.append(Session(header, cut, grown(draw, prefix), parent))
    return sessions


# --- the plain walk ----------------------------------------------------------------------------------------


def surface_of(events: list[Event]) -> list[int]:
    nodes: list[int] = []
    for event in events:
        if event.surface_op == "append":
            nodes.append(event.seq)
        elif isinstance(event.surface_op, ReplaceOp):
            first, last = nodes.index(event.surface_op.start), nodes.index(event.surface_op.end)
            nodes[first : last + 1] = [event.seq]
    return nodes


def surfacing(event: Event, events: list[Event]) -> str:
    if event.surface_op is UNSET:
        return "log-only"
    return "current" if event.seq in surface_of(events) else "shadowed"


def value(event: Event) -> Any:
    return json.loads(bytes(event.data))


def text_of(event: Event) -> str:
    data = value(event)
    match event.type:
        case "user/message":
            parts = [block["text"] for block in data["content"]]
        case "assistant/message":
            parts = [block["text"] for block in data["message"]["content"]]
        case "tool/call":
            parts = [data["name"], data["arguments"]]
        case "tool/result":
            parts = [block["text"] for block in data["message"]["content"][0]["content"]]
        case "todo/write":
            parts = [todo["content"] for todo in data["todos"]]
        case "turn/end" if data["reason"]["kind"] == "error":
            parts = [data["reason"]["error"]["message"]]
        case "turn/end" if data["reason"]["kind"] != "completed":
            parts = [data["reason"]["kind"]]
        case _:
            parts = []
    return "\n".join(part.strip() for part in parts if part.strip())


def plain_words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(c for c in folded if not unicodedata.combining(c))
    return re.findall(r"[漢字]|[a-z0-9]+", bare)


def says(text: str, query: str) -> bool:
    """Whether every blank-separated part of the query occurs as words side by side."""
    words = plain_words(text)

    def occurs(part: str) -> bool:
        wanted = plain_words(part)
        return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))

    return all(occurs(part) for part in query.split())


def newest_first(sessions: list[Session]) -> list[Session]:
    return sorted(sessions, key=lambda s: (-s.header.created_at, s.header.id))


def fits(event: Event, events: list[Event], where: EventFilter) -> bool:
    found = (where.seq_from is None or where.seq_from <= event.seq) and (
        where.seq_to is None or event.seq <= where.seq_to
    )
    found &= where.time_from is None or where.time_from <= event.time
    found &= where.time_to is None or event.time <= where.time_to
    found &= where.types is None or event.type in where.types
    found &= where.surface is None or surfacing(event, events) in where.surface
    if where.text is not None:
        flat, wanted = (" ".join(text.split()).lower() for text in (text_of(event), where.text))
        found &= wanted in flat
    return found


@st.composite
def event_filters(draw: st.DrawFn) -> EventFilter:
    def span(low: int, high: int) -> list[int | None]:
        ends = draw(st.none() | st.tuples(st.integers(low, high), st.integers(low, high)))
        kept = sorted(ends) if ends else [None, None]
        return [end if draw(st.booleans()) else None for end in kept]

    seqs, times = span(0, 12), span(-3, 5)
    types = st.lists(
        st.sampled_from(["user/message", "assistant/chunk", "tool/result", "turn/end"]), min_size=1
    )
    surfaces = st.lists(st.sampled_from(get_args(Surfacing)), min_size=1)
    return EventFilter(
        seq_from=seqs[0],
        seq_to=seqs[1],
        time_from=times[0],
        time_to=times[1],
        types=draw(st.none() | types.map(tuple)),
        surface=draw(st.none() | surfaces.map(tuple)),
        text=draw(st.none() | st.sampled_from(["plum", "PLUM plum", "x-RAY", "漢", "end."])),
    )


# --- the stores --------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    def postgres() -> tuple[str, str]:
        return request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")

    with opened(request.param, tmp_path, postgres) as store:
        yield store


def fill(store: Store, sessions: list[Session]) -> None:
    """Begin with an empty store; forks are stored over their parents where the store can do that."""
    for listed in list(store.backend.list()):
        assert listed.session_id is not None
        store.backend.delete(listed.session_id)
    for session in sessions:
        cut = SessionLogOffset(session.cut)
        prefix = Prefix(f"s{session.parent}", cut) if session.cut and session.parent is not None else None
        own = session.events[session.cut :] if prefix else session.events
        put(store.backend, session.header, own, cut=cut, prefix=prefix)


one_store_for_all = settings(
    # Every example empties the store first.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@one_store_for_all
@given(session_sets(), event_filters(), st.integers(1, 4), st.booleans())
def test_events_are_those_of_a_plain_walk(
    store: Store, sessions: list[Session], where: EventFilter, limit: int, plain: bool
) -> None:
    fill(store, sessions)
    corpus = store.plain if plain else store.corpus
    for session in sessions:
        log = corpus.open(session.header.id)
        found, cursor = [], None
        while True:
            page = find_events(log, where, limit=limit, cursor=cursor, surfacing=True)
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page.items) == limit
        wanted = [event for event in session.events if fits(event, session.events, where)]
        assert [each.event for each in found] == wanted
        assert [each.surfacing for each in found] == [surfacing(e, session.events) for e in wanted]
        assert [each.inherited for each in found] == [e.seq < session.cut for e in wanted]
        assert [each.text for each in found] == [text_of(e) for e in wanted]


@one_store_for_all
@given(session_sets(), st.data())
def test_one_event_its_window_and_its_trace(
    store: Store, sessions: list[Session], data: st.DataObject
) -> None:
    fill(store, sessions)
    session = data.draw(st.sampled_from(sessions))
    events = session.events
    seq = data.draw(st.integers(0, len(events) - 1))
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    log = store.corpus.open(session.header.id)
    window = read_event(log, seq, before=before, after=after)
    assert window.target.event == events[seq]
    assert [each.event for each in window.before] == events[max(0, seq - before) : seq]
    assert [each.event for each in window.after] == events[seq + 1 : seq + 1 + after]
    with pytest.raises(QueryError, match="EVENT_NOT_FOUND"):
        read_event(log, len(events))

    trace = trace_event(log, seq)
    shadowed: dict[int, list[int]] = {}
    for event in events:
        if isinstance(event.surface_op, ReplaceOp):
            nodes = surface_of(events[: event.seq])
            first, last = nodes.index(event.surface_op.start), nodes.index(event.surface_op.end)
            shadowed[event.seq] = nodes[first : last + 1]
    chain, at = [], seq
    while replacer := next((other for other, gone in shadowed.items() if at in gone), None):
        chain.append(replacer)
        at = replacer
    assert list(trace.replacers) == chain
    assert list(trace.replaced) == shadowed.get(seq, [])
    sources = events[seq].source_event_seqs
    assert trace.sources == (None if sources is UNSET else sources)
    citing = [e.seq for e in events if e.source_event_seqs is not UNSET and seq in e.source_event_seqs]
    assert list(trace.cited_by) == citing

    view = read_surface(log)
    assert [event.seq for event in view.events] == surface_of(events)
    assert view.last_seq == len(events) - 1
    assert log.count() == len(events)


@one_store_for_all
@given(session_sets(), st.data())
def test_sessions_titles_and_descent(store: Store, sessions: list[Session], data: st.DataObject) -> None:
    fill(store, sessions)
    cwds = data.draw(st.none() | st.lists(st.sampled_from([None, "/a"]), min_size=1).map(tuple))
    parents = data.draw(st.none() | st.lists(st.sampled_from([None, "s0", "s1"]), min_size=1).map(tuple))
    first = data.draw(st.none() | st.integers(0, 3))
    where = SessionFilter(cwds=cwds, parents=parents, created_from=first)
    limit = data.draw(st.integers(1, 3))
    found, cursor = [], None
    while True:
        page = list_sessions(store.corpus, where, limit=limit, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    wanted = [
        s.header.id
        for s in newest_first(sessions)
        if (cwds is None or s.header.cwd in cwds)
        and (parents is None or s.header.parent_session in parents)
        and (first is None or s.header.created_at >= first)
    ]
    assert [record.session_id for record in found] == wanted
    assert all(record.persisted and not record.live and record.error is None for record in found)

    titles = read_titles(store.corpus, [session.header.id for session in sessions])
    for session in sessions:
        last = [event for event in session.events if event.type == "session/title"][-1:]
        read: Any = titles[session.header.id]
        assert [(t.text, t.seq, t.time) for t in ([read] if read else [])] == [
            (value(event)["title"], event.seq, event.time) for event in last
        ]

    chosen = data.draw(st.sampled_from(sessions))
    trace = trace_session(store.corpus, chosen.header.id)
    ancestors, at = [], chosen
    while at.parent is not None:
        at = sessions[at.parent]
        ancestors.append(at.header.id)
    assert [record.session_id for record in trace.ancestors] == ancestors
    assert trace.unresolved is None

    def below(session: Session, depth: int) -> Iterator[tuple[str, int, bool]]:
        children = [s for s in sessions if s.header.parent_session == session.header.id]
        for child in sorted(children, key=lambda s: (s.header.created_at, s.header.id)):
            yield child.header.id, depth, child.header.origin != "subagent"
            yield from below(child, depth + 1)

    shown = [(d.record.session_id, d.depth, d.is_fork) for d in trace.descendants]
    assert shown == list(below(chosen, 1))


queries = st.lists(st.sampled_from(["plum", "PLUMS", "strasse", "apfel", "Q", "漢", "naive", "x-ray", "ray"]))


@one_store_for_all
@given(session_sets(), queries.filter(bool).map(" ".join), st.integers(1, 3), st.booleans(), st.data())
def test_a_search_finds_what_a_plain_walk_finds(
    store: Store, sessions: list[Session], query: str, limit: int, plain: bool, data: st.DataObject
) -> None:
    fill(store, sessions)
    corpus = store.plain if plain else store.corpus
    if data.draw(st.booleans()):
        search_events(corpus, query)  # what is indexed by now grows on
        grow = data.draw(st.integers(0, len(sessions) - 1))
        session = sessions[grow]
        more = made(len(session.events), 0, "user/message", user(data.draw(texts)), "append")
        add(store.backend, session.header.id, [more])
        longer = session._replace(events=[*session.events, more])
        sessions = [*sessions[:grow], longer, *sessions[grow + 1 :]]
    budget = data.draw(st.sampled_from([1, 3, 1000]))
    found, cursor = [], None
    while True:
        page = search_events(corpus, query, limit=limit, cursor=cursor, budget=budget)
        assert page.unreadable == {}
        found += page.hits
        cursor = page.cursor
        if cursor is None:
            break
    wanted = [
        (session.header.id, event.seq, event.time, event.type)
        for session in newest_first(sessions)
        for event in session.events[session.cut :]
        if says(text_of(event), query)
    ]
    assert [(hit.session_id, hit.seq, hit.time, hit.type) for hit in found] == wanted

    firsts, cursor = [], None
    while True:
        some = search_sessions(corpus, query, limit=limit, cursor=cursor, budget=budget)
        firsts += [(each.session.session_id, each.first.seq) for each in some.sessions]
        cursor = some.cursor
        if cursor is None:
            break
    expected: dict[str, int] = {}
    for session_id, seq, *_ in wanted:
        expected.setdefault(session_id, seq)
    assert firsts == list(expected.items())
