"""A writer that is killed at a random moment loses nothing that it was told is stored.

Run as a program, this file is the writer: it waits for a line, then a fork of it appends to a database,
reports each seq that an append acknowledged, and is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from msgspec import Raw

from seedline.errors import SessionNotFoundError
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix, Writer
from seedline.storage.sqlite import SqliteBackend

KILLS = 1000 if os.environ.get("SEEDLINE_SWEEP") == "1" else 15
SEED = int(os.environ.get("SEEDLINE_SEED", "0"))
SESSIONS = 5
"""Kills per database are spread over this many sessions, each a fork of the one before."""


def logged(seq: int) -> Event:
    """The event that every writer stores at `seq`; each third one fills some pages."""
    text = "x" * (seq * 7919 % (20_000 if seq % 3 == 0 else 300))
    return Event("session/end-seed", seq, seq, Raw(f'{{"seq":{seq},"text":"{text}"}}'.encode()))


# --- the writer ------------------------------------------------------------------------------------


def serve(path: str) -> None:
    """For each line `SESSION SECONDS`, let a fork write and kill it after that time."""
    for line in sys.stdin:
        name, seconds = line.split()
        writer = os.fork()
        if writer == 0:
            write(path, int(name))
        time.sleep(float(seconds))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.write(1, b"killed\n")


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


def kill_one(killer: subprocess.Popen[bytes], session: int, seconds: float) -> int:
    """Return the seq up to which the killed writer was told that its events are stored."""
    assert killer.stdin
    assert killer.stdout
    killer.stdin.write(f"{session} {seconds}\n".encode())
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
        told = kill_one(killer, session, chance.uniform(0.002, 0.06))
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


def stored_events(store: SqliteBackend, session: int) -> list[Event]:
    try:
        return list(store.read(str(session)).events)
    except SessionNotFoundError:  # killed before its first batch
        return []


if __name__ == "__main__":
    serve(sys.argv[1])
