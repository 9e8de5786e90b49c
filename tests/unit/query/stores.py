"""Stores of every kind for the tests of this room, and logs that are put into them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seedline.events.event import Event
from seedline.query.corpus import Corpus
from seedline.query.sqlite import SqliteQueries
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.storage.base import Backend, Prefix
from seedline.storage.memory import MemoryBackend
from seedline.storage.sqlite import SqliteBackend

KINDS = ["memory", "sqlite", "postgresql"]
if find_spec("seedline.storage.jsonl.backend") is not None:
    KINDS.append("jsonl")


@dataclass
class Store:
    """A store, and what can be asked about it: with every aid that its kind has, and plainly."""

    backend: Backend
    corpus: Corpus

    @property
    def plain(self) -> Corpus:
        return Corpus(self.backend)


@contextmanager
def opened(kind: str, folder: Path, postgres: Callable[[], tuple[str, str]]) -> Generator[Store]:
    """An empty store of a kind; `postgres` gives the URL and the schema where one is needed."""
    if kind == "memory":
        backend: Any = MemoryBackend()
        yield Store(backend, Corpus(backend))
    elif kind == "jsonl":
        backend = import_module("seedline.storage.jsonl.backend").JsonlBackend(str(folder / "runs"))
        yield Store(backend, Corpus(backend))
    else:
        backend, queries = _database(kind, folder, postgres)
        yield Store(backend, Corpus(backend, ranges=queries, index=queries))
        queries.close()
    backend.close()


def _database(kind: str, folder: Path, postgres: Callable[[], tuple[str, str]]) -> tuple[Backend, Any]:
    if kind == "sqlite":
        path = str(folder / "runs.db")
        backend: Any = SqliteBackend(path)
        return backend, SqliteQueries(backend, path)
    from seedline.query.postgres import PostgresQueries
    from seedline.storage.postgres import PostgresBackend

    url, schema = postgres()
    backend = PostgresBackend(url, schema)
    return backend, PostgresQueries(backend, url, schema)


def header(session_id: str, created_at: int = 1, **facts: Any) -> SessionHeader:
    return SessionHeader(id=session_id, created_at=created_at, **facts)


def put(
    backend: Backend,
    head: SessionHeader,
    events: Sequence[Event],
    *,
    cut: SessionLogOffset = START,
    prefix: Prefix | None = None,
) -> None:
    """Store a session in one batch: with a prefix only what follows it."""
    writer = backend.create(head, cut, prefix)
    writer.append(list(events))
    writer.close()


def add(backend: Backend, session_id: str, events: Sequence[Event]) -> None:
    """Append to a stored session."""
    _, writer = backend.open(session_id)
    writer.append(list(events))
    writer.close()
