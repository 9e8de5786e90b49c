"""A pytest plugin: the report names what a backend is exempt from in the store contract, and why.

    pytest_plugins = ["seedline.testing.exemptions"]

in the topmost `conftest.py`. An exempt test passes, is no skip, and carries the exemption as the property
`exemption` in the JUnit report, with or without this plugin. It also lets failed assertions of the contracts
show their values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

PROPERTY = "exemption"
CONTRACTS = ("seedline.testing.store_contract", "seedline.testing.coordinator_contract")


def pytest_configure() -> None:
    """Have the assertions of the contracts show their values, which pytest does for test files alone."""
    pytest.register_assert_rewrite(*CONTRACTS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a line for each backend and exemption."""
    lines = exemption_lines(terminalreporter.stats.get("passed", []))
    if lines:
        terminalreporter.section("exemptions from the store contract")
        for line in lines:
            terminalreporter.line(line)


def exemption_lines(reports: Iterable[Any]) -> list[str]:
    """Return `class: what: why (tests: count)` for each exemption that the reports carry, sorted."""
    found = Counter(
        f"{report.nodeid.rpartition('::')[0]}: {value}"
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY
    )
    return [f"{line} (tests: {count})" for line, count in sorted(found.items())]
