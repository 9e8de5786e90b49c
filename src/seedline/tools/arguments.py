"""The arguments of a tool call: from the model's text to a value that fits the tool's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from seedline.errors import JsonSyntaxError, ToolArgsError, ToolSchemaError
from seedline.jsonvalue import decode, encode
from seedline.tools.base import Tool

MAX_VIOLATIONS: Final = 5
_MAX_TEXT: Final = 200
_KINDS: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def parse_arguments(text: str) -> Any:
    """Return the value of an argument text: `{}` for none, and the text itself when it is not JSON."""
    try:
        return decode(text) if text else {}
    except JsonSyntaxError:
        return text


def check_arguments(tool: Tool, arguments: Any) -> None:
    """Raise `ToolArgsError` unless `arguments` fits the tool's parameters, which are an object in any case.

    Nothing is filled in or converted, and no reference of the schema is fetched. Raises `ToolSchemaError`
    when the schema itself cannot be used.
    """
    if not isinstance(arguments, dict):
        found = "text that is not JSON" if isinstance(arguments, str) else "no object"
        raise ToolArgsError(tool.name, [f"arguments must be a JSON object, this is {found}"])
    violations = list(dict.fromkeys(_violations(tool, arguments)))
    if violations:
        more = len(violations) - MAX_VIOLATIONS
        shown = [*violations[:MAX_VIOLATIONS], *([f"and {more} more"] if more > 0 else [])]
        raise ToolArgsError(tool.name, shown)


def _violations(tool: Tool, arguments: Any) -> Iterator[str]:
    from jsonschema.exceptions import SchemaError  # costs 100 ms: only a tool call needs it
    from referencing.exceptions import Unresolvable

    try:
        found = list(_validator(encode(tool.parameters)).iter_errors(arguments))
    except SchemaError as error:
        raise ToolSchemaError(tool.name, _short(error.message)) from None
    except Unresolvable as error:
        raise ToolSchemaError(tool.name, f"the reference {_short(error.ref)} leads nowhere") from None
    except RecursionError:
        raise ToolArgsError(tool.name, ["arguments are nested too deeply"]) from None
    for error in sorted(found, key=lambda error: [str(part) for part in error.absolute_path]):
        yield from _worded(error)


@lru_cache(maxsize=256)
def _validator(schema_text: bytes) -> Any:
    """Return the validator of a schema. Raises `jsonschema.SchemaError`."""
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    schema = decode(schema_text)
    kind: Any = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    # With a registry of its own the library looks nothing up on the network.
    return kind(schema, registry=EMPTY_REGISTRY)


def _worded(error: Any) -> Iterator[str]:
    """Yield what one violation comes to, places as JSON Pointers, in our words for the common keywords."""
    path = "".join(f"/{part}" for part in error.absolute_path)
    where = path or "the whole"
    rule, value = error.validator_value, error.instance
    match error.validator:
        case "required" if isinstance(value, dict):
            yield from (f"{path}/{name} is missing" for name in rule if name not in value)
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            yield f"{where} must be {' or '.join(_KINDS.get(kind, kind) for kind in kinds)}"
        case "enum":
            yield f"{where} must be one of {_short(encode(rule).decode('utf-8', 'replace'))}"
        case "const":
            yield f"{where} must be {_short(encode(rule).decode('utf-8', 'replace'))}"
        case "additionalProperties" if rule is False:
            declared = cast("Mapping[str, Any]", error.schema.get("properties", {}))
            yield from (
                f"{path}/{_short(name)} is no known property" for name in value if name not in declared
            )
        case _:
            yield f"{where}: {_short(error.message)}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
