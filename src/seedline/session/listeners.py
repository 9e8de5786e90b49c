"""Listener lists: add one, get the undo; tell them all, whatever one of them does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

Undo = Callable[[], None]
T = TypeVar("T")
_log = logging.getLogger("seedline.session")


def add_listener(listeners: list[T], listener: T) -> Undo:
    """Append `listener`; return what takes it out again, at most once."""
    listeners.append(listener)
    present = [listener]

    def undo() -> None:
        if present:
            listeners.remove(present.pop())

    return undo


def tell_all(listeners: tuple[Callable[..., object], ...], what: str, *facts: Any) -> None:
    """Call each listener with `facts`. A failure is logged with `what`; the next one is still called."""
    for listener in listeners:
        try:
            listener(*facts)
        except Exception:
            _log.exception("%s: a listener failed", what)
