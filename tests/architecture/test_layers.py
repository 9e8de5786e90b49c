"""Holds the arrows between the rooms of the package.

A room is a module or package directly under `seedline`. It may import itself and rooms of lower layers.
Imports inside functions and under TYPE_CHECKING count like any other, and so does `import_module` with a
literal name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "seedline"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("version", "errors", "ids", "clock", "jsonvalue"),
    ("events",),
    ("session",),
    ("storage", "llm", "tools"),
    ("agent", "replay"),
    ("subagents",),
    ("runtime",),
    ("snapshot", "query", "testing"),
    ("viewer", "gateway", "pytest_plugin"),
    ("cli",),
    ("__init__", "__main__"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

SIDEWAYS = {("ids", "errors"), ("jsonvalue", "errors")}
"""The arrows inside a layer: (importing room, imported room)."""


def room_of(module: str) -> str:
    """`seedline.events.codec` lies in the room `events`, `seedline` itself in `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_name(file: Path, package: Path) -> str:
    """The dotted name of a source file; a package's `__init__` keeps that last part."""
    return ".".join((package.name, *file.relative_to(package).with_suffix("").parts))


def imports(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Each import in the file as (line, absolute dotted name), with names after `from` joined on."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                base = absolute(node, module)
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) in (
                "import_module",
                "__import__",
            ):
                yield node.lineno, name


def absolute(node: ast.ImportFrom, module: str) -> str:
    """What a `from` clause names; one leading dot stands for the package that holds the file."""
    if not node.level:
        return node.module or ""
    holder = module.split(".")[: -node.level]
    return ".".join([*holder, *filter(None, [node.module])])


def called(node: ast.Call) -> str:
    """The bare name of the function that a call names."""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def target_room(name: str, package: str) -> str | None:
    """The room an import reaches, None for other distributions. Public names lie at the top."""
    if name.split(".")[0] != package:
        return None
    room = room_of(name)
    return room if name.count(".") > 1 or room in LEVEL else "__init__"


def arrow_problem(source: str, target: str) -> str | None:
    """Why `source` must not import `target`, or None."""
    if target not in LEVEL:
        return f"unknown room {target!r}: give it a layer in LAYERS"
    if source == target or (source, target) in SIDEWAYS or LEVEL[target] < LEVEL[source]:
        return None
    side = "the same layer" if LEVEL[target] == LEVEL[source] else "a higher layer"
    return f"{source} (layer {LEVEL[source]}) imports {target} (layer {LEVEL[target]}): {side}"


def problems(package: Path) -> list[str]:
    """Every forbidden arrow and unknown room, as `file:line: reason`."""
    return [
        f"{file.relative_to(package.parent)}:{line}: {reason}"
        for file in sorted(package.rglob("*.py"))
        for line, reason in file_problems(file, package)
    ]


def file_problems(file: Path, package: Path) -> Iterator[tuple[int, str]]:
    module = module_name(file, package)
    source = room_of(module)
    if source not in LEVEL:
        yield 1, f"unknown room {source!r}: give it a layer in LAYERS"
        return
    for line, name in imports(ast.parse(file.read_text("utf-8")), module):
        target = target_room(name, package.name)
        reason = target and arrow_problem(source, target)
        if reason:
            yield line, reason


def test_rooms_import_only_lower_layers() -> None:
    found = problems(PACKAGE)
    assert not found, "\n".join(found)


def test_the_walk_sees_the_package() -> None:
    assert (PACKAGE / "__init__.py").is_file()
    assert len(list(PACKAGE.rglob("*.py"))) > 5


def plant(folder: Path, file: str, source: str) -> Path:
    """A package named seedline whose only content is one file."""
    package = folder / "seedline"
    path = package / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    ("file", "source", "reason"),
    [
        ("events/a.py", "from seedline.session.log import Session", "a higher layer"),
        ("events/a.py", "import seedline.session", "a higher layer"),
        ("events/a.py", "from seedline import session", "a higher layer"),
        ("events/a.py", "from ..session import log", "a higher layer"),
        ("events/deep/a.py", "from ...session import log", "a higher layer"),
        ("events/__init__.py", "from ..session import log", "a higher layer"),
        ("events/a.py", "from .. import session", "a higher layer"),
        ("events/a.py", "def f():\n    from seedline.session import log", "a higher layer"),
        ("events/a.py", "if TYPE_CHECKING:\n    from seedline.session import log", "a higher layer"),
        ("events/a.py", "import importlib\nimportlib.import_module('seedline.session')", "a higher layer"),
        (
            "events/a.py",
            "from importlib import import_module\nimport_module('seedline.cli')",
            "a higher layer",
        ),
        ("events/a.py", "__import__('seedline.session.log')", "a higher layer"),
        ("cli/a.py", "import seedline", "a higher layer"),
        ("cli/a.py", "from seedline import Session", "a higher layer"),
        ("llm/a.py", "from seedline.tools import registry", "the same layer"),
        ("clock.py", "from seedline.errors import SeedlineError", "the same layer"),
        ("errors.py", "from seedline import ids", "the same layer"),
        ("attic/a.py", "", "unknown room 'attic'"),
        ("attic.py", "", "unknown room 'attic'"),
        ("cli/a.py", "from seedline.attic import junk", "unknown room 'attic'"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, reason: str) -> None:
    [problem] = problems(plant(tmp_path, file, source))
    assert file in problem
    assert reason in problem


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("cli/a.py", "from seedline.runtime import open_runtime\nfrom seedline import events, version"),
        ("session/a.py", "from seedline.session.log import Session\nfrom . import log\nfrom .log import x"),
        ("jsonvalue.py", "from seedline.errors import SeedlineError"),
        ("__init__.py", "from seedline.runtime import open_runtime"),
        ("__main__.py", "from seedline.cli.main import main"),
        ("clock.py", "import time, msgspec\nfrom seedlines import cli\nimport_module(name)"),
    ],
)
def test_lower_layers_and_other_distributions_are_allowed(tmp_path: Path, file: str, source: str) -> None:
    assert problems(plant(tmp_path, file, source)) == []
