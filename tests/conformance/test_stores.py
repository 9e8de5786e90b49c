"""Hostile ids, misplaced files and a second writer's damage, on the stores that keep files here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from seedline.errors import (
    IdentityMismatchError,
    SessionIdRefusedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Backend, Prefix
from seedline.storage.jsonl.backend import JsonlBackend
from seedline.storage.memory import MemoryBackend
from seedline.storage.sqlite import SqliteBackend
from tests.conformance.corpus import CORPUS

IDS = CORPUS / "faults" / "17-session-ids-as-paths"
TWO_WRITERS = CORPUS / "faults" / "03-two-writers-same-seq" / "session.jsonl"

STORES: dict[str, Callable[[Path], Backend]] = {
    "memory": lambda _: MemoryBackend(),
    "jsonl": lambda folder: JsonlBackend(folder / "runs"),
    "zstd": lambda folder: JsonlBackend(folder / "runs", encoding="zstd"),
    "sqlite": lambda folder: SqliteBackend(folder / "runs" / "runs.db"),
}


def mark(seq: int) -> Event:
    return Event("session/end-seed", seq, seq, Raw(b"{}"))


def outside(folder: Path) -> dict[str, bytes]:
    """Everything beside the store, with its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if "runs" not in path.relative_to(folder).parts}


@pytest.mark.parametrize("name", STORES)
def test_every_id_is_contained_or_refused(tmp_path: Path, name: str) -> None:
    ids: list[str] = json.loads((IDS / "ids.json").read_bytes())
    (tmp_path / "canary").write_text("untouched")
    before = outside(tmp_path)
    store = STORES[name](tmp_path)
    accepted = [one for one in ids if _is_stored(store, one)]
    refused = sorted(set(ids) - set(accepted))
    assert "" in refused
    assert all(one == "" or len(one) > 200 for one in refused)
    listed = [one.session_id for one in store.list()]
    assert sorted(map(ascii, listed)) == sorted(map(ascii, [*accepted, *(f"{one}+" for one in accepted)]))
    for one in accepted:
        assert store.read(one).header.id == one
        store.delete(one)
        with pytest.raises(SessionNotFoundError):
            store.read(one)
        assert list(store.read(f"{one}+").events) == [mark(0), mark(1)]
    store.close()
    assert outside(tmp_path) == before


def _is_stored(store: Backend, session_id: str) -> bool:
    """Store a session of this id and a fork of it; False when the id is refused."""
    try:
        writer = store.create(SessionHeader(id=session_id, created_at=0), START)
    except (SessionIdRefusedError, ValueError):
        return False
    except Exception as error:
        if session_id:
            raise
        assert "id" in str(error)  # noqa: PT017  # the empty id is refused by the header or by the store
        return False
    writer.append([mark(0)])
    writer.close()
    header = SessionHeader(id=f"{session_id}+", created_at=0, is_seeded=True, parent_session=session_id)
    fork = store.create(header, SessionLogOffset(1), Prefix(session_id, SessionLogOffset(1)))
    fork.append([mark(1)])
    fork.close()
    return True


def test_a_header_of_another_session_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    file = next((IDS / "header-mismatch").rglob("session.jsonl"))
    place = tmp_path / "runs" / "_no-cwd" / "wanted-id" / "session.jsonl"
    place.parent.mkdir(parents=True)
    shutil.copyfile(file, place)
    store = JsonlBackend(tmp_path / "runs")
    for look in (store.read, store.open):
        with pytest.raises(IdentityMismatchError, match="other-id"):
            look("wanted-id")
    assert place.read_bytes() == file.read_bytes()
    assert [type(one.error) for one in store.list()] == [IdentityMismatchError]


def test_one_id_in_two_folders_names_both(tmp_path: Path) -> None:
    files = sorted((IDS / "twins").rglob("session.jsonl"))
    assert len(files) == 2
    for number, file in enumerate(files):
        place = tmp_path / "runs" / f"--p{number}--" / file.parent.name / file.name
        place.parent.mkdir(parents=True)
        shutil.copyfile(file, place)
    store = JsonlBackend(tmp_path / "runs")
    with pytest.raises(SessionPersistenceCorruptionError, match=r"--p0--.*--p1--"):
        store.read(files[0].parent.name)
    assert all(one.error for one in store.list())


def test_a_log_of_two_writers_is_refused_with_its_line(tmp_path: Path) -> None:
    header = json.loads(TWO_WRITERS.read_bytes().partition(b"\n")[0])
    store = JsonlBackend(tmp_path / "runs")
    place = store.locate(SessionHeader(id=header["id"], created_at=0, cwd=header.get("cwd")))
    assert place
    Path(place).parent.mkdir(parents=True)
    shutil.copyfile(TWO_WRITERS, place)
    with pytest.raises(SessionPersistenceCorruptionError, match="two writers") as refused:
        store.open(header["id"])
    assert (refused.value.line, refused.value.path) == (16, place)
    assert Path(place).read_bytes() == TWO_WRITERS.read_bytes()
    assert len(list(store.list())) == 1
