"""The first event that differs, where in it, and what upstream made it so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

from seedline.jsonvalue import number_text

CauseKind = Literal["record", "tool-result", "child-answer", "prompt", "schema", "clock", "fed-input"]


class Cause(msgspec.Struct, frozen=True):
    """The earliest upstream event that made the difference.

    `key` is the lineage key of its session. `record` says that nothing upstream differs: the recorded event
    itself does not follow from the events before it.
    """

    key: str
    seq: int
    type: str
    kind: CauseKind


class Difference(msgspec.Struct, frozen=True):
    """One differing place: a JSON Pointer, and what stands there on each side (None where nothing does)."""

    path: str
    expected: Any
    actual: Any


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay left its record.

    `seq`, `turn`, `step` and `type` say which event; `turn` and `step` are those last opened at that
    point, None before the first. `path`, `expected` and `actual` are the first differing place of the
    event; a whole event is missing or extra when `path` is empty. `differences` holds every place.
    """

    seq: int
    turn: int | None
    step: int | None
    type: str
    path: str
    expected: Any
    actual: Any
    cause: Cause | None
    differences: tuple[Difference, ...] = ()


def differences(expected: Any, actual: Any) -> Iterator[Difference]:
    """Yield every place where two JSON values differ, in the order of `expected`; key order is ignored.

    Numbers compare by value, booleans only with booleans. Walks without recursion.
    """
    stack: list[tuple[str, Any, Any]] = [("", expected, actual)]
    while stack:
        path, left, right = stack.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            stack.extend(reversed(list(_members(path, cast("Any", left), cast("Any", right)))))
        elif isinstance(left, list) and isinstance(right, list):
            stack.extend(reversed(list(_items(path, cast("Any", left), cast("Any", right)))))
        elif not _same_leaf(left, right):
            yield Difference(path, _shown(left), _shown(right))


_ABSENT = msgspec.UNSET


def _shown(value: Any) -> Any:
    return None if value is _ABSENT else value


def _members(path: str, left: dict[str, Any], right: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in [*left, *(name for name in right if name not in left)]:
        escaped = name.replace("~", "~0").replace("/", "~1")
        yield f"{path}/{escaped}", left.get(name, _ABSENT), right.get(name, _ABSENT)


def _items(path: str, left: list[Any], right: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    for at in range(max(len(left), len(right))):
        yield (
            f"{path}/{at}",
            left[at] if at < len(left) else _ABSENT,
            right[at] if at < len(right) else _ABSENT,
        )


def _same_leaf(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return number_text(left) == number_text(right)
    return type(left) is type(right) and left == right
