"""What a live append takes as payload: every row of the lossless JSON rule that exists in Python."""

from __future__ import annotations

import datetime
import decimal
import enum
import sys
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import Any

import pytest

from seedline.errors import EventRefusedError
from tests.unit.session.make import new_session, user

SAFE = 2**53 - 1


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def depth_of(value: Any) -> int:
    levels = 0
    while value:
        value = value[0]
        levels += 1
    return levels


def shared() -> dict[str, Any]:
    one: dict[str, Any] = {"x": 1}
    return {"a": one, "b": one}


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -5,
        SAFE,
        -SAFE,
        0.5,
        -0.25,
        1e-7,
        1e300,
        5e-324,
        "",
        "text",
        "NUL \0 and \x1f",
        "\u2028\u2029\u0085\x7f",
        "\ud83d",
        "\udc00 and \ud800",
        "😀",
        [],
        {},
        [[], {}, None],
        {"": 1, "__proto__": {"polluted": True}, "constructor": 2, "toJSON": "ignored"},
        {"\ud800": "lone surrogate key"},
        shared(),
    ],
)
def test_accepted_and_read_back_equal(value: Any) -> None:
    session = new_session()
    for payload in (value, [value], {"nested": value}):
        stored = session.append("plugin/note", payload).value
        assert stored == payload
        assert repr(stored) == repr(payload)  # True is not 1 and 1 is not 1.0


def test_a_whole_float_reads_back_as_the_integer_it_is() -> None:
    stored = new_session().append("plugin/note", [1.0, 1e3, 1e16]).value
    assert stored == [1, 1000, 10**16]
    assert [type(number) for number in stored[:2]] == [int, int]


def test_a_surrogate_pair_in_two_characters_becomes_one() -> None:
    assert new_session().append("plugin/note", "\ud83d\ude00").value == "😀"


def test_what_is_reachable_twice_becomes_two_copies() -> None:
    stored = new_session().append("plugin/note", shared()).value
    assert stored["a"] == stored["b"]
    assert stored["a"] is not stored["b"]


def test_five_thousand_levels_are_no_problem() -> None:
    assert depth_of(new_session().append("plugin/note", deep(5000)).value) == 5000
    assert sys.getrecursionlimit() < 5000


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Items(list[Any]):
    pass


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Hooked:
    def to_json(self) -> str:
        return "{}"

    def __json__(self) -> str:
        return "{}"


@dataclass
class Point:
    x: int = 1


class Missing:
    """A project's own sentinel for `undefined`."""


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append({"deeper": value})
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


REFUSED: list[Any] = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    SAFE + 1,
    -SAFE - 1,
    10**400,
    1j,
    decimal.Decimal(1),
    b"bytes",
    bytearray(b"x"),
    memoryview(b"x"),
    (1, 2),
    {1, 2},
    frozenset({1}),
    range(3),
    datetime.datetime(2026, 1, 1),
    datetime.date(2026, 1, 1),
    Color.RED,
    Level.LOW,
    Text("s"),
    Whole(1),
    Real(1.5),
    Items(),
    OrderedDict(a=1),
    UserDict(a=1),
    Point(),
    Point,
    Hooked(),
    Missing(),
    Missing,
    Ellipsis,
    NotImplemented,
    object(),
    lambda: None,
    len,
    iter([]),
    {1: "int key"},
    {None: "null key"},
    {True: "bool key"},
    {b"k": "bytes key"},
    {Text("k"): "subclass key"},
    cyclic_list(),
    cyclic_dict(),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_refused_at_the_root_and_nested_naming_the_event_type(value: Any) -> None:
    session = new_session()
    for payload in (value, [0, value], {"outer": {"inner": value}}, user() | {"extra": value}):
        with pytest.raises(EventRefusedError, match=r"plugin/note.*lossless JSON") as refused:
            session.append("plugin/note", payload)
        assert refused.value.code == "data"
        assert str(refused.value).endswith(". The log is unchanged.")
    assert session.seq == 0


def test_a_refusal_says_where() -> None:
    session = new_session()
    with pytest.raises(EventRefusedError, match="/a~1b/1/c~0d: "):
        session.append("plugin/note", {"a/b": [0, {"c~d": set()}]})
    with pytest.raises(EventRefusedError, match="at the root: "):
        session.append("plugin/note", set())


def test_nesting_without_end_is_refused() -> None:
    session = new_session()
    with pytest.raises(EventRefusedError, match="nesting deeper than 10000 levels"):
        session.append("plugin/note", deep(20_000))
    assert session.seq == 0
