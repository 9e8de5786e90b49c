"""The coordinator contract, on every backend and event loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seedline.storage.base import Backend
from seedline.storage.jsonl.backend import JsonlBackend
from seedline.storage.memory import MemoryBackend
from seedline.storage.postgres import PostgresBackend
from seedline.storage.sqlite import SqliteBackend
from seedline.testing.coordinator_contract import CoordinatorContract


class OnEveryLoop(CoordinatorContract):
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> str:
        return request.param


class TestMemory(OnEveryLoop):
    @pytest.fixture
    def open_backend(self) -> Callable[[], Backend]:
        backend = MemoryBackend()
        return lambda: backend


class TestJsonl(OnEveryLoop):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Callable[[], Backend]:
        return lambda: JsonlBackend(tmp_path / "runs")


class TestCompressed(OnEveryLoop):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Callable[[], Backend]:
        return lambda: JsonlBackend(tmp_path / "runs", encoding="zstd")


class TestSqlite(OnEveryLoop):
    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Callable[[], Backend]:
        return lambda: SqliteBackend(tmp_path / "runs.db")


class TestPostgres(OnEveryLoop):
    @pytest.fixture
    def open_backend(self, postgres_url: str, postgres_schema: str) -> Callable[[], Backend]:
        return lambda: PostgresBackend(postgres_url, postgres_schema)
