"""Where the sessions of a JSONL store lie: `<root>/<project key>/<escaped id>/session.jsonl[.zstd]` (4.1)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from seedline.errors import (
    ArtifactError,
    IdentityMismatchError,
    LayoutMismatchError,
    SessionIdRefusedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
)
from seedline.ids import encode_segment, project_key
from seedline.session.header import SessionHeader
from seedline.storage.jsonl.file import FILE_NAMES, Encoding

_LOCKS: Final = ".locks"


class Found(NamedTuple):
    """A place in the store that holds a session, or something that hinders: `problem` says what."""

    path: str
    problem: ArtifactError | None = None


class Places(NamedTuple):
    """The names of one store. `root` is absolute; all its files have one `encoding`."""

    root: str
    encoding: Encoding

    def path_of(self, header: SessionHeader) -> str:
        """Return where a session of this header lies. Raises `SessionIdRefusedError`."""
        folder = os.path.join(self.root, project_key(header.cwd), encode_segment(header.id))
        return os.path.join(folder, FILE_NAMES[self.encoding])

    def lock_of(self, session_id: str) -> str:
        """Return the lock file of an id: a digest, so that no file system takes two ids for one."""
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self.root, _LOCKS, digest)

    # --- looking up --------------------------------------------------------------------------------

    def find(self, session_id: str) -> str:
        """Return the file of a session.

        Raises `SessionNotFoundError`, `LayoutMismatchError` for a file of the other encoding or of the
        obsolete flat layout, `SessionPersistenceCorruptionError` for an id in two project folders,
        `IdentityMismatchError` for a link that leads out of the store.
        """
        try:
            segment = encode_segment(session_id)
        except SessionIdRefusedError as error:
            raise SessionNotFoundError("no session can have this id", path=self.root) from error
        found = [one for project in self._projects() for one in self._in_project(project, segment)]
        if not found:
            raise SessionNotFoundError(f"no session {session_id[:80]!r} is stored", path=self.root)
        if len(found) > 1:
            raise twice([one.path for one in found])
        if found[0].problem:
            raise found[0].problem
        return found[0].path

    def walk(self) -> Iterator[Found]:
        """Yield every session file, and everything that should be one and is not."""
        for project in self._projects():
            try:
                names = os.listdir(project)
            except OSError as error:
                yield Found(project, ArtifactError(f"cannot be read: {error.strerror}", path=project))
                continue
            for name in names:
                yield from self._at(os.path.join(project, name))

    def _projects(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return [entry.path for entry in entries if entry.name != _LOCKS and entry.is_dir()]
        except FileNotFoundError:
            return []

    def _in_project(self, project: str, segment: str) -> Iterator[Found]:
        yield from self._at(os.path.join(project, segment))
        for suffix in (".jsonl", ".jsonl.zstd"):
            flat = os.path.join(project, segment + suffix)
            if os.path.isfile(flat):
                yield from self._at(flat)

    def _at(self, place: str) -> Iterator[Found]:
        """Yield what lies at a place directly below a project folder."""
        if place.endswith((".jsonl", ".jsonl.zstd")) and os.path.isfile(place):
            reason = (
                "a log lies directly in a project folder, an obsolete layout; `seedline convert` copies it"
            )
            yield Found(place, LayoutMismatchError(reason, path=place))
            return
        for encoding, name in FILE_NAMES.items():
            path = os.path.join(place, name)
            if os.path.lexists(path):
                yield Found(path, self._problem(path, encoding))

    def _problem(self, path: str, encoding: Encoding) -> ArtifactError | None:
        if encoding != self.encoding:
            reason = (
                f"the store holds {self.encoding} files, this one is {encoding}; `seedline convert` copies it"
            )
            return LayoutMismatchError(reason, path=path)
        return self.escape_problem(path)

    def escape_problem(self, path: str) -> ArtifactError | None:
        """Say that a symbolic link leads out of the store, None where none does."""
        inside = os.path.realpath(self.root) + os.sep
        if os.path.realpath(path).startswith(inside):
            return None
        return IdentityMismatchError("a symbolic link leads out of the store", path=path)

    # --- checking ----------------------------------------------------------------------------------

    def check_identity(self, path: str, header: SessionHeader, session_id: str | None = None) -> None:
        """Raise `IdentityMismatchError` unless a file lies where its header belongs, and has the id."""
        if session_id is not None and header.id != session_id:
            raise IdentityMismatchError(f"the header says {header.id[:80]!r}", path=path)
        try:
            expected = self.path_of(header)
        except SessionIdRefusedError as error:
            raise IdentityMismatchError(f"no folder can belong to its header: {error}", path=path) from None
        if expected != path and os.path.realpath(expected) != os.path.realpath(path):
            where = os.path.relpath(os.path.dirname(expected), self.root)
            raise IdentityMismatchError(f"its header belongs in {where!r}", path=path)


def twice(paths: list[str]) -> SessionPersistenceCorruptionError:
    """Return the error for one id that has several files."""
    return SessionPersistenceCorruptionError(
        f"one session id has {len(paths)} files: {', '.join(sorted(paths))}"
    )
