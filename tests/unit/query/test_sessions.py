"""Stored sessions overlaid by live ones, filtered, traced, titled."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from seedline.clock import ManualClock
from seedline.errors import (
    QueryError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    StorageError,
)
from seedline.ids import SeededIds
from seedline.query.corpus import Corpus
from seedline.query.sessions import SessionFilter, list_sessions, read_titles, trace_session
from seedline.session.header import START
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, SessionStore
from seedline.storage.memory import MemoryBackend
from seedline.storage.sqlite import SqliteBackend
from tests.unit.query.stores import Store, header, put
from tests.unit.session.make import event, user


def live_store(*sessions: tuple[str, CreateSessionOptions]) -> SessionStore:
    store = SessionStore(ManualClock(100, 1), SeededIds(1))
    for session_id, options in sessions:
        store.create(session_id, options)
    return store


def said(text: str = "hi") -> list[Any]:
    return [event("user/message", 0, user(text), op="append")]


def ids(corpus: Corpus, where: SessionFilter) -> list[str | None]:
    return [record.session_id for record in list_sessions(corpus, where).items]


def test_a_live_session_is_read_from_memory_only() -> None:
    backend = MemoryBackend()
    put(backend, header("s", 7, cwd="/w"), said("stored"))
    live = live_store(("s", CreateSessionOptions(cwd="/w", created_at=7)))
    session: Session = live.list()[0]
    session.append("session/title", {"title": "T", "messageSeqs": [], "source": {"kind": "user"}})
    corpus = Corpus(backend, live)
    [record] = corpus.records()
    assert (record.live, record.persisted, record.error) == (True, True, None)
    log = corpus.open("s")
    assert log.is_live
    assert [e.type for e in log.events()] == ["session/title"]
    assert corpus.read("s").events == session.events
    backend.delete("s")
    assert [e.type for e in corpus.open("s").events()] == ["session/title"], "storage is not asked"
    assert corpus.records()[0].persisted is False


def test_an_open_live_log_stays_as_it_was() -> None:
    live = live_store(("s", CreateSessionOptions()))
    log = Corpus(live=live).open("s")
    live.list()[0].append("session/title", {"title": "T", "messageSeqs": [], "source": {"kind": "user"}})
    assert log.count() == 0
    assert list(log.events()) == []


def test_contradicting_headers_are_told_and_hide_nothing() -> None:
    backend = MemoryBackend()
    put(backend, header("s", 7, cwd="/other"), said())
    put(backend, header("t", 8), said())
    corpus = Corpus(backend, live_store(("s", CreateSessionOptions(cwd="/w", created_at=7))))
    records = {record.session_id: record for record in corpus.records()}
    assert isinstance(records["s"].error, QueryError)
    assert records["s"].error.code == "SOURCE_CONFLICT"
    assert records["t"].error is None


def test_availability_and_ids_filter() -> None:
    backend = MemoryBackend()
    put(backend, header("cold"), said())
    corpus = Corpus(backend, live_store(("warm", CreateSessionOptions())))
    assert ids(corpus, SessionFilter(availability=("live",))) == ["warm"]
    assert ids(corpus, SessionFilter(availability=("persisted",))) == ["cold"]
    assert ids(corpus, SessionFilter(availability=("live", "persisted"))) == ["warm", "cold"]
    assert ids(corpus, SessionFilter(ids=("cold", "other"))) == ["cold"]
    assert ids(corpus, SessionFilter(ids=("cold",), availability=("live",))) == []


@pytest.mark.parametrize(
    "clause",
    [{"ids": ()}, {"cwds": ()}, {"parents": "s"}, {"availability": ()}, {"created_from": 2, "created_to": 1}],
)
def test_a_clause_that_nothing_fits_is_refused(clause: dict[str, Any]) -> None:
    with pytest.raises(QueryError) as caught:
        SessionFilter(**clause)
    assert caught.value.code == "INVALID_FILTER"


def test_a_session_between_two_pages_moves_none() -> None:
    backend = MemoryBackend()
    for number in (1, 2, 3):
        put(backend, header(f"s{number}", number), said())
    corpus = Corpus(backend)
    first = list_sessions(corpus, limit=2)
    put(backend, header("s9", 9), said())
    second = list_sessions(corpus, limit=2, cursor=first.cursor)
    found = [record.session_id for record in (*first.items, *second.items)]
    assert found == ["s3", "s2", "s1"]
    assert second.cursor is None


def test_a_damaged_session_is_listed_and_hides_no_other(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "runs.db")
    for name in ("good", "bad"):
        put(backend, header(name), said())
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("UPDATE sessions SET created_at = -1 WHERE id = 'bad'")
    connection.close()
    corpus = Corpus(backend)
    good, bad = list_sessions(corpus).items
    assert (good.session_id, good.error) == ("good", None)
    assert bad.header is None
    assert isinstance(bad.error, SessionPersistenceCorruptionError)
    assert ids(corpus, SessionFilter(ids=("bad",))) == ["bad"]
    assert ids(corpus, SessionFilter(created_from=0)) == ["good"]
    titles = read_titles(corpus, ["bad", "good", "none"])
    assert titles["good"] is None
    assert isinstance(titles["bad"], SessionPersistenceCorruptionError)
    assert isinstance(titles["none"], SessionNotFoundError)
    backend.close()
    with pytest.raises(StorageError):
        list_sessions(corpus)


def test_the_last_title_wins(store: Store) -> None:
    source = {"messageSeqs": [], "source": {"kind": "user"}}
    events = [event("session/title", n, {"title": t, **source}, time=n) for n, t in enumerate("abc")]
    put(store.backend, header("s"), events)
    title = read_titles(store.corpus, ["s"])["s"]
    assert (getattr(title, "text", None), getattr(title, "seq", None)) == ("c", 2)


# --- descent -----------------------------------------------------------------------------------------------


def test_a_missing_parent_is_named() -> None:
    backend = MemoryBackend()
    put(backend, header("child", parent_session="gone"), said())
    put(backend, header("grandchild", parent_session="child"), said())
    trace = trace_session(Corpus(backend), "grandchild")
    assert [record.session_id for record in trace.ancestors] == ["child"]
    assert trace.unresolved == "gone"
    with pytest.raises(SessionNotFoundError):
        trace_session(Corpus(backend), "gone")


@pytest.mark.parametrize("asked", ["a", "b", "below"])
def test_a_cycle_is_refused(asked: str) -> None:
    backend = MemoryBackend()
    put(backend, header("a", parent_session="b"), said())
    put(backend, header("b", parent_session="a"), said())
    put(backend, header("below", parent_session="a"), said())
    with pytest.raises(QueryError) as caught:
        trace_session(Corpus(backend), asked)
    assert caught.value.code == "INVALID_LINEAGE"


def test_a_long_line_of_descendants_needs_no_deep_stack() -> None:
    backend = MemoryBackend()
    for number in range(3000):
        parent = f"s{number - 1}" if number else None
        put(backend, header(f"s{number}", number, parent_session=parent), said())
    trace = trace_session(Corpus(backend), "s0")
    assert [each.depth for each in trace.descendants] == list(range(1, 3000))
    assert len(trace_session(Corpus(backend), "s2999").ancestors) == 2999


def test_nothing_is_stored_and_nothing_is_live() -> None:
    corpus = Corpus()
    assert corpus.records() == []
    for ask in (corpus.open, corpus.read):
        with pytest.raises(SessionNotFoundError):
            ask("s")
    assert START == 0
