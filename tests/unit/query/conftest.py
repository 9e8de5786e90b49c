"""The stores that tests of this room run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.query.stores import KINDS, Store, opened


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""

    def postgres() -> tuple[str, str]:
        return request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")

    with opened(request.param, tmp_path, postgres) as store:
        yield store
