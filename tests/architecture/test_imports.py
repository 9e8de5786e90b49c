"""Importing `seedline` does nothing, costs little, and every public name has a home."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seedline

TOP = Path(seedline.__file__)

HEAVY = {"anyio", "asyncio", "httpx", "httpx2", "logging", "mcp", "msgspec", "psycopg", "rich", "sqlite3"}
HEAVY |= {"starlette", "typer", "uvicorn", "zstandard"}

PROBE = """
import json, os, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
before = dict(os.environ), os.getcwd(), list(sys.path), sys.excepthook, threading.active_count()
known = set(sys.modules)
import seedline
after = dict(os.environ), os.getcwd(), list(sys.path), sys.excepthook, threading.active_count()
print(json.dumps({"loaded": sorted(set(sys.modules) - known), "same": before == after}))
"""


def run_probe(cwd: Path) -> subprocess.CompletedProcess[str]:
    """Import the package in a new interpreter with the same path, home in `cwd`, no site start-up."""
    env = {"HOME": str(cwd), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-W", "error", "-c", PROBE, json.dumps(sys.path)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=True)


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = json.loads(run_probe(tmp_path).stdout)["loaded"]
    assert "seedline" in loaded
    assert HEAVY.isdisjoint(name.split(".")[0] for name in loaded)
    assert [name for name in loaded if name.startswith("seedline.")] == ["seedline.version"]


def test_import_has_no_side_effects(tmp_path: Path) -> None:
    result = run_probe(tmp_path)
    assert json.loads(result.stdout)["same"]
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


def type_checker_imports() -> dict[str, str]:
    """The names imported under TYPE_CHECKING at the top of the package, with their homes."""
    tree = ast.parse(TOP.read_text("utf-8"))
    guarded = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name: node.module or ""
        for block in guarded
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_three_lists_of_public_names_agree() -> None:
    assert sorted(seedline.__all__) == sorted(["__version__", *seedline._PUBLIC])
    assert type_checker_imports() == seedline._PUBLIC


def test_every_public_name_resolves_to_the_object_in_its_home() -> None:
    for name, home in seedline._PUBLIC.items():
        assert getattr(seedline, name) is getattr(importlib.import_module(home), name)
        assert name in dir(seedline)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'not_there'"):
        _ = seedline.not_there
