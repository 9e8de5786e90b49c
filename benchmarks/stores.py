"""Every store at the same work, in turns with the plainest way to do it: append, fork, read, list.

A store that cannot be opened here is left out with the reason. PostgreSQL is the one at `$SEEDLINE_TEST_PG`.
"""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Raw

from benchmarks.measure import Row, milliseconds, table
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Backend, Prefix

BATCHES = {1: 200, 10: 100, 100: 40}
"""How many batches of each size one round appends."""
ROUNDS = 5
FORKED = 100_000
LONG = 300_000
LISTED = 10_000
FORKS = {True: 1000, False: 10}
"""How many forks of one parent, where they share its history and where each copies it."""

SERVER = os.environ.get("SEEDLINE_TEST_PG", "")
SCHEMA = f"bench_{os.getpid()}"

Work = Callable[[], object]


def chunk(seq: int) -> Event:
    """An event as a streamed answer has most: about 170 bytes as a line."""
    delta = b'{"turn":1,"step":1,"chunk":{"type":"delta","index":0,"text":"word number %d of a long answer"}}'
    return Event("assistant/chunk", seq, 1_700_000_000_000 + seq, Raw(delta % seq))


def mark(seq: int) -> Event:
    return Event("session/end-seed", seq, 1_700_000_000_000 + seq, Raw(b"{}"))


def medians(works: list[Work], rounds: int = ROUNDS) -> list[float]:
    """Return the middle times of some works, measured in turns, so that a busy machine slows all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, taken in zip(works, times, strict=True):
            gc.collect()
            begin = time.perf_counter()
            kept = work()
            taken.append(time.perf_counter() - begin)
            del kept
    return [median(taken) for taken in times]


# --- the stores ------------------------------------------------------------------------------------


def openers(scratch: Path) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return module, class and arguments of each store by its name in the report."""
    jsonl = "seedline.storage.jsonl.backend", "JsonlBackend"
    found: dict[str, tuple[str, str, dict[str, Any]]] = {
        "memory": ("seedline.storage.memory", "MemoryBackend", {}),
        "JSONL": (*jsonl, {"root": scratch / "plain"}),
        "JSONL zstd": (*jsonl, {"root": scratch / "zstd", "encoding": "zstd"}),
        "SQLite": ("seedline.storage.sqlite", "SqliteBackend", {"path": scratch / "sqlite" / "runs.db"}),
    }
    if SERVER:
        arguments = {"url": SERVER, "schema": SCHEMA}
        found["PostgreSQL"] = ("seedline.storage.postgres.backend", "PostgresBackend", arguments)
    return found


def stores(scratch: Path) -> Iterator[tuple[str, Backend]]:
    """Yield the stores that can be opened, each empty, one after the other."""
    if not SERVER:
        print("PostgreSQL is left out: SEEDLINE_TEST_PG names no server")
    for name, (module, kind, arguments) in openers(scratch).items():
        try:
            opened: Backend = getattr(import_module(module), kind)(**arguments)
        except (ImportError, AttributeError) as error:
            print(f"{name} is left out: {error}")
            continue
        yield name, opened
        opened.close()
    if SERVER:
        with connected() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA}, {SCHEMA}_bare CASCADE")


def connected() -> Any:
    """Connect to the server, each statement its own transaction."""
    return import_module("psycopg").connect(SERVER, autocommit=True)


_names = count()


def write(store: Backend, events: list[Event], prefix: Prefix | None = None) -> str:
    """Store a new session, a fork where there is a prefix, and return its id."""
    session_id = f"bench-{os.getpid()}-{next(_names)}"
    cut = prefix.count if prefix else START
    header = SessionHeader(id=session_id, created_at=1_700_000_000_000, is_seeded=prefix is not None)
    writer = store.create(header, cut, prefix)
    for first in range(0, len(events), 10_000):
        writer.append(events[first : first + 10_000])
    writer.close()
    return session_id


# --- append ----------------------------------------------------------------------------------------


def appending(store: Backend, size: int) -> Work:
    session_id = write(store, [chunk(0)])
    _, writer = store.open(session_id)

    def work() -> None:
        for _ in range(BATCHES[size]):
            seq = writer.next_seq
            writer.append([chunk(at) for at in range(seq, seq + size)])

    return work


def batches(size: int) -> Iterator[list[Event]]:
    """Yield what a round of `appending` stores; making the events is part of every work alike."""
    for first in range(0, BATCHES[size] * size, size):
        yield [chunk(at) for at in range(first, first + size)]


def bare_file(path: Path, size: int) -> Work:
    """Write the same lines to a file, each batch with one `write` and one `fdatasync`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def work() -> None:
        for events in batches(size):
            os.write(file, b"".join(encode_event(event) + b"\n" for event in events))
            os.fdatasync(file)

    return work


def bare_sqlite(path: Path, size: int) -> Work:
    """Insert the same events into one table, each batch one durable transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE events (session INTEGER, seq INTEGER, type TEXT, time INTEGER, data BLOB, "
        "PRIMARY KEY (session, seq)) WITHOUT ROWID"
    )
    session = count()

    def work() -> None:
        key = next(session)
        for events in batches(size):
            connection.execute("BEGIN IMMEDIATE")
            rows = ((key, event.seq, event.type, event.time, event.data) for event in events)
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    return work


def bare_copy(size: int) -> Work:
    """COPY the same events into one table of the server, each batch one transaction."""
    connection = connected()
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}_bare")
    connection.execute(
        f"CREATE TABLE {SCHEMA}_bare.events{size} (session int8, seq int8, type text, time int8, data bytea, "
        "PRIMARY KEY (session, seq))"
    )
    session = count()

    def work() -> None:
        key = next(session)
        for events in batches(size):
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {SCHEMA}_bare.events{size} FROM STDIN (FORMAT BINARY)") as copy,
            ):
                copy.set_types(["int8", "int8", "text", "int8", "bytea"])
                for event in events:
                    copy.write_row((key, event.seq, event.type, event.time, bytes(event.data)))

    return work


def append_rows(name: str, store: Backend, scratch: Path) -> Iterator[Row]:
    for size, rounds in BATCHES.items():
        place = scratch / f"bare-{name}-{size}"
        besides = {"write + fdatasync": bare_file(place.with_suffix(".jsonl"), size)}
        if name == "SQLite":
            besides["bare SQLite"] = bare_sqlite(place.with_suffix(".db"), size)
        if name == "PostgreSQL":
            besides["bare COPY"] = bare_copy(size)
        ours, *others = medians([appending(store, size), *besides.values()])
        for beside, taken in zip(besides, others, strict=True):
            yield Row(
                f"{name}: append, batches of {size}",
                f"{size * rounds / ours:,.0f} events/s",
                f"{size * rounds / taken:,.0f} events/s ({beside})",
                ours / taken,
            )


# --- fork and read ---------------------------------------------------------------------------------


def copying(scratch: Path) -> Work:
    """Copy the file of a log of `FORKED` events, durably."""
    source, target = scratch / "copied.jsonl", scratch / "copy.jsonl"
    if not source.exists():
        source.write_bytes(b"".join(encode_event(chunk(seq)) + b"\n" for seq in range(FORKED)))

    def work() -> None:
        shutil.copyfile(source, target)
        file = os.open(target, os.O_RDONLY)
        os.fdatasync(file)
        os.close(file)

    return work


def fork_rows(name: str, store: Backend, scratch: Path) -> Iterator[Row]:
    parent = write(store, [chunk(seq) for seq in range(FORKED)])
    flat = write(store, [*(chunk(seq) for seq in range(FORKED)), mark(FORKED)])
    cut = Prefix(parent, SessionLogOffset(FORKED))
    ours, copied = medians([lambda: write(store, [mark(FORKED)], cut), copying(scratch)], 9)
    yield Row(
        f"{name}: fork {FORKED:,} events", milliseconds(ours), f"{milliseconds(copied)} (cp)", ours / copied
    )
    forks = FORKS[store.capabilities.shares_prefixes]
    before, begin = stored_bytes(store, scratch), time.perf_counter()
    children = [write(store, [mark(FORKED)], cut) for _ in range(forks)]
    taken = time.perf_counter() - begin
    grown = (stored_bytes(store, scratch) - before) / forks
    size = "not measured" if store.name == "memory" else f"{grown:,.0f} bytes each"
    yield Row(
        f"{name}: {forks:,} forks of one parent", f"{taken:.2f} s, {size}", "aim 1 KB each", grown / 1024
    )
    child, whole = medians([lambda: store.read(children[0]), lambda: store.read(flat)], 15)
    yield Row(
        f"{name}: read a child", milliseconds(child), f"{milliseconds(whole)} (a flat session)", child / whole
    )


def stored_bytes(store: Backend, scratch: Path) -> int:
    """Return what the store takes on its medium, logs that are written ahead folded in."""
    if store.name == "postgresql":
        query = (
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
        )
        with connected() as connection:
            return int(connection.execute(f"{query}'{SCHEMA}'::regnamespace").fetchone()[0])
    database = scratch / "sqlite" / "runs.db"
    if store.name == "sqlite":
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return database.stat().st_size
    return sum(file.stat().st_blocks * 512 for file in scratch.rglob("*") if file.is_file())


def read_rows(name: str, store: Backend) -> Iterator[Row]:
    session_id = write(store, [chunk(seq) for seq in range(LONG)])
    tail, whole = medians(
        [lambda: store.read_from(session_id, LONG - 100), lambda: store.read(session_id)], rounds=3
    )
    beside = f"aim 5 ms; {milliseconds(whole)} (all)"
    yield Row(f"{name}: read the last 100 of {LONG:,}", milliseconds(tail), beside, tail / 0.005)


def list_rows(name: str, store: Backend) -> Iterator[Row]:
    for _ in range(LISTED):
        write(store, [mark(0)])
    (taken,) = medians([lambda: list(store.list())], 3)
    yield Row(f"{name}: list {LISTED:,} sessions and some long ones", milliseconds(taken), "-")


def report() -> str:
    """Measure every store that can be opened."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name, store in stores(scratch):
            rows += append_rows(name, store, scratch)
            rows += fork_rows(name, store, scratch)
            rows += read_rows(name, store)
            rows += list_rows(name, store)
    return table("Stores", rows)
