"""The clauses of a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedline.errors import QueryError


def refuse_empty(name: str, clause: Sequence[Any] | None) -> None:
    """Raise `QueryError` for a clause of no value, or for a text where a list of them belongs."""
    if clause is not None and (not clause or isinstance(clause, str)):
        raise QueryError("INVALID_FILTER", f"the clause {name!r} needs a list of at least one value")


def refuse_reversed(name: str, first: int | None, last: int | None) -> None:
    """Raise `QueryError` for a range that ends before it begins."""
    if first is not None and last is not None and first > last:
        raise QueryError("INVALID_FILTER", f"the range of {name!r} goes from {first} to {last}")


def is_within(value: int, first: int | None, last: int | None) -> bool:
    """True when `value` lies in a range whose ends are included where they are given."""
    return (first is None or value >= first) and (last is None or value <= last)
