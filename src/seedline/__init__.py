"""Seedline: an agent harness whose sessions are append-only event logs.

Importing this package loads nothing but its version; a public name is loaded from its home on first use.
A public name stands in three lists here, which a test keeps equal: `_PUBLIC`, `__all__` and the imports that
only type checkers read.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from seedline.version import __version__

if TYPE_CHECKING:
    from seedline.snapshot.api import replay_tree

_PUBLIC: dict[str, str] = {
    "replay_tree": "seedline.snapshot.api",
}
"""Public name -> module that holds it."""

__all__ = ["__version__", "replay_tree"]


def __getattr__(name: str) -> Any:
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
