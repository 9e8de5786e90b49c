"""Fixtures for tests of the command line."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands


@pytest.fixture
def seedline(capfdbinary: pytest.CaptureFixture[bytes]) -> Commands:
    """The command line, run inside this process."""
    return Commands(capfdbinary)
