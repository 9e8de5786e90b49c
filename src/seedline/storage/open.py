"""From a store URL to its backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from seedline.errors import StoreUrlError
from seedline.storage.base import Backend
from seedline.storage.jsonl.file import Encoding

VARIABLE: Final = "SEEDLINE_STORE"
DEFAULT: Final = "jsonl:~/.local/share/seedline"

Scheme = Literal["jsonl", "sqlite", "postgresql", "memory"]
_OPTIONS: Final[Mapping[Scheme, tuple[str, ...]]] = {"jsonl": ("encoding",), "sqlite": (), "memory": ()}
_ENCODINGS: Final = ("jsonl", "zstd")
_SCHEMA: Final = "schema"


class StoreAddress(msgspec.Struct, frozen=True):
    """A store URL, read. `target` is an absolute path, a PostgreSQL URL without our options, or empty."""

    scheme: Scheme
    target: str
    options: dict[str, str] = {}

    @property
    def encoding(self) -> Encoding:
        """The encoding that new files of a JSONL store get."""
        return cast("Encoding", self.options.get("encoding", "jsonl"))


def open_store(url: str | None = None) -> Backend:
    """Return the backend of a store URL, by default `$SEEDLINE_STORE`, else `jsonl:~/.local/share/seedline`.

    `jsonl:PATH[?encoding=zstd]`, `sqlite:PATH` (also `sqlite:///relative`, `sqlite:////absolute`),
    `postgresql://...[?schema=NAME]`, `memory:`. Nothing is made before the first batch is stored. Raises
    `StoreUrlError`, and what the backend raises when its place is unusable.
    """
    address = store_address(url)
    # Each backend is imported for its own URL: `psycopg` is an extra, and start-up pays for one store only.
    match address.scheme:
        case "jsonl":
            from seedline.storage.jsonl.backend import JsonlBackend

            return JsonlBackend(address.target, encoding=address.encoding)
        case "sqlite":
            from seedline.storage.sqlite import SqliteBackend

            return SqliteBackend(address.target)
        case "postgresql":
            return _postgres(address)
        case "memory":
            from seedline.storage.memory import MemoryBackend

            return MemoryBackend()


def store_address(url: str | None = None) -> StoreAddress:
    """Return what a store URL says, relative paths made absolute now. Raises `StoreUrlError`."""
    chosen = url or os.environ.get(VARIABLE) or DEFAULT
    scheme, colon, rest = chosen.partition(":")
    if not colon:
        raise StoreUrlError(f"{_shown(chosen)} has no scheme")
    match scheme:
        case "postgresql" | "postgres":
            return _of_server(chosen)
        case "jsonl" | "sqlite":
            return _of_path(scheme, rest)
        case "memory" if not rest:
            return StoreAddress("memory", "")
        case _:
            raise StoreUrlError(f"{_shown(chosen)} is no store that is known here")


def _of_path(scheme: Literal["jsonl", "sqlite"], rest: str) -> StoreAddress:
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        # As other libraries write it: three slashes begin a relative path, four an absolute one.
        host, _, path = path[2:].partition("/")
        if host:
            raise StoreUrlError(f"{scheme}://{host}/ names a host; files are on this machine", place=scheme)
    if not path or "\0" in path:
        raise StoreUrlError(f"{scheme}: needs a path", place=scheme)
    options = dict(parse_qsl(query, keep_blank_values=True))
    _check_options(scheme, options)
    return StoreAddress(scheme, os.path.abspath(os.path.expanduser(path)), options)


def _check_options(scheme: Scheme, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in _OPTIONS[scheme]:
            raise StoreUrlError(f"a {scheme} store has no option {_shown(name)}", place=scheme)
        if value not in _ENCODINGS:
            raise StoreUrlError(f"{name} is jsonl or zstd, not {_shown(value)}", place=scheme)


def _of_server(url: str) -> StoreAddress:
    """Take our option out of the URL; everything else is for libpq, which reads passwords too."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreUrlError("the URL is no PostgreSQL URL", place="postgresql://") from None
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schemas = {name: value for name, value in pairs if name == _SCHEMA}
    if not schemas:
        return StoreAddress("postgresql", url)
    query = urlencode([pair for pair in pairs if pair[0] != _SCHEMA])
    return StoreAddress("postgresql", urlunsplit(parts._replace(query=query)), schemas)


def _postgres(address: StoreAddress) -> Backend:
    try:
        from seedline.storage.postgres import PostgresBackend
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        reason = "PostgreSQL needs the extra `postgres`: pip install 'seedline[postgres]'"
        raise StoreUrlError(reason, place="postgresql://") from error
    return PostgresBackend(address.target, **address.options)


def _shown(text: str) -> str:
    return repr(text[:80])
