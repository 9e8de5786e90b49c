"""A writer of session files that is killed, or whose medium fails, loses nothing that was acknowledged.

Run as a program, this file is the writer: it waits for a line, then a fork of it appends to a store, reports
each seq that an append acknowledged, and is killed: after some time; before a call that changes the medium;
or in the middle of one, so with half of its bytes written.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from seedline.errors import SessionNotFoundError, StorageError
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix, Writer
from seedline.storage.jsonl.backend import JsonlBackend
from seedline.storage.jsonl.file import Encoding

KILLS = 500 if os.environ.get("SEEDLINE_SWEEP") == "1" else 15
"""Of each encoding."""
SEED = int(os.environ.get("SEEDLINE_SEED", "0"))
SESSIONS = max(5, KILLS // 20)
"""Kills are spread over this many sessions, each a fork of the one before."""
MOMENTS = {"milliseconds": range(2, 50), "before": range(1, 60), "amid": range(1, 60)}
"""When a writer is killed. A first batch takes about ten calls, each later one two or three."""
CALLS = ("write", "fsync", "fdatasync", "ftruncate", "link", "unlink", "mkdir", "copy_file_range")
FAILING_CALLS = 45
"""Ten batches take about as many calls that can fail."""


def logged(seq: int) -> Event:
    """The event that every writer stores at `seq`."""
    text = "x" * (seq * 7919 % (20_000 if seq % 3 == 0 else 300))
    return Event("session/end-seed", seq, seq, Raw(f'{{"seq":{seq},"text":"{text}"}}'.encode()))


# --- the writer ------------------------------------------------------------------------------------


def serve(root: str, encoding: Encoding) -> None:
    """For each line `SESSION KIND AMOUNT`, let a fork write until it is killed."""
    for line in sys.stdin:
        session, kind, amount = line.split()
        writer = os.fork()
        if writer == 0:
            if kind != "milliseconds":
                hook_calls(int(amount), kill_before if kind == "before" else kill_amid)
            write(JsonlBackend(root, encoding=encoding), int(session))
        if kind == "milliseconds":
            time.sleep(int(amount) / 1000)
            os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.write(1, b"killed\n")


def hook_calls(number: int, instead: Callable[..., Any]) -> None:
    """Let `instead` answer the call of that number which changes the medium, in this process."""
    left = number

    def hooked(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any, **options: Any) -> Any:
            nonlocal left
            if call is real["write"] and args[0] == 1:  # what the test reads
                return call(*args)
            left -= 1
            return call(*args, **options) if left else instead(call, *args, **options)

        return answer

    real = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
    for name, call in real.items():
        setattr(os, name, hooked(call))


def kill_before(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_amid(call: Callable[..., Any], *args: Any, **options: Any) -> None:
    amid(call, *args, **options)
    os.kill(os.getpid(), signal.SIGKILL)


def amid(call: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Make a call whole, a write by half."""
    if len(args) == 2 and isinstance(args[1], memoryview | bytes):
        args = args[0], args[1][: len(args[1]) // 2]
    call(*args, **options)


def write(store: JsonlBackend, session: int) -> None:
    """Append batches of 1 to 7 events for ever, telling after each what is the next seq."""
    writer = entered(store, session)
    for size in cycle(range(1, 8)):
        writer.append([logged(at) for at in range(writer.next_seq, writer.next_seq + size)])
        os.write(1, b"%d\n" % writer.next_seq)


def entered(store: JsonlBackend, session: int) -> Writer:
    """Open a session, or create it; all but the first begin with 20 events of the one before."""
    if stored_events(store, session):
        return store.open(str(session))[1]
    before = stored_events(store, session - 1)
    if not before:
        return store.create(SessionHeader(id=str(session), created_at=0), START)
    cut = SessionLogOffset(min(20, len(before)))
    header = SessionHeader(id=str(session), created_at=0, is_seeded=True)
    return store.create(header, cut, Prefix(str(session - 1), cut))


def stored_events(store: JsonlBackend, session: int | str) -> list[Event]:
    try:
        return list(store.read(str(session)).events)
    except SessionNotFoundError:  # killed before its first batch
        return []


# --- the test --------------------------------------------------------------------------------------


@pytest.fixture(params=["jsonl", "zstd"])
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return request.param


@pytest.fixture
def killer(tmp_path: Path, encoding: Encoding) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, str(tmp_path / "runs"), encoding]
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


def test_no_acknowledged_event_is_lost(
    tmp_path: Path, encoding: Encoding, killer: subprocess.Popen[bytes]
) -> None:
    store = JsonlBackend(tmp_path / "runs", encoding=encoding)
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


def check_and_go_on(store: JsonlBackend, session: int, acknowledged: int) -> int:
    """Open the session at once, demand what was acknowledged, repair, and append; return what is stored."""
    writer = entered(store, session)
    try:
        stored = stored_events(store, session)
        assert len(stored) >= acknowledged
        assert stored == [logged(seq) for seq in range(len(stored))]
        torn = writer.repair([])
        assert torn is None or (torn.kept_at and os.path.getsize(torn.kept_at) == torn.size)
        writer.append([logged(writer.next_seq)])
        assert store.read_from(str(session), writer.next_seq - 1).events[0] == logged(writer.next_seq - 1)
        assert store.read(str(session)).torn is None
        return writer.next_seq
    finally:
        writer.close()


# --- calls that fail -------------------------------------------------------------------------------


def fail_each_call(folder: Path, encoding: Encoding, code: int) -> int:
    """Fail the first call of one run, the second of another, ...; return how many appends were refused."""
    plain = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}

    def fail(call: Callable[..., Any], *args: Any, **options: Any) -> None:
        if call is plain["write"]:
            amid(call, *args, **options)
        raise OSError(code, os.strerror(code))

    refused = 0
    for number in range(1, FAILING_CALLS):
        hook_calls(number, fail)
        refused += append_all(folder / str(number), encoding)
        for name, call in plain.items():
            setattr(os, name, call)
    return refused


def append_all(root: Path, encoding: Encoding) -> int:
    """Append ten batches, again each that is refused, and demand that all are stored once."""
    store = JsonlBackend(root, encoding=encoding)
    refused = 0
    try:
        writer = store.create(SessionHeader(id="s", created_at=0), START)
    except StorageError:
        refused += 1
        writer = store.create(SessionHeader(id="s", created_at=0), START)
    for size in islice(cycle(range(1, 8)), 10):
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
def test_a_call_that_fails_refuses_its_batch_and_no_other(
    tmp_path: Path, encoding: Encoding, code: int
) -> None:
    command = [sys.executable, __file__, str(tmp_path), encoding, str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > FAILING_CALLS / 2


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(sys.argv[1], "zstd" if sys.argv[2] == "zstd" else "jsonl")
    else:
        print(
            fail_each_call(Path(sys.argv[1]), "zstd" if sys.argv[2] == "zstd" else "jsonl", int(sys.argv[3]))
        )
