"""Sessions in memory: what the storage seam promises, on the backend that is its reference."""

from __future__ import annotations

import pytest
from msgspec import Raw

from seedline.errors import (
    BatchRefusedError,
    HeaderRefusedError,
    SessionBusyError,
    SessionExistsError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
    StaleWriterError,
    UnsupportedOperationError,
)
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix
from seedline.storage.memory import MemoryBackend, MemoryWriter


def event(seq: int, text: str = "{}") -> Event:
    return Event("session/end-seed", seq, seq, Raw(text.encode()))


def run(first: int, stop: int) -> list[Event]:
    return [event(seq) for seq in range(first, stop)]


def begun(store: MemoryBackend, count: int = 3, session_id: str = "s") -> MemoryWriter:
    writer = store.create(SessionHeader(id=session_id, created_at=5), START)
    writer.append(run(0, count))
    return writer


@pytest.fixture
def store() -> MemoryBackend:
    return MemoryBackend()


def test_nothing_is_stored_before_the_first_batch(store: MemoryBackend) -> None:
    writer = store.create(SessionHeader(id="s", created_at=5), START)
    writer.append([])
    assert list(store.list()) == []
    with pytest.raises(SessionNotFoundError):
        store.read("s")
    writer.append(run(0, 2))
    assert [listed.session_id for listed in store.list()] == ["s"]


def test_what_was_appended_comes_back_byte_for_byte(store: MemoryBackend) -> None:
    writer = begun(store, 1)
    text = '{ "n" : 1e2, "s":"\\ud83d" }'
    writer.append([event(1, text)])
    stored = store.read("s")
    assert stored.header == SessionHeader(id="s", created_at=5)
    assert list(stored.events) == [event(0), event(1, text)]
    assert bytes(stored.events[1].data) == text.encode()
    assert writer.next_seq == 2


@pytest.mark.parametrize("batch", [run(2, 4), run(4, 5), [event(3), event(5)], [event(3), event(3)]])
def test_a_batch_that_does_not_follow_stores_nothing(store: MemoryBackend, batch: list[Event]) -> None:
    writer = begun(store)
    before = store.revision("s")
    with pytest.raises(BatchRefusedError):
        writer.append(batch)
    assert (store.revision("s"), len(store.read("s").events)) == (before, 3)
    writer.append(run(3, 4))
    assert store.revision("s") != before


def test_a_second_writer_is_refused_until_the_first_one_closes(store: MemoryBackend) -> None:
    writer = begun(store)
    for attempt in (lambda: store.open("s"), lambda: store.delete("s")):
        with pytest.raises(SessionBusyError, match="process"):
            attempt()
    writer.close()
    _, second = store.open("s")
    with pytest.raises(StaleWriterError):
        writer.append(run(3, 4))
    second.append(run(3, 4))
    assert list(store.read("s").events) == run(0, 4)


def test_an_id_is_given_once(store: MemoryBackend) -> None:
    begun(store)
    with pytest.raises(SessionExistsError):
        store.create(SessionHeader(id="s", created_at=6), START)


@pytest.mark.parametrize("seq", range(6))
def test_a_suffix_begins_where_it_was_asked_for(store: MemoryBackend, seq: int) -> None:
    begun(store, 4)
    suffix = store.read_from("s", seq)
    assert (suffix.events.first_seq, list(suffix.events)) == (seq, run(seq, 4))


@pytest.mark.parametrize("seq", [-1, 1.5, True, 2**53])
def test_a_suffix_begins_at_a_count(store: MemoryBackend, seq: int) -> None:
    begun(store)
    with pytest.raises(ValueError, match="non-negative safe integer"):
        store.read_from("s", seq)


def test_a_fork_reads_its_prefix_after_the_owner_is_gone(store: MemoryBackend) -> None:
    begun(store).close()
    cut = SessionLogOffset(2)
    child = store.create(SessionHeader(id="c", created_at=6, is_seeded=True), cut, Prefix("s", cut))
    assert child.next_seq == 2
    with pytest.raises(SessionNotFoundError):
        store.read("c")
    child.append([event(2, '{"own":1}')])
    store.delete("s")
    with pytest.raises(SessionNotFoundError):
        store.read("s")
    stored = store.read("c")
    assert (stored.inherited_event_count, list(stored.events)) == (2, [*run(0, 2), event(2, '{"own":1}')])


def test_a_prefix_ends_within_its_owner(store: MemoryBackend) -> None:
    begun(store)
    header = SessionHeader(id="c", created_at=6, is_seeded=True)
    with pytest.raises(BatchRefusedError, match="3 are stored"):
        store.create(header, SessionLogOffset(4), Prefix("s", SessionLogOffset(4)))
    with pytest.raises(SessionNotFoundError):
        store.create(header, START, Prefix("nobody", START))


def test_headers_that_no_session_has_are_refused(store: MemoryBackend) -> None:
    with pytest.raises(HeaderRefusedError, match="'id'"):
        store.create(SessionHeader(id="", created_at=0), START)
    with pytest.raises(HeaderRefusedError):
        store.create(SessionHeader(id="s", created_at=0), SessionLogOffset(1))


def test_an_unknown_type_is_refused_at_its_place(store: MemoryBackend) -> None:
    writer = store.create(SessionHeader(id="s", created_at=0), START)
    writer.append([event(0), Event("other/thing", 1, 1, Raw(b"{}"))])
    with pytest.raises(SessionFormatUnsupportedError, match="other/thing") as caught:
        store.read("s")
    assert (caught.value.seq, caught.value.path) == (1, "memory:s")


def test_a_follower_sees_what_is_appended(store: MemoryBackend) -> None:
    writer = begun(store)
    done: list[int] = []
    followed = store.follow("s", 1, lambda: bool(done), wait_seconds=0)
    assert list(next(followed)) == run(1, 3)
    assert list(next(followed)) == []
    writer.append(run(3, 5))
    assert list(next(followed)) == run(3, 5)
    done.append(1)
    assert list(followed) == []


def test_what_memory_cannot_do_it_says(store: MemoryBackend) -> None:
    writer = begun(store)
    assert store.locate(store.read("s").header) is None
    with pytest.raises(UnsupportedOperationError, match="events are objects"):
        store.raw("s")
    assert set(store.capabilities.reasons) == {"durable", "raw_artifacts", "locates"}
    assert writer.repair([]) is None
