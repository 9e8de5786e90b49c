"""The installed command as a process of its own: streams, signals, and what it costs to start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import one_turn, write_log

SEEDLINE = Path(sys.executable).with_name("seedline")
STANDARD = ("asyncio", "sqlite3", "json", "logging")
HEAVY = ("rich", "msgspec", "zstandard", "anyio", "jsonschema", "hypothesis", *STANDARD)
OPTIONAL = ("httpx", "psycopg", "starlette", "uvicorn", "mcp")
"""What the extras bring: not on every machine, and never needed for help."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "session.jsonl", one_turn())


def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, "check": False} | options
    return subprocess.run([SEEDLINE, *arguments], **settings)  # type: ignore[call-overload]  # options of any kind


def test_the_installed_command_runs(log: Path) -> None:
    assert run("--version").stdout.startswith(b"seedline ")
    ran = run("inspect", log, "--json")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(ran.stdout)["events"] == 12
    assert run("inspect", "gone").returncode == 5
    assert run("inspect").returncode == 2


def test_the_module_is_the_same_command(log: Path) -> None:
    command = [sys.executable, "-m", "seedline", "inspect", log, "--json"]
    assert (
        subprocess.run(command, capture_output=True, check=True).stdout
        == run("inspect", log, "--json").stdout
    )


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "from seedline.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stderr.split()}
    assert "typer" in loaded
    assert loaded.isdisjoint(HEAVY + OPTIONAL), loaded & {*HEAVY, *OPTIONAL}
    assert "seedline.cli.verbs" not in ran.stderr


def test_json_output_loads_no_drawing(log: Path) -> None:
    program = (
        "import sys\n"
        "from seedline.cli.main import main\n"
        f"try: main(['inspect', {str(log)!r}, '--json'])\n"
        "except SystemExit: pass\n"
        "assert 'rich' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_no_code(closed: str, log: Path) -> None:
    for name, code in ((log, 0), ("gone", 5)):
        shell = f'"$0" inspect "$1" --json {closed}'
        ran = subprocess.run(["sh", "-c", shell, SEEDLINE, name], capture_output=True, check=False)
        assert ran.returncode == code, (closed, ran.stderr)
        assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_goes_away_is_quiet(form: list[str], log: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = run("inspect", log, *form, stdout=writer)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_under_the_output_is_no_success(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        ran = run("inspect", log, "--json", stdout=full)
    assert ran.returncode == 2
    assert b"cannot be written" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_output_is_utf8_json_in_any_locale(tmp_path: Path) -> None:
    path = write_log(tmp_path / "s.jsonl", [], id="é日🙂")
    env = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    ran = run("inspect", path, "--json", env=env)
    assert json.loads(ran.stdout.decode())["header"]["id"] == "é日🙂"
    shown = run("inspect", path, env=env)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert "é".encode("latin-1") + rb"\u65e5" in shown.stdout


def test_an_interrupt_exits_with_130(tmp_path: Path) -> None:
    program = (
        "import os, signal, seedline.cli.verbs.inspect as verb\n"
        "from seedline.cli.main import main\n"
        "verb.read_log = lambda path: os.kill(os.getpid(), signal.SIGINT)\n"
        "main(['inspect', 'x'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
    assert signal.SIGINT + 128 == 130
