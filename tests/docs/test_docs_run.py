"""Every program and command in the README and the guides runs and prints what the page shows.

A page's python blocks share one namespace and one folder, its console blocks another folder; both start as a
copy of the project. Neither can reach the user's home or stored sessions.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import (
    Block,
    Command,
    blocks,
    commands,
    first_difference,
    headings,
    info_problem,
    link_problem,
    links,
    matches,
)
from tests.project import ROOT, project_files

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TWINS = [page for page in PAGES if page.name.endswith(".zh.md")]
SECONDS = 120


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runnable(page: Path, language: str) -> list[Block]:
    """The blocks of one language that a page wants run."""
    found = blocks(page.read_text("utf-8"))
    return [block for block in found if block.language == language and not block.no_run]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no variable that changes where Seedline looks or how it prints."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("SEEDLINE_", "XDG_", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)
    bin_folder = Path(sys.executable).parent
    changes = {"HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb", "PYTHONUTF8": "1"}
    for name, value in {**changes, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    return folder


def copy_project(copy: Path) -> Path:
    """A copy of the project's files, which the commands of a page may change."""
    for source in project_files():
        target = copy / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    return copy


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    found = [(block.line, info_problem(block)) for block in blocks(page.read_text("utf-8"))]
    wrong = [f"{page_id(page)}:{line}: {problem}" for line, problem in found if problem]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_resolve(page: Path) -> None:
    found = [(line, link_problem(page, target)) for line, target in links(page.read_text("utf-8"))]
    wrong = [f"{page_id(page)}:{line}: {problem}" for line, problem in found if problem]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", TWINS, ids=page_id)
def test_a_chinese_twin_keeps_the_shape_of_its_page(page: Path) -> None:
    twin = page.with_name(page.name.replace(".zh.md", ".md"))
    assert shape(page.read_text("utf-8")) == shape(twin.read_text("utf-8"))


def shape(text: str) -> tuple[int, int, list[tuple[str, str]]]:
    """How many headings and table rows a page has, and its programs without their comments."""
    programs = [(block.language, re.sub(r"(?m)\s*#.*$", "", block.text)) for block in blocks(text)]
    rows = sum(line.startswith("|") for line in text.splitlines())
    return len(headings(text)), rows, programs


@pytest.mark.parametrize("page", PAGES, ids=page_id)
@pytest.mark.usefixtures("home")
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = runnable(page, "python")
    monkeypatch.chdir(copy_project(tmp_path / "project") if wanted else tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in wanted:
        printed = run_python(block, page, namespace)
        if block.output is not None:
            compare(block.output.splitlines(), printed.splitlines(), f"{page_id(page)}:{block.line}")


def run_python(block: Block, page: Path, namespace: dict[str, object]) -> str:
    """What the block prints. Its lines are numbered as in the page, so a traceback points there."""
    program = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, namespace)
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
@pytest.mark.usefixtures("home")
def test_console_blocks_run(page: Path, tmp_path: Path) -> None:
    wanted = runnable(page, "console")
    folder = copy_project(tmp_path / "project") if wanted else tmp_path
    for block in wanted:
        for command in commands(block):
            run_command(command, block, folder, page_id(page))


def run_command(command: Command, block: Block, cwd: Path, page: str) -> None:
    where = f"{page}:{command.line}: $ {command.command}"
    result = subprocess.run(
        ["bash", "-c", command.command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    last = command == list(commands(block))[-1]
    wanted = block.exit_code if last else 0
    assert result.returncode == wanted, f"{where}\nexit {result.returncode}, not {wanted}\n{result.stdout}"
    compare(command.expected, result.stdout.splitlines(), where)


def compare(expected: list[str] | tuple[str, ...], actual: list[str], where: str) -> None:
    if not matches(expected, actual):
        pytest.fail(f"{where}\n{first_difference(expected, actual)}\n" + "\n".join(actual), pytrace=False)


@pytest.mark.usefixtures("home")
def test_a_wrong_output_fails(tmp_path: Path) -> None:
    block = Block("console", "", "$ echo one\ntwo\n", 1)
    [command] = commands(block)
    with pytest.raises(pytest.fail.Exception, match="shows 'two', the run printed 'one'"):
        run_command(command, block, tmp_path, "page.md")


@pytest.mark.usefixtures("home")
def test_an_unexpected_exit_code_fails(tmp_path: Path) -> None:
    block = Block("console", "exit=3", "$ exit 4\n", 1)
    [command] = commands(block)
    with pytest.raises(AssertionError, match="exit 4, not 3"):
        run_command(command, block, tmp_path, "page.md")
