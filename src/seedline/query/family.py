"""From a session of a corpus to the tree below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seedline.errors import SeedlineError
from seedline.query.corpus import UNREADABLE, Corpus, SessionRecord
from seedline.query.sessions import Descendant, trace_session
from seedline.replay.script import recorded_tree
from seedline.session.tree import RecordedSession, SessionTree


@dataclass(frozen=True, slots=True)
class Family:
    """A session with all that descends from it, and the descendants that cannot be read, with the reason."""

    tree: SessionTree
    unreadable: tuple[tuple[SessionRecord, SeedlineError], ...]


def read_family(corpus: Corpus, session_id: str, *, forks: bool = True) -> Family:
    """Return the tree whose primary is the session named, with or without the forks in it.

    It holds whole logs in memory. The children of a descendant that cannot be read hang below the primary,
    detached. Raises an `ArtifactError` for the session itself, `QueryError` (`INVALID_LINEAGE`),
    `LineageError`, and `StorageError`.
    """
    trace = trace_session(corpus, session_id)
    primary = corpus.read(session_id)
    sessions: list[RecordedSession] = [primary]
    unreadable: list[tuple[SessionRecord, SeedlineError]] = []
    for record in _wanted(trace.descendants, forks):
        try:
            sessions.append(corpus.read(record.session_id or ""))
        except UNREADABLE as error:
            unreadable.append((record, error))
    return Family(recorded_tree(sessions, primary), tuple(unreadable))


def _wanted(descendants: tuple[Descendant, ...], forks: bool) -> Iterator[SessionRecord]:
    """Yield the descendants, at wish without forks and what is below those."""
    left_out: int | None = None  # the depth of the fork that is being skipped
    for each in descendants:
        if left_out is not None and each.depth > left_out:
            continue
        left_out = each.depth if each.is_fork and not forks else None
        if left_out is None:
            yield each.record
