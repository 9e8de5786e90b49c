"""What holds for every test: how hard the searches look, and that CI skips nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

IN_CI = bool(os.environ.get("CI"))
SWEEP = os.environ.get("SEEDLINE_SWEEP") == "1"

# In CI the bounded sample is the same on every run, so that a red build is about the change under it.
settings.register_profile("default", max_examples=50, deadline=None, derandomize=IN_CI, print_blob=True)
settings.register_profile(
    "sweep",
    max_examples=2000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("sweep" if SWEEP else "default")


def pytest_configure() -> None:
    """No test may spend money by accident: keys of paid services are out of reach."""
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        del os.environ[name]


def skip_reasons(reports: Iterable[Any]) -> list[str]:
    """Each skipped test or module with its reason, as pytest recorded it."""
    return [f"{report.nodeid}: {reason_of(report.longrepr)}" for report in reports]


def reason_of(longrepr: object) -> str:
    match longrepr:
        case (_, _, str(reason)):
            return reason.removeprefix("Skipped: ")
    return str(longrepr)


def skipped(config: pytest.Config) -> list[str]:
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    return skip_reasons(terminal.stats.get("skipped", [])) if terminal else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI everything is installed, so a skipped test is a failure."""
    if IN_CI and skipped(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reasons = skipped(config)
    if IN_CI and reasons:
        terminalreporter.section("skipped tests fail the run because CI is set", red=True)
        for reason in reasons:
            terminalreporter.line(reason)
