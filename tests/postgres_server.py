"""A real PostgreSQL for tests: `$SEEDLINE_TEST_PG`, else a private cluster, else a skip that says why.

The private cluster listens on a socket in a folder of its own, so that several test processes never meet.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 30.0
PACKAGED = Path("/usr/lib/postgresql")
"""Where Debian keeps the server's programs, a folder for each version."""


def program(name: str) -> str | None:
    """The path of a server program, the newest packaged one where none is on the search path."""
    packaged = sorted(PACKAGED.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3].partition(".")[0]))
    return shutil.which(name) or (str(packaged[-1]) if packaged else None)


def server_user() -> str | None:
    """The user that must run the server: root may not, anybody else can."""
    return "postgres" if os.geteuid() == 0 else None


def missing() -> str | None:
    """Why no private cluster can be made here, None when it can."""
    if not (program("initdb") and program("postgres")):
        return "no PostgreSQL: set SEEDLINE_TEST_PG to a URL, or install the package postgresql"
    user = server_user()
    if user is not None and user not in {entry.pw_name for entry in pwd.getpwall()}:
        return f"PostgreSQL does not run as root and there is no user {user!r}"
    return None


class Cluster:
    """A cluster in a folder of its own, run as a child of this process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="seedline-pg-"))
        self._server: subprocess.Popen[Any] | None = None
        user = server_user()
        if user is not None:
            shutil.chown(self.folder, user, pwd.getpwnam(user).pw_gid)
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8", "-N")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def socket(self) -> str:
        """The path of the socket that the server listens on."""
        return str(self.folder / ".s.PGSQL.5432")

    def start(self) -> None:
        """Return when the server answers."""
        settings = [f"unix_socket_directories={self.folder}", "listen_addresses=", "port=5432"]
        command = self._command("postgres", *(word for setting in settings for word in ("-c", setting)))
        with open(self.folder / "log", "ab") as log:
            server = self._server = subprocess.Popen(command, stdout=log, stderr=log, **self._identity())
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text('utf-8')}")
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT cuts connections and shuts down, SIGQUIT lets it fall where it stands."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(how)
            server.wait(START_SECONDS)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return True
        return False

    def _run(self, *words: str) -> None:
        done = subprocess.run(self._command(*words), capture_output=True, text=True, **self._identity())
        assert done.returncode == 0, done.stderr

    def _command(self, name: str, *options: str) -> list[str]:
        return [program(name) or name, "-D", str(self.folder / "data"), *options]

    def _identity(self) -> dict[str, Any]:
        user = server_user()
        if user is None:
            return {"cwd": self.folder}
        return {
            "cwd": self.folder,
            "user": user,
            "group": pwd.getpwnam(user).pw_gid,
            "extra_groups": [],
        }


@contextlib.contextmanager
def private_cluster() -> Iterator[Cluster]:
    """A running cluster, gone afterwards. Skips the test where there cannot be one."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a server, the same for all tests of this process."""
    given = os.environ.get("SEEDLINE_TEST_PG")
    if given:
        yield given
        return
    with private_cluster() as cluster:
        yield cluster.url


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """A name for the schema of one test, dropped afterwards. A connection left open fails the test."""
    name = f"test_{uuid.uuid4().hex}"
    yield name
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        left = wait_for(lambda: not connections(connection), 2.0) or connections(connection)
        connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())
    assert left is True, f"connections of this process were left open: {left}"


def connections(connection: Any) -> list[tuple[Any, ...]]:
    """What the stores of this process still hold open."""
    query = "SELECT pid, state, query FROM pg_stat_activity WHERE application_name LIKE %s"
    pattern = f"%process {os.getpid()} on %"
    return connection.execute(query, (pattern,)).fetchall()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether the condition came to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
