"""Arguments against a schema: what is refused, in which words, and what is never fetched."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from seedline.errors import ToolArgsError, ToolSchemaError
from seedline.tools.arguments import check_arguments, parse_arguments
from seedline.tools.registry import function_tool


def check(schema: Any, arguments: Any) -> list[str]:
    """The violations of one call."""
    try:
        check_arguments(function_tool("t", "", schema, lambda a, c: ""), arguments)
    except ToolArgsError as error:
        return list(error.violations)
    return []


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("{}", {}),
        ('{"a":1.0}', {"a": 1}),
        ("null", None),
        ("{", "{"),
        (" ", " "),
        ("NaN", "NaN"),
        ('{"a":"\\ud83d"}', {"a": "\ud83d"}),
    ],
)
def test_text_becomes_a_value_or_stays_text(text: str, value: Any) -> None:
    assert parse_arguments(text) == value


@pytest.mark.parametrize(
    ("given", "arguments", "violations"),
    [
        (schema(a={"type": "string"}), {"a": "x", "undeclared": 1}, []),
        ({}, {}, []),
        ({"required": ["b", "a"]}, {}, ["/b is missing", "/a is missing"]),
        (schema(a={"type": "integer"}), {"a": 1.5}, ["/a must be an integer"]),
        (schema(a={"type": "integer"}), {"a": True}, ["/a must be an integer"]),
        (schema(a={"type": ["string", "null"]}), {"a": 1}, ["/a must be a string or null"]),
        (schema(a={"enum": ["x", 2]}), {"a": "y"}, ['/a must be one of ["x",2]']),
        (schema(a={"const": 1}), {"a": 2}, ["/a must be 1"]),
        (
            schema(a={"type": "object", "additionalProperties": False}),
            {"a": {"b": 1}},
            ["/a/b is no known property"],
        ),
        (schema(a={"items": {"type": "number"}}), {"a": [1, "x"]}, ["/a/1 must be a number"]),
        (schema(a={"oneOf": [{"type": "number"}, {"type": "integer"}]}), {"a": 1}, None),
        (schema(a={"maximum": 3}), {"a": 5}, None),
        (
            {"$defs": {"n": {"type": "number"}}, **schema(a={"$ref": "#/$defs/n"})},
            {"a": "x"},
            ["/a must be a number"],
        ),
    ],
)
def test_violations_name_place_and_rule(given: Any, arguments: Any, violations: list[str] | None) -> None:
    found = check(given, arguments)
    if violations is None:
        assert [text.split(":")[0] for text in found] == ["/a"]
    else:
        assert found == violations


@pytest.mark.parametrize("arguments", ["text", [1], 5, None, True])
def test_the_root_is_an_object_whatever_the_schema_says(arguments: Any) -> None:
    assert "JSON object" in check({}, arguments)[0]


def test_many_violations_are_counted_not_listed() -> None:
    found = check({"required": [f"p{n}" for n in range(12)]}, {})
    assert found == [
        "/p0 is missing",
        "/p1 is missing",
        "/p2 is missing",
        "/p3 is missing",
        "/p4 is missing",
        "and 7 more",
    ]


def test_a_huge_value_makes_no_huge_text() -> None:
    [found] = check(schema(a={"pattern": "^x$"}), {"a": "y" * 100_000})
    assert len(found) < 300


def test_deep_arguments_are_refused_not_a_crash() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    recursive = {"$defs": {"l": {"items": {"$ref": "#/$defs/l"}}}, **schema(a={"$ref": "#/$defs/l"})}
    assert check(recursive, {"a": deep}) == ["arguments are nested too deeply"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"type": "strng"}, "strng"),
        ({"$ref": "http://schemas.example/t.json"}, "leads nowhere"),
        ({"$ref": "#/$defs/nothing"}, "leads nowhere"),
    ],
)
def test_an_unusable_schema_is_told_and_nothing_is_fetched(
    given: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a schema reference opened a socket")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ToolSchemaError, match=reason):
        check(given, {})
