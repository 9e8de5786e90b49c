"""From a store URL to its backend (design 3, Stores)."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from seedline.errors import StoreUrlError
from seedline.storage.memory import MemoryBackend
from seedline.storage.open import StoreAddress, open_store, store_address
from seedline.storage.postgres import PostgresBackend
from seedline.storage.sqlite import SqliteBackend


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SEEDLINE_STORE", raising=False)


@pytest.mark.parametrize(
    ("url", "scheme", "path"),
    [
        ("jsonl:./runs", "jsonl", "runs"),
        ("jsonl:runs/", "jsonl", "runs"),
        ("jsonl:~/runs", "jsonl", "home/runs"),
        ("jsonl:a b/开发", "jsonl", "a b/开发"),
        ("sqlite:runs.db", "sqlite", "runs.db"),
        ("sqlite:///runs.db", "sqlite", "runs.db"),
        ("sqlite:///~/runs.db", "sqlite", "home/runs.db"),
    ],
)
def test_a_relative_path_is_made_absolute_at_once(url: str, scheme: str, path: str, tmp_path: Path) -> None:
    address = store_address(url)
    os.chdir("/")
    assert (address.scheme, address.target) == (scheme, str(tmp_path / path))


def test_four_slashes_and_one_begin_an_absolute_path() -> None:
    assert store_address("sqlite:////var/x.db").target == "/var/x.db"
    assert store_address("sqlite:/var/x.db").target == "/var/x.db"
    assert store_address("jsonl:/var/x").target == "/var/x"


def test_the_default_is_the_variable_then_a_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store_address() == StoreAddress("jsonl", str(tmp_path / "home/.local/share/seedline"))
    monkeypatch.setenv("SEEDLINE_STORE", "sqlite:x.db")
    assert store_address() == StoreAddress("sqlite", str(tmp_path / "x.db"))
    assert store_address("memory:") == StoreAddress("memory", "")


def test_an_encoding_is_for_a_jsonl_store() -> None:
    assert store_address("jsonl:runs?encoding=zstd").encoding == "zstd"
    assert store_address("jsonl:runs").encoding == "jsonl"
    with pytest.raises(StoreUrlError, match="'encoding'"):
        store_address("sqlite:runs.db?encoding=zstd")


def test_our_option_is_taken_out_of_a_postgresql_url() -> None:
    address = store_address("postgresql://u:p%40@h:5/d?sslmode=require&schema=mine")
    assert address == StoreAddress(
        "postgresql", "postgresql://u:p%40@h:5/d?sslmode=require", {"schema": "mine"}
    )
    plain = "postgresql:///d?host=/run/pg"
    assert store_address(plain) == StoreAddress("postgresql", plain)


@pytest.mark.parametrize(
    "url",
    [
        "runs",
        "jsonl:",
        "sqlite:",
        "jsonl://host/x",
        "file:x",
        "memory:x",
        "jsonl:r?encoding=gzip",
        "jsonl:r?x=1",
    ],
)
def test_what_is_no_store_is_refused_with_the_forms_that_are(url: str) -> None:
    with pytest.raises(StoreUrlError, match="Use jsonl:PATH"):
        store_address(url)


def test_a_password_is_not_told() -> None:
    with pytest.raises(StoreUrlError) as caught, closing(open_store("postgresql://u:s3cr3t@[h/d")):
        pass
    assert "s3cr3t" not in str(caught.value)


def test_opening_makes_nothing(tmp_path: Path) -> None:
    kinds = {
        "sqlite:runs.db": SqliteBackend,
        "memory:": MemoryBackend,
        "postgresql://127.0.0.1:1/none?schema=s": PostgresBackend,
    }
    for url, kind in kinds.items():
        with closing(open_store(url)) as backend:
            assert isinstance(backend, kind)
    assert list(tmp_path.iterdir()) == []
