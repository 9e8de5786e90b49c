"""PostgreSQL sessions beyond the store contract: URLs, layout, rows, prefixes, locks, lost connections."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from psycopg import sql

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
from seedline.storage.postgres import PostgresBackend
from seedline.storage.postgres.layout import SCHEMA_VERSION
from tests.postgres_server import wait_for
from tests.unit.session.make import assistant, chunk, delta, event, replace, request, result, user

END = {"turn": 1, "reason": {"kind": "completed"}}
NOBODY = "postgresql://nobody:s3cr3t@127.0.0.1:1/none"


class Server:
    """What a test does to the database behind the store's back."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema

    def store(self) -> PostgresBackend:
        return PostgresBackend(self.url, self.schema)

    def connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
        return connection

    def execute(self, query: str, *values: Any) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def cut(self, pattern: str = "") -> int:
        """Cut the connections of this process, and return how many there were."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s "
            "AND query LIKE %s"
        )
        return len(self.execute(query, f"%process {os.getpid()} on %", f"%{pattern}%"))


@pytest.fixture
def server(postgres_url: str, postgres_schema: str) -> Server:
    return Server(postgres_url, postgres_schema)


@pytest.fixture
def store(server: Server) -> Iterator[PostgresBackend]:
    backend = server.store()
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


def written(store: Backend, events: Sequence[Event], session_id: str = "s") -> None:
    with_writer(store.create(header(session_id), START), events)


def with_writer(writer: Writer, events: Sequence[Event]) -> None:
    writer.append(events)
    writer.close()


def forked(store: Backend, owner: str, count: int, child: str, events: Sequence[Event]) -> None:
    cut = SessionLogOffset(count)
    with_writer(store.create(header(child, is_seeded=True), cut, Prefix(owner, cut)), events)


def test_is_a_backend(store: PostgresBackend) -> None:
    backend: Backend = store
    assert backend.name == "postgresql"


# --- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:s3cr3t@h:5/d", "postgresql://u@h:5/d?schema=seedline"),
        ("postgres://h/d?user=u&password=s3cr3t", "postgresql://u@h/d?schema=seedline"),
        ("postgresql://u:s3cr3t@/d?host=/run/pg", "postgresql://u@/d?host=/run/pg&schema=seedline"),
        ("postgresql:///", "postgresql:///?schema=seedline"),
    ],
)
def test_a_place_names_no_password(url: str, place: str) -> None:
    with pytest.raises(SessionNotFoundError) as caught, closing(PostgresBackend(url)) as store:
        store._found(None, "a/b")
    assert caught.value.path == f"{place}#a~002Fb"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sqlite:x",
        "host=h password=s3cr3t",
        "postgresql://u:s3cr3t%zz@h/d",
        "postgresql://u:s3cr3t@h/d?no=1",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_unquoted(url: str) -> None:
    with pytest.raises(StoreUrlError) as caught:
        PostgresBackend(url)
    shown = "".join(traceback.format_exception(caught.value, chain=True))
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in shown.replace(repr(url), "")


@pytest.mark.parametrize("schema", ["", "pg_x", "a\0b", "x" * 64, "\ud800", "é" * 32])
def test_a_schema_needs_a_name_that_postgresql_keeps(schema: str) -> None:
    with pytest.raises(StoreUrlError, match="name of a schema"):
        PostgresBackend("postgresql:///", schema)


def test_a_server_that_is_not_there_is_an_error_without_the_password() -> None:
    store = PostgresBackend(NOBODY)
    for use in (lambda: list(store.list()), lambda: store.read("s"), lambda: store.create(header(), START)):
        with pytest.raises(StorageError, match="PostgreSQL: connection") as caught:
            use()
        assert caught.value.place == "postgresql://nobody@127.0.0.1:1/none?schema=seedline"
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    store.close()


def test_a_schema_may_have_any_name(postgres_url: str) -> None:
    name = 'A "b" é; --%s'
    with closing(PostgresBackend(postgres_url, name)) as store:
        written(store, turn())
        assert len(store.read("s").events) == 6
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


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
    Event("other/é\ud800\0", 13, 0, Raw(b"null"), ignorable=True),
    Event("12", 14, 0, Raw(b'"\\ud800"'), ignorable=True),
]


@pytest.mark.parametrize("size", [1, 4, len(SPECIAL)])
def test_gives_back_every_byte(store: PostgresBackend, server: Server, size: int) -> None:
    writer = store.create(header(), START)
    for at in range(0, len(SPECIAL), size):
        writer.append(SPECIAL[at : at + size])
    with closing(server.store()) as again:
        assert list(again.read("s").events) == SPECIAL
        assert [bytes(e.data) for e in again.read_from("s", 7).events] == [bytes(e.data) for e in SPECIAL[7:]]


def test_columns_hold_what_the_layout_says(store: PostgresBackend, server: Server) -> None:
    written(store, SPECIAL)
    query = "SELECT type, source_event_seqs, surface_op, ignorable FROM events WHERE seq = %s"
    assert server.execute(query, 3) == [(b"assistant/message", None, b'"append"', None)]
    replaced = b'{"op":"replace","start":1,"end":3}'
    assert server.execute(query, 11) == [(b"user/message", b"[1,3]", replaced, None)]
    assert server.execute(query, 12) == [(b"tool/result", b"[]", b'"append"', None)]
    assert server.execute(query, 13) == [("other/é".encode() + b"\xed\xa0\x80\0", None, None, 1)]


def test_header_survives(store: PostgresBackend, server: Server) -> None:
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
    assert server.execute("SELECT seed_length, delegation_depth FROM sessions") == [(3, 2)]


def test_ids_that_look_alike_are_kept_apart(store: PostgresBackend) -> None:
    ids = ["A", "a", "\ud800", "12", "12.0", "..", "x\0", "x", "é", "e\u0301", "'; DROP TABLE events; --"]
    for number, name in enumerate(ids):
        written(store, marks(0, number + 1), name)
    assert {name: len(store.read(name).events) for name in ids} == {
        name: number + 1 for number, name in enumerate(ids)
    }
    assert sorted(str(listed.session_id) for listed in store.list()) == sorted(ids)


def test_suffix_of_an_old_log_reads_like_the_whole(store: PostgresBackend) -> None:
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


def test_big_logs_come_in_pages(store: PostgresBackend) -> None:
    chunks = [event("assistant/chunk", seq, chunk(delta(str(seq)))) for seq in range(5001)]
    written(store, chunks)
    forked(store, "s", 4500, "child", marks(4500, 2))
    assert list(store.read("s").events) == chunks
    assert list(store.read_from("child", 2100).events) == [*chunks[2100:4500], *marks(4500, 2)]


# --- layout ----------------------------------------------------------------------------------------


def tables(server: Server) -> list[Any]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1"
    return [row[0] for row in server.execute(query, server.schema)]


def test_reading_creates_nothing(store: PostgresBackend, server: Server) -> None:
    assert list(store.list()) == []
    for read in (store.read, store.open, store.revision, store.delete):
        with pytest.raises(SessionNotFoundError, match="no session of this id"):
            read("s")
    assert server.execute("SELECT FROM pg_namespace WHERE nspname = %s", server.schema) == []


def test_creating_stores_nothing_before_the_first_batch(store: PostgresBackend, server: Server) -> None:
    writer = store.create(header(), START)
    writer.append([])
    assert tables(server) == []
    writer.append(turn())
    assert tables(server) == ["events", "layout", "sessions", "torn_events"]
    assert [listed.session_id for listed in store.list()] == ["s"]


def test_a_schema_that_was_made_empty_is_used(store: PostgresBackend, server: Server) -> None:
    server.execute(f"CREATE SCHEMA {server.schema}")
    assert list(store.list()) == []
    written(store, turn())
    assert len(store.read("s").events) == 6


def test_many_may_use_a_schema_first(server: Server) -> None:
    stores = [server.store() for _ in range(6)]
    ready = threading.Barrier(len(stores))
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            writer = stores[number].create(header(str(number)), START)
            ready.wait()
            writer.append(turn())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(stores[0].list())) == len(stores)
    for one in stores:
        one.close()


def use(store: PostgresBackend) -> dict[str, Callable[[], object]]:
    return {
        "write": lambda: with_writer(store.create(header("new"), START), turn()),
        "read": lambda: store.read("s"),
        "list": lambda: list(store.list()),
    }


def dump(server: Server) -> list[Any]:
    """Everything in the schema, as text."""
    return [
        (name, server.execute(f'SELECT t::text FROM "{name}" AS t ORDER BY 1')) for name in tables(server)
    ]


def refused(server: Server, operation: str, reason: str) -> None:
    before = dump(server)
    with closing(server.store()) as store, pytest.raises(StoreLayoutError, match=reason) as caught:
        use(store)[operation]()
    assert str(caught.value.place).endswith(f"schema={server.schema}")
    assert dump(server) == before


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_another_version_is_refused_untouched(server: Server, version: int, operation: str) -> None:
    with closing(server.store()) as first:
        written(first, turn())
    server.execute("UPDATE layout SET version = %s", version)
    refused(server, operation, f"its layout is {version}, this build's is {SCHEMA_VERSION}")


@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_foreign_schemas_are_refused_untouched(server: Server, operation: str) -> None:
    server.execute(f"CREATE SCHEMA {server.schema}")
    server.execute("CREATE TABLE notes (text text)")
    refused(server, operation, "tables that are not Seedline's")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE events ADD COLUMN extra text", "'events' is not that of layout 1"),
        ("ALTER TABLE events ALTER COLUMN data TYPE text USING ''", "'events' is not that of layout 1"),
        ("DROP TABLE torn_events", "'torn_events' is not that of layout 1"),
        ("ALTER TABLE events DROP CONSTRAINT events_pkey", "a unique index of its tables is gone"),
        ("DELETE FROM layout", "its layout is missing"),
    ],
)
@pytest.mark.parametrize("operation", ["write", "read", "list"])
def test_changed_tables_are_refused(server: Server, change: str, reason: str, operation: str) -> None:
    with closing(server.store()) as first:
        written(first, turn())
    server.execute(change)
    refused(server, operation, reason)


@pytest.mark.parametrize("size", [1, 6])
def test_a_new_version_under_an_open_store_stops_its_writers(
    store: PostgresBackend, server: Server, size: int
) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    server.execute("UPDATE layout SET version = 2")
    with pytest.raises(StoreLayoutError, match="its layout is 2"):
        writer.append(turn(6)[:size])
    server.execute("UPDATE layout SET version = 1")
    writer.append(turn(6))
    assert len(store.read("s").events) == 12
    server.execute("ALTER TABLE events RENAME COLUMN data TO payload")
    with pytest.raises(StoreLayoutError, match="changed under an open store"):
        store.read("s")
    with pytest.raises(StoreLayoutError, match="changed under an open store"):
        writer.append(turn(12)[:size])


# --- writers ---------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_writes(store: PostgresBackend, server: Server) -> None:
    writer = store.create(header(), START)
    other = server.store()
    for each in (other, store):
        with pytest.raises(SessionBusyError, match=f"process {os.getpid()}") as caught:
            each.create(header(), START)
    writer.append(turn())
    with pytest.raises(SessionBusyError, match=f"process {os.getpid()} on {os.uname().nodename}"):
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
    assert "s3cr3t" not in str(caught.value)


def test_the_refusal_is_quick(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    _, writer = store.open("s")
    with closing(server.store()) as other:
        assert len(list(other.list())) == 1  # connected
        with pytest.raises(SessionBusyError):
            other.open("s")
        began = time.perf_counter()
        with pytest.raises(SessionBusyError):
            other.open("s")
        assert time.perf_counter() - began < 0.05
    writer.close()


def test_the_same_id_in_another_schema_is_another_session(
    store: PostgresBackend, postgres_url: str, server: Server
) -> None:
    writer = store.create(header(), START)
    with closing(PostgresBackend(postgres_url, f"{server.schema}_")) as other:
        other.create(header(), START).close()
    writer.close()


def test_a_program_without_our_name_is_named_by_its_server_process(
    store: PostgresBackend, server: Server
) -> None:
    written(store, turn())
    key = store._address.lock_key(b"s")
    with server.connect() as stranger:
        stranger.execute("SELECT pg_advisory_lock(%s)", (key,))
        with pytest.raises(SessionBusyError, match=f"process {os.getpid()} on {os.uname().nodename} is"):
            store.open("s")  # whoever opened it last
        server.execute("DELETE FROM sessions")
        process = stranger.info.backend_pid
        with pytest.raises(SessionBusyError, match=f"another program, server process {process}, is"):
            store.create(header(), START)


def test_a_writer_whose_lock_was_taken_away_is_fenced(store: PostgresBackend, server: Server) -> None:
    old = store.create(header(), START)
    old.append(turn())
    server.cut()
    with closing(server.store()) as other:
        stored, new = other.open("s")
        assert len(stored.events) == 6
        with pytest.raises(StaleWriterError, match=r"process .* is writing the session"):
            old.append(turn(6))
        new.append(turn(6))
        new.close()
        for batch in (turn(6), marks(6, 1)):
            with pytest.raises(StaleWriterError, match=r"process .* is writing the session"):
                old.append(batch)
    assert list(store.read("s").events) == [*turn(), *turn(6)]


@pytest.mark.parametrize("size", [1, 3])
def test_the_epoch_fences_without_the_lock(store: PostgresBackend, server: Server, size: int) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    server.execute("UPDATE sessions SET epoch = 2")
    for _ in range(2):
        with pytest.raises(StaleWriterError, match="epoch 1 is over"):
            writer.append(marks(6, size))
    assert list(store.read("s").events) == turn()
    _, again = store.open("s")
    again.append(marks(6, 1))


def test_the_epoch_fences_a_writer_that_has_its_lock_again(store: PostgresBackend, server: Server) -> None:
    old = store.create(header(), START)
    old.append(turn())
    server.cut()
    with closing(server.store()) as other:
        with_writer(other.open("s")[1], [])
        with pytest.raises(StaleWriterError, match="another writer has changed the session since"):
            old.append(turn(6))
        other.open("s")[1].close()


def test_a_writer_goes_on_over_a_new_connection(store: PostgresBackend, server: Server) -> None:
    writer = store.create(header(), START)
    assert server.cut() >= 1
    writer.append(turn())
    assert server.cut() >= 1
    writer.append(marks(6, 1))
    assert server.cut() >= 1
    writer.append(marks(7, 3))
    with closing(server.store()) as other, pytest.raises(SessionBusyError):
        other.open("s")
    assert list(store.read("s").events) == [*turn(), *marks(6, 4)]


def test_one_new_connection_holds_every_session_again(store: PostgresBackend, server: Server) -> None:
    idle, busy = store.create(header("idle"), START), store.create(header("busy"), START)
    for writer in (idle, busy):
        writer.append(turn())
    server.cut()
    busy.append(turn(6))
    with closing(server.store()) as other:
        with pytest.raises(SessionBusyError):
            other.open("idle")
        idle.append(turn(6))
        idle.close()
        other.open("idle")[1].close()


def test_readers_go_on_over_new_connections(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    assert len(store.read("s").events) == 6
    assert server.cut() >= 1
    assert len(store.read("s").events) == 6


def test_of_two_first_batches_one_wins(store: PostgresBackend, server: Server) -> None:
    first = store.create(header(), START)
    server.cut()
    with closing(server.store()) as other:
        second = other.create(header(), START)
        second.append(turn())
        second.close()
        with pytest.raises(StaleWriterError, match="another writer has stored"):
            first.append(marks(0, 2))
    assert list(store.read("s").events) == turn()


@pytest.mark.parametrize("size", [1, 6])
def test_rows_written_behind_a_writer_make_it_stale(
    store: PostgresBackend, server: Server, size: int
) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    server.execute("INSERT INTO events VALUES (1, 6, 'x', 0, '0', NULL, NULL, 1)")
    with pytest.raises(StaleWriterError, match="another hand has written these seqs"):
        writer.append(turn(6)[:size])


@pytest.mark.parametrize("batch", [turn(), turn(7), [*turn(6), *turn(13)]])
def test_seqs_must_follow(store: PostgresBackend, batch: list[Event]) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    with pytest.raises(BatchRefusedError, match="follows"):
        writer.append(batch)
    assert writer.next_seq == 6
    writer.append(turn(6))
    assert len(store.read("s").events) == 12


FULL = """CREATE FUNCTION full_() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'no space'; END $$"""


@pytest.mark.parametrize("size", [1, 6])
def test_a_batch_that_cannot_be_stored_leaves_nothing(
    store: PostgresBackend, server: Server, size: int
) -> None:
    writer = store.create(header(), START)
    with pytest.raises(BatchRefusedError, match="time of seq 6"):
        writer.append([*turn(), event("x", 6, time=2**53)])
    assert list(store.list()) == []
    writer.append(turn())
    server.execute(FULL)
    trigger = "CREATE TRIGGER full_ BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.seq >= 6) "
    server.execute(f"{trigger} EXECUTE FUNCTION full_()")
    with pytest.raises(StorageError, match="PostgreSQL: no space") as caught:
        writer.append(turn(6)[:size])
    assert type(caught.value) is StorageError
    server.execute("DROP TRIGGER full_ ON events")
    assert list(store.read("s").events) == turn()
    writer.append(turn(6))
    assert len(store.read("s").events) == 12


def test_readers_do_not_wait_for_a_writer(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    with server.connect() as blocker:
        blocker.execute("BEGIN")
        blocker.execute("UPDATE sessions SET revision = 99")
        before = store.revision("s")
        assert len(store.read("s").events) == 6
        assert before.endswith("revision:1")
        blocker.execute("COMMIT")
    assert store.revision("s") != before


def test_a_closed_store_says_so(store: PostgresBackend) -> None:
    writer = store.create(header(), START)
    store.close()
    store.close()
    with pytest.raises(StorageError, match="the store is closed"):
        store.read("s")
    with pytest.raises(StaleWriterError, match="this writer is closed"):
        writer.append(turn())


def test_acknowledged_is_durable_whatever_the_database_says(postgres_url: str, server: Server) -> None:
    given = "?" if "?" not in postgres_url else "&"
    url = f"{postgres_url}{given}options=-c%20synchronous_commit%3Doff"
    with closing(PostgresBackend(url, server.schema)) as store:
        written(store, turn())
        with store._database.write_lock:
            shown = store._database.writer().execute("SHOW synchronous_commit")
            assert shown.fetchone() == ("on",)


# --- forks of the process --------------------------------------------------------------------------


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


def test_a_forked_child_has_connections_of_its_own(store: PostgresBackend) -> None:
    writer = store.create(header(), START)
    writer.append(turn())
    assert len(store.read("s").events) == 6

    def work() -> None:
        with pytest.raises(StaleWriterError, match="another process"):
            writer.append(turn(6))
        assert len(store.read("s").events) == 6
        with pytest.raises(SessionBusyError, match=f"process {os.getppid()} on "):
            store.open("s")
        written(store, marks(0, 2), "of the child")
        writer.close()
        store.close()

    in_child(work)
    writer.append(turn(6))
    assert len(store.read("s").events) == 12
    assert len(store.read("of the child").events) == 2


def test_a_forked_child_keeps_no_lock_of_its_dead_parent(server: Server) -> None:
    reader, told = os.pipe()
    parent = os.fork()
    if parent == 0:
        store = server.store()
        store.create(header(), START).append(turn())
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        os.write(told, b"%d" % child)
        time.sleep(60)
        os._exit(0)
    child = int(os.read(reader, 20))
    os.close(reader)
    os.close(told)
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with closing(server.store()) as store:
            began = time.perf_counter()
            _, writer = store.open("s")
            assert time.perf_counter() - began < 1
            writer.append(turn(6))
    finally:
        os.kill(child, signal.SIGKILL)


# --- forks -----------------------------------------------------------------------------------------


def test_a_fork_stores_its_own_rows_only(store: PostgresBackend, server: Server) -> None:
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
    counts = server.execute("SELECT count(*) FROM events GROUP BY session ORDER BY session")
    assert counts == [(12,), (1,), (2,)]


def test_a_prefix_names_the_session_that_holds_it(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    forked(store, "s", 4, "child", marks(4, 1))
    forked(store, "child", 3, "cousin", marks(3, 1))
    forked(store, "child", 0, "fresh", marks(0, 1))
    owners = server.execute("SELECT id, prefix_owner, prefix_count FROM sessions ORDER BY key")
    assert owners == [(b"s", None, 0), (b"child", 1, 4), (b"cousin", 1, 3), (b"fresh", None, 0)]
    assert list(store.read("cousin").events) == [*turn()[:3], *marks(3, 1)]


def test_the_fork_is_a_writer_from_the_cut_on(store: PostgresBackend) -> None:
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


def test_deleting_keeps_what_forks_read_and_no_more(store: PostgresBackend, server: Server) -> None:
    def rows() -> list[Any]:
        return server.execute("SELECT session, count(*) FROM events GROUP BY 1 ORDER BY 1")

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
    assert server.execute("SELECT id FROM sessions") == [(b"s",)]


def test_an_owner_deleted_before_the_first_batch_is_noticed(store: PostgresBackend) -> None:
    written(store, turn())
    cut = SessionLogOffset(6)
    writer = store.create(header("child", is_seeded=True), cut, Prefix("s", cut))
    store.delete("s")
    with pytest.raises(StaleWriterError, match="deleted before the first batch"):
        writer.append(marks(6, 1))
    assert list(store.list()) == []


def test_a_fork_and_a_delete_at_once_lose_nothing(store: PostgresBackend, server: Server) -> None:
    """Either the fork is there and reads its whole prefix, or its writer was told that it came too late."""
    other = server.store()
    cut = SessionLogOffset(6)
    for number in range(20):
        written(store, turn(), f"s{number}")
        writer = store.create(header(f"c{number}", is_seeded=True), cut, Prefix(f"s{number}", cut))
        thread = threading.Thread(target=other.delete, args=(f"s{number}",))
        thread.start()
        try:
            writer.append(marks(6, 1))
            assert list(store.read(f"c{number}").events) == [*turn(), *marks(6, 1)]
        except StaleWriterError:
            with pytest.raises(SessionNotFoundError):
                store.read(f"c{number}")
        thread.join()
        writer.close()
    for listed in store.list():
        assert list(store.read(str(listed.session_id)).events) == [*turn(), *marks(6, 1)]
    other.close()


# --- damage ----------------------------------------------------------------------------------------

HARMS = {
    "gap": "DELETE FROM events WHERE seq = %s",
    "no JSON": "UPDATE events SET data = '{' WHERE seq = %s",
    "two payloads": "UPDATE events SET data = '{},\"data\":{}' WHERE seq = %s",
    "sources": "UPDATE events SET source_event_seqs = '1' WHERE seq = %s",
    "surface": "UPDATE events SET surface_op = '\"other\"' WHERE seq = %s",
    "ignorable": "UPDATE events SET ignorable = 2 WHERE seq = %s",
    "type": "UPDATE events SET type = '\\xff' WHERE seq = %s",
}


def test_a_damaged_session_hides_no_other(store: PostgresBackend, server: Server) -> None:
    for name in ("a", "b", "c"):
        written(store, turn(), name)
    server.execute("UPDATE sessions SET id = '\\xff' WHERE id = 'a'")
    server.execute("UPDATE sessions SET cwd = 'relative' WHERE id = 'b'")
    listed = sorted(store.list(), key=lambda one: str(one.session_id))
    assert [one.session_id for one in listed] == [None, "b", "c"]
    assert listed[2].error is None
    for one in listed[:2]:
        assert one.header is None
        assert isinstance(one.error, SessionPersistenceCorruptionError)
    assert "'relative' is not an absolute path" in str(listed[1].error)
    with pytest.raises(SessionPersistenceCorruptionError, match="'relative' is not an absolute path"):
        store.read("b")
    assert len(store.read("c").events) == 6


@pytest.mark.parametrize("harm", HARMS)
def test_damage_before_a_turn_end_is_corruption(store: PostgresBackend, server: Server, harm: str) -> None:
    written(store, [*turn(), event("turn/start", 6, {"turn": 2}), event("turn/end", 7, END)])
    for seq in (6, 2):
        server.execute(HARMS[harm], seq)
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            store.read("s")
        assert caught.value.seq == seq
        assert str(caught.value.path).endswith("#s")
    assert len(store.read_from("s", 7).events) == 1


@pytest.mark.parametrize("harm", HARMS)
def test_damage_after_the_last_turn_end_is_a_torn_tail(
    store: PostgresBackend, server: Server, harm: str
) -> None:
    written(store, [*turn(), *(event("assistant/chunk", seq, chunk(delta("x"))) for seq in (6, 7, 8))])
    before = store.revision("s")
    server.execute(HARMS[harm], 7)
    stored, writer = store.open("s")
    assert stored.torn
    assert (stored.torn.seq, stored.torn.size, len(stored.events)) == (7, 1 if harm == "gap" else 2, 7)
    assert writer.next_seq == 7
    cut = writer.repair([event("step/end", 7, {"turn": 2, "step": 1})])
    assert cut
    assert str(cut.kept_at).endswith("#torn_events")
    assert store.revision("s") != before
    writer.append(turn(8))
    writer.close()
    after = store.read("s")
    assert (len(after.events), after.torn) == (14, None)
    assert server.execute("SELECT max(seq), count(*) FROM torn_events") == [(8, cut.size)]
    store.delete("s")
    assert server.execute("SELECT count(*) FROM torn_events") == [(0,)]


def test_what_forks_read_is_never_torn(store: PostgresBackend, server: Server) -> None:
    written(store, [*turn(), *marks(6, 3)])
    forked(store, "s", 8, "child", marks(8, 1))
    server.execute("UPDATE events SET data = '{' WHERE seq = 7")
    for name in ("s", "child"):
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            store.read(name)
        assert caught.value.seq == 7
    server.execute("DELETE FROM events WHERE session = 1 AND seq >= 7")
    with pytest.raises(SessionPersistenceCorruptionError, match="the row of seq 7 is missing"):
        store.read("child")


def test_unknown_types_are_refused_unless_ignorable(store: PostgresBackend) -> None:
    written(store, [*turn(), event("other/thing", 6), event("turn/end", 7, END)])
    with pytest.raises(SessionFormatUnsupportedError, match="other/thing") as caught:
        store.read("s")
    assert caught.value.seq == 6


def test_a_cut_beyond_the_log_is_corruption(store: PostgresBackend) -> None:
    with_writer(store.create(header(is_seeded=True), SessionLogOffset(7)), turn())
    with pytest.raises(SessionPersistenceCorruptionError, match="7 events are inherited"):
        store.read("s")


# --- revisions and followers -----------------------------------------------------------------------


def test_revisions_tell_changes_lives_and_stores_apart(
    store: PostgresBackend, postgres_url: str, server: Server
) -> None:
    written(store, turn())
    first = store.revision("s")
    assert [listed.revision for listed in store.list()] == [first]
    assert store.read("s").revision == first
    _, writer = store.open("s")
    assert store.revision("s") == first
    writer.append(marks(6, 1))
    second = store.revision("s")
    writer.close()
    store.delete("s")
    written(store, turn())
    third = store.revision("s")
    server.execute(f"DROP SCHEMA {server.schema} CASCADE")
    with closing(server.store()) as other:
        written(other, turn())
        assert len({first, second, third, other.revision("s")}) == 4


@pytest.mark.parametrize("cutting", [False, True])
def test_followers_see_what_other_stores_append(
    store: PostgresBackend, server: Server, cutting: bool
) -> None:
    written(store, turn())
    reader = server.store()
    seen: list[Event] = []
    empty = 0
    go_on = threading.Event()

    def write() -> None:
        _, writer = store.open("s")
        for seq in range(6, 12):
            go_on.wait(5)
            go_on.clear()
            if cutting:
                server.cut()
            writer.append(marks(seq, 1))
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    for events in reader.follow("s", 2, lambda: len(seen) == 10, wait_seconds=0.05):
        empty += not events
        seen.extend(events)
        if not events:
            go_on.set()
    thread.join()
    assert seen == [*turn()[2:], *marks(6, 6)]
    assert empty >= 6
    reader.close()


def test_a_follower_is_told_at_once(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    _, writer = store.open("s")
    delays: list[float] = []
    with closing(server.store()) as reader:
        run = reader.follow("s", 6, lambda: False, wait_seconds=5)
        for seq in range(6, 11):
            began = time.perf_counter()
            timer = threading.Timer(0.05, writer.append, [marks(seq, 1)])
            timer.start()
            assert list(next(run)) == marks(seq, 1)
            delays.append(time.perf_counter() - began - 0.05)
            timer.join()
        run.close()  # pyright: ignore[reportAttributeAccessIssue]  # a generator, shown as the iterator of the seam
    assert sorted(delays)[2] < 0.05
    writer.close()


def test_a_follower_of_a_deleted_session_is_told(store: PostgresBackend) -> None:
    written(store, turn())
    run = store.follow("s", 0, lambda: False, wait_seconds=5)
    assert len(next(run)) == 6
    store.delete("s")
    with pytest.raises(SessionNotFoundError):
        next(run)


def test_a_follower_leaves_no_connection(store: PostgresBackend, server: Server) -> None:
    written(store, turn())
    for _ in store.follow("s", 0, lambda: False):
        break
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND application_name LIKE %s"
    assert wait_for(lambda: server.execute(query, f"%process {os.getpid()} on %") == [(0,)])


@pytest.mark.parametrize("seq", [-1, 1.5, True, "1"])
def test_a_seq_is_a_count(store: PostgresBackend, seq: Any) -> None:
    written(store, turn())
    with pytest.raises(ValueError, match="non-negative safe integer"):
        store.read_from("s", seq)
    with pytest.raises(ValueError, match="non-negative safe integer"):
        next(iter(store.follow("s", seq, lambda: False)))


# --- any order of operations -----------------------------------------------------------------------

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("fork"), st.integers(0, 4), st.integers(0, 12)),
        st.tuples(st.just("delete"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
        st.tuples(st.just("cut"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPERATIONS)
def test_any_order_of_appends_forks_and_deletes_reads_right(
    server: Server, operations: list[tuple[str, int, int]]
) -> None:
    server.execute(f"DROP SCHEMA IF EXISTS {server.schema} CASCADE")
    store = server.store()
    model: dict[str, list[Event]] = {"0": marks(0, 1)}
    written(store, marks(0, 1), "0")
    for number, (operation, choice, amount) in enumerate(operations, 1):
        names = list(model)
        name = names[choice % len(names)] if names else ""
        if operation == "reopen":
            store.close()
            store = server.store()
        elif operation == "cut":
            server.cut()
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
    store.close()
