"""Errors as the command line shows them: a document, a message for people, an exit code."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from seedline.cli.exits import REPLAY, UNREADABLE, USAGE, worst
from seedline.errors import (
    ArtifactError,
    OutputRefusedError,
    ReplayError,
    SeedlineError,
    UnfinishedCallError,
)

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Failure(NamedTuple):
    """What went wrong with one path.

    `more` holds facts beside the five that every failure has, such as the turn of an unfinished call.
    """

    kind: str
    message: str
    path: str | None
    line: int | None
    offset: int | None
    code: int
    more: Mapping[str, Any] = NOTHING

    @property
    def value(self) -> dict[str, Any]:
        """The object under `error` in a `--json` document."""
        members = {"kind": self.kind, "message": self.message, "path": self.path}
        return {**members, "line": self.line, "offset": self.offset, **self.more}


def failures_document(failures: Sequence[Failure]) -> Mapping[str, object]:
    """Return the document of failed paths: `error` is the one that set the exit code, the first of them.

    `errors` lists all where there is more than one.
    """
    code = worst(failure.code for failure in failures)
    main = next(failure for failure in failures if failure.code == code)
    return {"error": main.value} | ({"errors": [each.value for each in failures]} if failures[1:] else {})


def failure_of(error: Exception, path: str | None) -> Failure | None:
    """Return how the command line shows `error`, None for one that nobody raises on purpose.

    `path` is told where the error names no file.
    """
    match error:
        case ArtifactError():
            place = error if error.path is not None else error.located(path=path)
            return _failure(place, place.path, UNREADABLE, line=place.line, offset=place.offset)
        case UnfinishedCallError():
            place = error if error.path or path is None else error.located(path)
            return _failure(place, place.path, REPLAY, more={"turn": place.turn, "step": place.step})
        case OutputRefusedError():
            return _failure(error, error.path, USAGE)
        case ReplayError():
            return _failure(error, getattr(error, "path", None) or path, REPLAY)
        case SeedlineError():
            return _failure(error, path, UNREADABLE)
        case OSError():
            return _of_system(error, path)
        case MemoryError():
            return Failure(
                "too-large", f"{path}: there is not enough memory to read it.", path, None, None, UNREADABLE
            )
        case _:
            return None


def _failure(
    error: SeedlineError,
    path: str | None,
    code: int,
    line: int | None = None,
    offset: int | None = None,
    more: Mapping[str, Any] = NOTHING,
) -> Failure:
    return Failure(kind_shown(error.kind), str(error), path, line, offset, code, more)


def kind_shown(kind: str) -> str:
    """Return the kind that documents show. A file the system does not let us open is as good as not there."""
    return "not-found" if kind == ArtifactError.kind else kind


def _of_system(error: OSError, path: str | None) -> Failure:
    """An error of the operating system: the file it names cannot be opened or read."""
    name = path if error.filename is None else os.fsdecode(error.filename)
    kind = "not-a-session" if error.errno == errno.EISDIR else "not-found"
    message = f"{name}: cannot be read: {error.strerror or error}. Check the path and its permissions."
    return Failure(kind, message, name, None, None, UNREADABLE)
