"""The store contract, on every backend."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from seedline.ids import encode_segment
from seedline.storage.base import Backend
from seedline.storage.jsonl.backend import JsonlBackend
from seedline.storage.memory import MemoryBackend
from seedline.storage.postgres import PostgresBackend
from seedline.storage.sqlite import SqliteBackend
from seedline.testing.store_contract import StoreContract

DAMAGED_HEADER = "UPDATE sessions SET created_at = -1 WHERE id = {}"
TORN_EVENT = """
    UPDATE events SET data = {} WHERE seq = (SELECT max(seq) FROM events WHERE {} = (
        SELECT key FROM sessions WHERE id = {}))
"""


class TestMemory(StoreContract):
    @pytest.fixture
    def open_backend(self) -> Callable[[], Backend]:
        backend = MemoryBackend()
        return lambda: backend


class TestSqlite(StoreContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "store" / "runs.db"

    @pytest.fixture
    def open_backend(self, path: Path) -> Callable[[], Backend]:
        return lambda: SqliteBackend(path)

    @pytest.fixture
    def execute(self, path: Path) -> Callable[..., None]:
        def execute(statement: str, *values: object) -> None:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                assert connection.execute(statement, values).rowcount == 1

        return execute

    @pytest.fixture
    def damage(self, execute: Callable[..., None]) -> Callable[[str], object]:
        return lambda name: execute(DAMAGED_HEADER.format("?"), name)

    @pytest.fixture
    def tear(self, execute: Callable[..., None]) -> Callable[[str], object]:
        return lambda name: execute(TORN_EVENT.format("?", "session_key", "?"), b"{", name)

    @pytest.fixture
    def weigh(self, path: Path) -> Callable[[], int]:
        def weigh() -> int:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return path.stat().st_size

        return weigh


class TestPostgres(StoreContract):
    @pytest.fixture
    def open_backend(self, postgres_url: str, postgres_schema: str) -> Callable[[], Backend]:
        return lambda: PostgresBackend(postgres_url, postgres_schema)

    @pytest.fixture
    def execute(self, postgres_url: str, postgres_schema: str) -> Callable[..., Any]:
        import psycopg

        def execute(statement: str, *values: object) -> Any:
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(f'SET search_path TO "{postgres_schema}"'.encode())
                return connection.execute(statement.encode(), values)

        return execute

    @pytest.fixture
    def damage(self, execute: Callable[..., Any]) -> Callable[[str], object]:
        return lambda name: execute(DAMAGED_HEADER.format("%s"), name.encode())

    @pytest.fixture
    def tear(self, execute: Callable[..., Any]) -> Callable[[str], object]:
        return lambda name: execute(TORN_EVENT.format("%s", "session", "%s"), b"{", name.encode())

    @pytest.fixture
    def weigh(self, execute: Callable[..., Any], postgres_schema: str) -> Callable[[], int]:
        query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = %s::regnamespace"
        return lambda: int(execute(query, f'"{postgres_schema}"').fetchone()[0])


class OnFiles(StoreContract):
    """A JSONL store, of either encoding."""

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Callable[[str], object]:
        return lambda name: _file(tmp_path, name).write_bytes(b"no header\n")

    @pytest.fixture
    def tear(self, tmp_path: Path) -> Callable[[str], object]:
        def tear(name: str) -> None:
            file = _file(tmp_path, name)
            os.truncate(file, file.stat().st_size - 9)

        return tear

    @pytest.fixture
    def weigh(self, tmp_path: Path) -> Callable[[], int]:
        return lambda: sum(file.stat().st_size for file in tmp_path.rglob("session.jsonl*"))


def _file(root: Path, name: str) -> Path:
    [file] = root.glob(f"runs/*/{encode_segment(name)}/session.jsonl*")
    return file


class TestJsonl(OnFiles):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Callable[[], Backend]:
        return lambda: JsonlBackend(tmp_path / "runs")


class TestCompressed(OnFiles):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Callable[[], Backend]:
        return lambda: JsonlBackend(tmp_path / "runs", encoding="zstd")
