"""From the URL of a store to what can be asked about it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from seedline.query.corpus import Corpus
from seedline.session.store import SessionStore
from seedline.storage.base import Backend
from seedline.storage.open import StoreAddress, open_store, store_address


@contextmanager
def open_corpus(url: str | None = None, live: SessionStore | None = None) -> Generator[Corpus]:
    """Give the sessions of a store, by default the user's own, overlaid by live ones; close it at the end.

    Raises what `open_store` raises. A store that does not exist yet holds no session, and stays so.
    """
    with ExitStack() as stack:
        backend = open_store(url)
        stack.callback(backend.close)
        yield _corpus(backend, store_address(url), live, stack)


def _corpus(backend: Backend, address: StoreAddress, live: SessionStore | None, stack: ExitStack) -> Corpus:
    # Each helper is imported for its own store: `psycopg` is an extra.
    match address.scheme:
        case "sqlite":
            from seedline.query.sqlite import SqliteQueries

            queries = SqliteQueries(backend, address.target)
        case "postgresql":
            from seedline.query.postgres import PostgresQueries

            queries = PostgresQueries(backend, address.target, **address.options)
        case _:
            return Corpus(backend, live)
    stack.callback(queries.close)
    return Corpus(backend, live, ranges=queries, index=queries)
