"""Coroutine tests run on asyncio, the backend the package is used with."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
