"""The promises of conftest.py, on small runs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

CONFTEST = Path(__file__).with_name("conftest.py")

SKIPPING = """
import pytest

def test_runs():
    pass

def test_skips():
    pytest.skip("no server on this machine")
"""


def run_pytest(folder: Path, test: str, *options: str, ci: str) -> subprocess.CompletedProcess[str]:
    """A run of one test file under the real conftest, with CI set to `ci`."""
    (folder / "conftest.py").write_text(CONFTEST.read_text("utf-8"), encoding="utf-8")
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    env = {**os.environ, "CI": ci, "PAID_API_KEY": "secret"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "workers"])
def test_in_ci_a_skip_fails_the_run_and_its_reason_is_shown(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = run_pytest(tmp_path, SKIPPING, *options, ci="1")
    assert result.returncode == 1
    assert "test_it.py::test_skips: no server on this machine" in result.stdout


def test_in_ci_a_skipped_module_fails_the_run(tmp_path: Path) -> None:
    source = "import pytest\npytest.skip('no flock here', allow_module_level=True)\n"
    result = run_pytest(tmp_path, source + "def test_a(): pass\n", ci="1")
    assert result.returncode != 0
    assert "no flock here" in result.stdout


def test_elsewhere_a_skip_is_only_reported(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, SKIPPING, ci="").returncode == 0


def test_keys_of_paid_services_are_out_of_reach(tmp_path: Path) -> None:
    source = "import os\ndef test_a():\n    assert 'PAID_API_KEY' not in os.environ\n"
    assert run_pytest(tmp_path, source, ci="").returncode == 0


def test_the_searches_are_bounded_unless_swept() -> None:
    sweep = os.environ.get("SEEDLINE_SWEEP") == "1"
    assert settings.get_current_profile_name() == ("sweep" if sweep else "default")
    assert settings().max_examples == (2000 if sweep else 50)
    assert settings().deadline is None
