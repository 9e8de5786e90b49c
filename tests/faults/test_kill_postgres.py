"""A writer, its connection or the server dies at any moment: nothing acknowledged is lost or stored twice.

Writers reach the server through a wire of this module, which counts the messages they send, and strikes at
one of them: before it passes, after it, or when its answer comes. Run as a program, this file is the writer.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import psycopg
import pytest
from msgspec import Raw

from seedline.errors import SessionNotFoundError, StaleWriterError, StorageError
from seedline.events.event import Event
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Prefix, Writer
from seedline.storage.postgres import PostgresBackend
from tests.postgres_server import Cluster, private_cluster, wait_for

SWEEP = os.environ.get("SEEDLINE_SWEEP") == "1"
KILLS = 1000 if SWEEP else 16
STRIDE = 1 if SWEEP else 6
"""Of the messages of a batch, each which-th is struck at."""
RESTARTS = 20 if SWEEP else 3
SEED = int(os.environ.get("SEEDLINE_SEED", "0"))
SESSIONS = 5
"""Kills are spread over this many sessions, each a fork of the one before."""

When = Literal["before", "after", "answered"]
WHENS: tuple[When, ...] = ("before", "after", "answered")


def logged(seq: int) -> Event:
    """The event that every writer stores at `seq`; each third one is long."""
    text = "x" * (seq * 7919 % (20_000 if seq % 3 == 0 else 300))
    return Event("session/end-seed", seq, seq, Raw(f'{{"seq":{seq},"text":"{text}"}}'.encode()))


def run(first: int, count: int) -> list[Event]:
    return [logged(seq) for seq in range(first, first + count)]


# --- the writer ------------------------------------------------------------------------------------


def serve(url: str, schema: str) -> None:
    """For each line with a session's name, let a fork tell its process, wait for a line, and write."""
    while line := os.read(0, 100):
        writer = os.fork()
        if writer == 0:
            os.write(1, b"process %d\n" % os.getpid())
            os.read(0, 100)
            write(PostgresBackend(url, schema), int(line))
        os.waitpid(writer, 0)
        os.write(1, b"ended\n")


def write(store: PostgresBackend, session: int) -> None:
    """Append batches of 1 to 7 events until the end, telling after each what is the next seq."""
    writer = entered(store, session)
    while True:
        for size in (1, 2, 1, 3, 7, 1, 5):
            try:
                writer.append(run(writer.next_seq, size))
            except StaleWriterError:
                os.write(1, b"stale\n")
                os._exit(0)
            os.write(1, b"stored %d\n" % writer.next_seq)


def entered(store: PostgresBackend, session: int) -> Writer:
    """Open a session, or create it; all but the first begin with 20 events of the one before."""
    try:
        return store.open(str(session))[1]
    except SessionNotFoundError:
        pass
    try:
        cut = SessionLogOffset(min(20, len(store.read(str(session - 1)).events)))
    except SessionNotFoundError:
        return store.create(SessionHeader(id=str(session), created_at=0), START)
    header = SessionHeader(id=str(session), created_at=0, is_seeded=True)
    return store.create(header, cut, Prefix(str(session - 1), cut))


# --- the wire --------------------------------------------------------------------------------------


class Strike:
    """What happens, once, at a message: `at` counts them from 0, over all connections."""

    def __init__(self, at: int, when: When, deed: Callable[[Link], None]) -> None:
        self.at = at
        self.when: When = when
        self.deed = deed
        self.passed = 0
        self.done = threading.Event()

    def falls_on_next(self) -> bool:
        self.passed += 1
        return self.passed == self.at + 1


class Wire:
    """A port of this machine that leads to the socket of a server."""

    def __init__(self, cluster: Cluster) -> None:
        self._target = cluster.socket
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"
        self.strike: Strike | None = None
        self._links: list[Link] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:  # the server is down
                server.close()
                client.close()
                continue
            self._links.append(Link(self, client, server))

    def close(self) -> None:
        self._listener.close()
        for link in self._links:
            link.cut()


class Link:
    """One connection through the wire."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._held: Strike | None = None
        for pump in (self._forward, self._back):
            threading.Thread(target=pump, daemon=True).start()

    def _forward(self) -> None:
        with contextlib.suppress(OSError):
            for message in self._messages():
                strike = self._wire.strike
                struck = strike if strike and strike.falls_on_next() else None
                if struck and struck.when == "before":
                    return self._do(struck)
                if struck and struck.when == "answered":
                    self._held = struck
                self._server.sendall(message)
                if struck and struck.when == "after":
                    return self._do(struck)
        self.cut()

    def _messages(self) -> Iterator[bytes]:
        """Split what the client sends; its first message has no letter."""
        waiting, letters = b"", 0
        while data := self._client.recv(1 << 16):
            waiting += data
            while len(waiting) >= letters + 4:
                size = letters + int.from_bytes(waiting[letters : letters + 4])
                if len(waiting) < size:
                    break
                yield waiting[:size]
                waiting, letters = waiting[size:], 1

    def _back(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._held:
                    return self._do(self._held)
                self._client.sendall(data)
        self.cut()

    def _do(self, strike: Strike) -> None:
        strike.deed(self)
        strike.done.set()

    def cut(self) -> None:
        """End both sides."""
        self.hang_up()
        _end(self._server)

    def hang_up(self) -> None:
        """End the client's side only: the server waits on."""
        _end(self._client)


def _end(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()


# --- fixtures --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of this module's own: it is killed and restarted here."""
    with private_cluster() as server:
        yield server


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    wire = Wire(cluster)
    yield wire
    wire.close()


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return f"test_{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def store(cluster: Cluster, schema: str) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(cluster.url, schema)
    yield backend
    backend.close()


class Victim:
    """The program that writes, and what it has told."""

    def __init__(self, url: str, schema: str) -> None:
        command = [sys.executable, "-m", "tests.faults.test_kill_postgres", url, schema]
        root = Path(__file__).parents[2]
        self._program = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, session: int) -> int:
        """Let a process write a session as soon as `go` is called, and return its number."""
        self._tell(f"{session}\n")
        return int(self.next_line().split()[1])

    def go(self) -> None:
        self._tell("go\n")

    def _tell(self, line: str) -> None:
        assert self._program.stdin
        self._program.stdin.write(line.encode())
        self._program.stdin.flush()

    def next_line(self) -> str:
        assert self._program.stdout
        line = self._program.stdout.readline().decode()
        assert line, "the writing program is gone"
        return line

    def stored_until_end(self) -> int:
        """Wait for the process to end; return up to which seq it was told that its events are stored."""
        stored = 0
        while (line := self.next_line()) != "ended\n":
            assert line.startswith("stored "), line
            stored = int(line.split()[1])
        return stored

    def end(self) -> None:
        assert self._program.stdin
        assert self._program.stdout
        self._program.stdin.close()
        self._program.wait(10)
        self._program.stdout.close()


@pytest.fixture
def victim(wire: Wire, schema: str) -> Iterator[Victim]:
    program = Victim(wire.url, schema)
    yield program
    program.end()


# --- killed writers --------------------------------------------------------------------------------


def test_a_killed_writer_loses_nothing_acknowledged(
    store: PostgresBackend, wire: Wire, victim: Victim
) -> None:
    chance = random.Random(SEED)
    acknowledged = dict.fromkeys(range(SESSIONS), 0)
    kills_while_writing = 0
    for kill in range(KILLS):
        session = kill * SESSIONS // KILLS
        told = killed(wire, victim, session, chance)
        kills_while_writing += told > 0
        acknowledged[session] = max(acknowledged[session], told)
        acknowledged[session] = check_and_go_on(store, session, acknowledged[session])
    assert kills_while_writing > KILLS / 4
    assert [listed.error for listed in store.list()] == [None] * SESSIONS


def killed(wire: Wire, victim: Victim, session: int, chance: random.Random) -> int:
    """Kill a writer at a message or at a moment; return up to which seq it was told it had stored."""
    process = victim.begin(session)

    def kill(link: Link) -> None:
        os.kill(process, signal.SIGKILL)
        link.cut()

    at_message = chance.random() < 0.7
    wire.strike = Strike(chance.randrange(150), chance.choice(WHENS), kill) if at_message else None
    victim.go()
    if not at_message:
        time.sleep(chance.uniform(0.002, 0.06))
        os.kill(process, signal.SIGKILL)
    told = victim.stored_until_end()
    wire.strike = None
    return told


def check_and_go_on(store: PostgresBackend, session: int, acknowledged: int) -> int:
    """Open the session at once, demand what was acknowledged, and append; return what is stored then."""
    writer = entered(store, session)
    try:
        stored = stored_events(store, session)
        assert len(stored) >= acknowledged
        assert stored == run(0, len(stored))
        writer.append(run(writer.next_seq, 1))
        assert store.read_from(str(session), writer.next_seq - 1).events[0] == logged(writer.next_seq - 1)
        return writer.next_seq
    finally:
        writer.close()


def stored_events(store: PostgresBackend, session: int | str) -> list[Event]:
    try:
        return list(store.read(str(session)).events)
    except SessionNotFoundError:  # killed before its first batch
        return []


def test_half_a_batch_is_never_seen(store: PostgresBackend, wire: Wire, victim: Victim) -> None:
    """Whoever reads while writers are killed sees whole batches of 5 only."""
    process = victim.begin(0)
    victim.go()
    ends: set[int] = set()
    wait_for(lambda: len(stored_events(store, 0)) > 40)
    for _ in range(50):
        ends.add(len(stored_events(store, 0)))
    os.kill(process, signal.SIGKILL)
    victim.stored_until_end()
    starts = [0, 1, 3, 4, 7, 14, 15]  # within the 20 events of one cycle of batches
    assert {end % 20 for end in ends} <= set(starts)


# --- cut connections -------------------------------------------------------------------------------

BATCHES = {"first batch": (0, 5), "one event": (10, 1), "seven events": (10, 7)}


def cuts(link: Link) -> None:
    link.cut()


def hangs_up(link: Link) -> None:
    link.hang_up()


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("deed", [cuts, hangs_up])
@pytest.mark.parametrize("when", WHENS)
def test_a_cut_connection_loses_and_doubles_nothing(
    store: PostgresBackend, wire: Wire, schema: str, batch: str, deed: Callable[[Link], None], when: When
) -> None:
    first, size = BATCHES[batch]
    at = random.Random(SEED).randrange(STRIDE)
    while struck(store, wire, schema, Strike(at, when, deed), run(0, first), run(first, size)):
        at += STRIDE
    assert at > STRIDE


def struck(
    store: PostgresBackend,
    wire: Wire,
    schema: str,
    strike: Strike,
    before: Sequence[Event],
    batch: Sequence[Event],
) -> bool:
    """Append `before`, then `batch` under a strike, then one event more; return whether the strike fell."""
    name = f"{strike.at}"
    writing = PostgresBackend(wire.url, schema)
    writer = writing.create(SessionHeader(id=name, created_at=0), START)
    writer.append(before)
    wire.strike = strike
    writer.append(batch)  # over a new connection where the old one was cut
    wire.strike = None
    writer.append([logged(writer.next_seq)])
    assert stored_events(store, name) == run(0, len(before) + len(batch) + 1)
    writing.close()
    return strike.passed > strike.at


def test_a_server_that_stays_away_keeps_the_outcome_open(
    store: PostgresBackend, cluster: Cluster, wire: Wire, schema: str
) -> None:
    """The commit is done, its answer lost, and nobody there to be asked: the batch is not doubled."""
    writing = PostgresBackend(wire.url, schema)
    writer = writing.create(SessionHeader(id="s", created_at=0), START)
    writer.append(run(0, 5))

    def fall(link: Link) -> None:
        cluster.stop(signal.SIGQUIT)
        link.cut()

    wire.strike = Strike(3, "answered", fall)  # the answer to the whole append of one event
    with pytest.raises(StorageError, match="PostgreSQL") as caught:
        writer.append(run(5, 1))
    assert not isinstance(caught.value, StaleWriterError)
    wire.strike = None
    with pytest.raises(StorageError, match="PostgreSQL"):
        writer.append(run(5, 1))
    cluster.start()
    writer.append(run(5, 3))
    assert stored_events(store, "s") == run(0, 8)
    assert writer.next_seq == 8
    writing.close()


@pytest.mark.parametrize("size", [1, 400])
def test_a_connection_that_is_ended_by_the_server_in_mid_batch(
    store: PostgresBackend, cluster: Cluster, schema: str, size: int
) -> None:
    writer = store.create(SessionHeader(id="s", created_at=0), START)
    writer.append(run(0, 1))
    stop = threading.Event()
    ended = threading.Thread(target=end_servers, args=(cluster, stop))
    ended.start()
    try:
        for _ in range(30 if size == 1 else 8):
            acknowledge(writer, run(writer.next_seq, size))
    finally:
        stop.set()
        ended.join()
    assert stored_events(store, "s") == run(0, writer.next_seq)


def end_servers(cluster: Cluster, stop: threading.Event) -> None:
    chance = random.Random(SEED)
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'seedline:%'"
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        while not stop.wait(chance.uniform(0, 0.03)):
            connection.execute(query)


def acknowledge(writer: Writer, batch: Sequence[Event]) -> None:
    """Append a batch, again and again while the store cannot be reached."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return writer.append(batch)
        except StaleWriterError:
            raise
        except StorageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


# --- a server that falls ---------------------------------------------------------------------------


def test_a_restarted_server_has_every_acknowledged_event(cluster: Cluster, schema: str) -> None:
    store = PostgresBackend(cluster.url, schema)
    writer = store.create(SessionHeader(id="s", created_at=0), START)
    stop = threading.Event()
    told = [0]
    seen: list[Event] = []
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                acknowledge(writer, run(writer.next_seq, 1 + writer.next_seq % 4))
                told[0] = writer.next_seq
        except BaseException as error:
            failures.append(error)

    def follow() -> None:
        try:
            for events in store.follow("s", 0, stop.is_set, wait_seconds=0.1):
                seen.extend(events)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write)]
    threads[0].start()
    assert wait_for(lambda: told[0] > 0)
    threads.append(threading.Thread(target=follow))
    threads[1].start()
    chance = random.Random(SEED)
    for _ in range(RESTARTS):
        time.sleep(chance.uniform(0.05, 0.3))
        cluster.stop(signal.SIGQUIT)
        acknowledged = told[0]
        cluster.start()
        assert len(stored_events(store, "s")) >= acknowledged
        assert wait_for(lambda least=acknowledged: told[0] > least + 8)
    assert wait_for(lambda least=told[0]: len(seen) >= least)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stored_events(store, "s") == run(0, told[0])
    assert seen == run(0, len(seen))
    store.close()


# --- a stalled writer ------------------------------------------------------------------------------


@pytest.mark.parametrize("closing", [False, True])
def test_a_stalled_writer_that_comes_back_is_fenced(
    store: PostgresBackend, cluster: Cluster, victim: Victim, closing: bool
) -> None:
    process = victim.begin(0)
    victim.go()
    while victim.next_line() != "stored 20\n":
        pass
    os.kill(process, signal.SIGSTOP)
    query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE %s"
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        assert connection.execute(query, (f"%process {process} on %",)).fetchall()
    stored, writer = store.open("0")
    ours = Event("session/end-seed", writer.next_seq, 0, Raw(b'"ours"'))
    writer.append([ours])
    if closing:
        writer.close()
    os.kill(process, signal.SIGCONT)
    told = 20
    while (line := victim.next_line()) != "stale\n":
        told = int(line.split()[1])
    assert victim.next_line() == "ended\n"
    assert told <= len(stored.events)
    assert stored_events(store, 0) == [*run(0, len(stored.events)), ours]
    writer.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
