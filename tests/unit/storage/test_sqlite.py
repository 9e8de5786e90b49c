"""SQLite sessions beyond the store contract: layout, rows, sharing of prefixes, leases, damage."""

from __future__ import annotations

import os
import resource
import sqlite3
import stat
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from seedline.errors import (
    BatchRefusedError,
    SessionBusyError,
    SessionExistsError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    StaleWriterError,
    StorageError,
    StoreLayoutError,
    StoreUrlError,
)
from seedline.events.event import Event
from seedline.session.header import START, CallSpawn, SessionHeader, SessionLogOffset
from seedline.storage.base import Backend, Prefix, Writer
from seedline.storage.sqlite import SCHEMA_VERSION, SqliteBackend
from tests.unit.session.make import assistant, chunk, delta, event, replace, request, result, user

END = {"turn": 1, "reason": {"kind": "completed"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(path)
    yield backend
    backend.close()


def header(session_id: str = "s", **fields: Any) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=1000, **fields)


def turn(first: int = 0) -> list[Event]:
    """The balanced turn of the storage contract."""
    return [
        event("turn/start", first, {"turn": 1}),
        event("user/message", first + 1, user(), op="append"),
        event("step/start", first + 2, {"turn": 1, "step": 1}),
        event("assistant/message", first + 3, assistant(), op="append"),
        event("step/end", first + 4, {"turn": 1, "step": 1}),
        event("turn/end", first + 5, END),
    ]


def marks(first: int, count: int) -> list[Event]:
    return [event("session/end-seed", seq) for seq in range(first, first + count)]


def written(store: SqliteBackend, events: Sequence[Event], session_id: str = "s") -> None:
    with_writer(store.create(header(session_id), START), events)


def with_writer(writer: Writer, events: Sequence[Event]) -> None:
    writer.append(events)
    writer.close()


def forked(store: SqliteBackend, owner: str, count: int, child: str, events: Sequence[Event]) -> None:
    cut = SessionLogOffset(count)
    with_writer(store.create(header(child, is_seeded=True), cut, Prefix(owner, cut)), events)


def execute(path: Path, sql: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def test_is_a_backend(store: SqliteBackend) -> None:
    backend: Backend = store
    assert backend.name == "sqlite"


# --- rows ------------------------------------------------------------------------------------------

SPECIAL = [
    *turn(),
    event("request/header", 6, request()),
    event("assistant/chunk", 7, chunk(delta("漢\u2028 \0"))),
    Event("assistant/chunk", 8, -5, Raw(b'{"turn":1,"step":1,"chunk":{"type":"x","text":"\\ud83d"}}')),
    Event("assistant/chunk", 9, 2**53 - 1, Raw(b'{"turn": 1, "n":123456789012345678901234567890}')),
    event("assistant/chunk", 10, chunk(delta("e")), ignorable=True),
    event("user/message", 11, user(), op=replace(1, 3), sources=(1, 3)),
    event("tool/result", 12, result(), op="append", sources=()),
    Event("other/é\ud800", 13, 0, Raw(b"null"), ignorable=True),
    Event("12", 14, 0, Raw(b'"\\ud800"'), ignorable=True),
]


def test_gives_back_every_byte(store: SqliteBackend, path: Path) -> None:
    written(store, SPECIAL)
    again = SqliteBackend(path)
    assert list(again.read("s").events) == SPECIAL
    assert [bytes(e.data) for e in again.read_from("s", 7).events] == [bytes(e.data) for e in SPECIAL[7:]]
    again.close()


def test_columns_hold_what_the_layout_says(store: SqliteBackend, path: Path) -> None:
    written(store, SPECIAL)
    query = "SELECT type, typeof(data), source_event_seqs, surface_op, ignorable FROM events WHERE seq = ?"
    assert execute(path, query, 3) == [("assistant/message", "blob", None, '"append"', None)]
    assert execute(path, query, 11) == [
        ("user/message", "blob", "[1,3]", '{"op":"replace","start":1,"end":3}', None)
    ]
    assert execute(path, query, 12) == [("tool/result", "blob", "[]", '"append"', None)]
    assert execute(path, query, 13) == [("other/é".encode() + b"\xed\xa0\x80", "blob", None, None, 1)]


def test_header_survives(store: SqliteBackend, path: Path) -> None:
    spawn = CallSpawn(turn=1, step=2, call=0, n=0, call_id="c\ud800", tool="subagent")
    full = header(
        "a/b\0\ud800",
        cwd="/w\udfff",
        parent_session="p",
        is_seeded=True,
        origin="subagent",
        delegation_depth=2,
        agent_preset="x",
        spawn=spawn,
    )
    with_writer(store.create(full, SessionLogOffset(3)), turn())
    stored = store.read(full.id)
    assert (stored.header, stored.inherited_event_count) == (full, 3)
    assert [listed.header for listed in store.list()] == [full]
    assert execute(path, "SELECT seed_length, delegation_depth FROM sessions") == [(3, 2)]


def test_ids_that_look_alike_are_kept_apart(store: SqliteBackend) -> None:
    ids = ["A", "a", "\ud800", "12", "12.0", "..", "x\0", "x", "é", "e\u0301", "'; DROP TABLE events; --"]
    for number, name in enumerate(ids):
        written(store, marks(0, number + 1), name)
    assert {name: len(store.read(name).events) for name in ids} == {
        name: number + 1 for number, name in enumerate(ids)
    }
    assert sorted(str(listed.session_id) for listed in store.list()) == sorted(ids)


def test_suffix_of_an_old_log_reads_like_the_whole(store: SqliteBackend) -> None:
    old_user = {"content": [], "source": {"kind": "user"}}
    old_result = {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False}
    log = [
        event("turn/start", 0, {"turn": 1}),
        event("user/message", 1, old_user, op="append"),
        event("tool/result", 2, old_result, op="append"),
        event("tool/result", 3, old_result, op=replace(2, 2), sources=(2,)),
        event("tool/result", 4, old_result, op=replace(3, 3), sources=(3,)),
    ]
    written(store, log)
    whole = store.read("s").events
    assert whole[4].value["message"]["id"] == "legacy-message:s:2"
    assert list(store.read_from("s", 4).events) == list(whole[4:])


# --- layout ----------------------------------------------------------------------------------------


def test_reading_creates_nothing(store: SqliteBackend, path: Path) -> None:
    assert list(store.list()) == []
    for read in (store.read, store.open, store.revision, store.delete):
        with pytest.raises(SessionNotFoundError, match="no session of this id"):
            read("s")
    assert not path.parent.exists()


def test_creating_stores_nothing_before_the_first_batch(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    writer.append([])
    assert not path.exists()
    writer.append(turn())
    assert [listed.session_id for listed in store.list()] == ["s"]


def test_files_are_private(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    folder = path.parent
    modes = {
        entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in (folder, *folder.iterdir(), *locks(path))
    }
    assert {name: oct(mode) for name, mode in modes.items()} == {
        "store": "0o700",
        "runs.db": "0o600",
        "runs.db-wal": "0o600",
        "runs.db-shm": "0o600",
        "runs.db.locks": "0o700",
        "s": "0o600",
    }
    writer.close()
    assert locks(path) == []


def locks(path: Path) -> list[Path]:
    folder = path.with_name(f"{path.name}.locks")
    return list(folder.iterdir()) if folder.exists() else []


def use(store: SqliteBackend) -> dict[str, Callable[[], object]]:
    return {
        "write": lambda: with_writer(store.create(header("new"), START), turn()),
        "read": lambda: store.read("s"),
        "list": lambda: list(store.list()),
    }


@pytest.mark.parametrize("version", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_another_version_is_refused_untouched(path: Path, version: int, operation: str) -> None:
    written(first := SqliteBackend(path), turn())
    first.close()
    execute(path, f"PRAGMA user_version = {version}")
    refused(path, operation, f"its layout is {version}, this build's is {SCHEMA_VERSION}")


@pytest.mark.parametrize(
    ("version", "application", "reason"),
    [
        (3, 1146308688, "its layout is 3, this build's is 4"),
        (3, 0, "its layout is 3, this build's is 4"),
        (-1, 0, "its layout is -1"),
        (0, 7, "no layout number"),
        (4, 0, "application 0x0"),
        (4, 1146308688, "application 0x44534850"),
    ],
)
@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_foreign_marks_are_refused_though_only_the_write_ahead_log_has_them(
    path: Path, tmp_path: Path, version: int, application: int, reason: str, operation: str
) -> None:
    origin = sqlite3.connect(tmp_path / "origin.db", isolation_level=None)
    origin.execute("PRAGMA journal_mode = wal")
    origin.execute(f"PRAGMA application_id = {application}")
    origin.execute(f"PRAGMA user_version = {version}")
    path.parent.mkdir()
    for end in ("", "-wal"):
        path.with_name(path.name + end).write_bytes((tmp_path / f"origin.db{end}").read_bytes())
    log = path.with_name("runs.db-wal").read_bytes()
    assert log
    refused(path, operation, reason)
    assert path.with_name("runs.db-wal").read_bytes() == log
    origin.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    origin.close()
    path.with_name("runs.db-wal").unlink()
    path.write_bytes((tmp_path / "origin.db").read_bytes())
    refused(path, operation, reason)
    assert not path.with_name("runs.db-wal").exists()


@pytest.mark.parametrize("operation", ["write", "read", "list"])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_foreign_databases_are_refused_untouched(path: Path, operation: str, mode: str) -> None:
    path.parent.mkdir()
    execute(path, f"PRAGMA journal_mode = {mode}")
    execute(path, "CREATE TABLE notes (text)")
    refused(path, operation, "tables that are not Seedline's")
    execute(path, "PRAGMA application_id = 1146308688")
    execute(path, "PRAGMA user_version = 4")
    refused(path, operation, "application 0x44534850")


@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_other_files_are_refused_untouched(path: Path, operation: str) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 100)
    refused(path, operation, "no SQLite database")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE events ADD COLUMN extra", "'events' is not that of layout 4"),
        ("CREATE TABLE more (x)", "'more' is not that of layout 4"),
        ("DROP INDEX sessions_by_prefix", "lacks 'CREATE INDEX sessions_by_prefix"),
        ("DROP TABLE torn_events", "lacks 'CREATE"),
    ],
)
@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_changed_tables_are_refused(path: Path, change: str, reason: str, operation: str) -> None:
    written(first := SqliteBackend(path), turn())
    first.close()
    execute(path, change)
    refused(path, operation, reason)


def test_a_change_under_an_open_store_is_noticed_by_the_next_batch(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    execute(path, "ALTER TABLE events ADD COLUMN extra")
    with pytest.raises(StoreLayoutError, match="'events' is not that of layout 4"):
        writer.append(turn(6))
    execute(path, "ALTER TABLE events DROP COLUMN extra")
    execute(path, "VACUUM")
    writer.append(turn(6))
    assert len(store.read("s").events) == 12


def refused(path: Path, operation: str, reason: str) -> None:
    before = path.read_bytes()
    backend = SqliteBackend(path)
    with pytest.raises(StoreLayoutError, match=reason) as caught:
        use(backend)[operation]()
    assert caught.value.place == str(path)
    backend.close()
    assert path.read_bytes() == before
    assert not path.with_name(f"{path.name}-shm").exists()
    assert locks(path) == []


def test_the_layout_has_room_for_full_text(store: SqliteBackend, path: Path) -> None:
    written(store, turn())
    place = (1 << 32) + 3
    execute(path, "INSERT INTO search_text (rowid, body) VALUES (?, ?)", place, "the café was shut")
    execute(path, "INSERT INTO search_progress VALUES (1, 6)")
    assert execute(path, "SELECT rowid FROM search_text WHERE search_text MATCH 'Cafe'") == [(place,)]
    again = SqliteBackend(path)
    again.delete("s")
    assert execute(path, "SELECT * FROM search_progress") == []
    written(again, turn())
    assert execute(path, "SELECT key FROM sessions") == [(2,)], "an index may still name the old key"
    again.close()


def test_an_empty_file_becomes_a_store(store: SqliteBackend, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert list(store.list()) == []
    written(store, turn())
    assert len(store.read("s").events) == 6


@pytest.mark.parametrize("name", ["", ":memory:", "a\0b"])
def test_a_store_needs_a_file(name: str) -> None:
    with pytest.raises(StoreUrlError, match="path of a file"):
        SqliteBackend(name)


def test_a_path_may_hold_what_an_uri_may_not(tmp_path: Path) -> None:
    store = SqliteBackend(tmp_path / "a?b#c%41 é.db")
    written(store, turn())
    store.close()
    assert (tmp_path / "a?b#c%41 é.db").is_file()


# --- writers ---------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_writes(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    other = SqliteBackend(path)
    with pytest.raises(SessionBusyError, match=f"process {os.getpid()} on "):
        other.create(header(), START)
    writer.append(turn())
    with pytest.raises(SessionBusyError, match=f"process {os.getpid()} on "):
        other.open("s")
    with pytest.raises(SessionBusyError):
        other.delete("s")
    with pytest.raises(SessionExistsError):
        other.create(header(), START)
    writer.close()
    writer.close()
    _, second = other.open("s")
    second.append(turn(6))
    with pytest.raises(StaleWriterError, match="this writer is closed"):
        writer.append(turn(6))
    other.close()
    assert locks(path) == []


def lose_lease(path: Path) -> None:
    for lock in locks(path):
        lock.unlink()


def test_a_writer_whose_side_file_was_taken_away_is_fenced(store: SqliteBackend, path: Path) -> None:
    old = store.create(header(), START)
    old.append(turn())
    lose_lease(path)
    stored, new = store.open("s")
    assert len(stored.events) == 6
    with pytest.raises(StaleWriterError, match="epoch 1 is over"):
        old.append(turn(6))
    new.append(turn(6))
    with pytest.raises(StaleWriterError, match="epoch 1 is over"):
        old.append(turn(6))
    assert list(store.read("s").events) == [*turn(), *turn(6)]
    new.close()


def test_an_epoch_fences_though_the_lock_is_held(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    execute(path, "UPDATE sessions SET epoch = epoch + 1")
    with pytest.raises(StaleWriterError, match="epoch 1 is over"):
        writer.append(turn(6))
    assert list(store.read("s").events) == turn()


def test_a_lost_lock_is_noticed_though_nobody_else_wrote(store: SqliteBackend, path: Path) -> None:
    first, later = store.create(header(), START), store.create(header("later"), START)
    first.append(turn())
    lose_lease(path)
    for writer, batch in ((first, turn(6)), (later, turn())):
        with pytest.raises(StaleWriterError, match="its lock was taken away"):
            writer.append(batch)
    assert [(listed.session_id, listed.error) for listed in store.list()] == [("s", None)]
    assert list(store.read("s").events) == turn()


def test_nothing_is_acknowledged_into_a_database_that_was_taken_away(
    store: SqliteBackend, path: Path
) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    assert len(store.read("s").events) == 6
    for file in path.parent.glob("runs.db*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(StaleWriterError):
        writer.append(turn(6))
    writer.close()
    assert list(store.list()) == []
    written(store, turn())
    assert len(store.read("s").events) == 6


def test_of_two_first_batches_one_wins(store: SqliteBackend, path: Path) -> None:
    first = store.create(header(), START)
    lose_lease(path)
    second = store.create(header(), START)
    second.append(turn())
    with pytest.raises(StaleWriterError, match="another writer has stored"):
        first.append(marks(0, 2))
    assert list(store.read("s").events) == turn()


def test_rows_written_behind_a_writer_make_it_stale(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    execute(path, "INSERT INTO events VALUES (1, 6, 'x', 0, x'30', NULL, NULL, 1)")
    with pytest.raises(StaleWriterError, match="seq 7 follows what is stored, this writer goes on from 6"):
        writer.append(turn(6))


@pytest.mark.parametrize("batch", [turn(), turn(7), [*turn(6), *turn(13)]])
def test_seqs_must_follow(store: SqliteBackend, batch: list[Event]) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    with pytest.raises(BatchRefusedError, match="follows"):
        writer.append(batch)
    assert writer.next_seq == 6
    writer.append(turn(6))
    assert len(store.read("s").events) == 12


def test_a_batch_that_cannot_be_stored_leaves_nothing(store: SqliteBackend, path: Path) -> None:
    writer = store.create(header(), START)
    with pytest.raises(BatchRefusedError, match="time of seq 6"):
        writer.append([*turn(), event("x", 6, time=2**53)])
    assert list(store.list()) == []
    writer.append(turn())
    execute(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.seq > 7 BEGIN SELECT RAISE(ABORT, 'full'); END",
    )
    with pytest.raises(StorageError):
        writer.append(turn(6))
    execute(path, "DROP TRIGGER full")
    assert list(store.read("s").events) == turn()
    writer.append(turn(6))
    assert len(store.read("s").events) == 12


def test_readers_do_not_wait_for_a_writer(store: SqliteBackend, path: Path) -> None:
    written(store, turn())
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    blocker.execute("UPDATE sessions SET revision = 99")
    before = store.revision("s")
    assert len(store.read("s").events) == 6
    assert before.endswith("revision:1")
    blocker.execute("COMMIT")
    blocker.close()
    assert store.revision("s") != before


def test_a_closed_store_says_so(store: SqliteBackend) -> None:
    store.close()
    store.close()
    with pytest.raises(StorageError, match="the store is closed"):
        store.read("s")


# --- the medium, and forks of the process ----------------------------------------------------------


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked process, and demand that it raises nothing."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def appended_until_full(writer: Writer) -> int:
    """Append batches of one until the store refuses one; return its seq."""
    for seq in count(writer.next_seq):
        try:
            writer.append([event("session/end-seed", seq, {"text": "x" * 3000})])
        except StorageError:
            return seq
    raise AssertionError


def test_a_full_medium_loses_nothing_and_the_writer_goes_on(store: SqliteBackend, path: Path) -> None:
    def fill() -> None:
        writer = store.create(header(), START)
        writer.append(turn())
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
        for _ in range(5):
            refused_at = appended_until_full(writer)
            assert len(store.read("s").events) == writer.next_seq == refused_at > 10
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        writer.append(marks(writer.next_seq, 2000))
        assert len(store.read("s").events) == writer.next_seq > 2010
        writer.close()

    in_child(fill)
    assert len(store.read("s").events) > 2010
    assert store.read("s").torn is None


def test_a_read_only_folder_can_be_read(path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="seedline-"))  # nobody may enter the folders of pytest
    store = SqliteBackend(folder / "runs.db")
    written(store, turn())
    store.close()
    (folder / "runs.db.locks").rmdir()
    (folder / "runs.db").chmod(0o444)
    folder.chmod(0o555)

    def look() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with_read = SqliteBackend(folder / "runs.db")
        assert list(with_read.read("s").events) == turn()
        assert [listed.session_id for listed in with_read.list()] == ["s"]
        with pytest.raises(StorageError, match=r"denied|readonly"):
            with_read.create(header("t"), START)
        with pytest.raises(StorageError, match=r"denied|readonly"):
            with_read.open("s")
        with_read.close()

    try:
        in_child(look)
        assert [entry.name for entry in folder.iterdir()] == ["runs.db"]
    finally:
        folder.chmod(0o755)
        (folder / "runs.db").unlink()
        folder.rmdir()


def test_a_forked_process_opens_connections_of_its_own(store: SqliteBackend) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    assert len(store.read("s").events) == 6

    def child() -> None:
        with pytest.raises(StaleWriterError, match="the process that this one was forked from"):
            writer.append(turn(6))
        with pytest.raises(SessionBusyError, match=f"process {os.getppid()} "):
            store.open("s")
        writer.close()
        written(store, turn(), "child")
        assert len(store.read("s").events) == 6
        store.close()

    in_child(child)
    writer.append(turn(6))
    assert {
        str(listed.session_id): len(store.read(str(listed.session_id)).events) for listed in store.list()
    } == {
        "s": 12,
        "child": 6,
    }


def test_a_process_forked_while_a_connection_was_in_use_is_refused(store: SqliteBackend, path: Path) -> None:
    written(store, turn())
    following = store.follow("s", 0, lambda: False)
    assert len(next(following)) == 6

    def child() -> None:
        for backend in (store, SqliteBackend(path)):
            with pytest.raises(StorageError, match="was in use when this process was forked"):
                backend.read("s")
            with pytest.raises(StorageError, match="was in use when this process was forked"):
                written(backend, turn(), "child")
            backend.close()

    in_child(child)
    written(store, turn(), "t")
    following.close()  # pyright: ignore[reportAttributeAccessIssue]  # a generator behind the seam's Iterator
    assert len(store.read("s").events) == 6


def test_threads_read_while_one_writes(store: SqliteBackend) -> None:
    writer = store.create(header(), START)
    writer.append(marks(0, 1))
    wrong: list[object] = []
    done = threading.Event()

    def look() -> None:
        seen = 0
        while not done.is_set():
            events = list(store.read("s").events)
            if len(events) < seen or events != marks(0, len(events)):
                wrong.append(events)
            seen = len(events)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for seq in range(1, 60):
        writer.append(marks(seq, 1))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


# --- forks -----------------------------------------------------------------------------------------


def test_a_fork_stores_its_own_rows_only(store: SqliteBackend, path: Path) -> None:
    written(store, [*turn(), *turn(6)])
    forked(store, "s", 6, "child", marks(6, 1))
    forked(store, "child", 7, "grandchild", marks(7, 2))
    assert list(store.read("child").events) == [*turn(), *marks(6, 1)]
    assert list(store.read("grandchild").events) == [*turn(), *marks(6, 3)]
    assert [list(store.read_from("grandchild", seq).events) for seq in (5, 8, 9, 99)] == [
        [turn()[5], *marks(6, 3)],
        marks(8, 1),
        [],
        [],
    ]
    assert store.read_from("grandchild", 99).events.first_seq == 99
    counts = execute(path, "SELECT count(*) FROM events GROUP BY session_key ORDER BY session_key")
    assert counts == [(12,), (1,), (2,)]


def test_a_prefix_names_the_session_that_holds_it(store: SqliteBackend, path: Path) -> None:
    written(store, turn())
    forked(store, "s", 4, "child", marks(4, 1))
    forked(store, "child", 3, "cousin", marks(3, 1))
    forked(store, "child", 0, "fresh", marks(0, 1))
    owners = execute(path, "SELECT id, prefix_owner, prefix_count FROM sessions ORDER BY key")
    assert owners == [("s", None, 0), ("child", 1, 4), ("cousin", 1, 3), ("fresh", None, 0)]
    assert list(store.read("cousin").events) == [*turn()[:3], *marks(3, 1)]


def test_the_fork_is_a_writer_from_the_cut_on(store: SqliteBackend) -> None:
    written(store, turn())
    cut = SessionLogOffset(6)
    writer = store.create(header("child", is_seeded=True), cut, Prefix("s", cut))
    assert writer.next_seq == 6
    with pytest.raises(BatchRefusedError):
        writer.append(marks(0, 1))
    writer.append(marks(6, 1))
    with pytest.raises(SessionNotFoundError):
        store.create(header("x"), START, Prefix("none", cut))
    with pytest.raises(BatchRefusedError, match="a prefix of 7 events was asked for, 6 are stored"):
        store.create(header("x"), START, Prefix("s", SessionLogOffset(7)))
    written(store, turn(), "x")


def test_deleting_keeps_what_forks_read_and_no_more(store: SqliteBackend, path: Path) -> None:
    def rows() -> list[Any]:
        return execute(path, "SELECT session_key, count(*) FROM events GROUP BY 1 ORDER BY 1")

    written(store, [*turn(), *turn(6)])
    forked(store, "s", 6, "child", turn(6))
    forked(store, "child", 9, "grandchild", marks(9, 1))
    store.delete("s")
    store.delete("child")
    assert rows() == [(1, 6), (2, 3), (3, 1)]
    assert list(store.read("grandchild").events) == [*turn(), *turn(6)[:3], *marks(9, 1)]
    assert [listed.session_id for listed in store.list()] == ["grandchild"]
    for read in (store.read, store.open, store.delete):
        with pytest.raises(SessionNotFoundError):
            read("s")
    written(store, marks(0, 1))
    assert list(store.read("s").events) == marks(0, 1)
    store.delete("grandchild")
    assert rows() == [(4, 1)]
    assert execute(path, "SELECT id FROM sessions") == [("s",)]


def test_an_owner_deleted_before_the_first_batch_is_noticed(store: SqliteBackend) -> None:
    written(store, turn())
    cut = SessionLogOffset(6)
    writer = store.create(header("child", is_seeded=True), cut, Prefix("s", cut))
    store.delete("s")
    with pytest.raises(StaleWriterError, match="was deleted before the first batch"):
        writer.append(marks(6, 1))


# --- damage ----------------------------------------------------------------------------------------


def test_a_damaged_session_hides_no_other(store: SqliteBackend, path: Path) -> None:
    written(store, turn(), "a")
    forked(store, "a", 6, "fork", marks(6, 1))
    written(store, turn(), "b")
    execute(path, "UPDATE sessions SET created_at = 'x', cwd = CAST(x'ff' AS TEXT) WHERE id = 'a'")
    execute(path, "UPDATE sessions SET version = 99 WHERE id = 'b'")
    listed = {session.session_id: session for session in store.list()}
    assert listed["fork"].error is None
    assert isinstance(listed["a"].error, SessionPersistenceCorruptionError)
    assert isinstance(listed["b"].error, SessionFormatUnsupportedError)
    assert f"{path}#1" in str(listed["a"].error)
    with pytest.raises(SessionPersistenceCorruptionError):
        store.read("a")
    with pytest.raises(SessionFormatUnsupportedError, match="upgrade"):
        store.open("b")
    assert len(store.read("fork").events) == 7
    execute(path, "UPDATE sessions SET id = CAST(x'ff' AS TEXT) WHERE id = 'a'")
    assert [session.session_id for session in store.list()] == [None, "fork", "b"]


HARMS = {
    "payload": "UPDATE events SET data = x'7b' WHERE seq = ?",
    "number": "UPDATE events SET data = CAST('1e999' AS BLOB) WHERE seq = ?",
    "utf-8": "UPDATE events SET data = x'22ff22' WHERE seq = ?",
    "type": "UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE seq = ?",
    "time": "UPDATE events SET time = 'x' WHERE seq = ?",
    "marker": "UPDATE events SET surface_op = '{}' WHERE seq = ?",
    "sources": "UPDATE events SET source_event_seqs = 'x' WHERE seq = ?",
    "ignorable": "UPDATE events SET ignorable = 2 WHERE seq = ?",
    "more": "UPDATE events SET data = CAST('1,\"ignorable\":true' AS BLOB) WHERE seq = ?",
    "twice": "UPDATE events SET data = CAST('1,\"time\":5' AS BLOB) WHERE seq = ?",
    "gap": "DELETE FROM events WHERE seq = ?",
}


@pytest.mark.parametrize("harm", HARMS)
def test_damage_before_a_turn_end_is_corruption(store: SqliteBackend, path: Path, harm: str) -> None:
    log = [*turn(), event("assistant/chunk", 6, chunk(delta("x"))), event("turn/end", 7, END)]
    written(store, log)
    for seq in (6, 2):
        execute(path, HARMS[harm], seq)
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            store.read("s")
        assert (caught.value.seq, caught.value.path) == (seq, f"{path}#s")
    assert len(store.read_from("s", 7).events) == 1


@pytest.mark.parametrize("harm", HARMS)
def test_damage_after_the_last_turn_end_is_a_torn_tail(store: SqliteBackend, path: Path, harm: str) -> None:
    written(store, [*turn(), *(event("assistant/chunk", seq, chunk(delta("x"))) for seq in (6, 7, 8))])
    before = store.revision("s")
    execute(path, HARMS[harm], 7)
    stored, writer = store.open("s")
    assert stored.torn
    assert (stored.torn.seq, stored.torn.size, len(stored.events)) == (7, 1 if harm == "gap" else 2, 7)
    assert writer.next_seq == 7
    cut = writer.repair([event("step/end", 7, {"turn": 2, "step": 1})])
    assert cut
    assert cut.kept_at == f"{path}#torn_events"
    assert store.revision("s") != before
    writer.append(turn(8))
    writer.close()
    after = store.read("s")
    assert (len(after.events), after.torn) == (14, None)
    assert execute(path, "SELECT max(seq), count(*) FROM torn_events") == [(8, cut.size)]
    store.delete("s")
    assert execute(path, "SELECT count(*) FROM torn_events") == [(0,)]


def test_what_forks_read_is_never_torn(store: SqliteBackend, path: Path) -> None:
    written(store, [*turn(), *marks(6, 3)])
    forked(store, "s", 8, "child", marks(8, 1))
    execute(path, "UPDATE events SET data = x'7b' WHERE seq = 7")
    for name in ("s", "child"):
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            store.read(name)
        assert caught.value.seq == 7
    execute(path, "DELETE FROM events WHERE session_key = 1 AND seq >= 7")
    with pytest.raises(SessionPersistenceCorruptionError, match="the row of seq 7 is missing"):
        store.read("child")


def test_unknown_types_are_refused_unless_ignorable(store: SqliteBackend) -> None:
    written(store, [*turn(), event("other/thing", 6), event("turn/end", 7, END)])
    with pytest.raises(SessionFormatUnsupportedError, match="other/thing") as caught:
        store.read("s")
    assert caught.value.seq == 6


def test_a_cut_beyond_the_log_is_corruption(store: SqliteBackend) -> None:
    with_writer(store.create(header(is_seeded=True), SessionLogOffset(7)), turn())
    with pytest.raises(SessionPersistenceCorruptionError, match="7 events are inherited"):
        store.read("s")


def test_a_damaged_page_is_corruption(path: Path) -> None:
    written(first := SqliteBackend(path), [*turn(), *marks(6, 2000)])
    first.close()
    data = bytearray(path.read_bytes())
    for page in range(12, len(data) // 4096):
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    store = SqliteBackend(path)
    with pytest.raises(SessionPersistenceCorruptionError, match="the database is damaged"):
        store.read("s")
    assert [listed.error for listed in store.list()] == [None]
    store.close()


# --- revisions and followers -----------------------------------------------------------------------


def test_revisions_tell_changes_lives_and_stores_apart(store: SqliteBackend, tmp_path: Path) -> None:
    other = SqliteBackend(tmp_path / "other.db")
    written(store, turn())
    written(other, turn())
    first = store.revision("s")
    assert [listed.revision for listed in store.list()] == [first]
    assert store.read("s").revision == first
    assert other.revision("s") != first
    _, writer = store.open("s")
    assert store.revision("s") == first
    writer.append(marks(6, 1))
    second = store.revision("s")
    writer.close()
    store.delete("s")
    written(store, turn())
    assert len({first, second, store.revision("s")}) == 3
    other.close()


def test_followers_see_what_other_stores_append(store: SqliteBackend, path: Path) -> None:
    written(store, turn())
    reader = SqliteBackend(path)
    seen: list[Event] = []
    empty = 0
    go_on = threading.Event()

    def write() -> None:
        _, writer = store.open("s")
        for seq in range(6, 12):
            go_on.wait(5)
            go_on.clear()
            writer.append(marks(seq, 1))
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    for events in reader.follow("s", 2, lambda: len(seen) == 10, wait_seconds=0.01):
        empty += not events
        seen.extend(events)
        if not events:
            go_on.set()
    thread.join()
    assert seen == [*turn()[2:], *marks(6, 6)]
    assert empty >= 6
    reader.close()


@pytest.mark.parametrize("seq", [-1, 1.5, True, "1"])
def test_a_seq_is_a_count(store: SqliteBackend, seq: Any) -> None:
    written(store, turn())
    with pytest.raises(ValueError, match="non-negative safe integer"):
        store.read_from("s", seq)
    with pytest.raises(ValueError, match="non-negative safe integer"):
        store.follow("s", seq, lambda: False)


# --- any order of operations -----------------------------------------------------------------------

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("fork"), st.integers(0, 4), st.integers(0, 12)),
        st.tuples(st.just("delete"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(OPERATIONS)
def test_any_order_of_appends_forks_and_deletes_reads_right(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "runs.db"
    store = SqliteBackend(path)
    model: dict[str, list[Event]] = {"0": marks(0, 1)}
    written(store, marks(0, 1), "0")
    for number, (operation, choice, amount) in enumerate(operations, 1):
        names = list(model)
        name = names[choice % len(names)] if names else ""
        if operation == "reopen":
            store.close()
            store = SqliteBackend(path)
        elif operation == "append" and name:
            more = [event("session/end-seed", len(model[name]) + k, {"by": number}) for k in range(amount)]
            _, writer = store.open(name)
            with_writer(writer, more)
            model[name] += more
        elif operation == "fork" and name:
            count = min(amount, len(model[name]))
            mark = [event("session/end-seed", count, {"by": number})]
            forked(store, name, count, str(number), mark)
            model[str(number)] = model[name][:count] + mark
        elif operation == "delete" and name:
            store.delete(name)
            del model[name]
    assert {str(listed.session_id) for listed in store.list()} == model.keys()
    for name, events in model.items():
        assert list(store.read(name).events) == events
        assert list(store.read_from(name, 2).events) == events[2:]
    for name in model:
        store.delete(name)
    assert execute(path, "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM sessions)") == [(0,)]
    store.close()
