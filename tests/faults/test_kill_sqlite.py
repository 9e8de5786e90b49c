"""A writer that is killed, or whose medium fails, loses nothing that it was told is stored.

Run as a program, this file is the writer: it waits for a line, then a fork of it appends to a database,
reports each seq that an append acknowledged, and is killed: after some time; before a statement or some steps
of SQLite's machine, so before and after BEGIN, each INSERT and COMMIT; or in the middle of a write to a file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice, takewhile
from pathlib import Path

import pytest
from msgspec import Raw

from seedline.errors import SessionNotFoundError, StorageError
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix, Writer
from seedline.storage.sqlite import SqliteBackend, database

KILLS = 1000 if os.environ.get("SEEDLINE_SWEEP") == "1" else 15
FAILURES = 160 if os.environ.get("SEEDLINE_SWEEP") == "1" else 60
"""Ten batches take about 160 writes."""
SEED = int(os.environ.get("SEEDLINE_SEED", "0"))
SESSIONS = max(5, KILLS // 20)
"""Kills per database are spread over this many sessions, each a fork of the one before."""
MOMENTS = {"milliseconds": range(2, 50), "steps": range(1, 1500), "writes": range(1, 500)}
"""When a writer is killed. Twenty batches take about as many milliseconds, steps and writes."""


def logged(seq: int) -> Event:
    """The event that every writer stores at `seq`; each third one fills some pages."""
    text = "x" * (seq * 7919 % (20_000 if seq % 3 == 0 else 300))
    return Event("session/end-seed", seq, seq, Raw(f'{{"seq":{seq},"text":"{text}"}}'.encode()))


# --- the writer ------------------------------------------------------------------------------------


def serve(path: str) -> None:
    """For each line `SESSION KIND AMOUNT`, let a fork write until it is killed."""
    for line in sys.stdin:
        session, kind, amount = line.split()
        writer = os.fork()
        if writer == 0:
            if kind in ARMED:
                ARMED[kind](Fuse(int(amount)))
            write(path, int(session))
        if kind == "milliseconds":
            time.sleep(int(amount) / 1000)
            os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.write(1, b"killed\n")


class Fuse:
    """Burns down at the given call; called by SQLite, it kills this process then."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def burns_down(self) -> bool:
        self._left -= 1
        return self._left == 0

    def __call__(self, _statement: str = "") -> int:
        if self.burns_down():
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def arm_steps(fuse: Fuse) -> None:
    """Let the fuse burn with every statement, and every five steps, of the connection that writes."""
    plain = database.connect

    def connect(path: str, *options: str) -> sqlite3.Connection:
        connection = plain(path, *options)

        def traced(statement: str) -> None:
            if statement == "BEGIN IMMEDIATE":
                connection.set_progress_handler(fuse, 5)
                connection.set_trace_callback(fuse)

        connection.set_trace_callback(traced)
        return connection

    database.connect = connect


class Vfs(ctypes.Structure):
    """The beginning of SQLite's `sqlite3_vfs`: three numbers, 16 pointers before `xSetSystemCall`."""

    _fields_ = (
        ("numbers", ctypes.c_int * 3),
        ("pointers", ctypes.c_void_p * 16),
        (
            "set_system_call",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        ),
    )


PWRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
KEPT: list[object] = []


def hook_writes(write: Callable[[int, bytes, int], int]) -> None:
    """Let SQLite write to files, in this process, by calling `write` with descriptor, bytes and offset."""

    def pwrite(file: int, data: int, size: int, offset: int) -> int:
        return write(file, ctypes.string_at(data, size), offset)

    library = ctypes.CDLL(import_module("_sqlite3").__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
    vfs = library.sqlite3_vfs_find(None)
    KEPT.append(PWRITE(pwrite))
    for name in (b"pwrite", b"pwrite64"):
        assert vfs.contents.set_system_call(vfs, name, ctypes.cast(KEPT[-1], ctypes.c_void_p)) == 0  # pyright: ignore[reportArgumentType]  # any function casts


def arm_writes(fuse: Fuse) -> None:
    """Let the fuse burn with every write of SQLite; the last one stores half of its bytes."""

    def write(file: int, data: bytes, offset: int) -> int:
        if fuse.burns_down():
            os.pwrite(file, data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return os.pwrite(file, data, offset)

    hook_writes(write)


ARMED = {"steps": arm_steps, "writes": arm_writes}


def write(path: str, session: int) -> None:
    """Append batches of 1 to 7 events for ever, telling after each what is the next seq."""
    writer = entered(SqliteBackend(path), session)
    for size in cycle():
        seq = writer.next_seq
        writer.append([logged(at) for at in range(seq, seq + size)])
        os.write(1, b"%d\n" % writer.next_seq)


def cycle() -> Iterator[int]:
    while True:
        yield from range(1, 8)


def entered(store: SqliteBackend, session: int) -> Writer:
    """Open a session, or create it; all but the first begin with 20 events of the one before."""
    if any(listed.session_id == str(session) for listed in store.list()):
        return store.open(str(session))[1]
    before = [listed for listed in store.list() if listed.session_id == str(session - 1)]
    if not before:
        return store.create(SessionHeader(id=str(session), created_at=0), START)
    cut = SessionLogOffset(min(20, len(store.read(str(session - 1)).events)))
    header = SessionHeader(id=str(session), created_at=0, is_seeded=True)
    return store.create(header, cut, Prefix(str(session - 1), cut))


# --- the test --------------------------------------------------------------------------------------


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, str(tmp_path / "runs.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def kill_one(killer: subprocess.Popen[bytes], session: int, kind: str, amount: int) -> int:
    """Return the seq up to which the killed writer was told that its events are stored."""
    assert killer.stdin
    assert killer.stdout
    killer.stdin.write(f"{session} {kind} {amount}\n".encode())
    killer.stdin.flush()
    told = list(takewhile(lambda line: line != b"killed\n", killer.stdout))
    return int(told[-1]) if told else 0


def test_no_acknowledged_event_is_lost(tmp_path: Path, killer: subprocess.Popen[bytes]) -> None:
    store = SqliteBackend(tmp_path / "runs.db")
    chance = random.Random(SEED)
    acknowledged = dict.fromkeys(range(SESSIONS), 0)
    kills_while_writing = 0
    for kill in range(KILLS):
        session = kill * SESSIONS // KILLS
        kind = list(MOMENTS)[kill % len(MOMENTS)]
        told = kill_one(killer, session, kind, chance.choice(MOMENTS[kind]))
        kills_while_writing += told > 0
        acknowledged[session] = max(acknowledged[session], told)
        acknowledged[session] = check_and_go_on(store, session, acknowledged[session])
    assert kills_while_writing > KILLS / 3
    assert [listed.error for listed in store.list()] == [None] * SESSIONS
    store.close()


def check_and_go_on(store: SqliteBackend, session: int, acknowledged: int) -> int:
    """Open the session at once, demand what was acknowledged, and append; return what is stored then."""
    writer = entered(store, session)
    try:
        stored = stored_events(store, session)
        assert len(stored) >= acknowledged
        assert stored == [logged(seq) for seq in range(len(stored))]
        writer.append([logged(writer.next_seq)])
        assert store.read_from(str(session), writer.next_seq - 1).events[0] == logged(writer.next_seq - 1)
        return writer.next_seq
    finally:
        writer.close()


def stored_events(store: SqliteBackend, session: int | str) -> list[Event]:
    try:
        return list(store.read(str(session)).events)
    except SessionNotFoundError:  # killed before its first batch
        return []


# --- writes that fail ------------------------------------------------------------------------------


def fail_each_write(folder: Path, code: int) -> int:
    """Fail the first write of one run, the second of another, ...; return how many appends were refused."""
    fuse = Fuse(0)

    def write(file: int, data: bytes, offset: int) -> int:
        if fuse.burns_down():
            ctypes.set_errno(code)
            return -1
        return os.pwrite(file, data, offset)

    hook_writes(write)
    refused = 0
    for number in range(1, FAILURES):
        fuse = Fuse(number)
        refused += append_all(SqliteBackend(folder / f"{number}.db"))
    return refused


def append_all(store: SqliteBackend) -> int:
    """Append ten batches, again each that is refused, and demand that all are stored once."""
    refused = 0
    writer = store.create(SessionHeader(id="s", created_at=0), START)
    for size in islice(cycle(), 10):
        batch = [logged(seq) for seq in range(writer.next_seq, writer.next_seq + size)]
        try:
            writer.append(batch)
        except StorageError:
            refused += 1
            assert stored_events(store, "s") == [logged(seq) for seq in range(batch[0].seq)]
            writer.append(batch)
    assert stored_events(store, "s") == [logged(seq) for seq in range(writer.next_seq)]
    store.close()
    return refused


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_write_that_fails_refuses_its_batch_and_no_other(tmp_path: Path, code: int) -> None:
    command = [sys.executable, __file__, str(tmp_path), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > FAILURES / 2


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        print(fail_each_write(Path(sys.argv[1]), int(sys.argv[2])))
