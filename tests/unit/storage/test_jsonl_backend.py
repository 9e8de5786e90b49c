"""What a JSONL store does beyond the contracts: its files, its fences, its bad days."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from seedline.errors import (
    BatchRefusedError,
    IdentityMismatchError,
    LayoutMismatchError,
    SessionBusyError,
    SessionExistsError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    StaleWriterError,
    StorageError,
)
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Backend, Prefix
from seedline.storage.jsonl import writer as writing
from seedline.storage.jsonl.backend import JsonlBackend
from seedline.storage.jsonl.file import Encoding

ENCODINGS: tuple[Encoding, ...] = ("jsonl", "zstd")


def mark(seq: int) -> Event:
    return Event("session/end-seed", seq, 1000 + seq, Raw(b"{}"))


def delta(seq: int) -> Event:
    data = b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"w%d"}}' % seq
    return Event("assistant/chunk", seq, 1000 + seq, Raw(data))


def mixed(count: int) -> list[Event]:
    return [delta(seq) if seq % 11 else mark(seq) for seq in range(count)]


def header(session_id: str, **facts: object) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1, cwd="/w", **facts)  # pyright: ignore[reportArgumentType]  # the tests' own facts


def store(backend: JsonlBackend, session_id: str, events: list[Event], batch: int = 10) -> None:
    writer = backend.create(header(session_id), START)
    for at in range(0, len(events), batch):
        writer.append(events[at : at + batch])
    writer.close()


def path_of(backend: JsonlBackend, session_id: str) -> Path:
    path = backend.locate(header(session_id))
    assert path
    return Path(path)


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return request.param


@pytest.fixture
def backend(tmp_path: Path, encoding: Encoding) -> Iterator[JsonlBackend]:
    backend = JsonlBackend(tmp_path / "runs", encoding=encoding)
    yield backend
    backend.close()


# --- files -----------------------------------------------------------------------------------------


def test_is_a_backend(backend: JsonlBackend) -> None:
    seam: Backend = backend
    assert seam.name == "jsonl"


def test_a_session_lies_where_dsh_looks_for_it(tmp_path: Path) -> None:
    store(JsonlBackend(tmp_path), "a/b", [mark(0)])
    path = tmp_path / "--w--" / "a~002Fb" / "session.jsonl"
    first, second = path.read_bytes().splitlines()
    assert first == b'{"type":"session","version":0,"id":"a/b","createdAt":1,"cwd":"/w","delegationDepth":0}'
    assert second == b'{"type":"session/end-seed","seq":0,"time":1000,"data":{}}'
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_session_without_events_leaves_no_file(backend: JsonlBackend, tmp_path: Path) -> None:
    writer = backend.create(header("s"), START)
    writer.append([])
    writer.close()
    assert [entry for entry in (tmp_path / "runs").rglob("*") if entry.is_file()] == []
    assert list(backend.list()) == []


def test_nothing_but_the_log_is_left_beside_it(backend: JsonlBackend) -> None:
    store(backend, "s", mixed(30))
    path = path_of(backend, "s")
    assert os.listdir(path.parent) == [path.name]


def test_what_a_killed_first_batch_left_is_removed(backend: JsonlBackend) -> None:
    path = path_of(backend, "s")
    path.parent.mkdir(parents=True)
    (path.parent / f"{path.name}.0123456789abcdef.tmp").write_bytes(b"half a head")
    assert list(backend.list()) == []
    store(backend, "s", [mark(0)])
    assert os.listdir(path.parent) == [path.name]


def test_a_store_of_the_other_encoding_is_refused_by_name(tmp_path: Path) -> None:
    store(JsonlBackend(tmp_path), "s", [mark(0)])
    other = JsonlBackend(tmp_path, encoding="zstd")
    with pytest.raises(LayoutMismatchError, match="convert"):
        other.read("s")
    with pytest.raises(LayoutMismatchError):
        other.create(header("s"), START)
    assert [type(one.error) for one in other.list()] == [LayoutMismatchError]


def test_a_flat_file_is_named_as_obsolete(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path)
    store(backend, "good", [mark(0)])
    (tmp_path / "--w--" / "old.jsonl").write_bytes(path_of(backend, "good").read_bytes())
    with pytest.raises(LayoutMismatchError, match="obsolete"):
        backend.read("old")
    assert sorted(one.error is None for one in backend.list()) == [False, True]


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        JsonlBackend(tmp_path / "file")


# --- identity --------------------------------------------------------------------------------------


def test_a_file_in_the_folder_of_another_session_is_refused(backend: JsonlBackend) -> None:
    store(backend, "s", [mark(0)])
    wanted = path_of(backend, "wanted")
    wanted.parent.mkdir()
    wanted.write_bytes(path_of(backend, "s").read_bytes())
    with pytest.raises(IdentityMismatchError):
        backend.open("wanted")
    assert sorted(one.error is None for one in backend.list()) == [False, True]


def test_an_id_in_two_projects_is_refused_naming_both(backend: JsonlBackend, tmp_path: Path) -> None:
    store(backend, "s", [mark(0)])
    path = path_of(backend, "s")
    twin = tmp_path / "runs" / "--other--" / "s" / path.name
    twin.parent.mkdir(parents=True)
    twin.write_bytes(path.read_bytes())
    with pytest.raises(SessionPersistenceCorruptionError) as refused:
        backend.read("s")
    assert str(path) in str(refused.value)
    assert str(twin) in str(refused.value)


def test_a_link_out_of_the_store_is_not_followed(backend: JsonlBackend, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "--w--").symlink_to(outside)
    writer = backend.create(header("s"), START)
    with pytest.raises(IdentityMismatchError, match="out of the store"):
        writer.append([mark(0)])
    writer.close()
    assert not [entry for entry in outside.rglob("*") if entry.is_file()]


# --- parts of a log --------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(ENCODINGS),
    st.booleans(),
    st.integers(1, 60),
    st.lists(st.integers(0, 1200), min_size=1, max_size=4),
)
def test_parts_are_those_of_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, encoding: Encoding, pack: bool, batch: int, seqs: list[int]
) -> None:
    backend = JsonlBackend(tmp_path_factory.mktemp("runs"), encoding=encoding, pack_chunks=pack)
    events = mixed(1100)
    store(backend, "s", events, batch)
    for seq in seqs:
        suffix = backend.read_from("s", seq).events
        assert suffix.first_seq == seq
        assert list(suffix) == events[seq:]
        if seq <= len(events):
            child = header(f"c{seq}", is_seeded=True, parent_session="s")
            if not any(one.session_id == child.id for one in backend.list()):
                writer = backend.create(child, SessionLogOffset(seq), Prefix("s", SessionLogOffset(seq)))
                writer.append([mark(seq)])
                writer.close()
            assert list(backend.read(child.id).events) == [*events[:seq], mark(seq)]
    backend.close()


def test_a_prefix_longer_than_its_owner_is_refused(backend: JsonlBackend) -> None:
    store(backend, "s", mixed(50))
    with pytest.raises(BatchRefusedError, match="51"):
        backend.create(header("c", is_seeded=True), SessionLogOffset(51), Prefix("s", SessionLogOffset(51)))


def test_damage_before_a_suffix_is_not_read(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path, pack_chunks=False)
    store(backend, "s", mixed(5000))
    path = path_of(backend, "s")
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\0\0\0")
    assert list(backend.read_from("s", 4990).events) == mixed(5000)[4990:]
    with pytest.raises(SessionPersistenceCorruptionError):
        backend.read_from("s", 0)


# --- torn tails ------------------------------------------------------------------------------------


def test_a_torn_tail_is_kept_beside_the_log_and_cut_before_the_first_append(backend: JsonlBackend) -> None:
    store(backend, "s", [mark(seq) for seq in range(20)], batch=1)
    path = path_of(backend, "s")
    whole = path.read_bytes()
    os.truncate(path, len(whole) - 9)
    before = path.read_bytes()
    stored, writer = backend.open("s")
    assert path.read_bytes() == before
    assert stored.torn
    torn = writer.repair([mark(writer.next_seq)])
    assert torn
    assert torn.kept_at
    assert before.endswith(Path(torn.kept_at).read_bytes())
    writer.append([mark(writer.next_seq)])
    count = writer.next_seq
    writer.close()
    again = backend.read("s")
    assert again.torn is None
    assert list(again.events) == [mark(seq) for seq in range(count)]


def test_a_record_without_its_line_end_is_kept(tmp_path: Path) -> None:
    backend = JsonlBackend(tmp_path)
    store(backend, "s", [mark(0), mark(1)])
    path = path_of(backend, "s")
    os.truncate(path, path.stat().st_size - 1)
    stored, writer = backend.open("s")
    assert stored.torn is None
    writer.append([mark(2)])
    writer.close()
    assert list(backend.read("s").events) == [mark(0), mark(1), mark(2)]


# --- fences ----------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_the_owner_named(
    backend: JsonlBackend, tmp_path: Path, encoding: Encoding
) -> None:
    store(backend, "s", [mark(0)])
    _, writer = backend.open("s")
    other = JsonlBackend(
        tmp_path / "runs", encoding="zstd" if path_of(backend, "s").suffix == ".zstd" else "jsonl"
    )
    with pytest.raises(SessionBusyError, match=str(os.getpid())):
        other.open("s")
    assert len(other.read("s").events) == 1
    with pytest.raises(SessionBusyError):
        other.delete("s")
    writer.close()
    _, writer = other.open("s")
    writer.close()


def test_an_existing_id_is_refused(backend: JsonlBackend) -> None:
    store(backend, "s", [mark(0)])
    with pytest.raises(SessionExistsError):
        backend.create(header("s"), START)


@pytest.mark.parametrize("deed", ["append", "replace", "remove", "unlock"])
def test_a_writer_is_fenced_after_another_hand(backend: JsonlBackend, tmp_path: Path, deed: str) -> None:
    store(backend, "s", [mark(0)])
    _, writer = backend.open("s")
    path = path_of(backend, "s")
    content = path.read_bytes()
    match deed:
        case "append":
            path.write_bytes(content + b"\n")
        case "replace":
            (tmp_path / "copy").write_bytes(content)
            os.replace(tmp_path / "copy", path)
        case "remove":
            path.unlink()
        case _:
            for lock in (tmp_path / "runs" / ".locks").iterdir():
                lock.unlink()
    left = path.read_bytes() if path.exists() else None
    with pytest.raises(StaleWriterError):
        writer.append([mark(1)])
    assert (path.read_bytes() if path.exists() else None) == left
    writer.close()


def test_deleting_removes_the_session_and_frees_its_id(backend: JsonlBackend) -> None:
    store(backend, "s", [mark(0)])
    backend.delete("s")
    assert list(backend.list()) == []
    with pytest.raises(SessionNotFoundError):
        backend.read("s")
    store(backend, "s", [mark(0)])


# --- failing media ---------------------------------------------------------------------------------


def test_a_failed_sync_takes_the_batch_back_and_the_next_one_goes_on(
    backend: JsonlBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(backend, "s", [mark(0)])
    _, writer = backend.open("s")
    before = path_of(backend, "s").read_bytes()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "sync_data", fail)
        with pytest.raises(StorageError, match="disk is gone"):
            writer.append([mark(1)])
    assert path_of(backend, "s").read_bytes() == before
    writer.append([mark(1)])
    writer.close()
    assert list(backend.read("s").events) == [mark(0), mark(1)]


def test_a_batch_that_could_not_be_taken_back_is_taken_back_later(
    backend: JsonlBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(backend, "s", [mark(0)])
    _, writer = backend.open("s")

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "sync_data", fail)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(StorageError, match="failed, too"):
            writer.append([mark(1)])
    writer.append([mark(1)])
    writer.close()
    assert list(backend.read("s").events) == [mark(0), mark(1)]


def test_a_payload_of_several_lines_is_refused_and_stores_nothing(backend: JsonlBackend) -> None:
    store(backend, "s", [mark(0)])
    _, writer = backend.open("s")
    with pytest.raises(BatchRefusedError, match="seq 2"):
        writer.append([mark(1), Event("session/end-seed", 2, 2, Raw(b"{\n}"))])
    writer.append([mark(1)])
    writer.close()
    assert list(backend.read("s").events) == [mark(0), mark(1)]


def test_a_suffix_is_not_refused_for_what_lies_before_it(backend: JsonlBackend) -> None:
    unknown = Event("new/thing", 1, 1, Raw(b"{}"))
    store(backend, "s", [mark(0), unknown, mark(2)], batch=1)
    assert list(backend.read_from("s", 2).events) == [mark(2)]
    with pytest.raises(SessionFormatUnsupportedError):
        backend.read_from("s", 1)
