"""From what a verb found out to what the process prints and exits with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, NamedTuple, NoReturn, TypeVar

from seedline.cli.collector import collector_paused
from seedline.cli.exits import CANCELLED, DONE, USAGE, worst
from seedline.cli.failure import Failure, failure_of, failures_document
from seedline.cli.inert import inert_json
from seedline.cli.people import Block, Line, render

T = TypeVar("T")
R = TypeVar("R")


class Answer(NamedTuple):
    """A verb's result: the `--json` document, the same for people, and the exit code.

    `notices` go to standard error in both forms: what a caller must learn even when only the code is read.
    """

    document: Mapping[str, object]
    people: Iterable[Block]
    code: int = DONE
    notices: Sequence[str] = ()


class FailedError(Exception):
    """Several paths were tried and some failed; the document lists them all."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"{len(failures)} failed")


def attempt_all(work: Callable[[T], R], items: Iterable[T], name: Callable[[T], str] = str) -> list[R]:
    """Return what `work` makes of each item. Every item is tried; raises `FailedError` with all that failed.

    `name` gives the path that a failure is about where the error names none.
    """
    done: list[R] = []
    failures: list[Failure] = []
    for item in items:
        try:
            done.append(work(item))
        except Exception as error:
            failure = failure_of(error, name(item))
            if failure is None:
                raise
            failures.append(failure)
    if failures:
        raise FailedError(failures)
    return done


def deliver(make: Callable[[], Answer], *, as_json: bool, path: str | None = None) -> NoReturn:
    """Print what `make` returns or how it failed, and leave through `SystemExit`.

    `path` is what the caller named; an error that knows no file is about it.
    """
    try:
        code = _run(make, as_json, path)
    except KeyboardInterrupt:
        code = CANCELLED
    raise SystemExit(code)


def _run(make: Callable[[], Answer], as_json: bool, path: str | None) -> int:
    try:
        with collector_paused():
            answer = make()
    except FailedError as error:
        return _report(error.failures, as_json)
    except Exception as error:
        failure = failure_of(error, path)
        if failure is None:
            raise
        return _report([failure], as_json)
    for notice in answer.notices:
        _complain(notice)
    return _print(answer, as_json) or answer.code


def _report(failures: Sequence[Failure], as_json: bool) -> int:
    code = worst(failure.code for failure in failures)
    if as_json:
        return write(sys.stdout, json_line(failures_document(failures)), "utf-8") or code
    for failure in failures:
        _complain(failure.message)
    return code


def _print(answer: Answer, as_json: bool) -> int:
    if as_json:
        return write(sys.stdout, json_line(answer.document), "utf-8")
    return write(sys.stdout, render(answer.people, sys.stdout))


def _complain(message: str) -> None:
    write(sys.stderr, render([Line(f"seedline: {message}")], sys.stderr))


def json_line(document: Mapping[str, object]) -> str:
    """Return `document` as one line of JSON: inert, and UTF-8 whatever text it holds."""
    from seedline.jsonvalue import encode

    return inert_json(encode(document).decode()) + "\n"


def write(stream: IO[str] | None, text: str, encoding: str | None = None) -> int:
    """Write `text` to a standard stream; return the exit code that follows from it.

    Without `encoding` the stream's own is used; what it cannot spell is escaped. A reader that has gone away
    is no failure. A stream that the caller closed takes nothing.
    """
    if stream is None:
        return DONE
    try:
        _write(stream, text, encoding)
    except BrokenPipeError:
        _silence(stream)
    except OSError as error:
        _silence(stream)
        if stream is sys.stdout:
            _complain(f"the output cannot be written: {error.strerror or error}. Nothing else was changed.")
            return USAGE
    return DONE


def _write(stream: IO[str], text: str, encoding: str | None) -> None:
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(text)
    else:
        stream.flush()
        own: str | None = getattr(stream, "encoding", None)
        buffer.write(text.encode(encoding or own or "utf-8", "backslashreplace"))
    stream.flush()


def _silence(stream: IO[str]) -> None:
    """Let the interpreter's last flush of `stream` go nowhere instead of failing a second time."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
