"""A second process, for tests of what processes promise each other about one place."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

Work = Callable[[], Iterator[object]]
PATIENCE_SECONDS = 60.0
_SAID, _FAILED, _ENDED = "said", "failed", "ended"


class OtherProcess:
    """A process that does one step of its work each time it is told to."""

    def __init__(self, pid: int, talk: Connection[Any, Any]) -> None:
        self.pid = pid
        self._talk = talk
        self._is_alive = True

    def step(self) -> Any:
        """Let it go on, and return what its work yields next, None at the end.

        Raises `AssertionError` with its traceback when the work failed, `TimeoutError` after a minute.
        """
        self._talk.send(None)
        return self._answer()

    def _answer(self) -> Any:
        if not self._talk.poll(PATIENCE_SECONDS):
            raise TimeoutError(f"process {self.pid} does not answer")
        what, value = cast("tuple[str, Any]", self._talk.recv())
        if what == _FAILED:
            raise AssertionError(f"process {self.pid} failed:\n{value}")
        return value

    def words(self) -> list[Any]:
        """Return what it said and nobody asked for yet, without waiting."""
        heard: list[Any] = []
        with suppress(EOFError):
            while self._talk.poll():
                heard.append(self._talk.recv()[1])
        return heard

    def kill(self) -> None:
        """End it where it stands, as `kill -9` does, and wait until it is gone. May be called again."""
        if self._is_alive:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._is_alive = False


@contextmanager
def other_process(work: Work, *, told: bool = True) -> Generator[OtherProcess, None, None]:
    """Fork a process that runs the generator `work`; it is killed at the end.

    What `work` closes over is copied as it is now: open nothing of the place before. Not `told`, it goes
    through its steps by itself.
    """
    here, there = Pipe()
    pid = _fork()
    if pid == 0:
        here.close()
        _live(work, there, told)
    there.close()
    other = OtherProcess(pid, here)
    try:
        yield other
    finally:
        other.kill()
        here.close()


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads, such as those of a test runner; the child uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _live(work: Work, talk: Connection[Any, Any], told: bool) -> None:
    """Be the other process, and end without a word to the test runner that was copied along."""
    try:
        _go_through(work, talk, told)
    except (EOFError, BrokenPipeError):
        pass  # the test is over
    except BaseException:
        talk.send((_FAILED, traceback.format_exc()))
    finally:
        os._exit(0)


def _go_through(work: Work, talk: Connection[Any, Any], told: bool) -> None:
    steps = work()
    while True:
        if told:
            talk.recv()
        try:
            said = next(steps)
        except StopIteration:
            talk.send((_ENDED, None))
            return
        talk.send((_SAID, said))
