"""Structured output: a child answers with one value of a given schema (subagents and replay, 1.10).

The child gets a tool whose parameters are the schema. A valid call is staged and ends the turn after its
step; it counts once its result stands in the log as no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from msgspec import UNSET

from seedline.agent.extension import Assembly, Extension
from seedline.agent.loop import Agent
from seedline.errors import JsonValueError, SubagentError, ToolArgsError, ToolSchemaError
from seedline.jsonvalue import encode_lossless
from seedline.session.sequence import Events
from seedline.tools.arguments import check_arguments, parse_arguments
from seedline.tools.base import Call, CallContext, Concurrency, Outcome, Tools, text_outcome
from seedline.tools.registry import failed

STRUCTURED_OUTPUT: Final = "structured_output"
_DESCRIPTION: Final = (
    "Hand in the result of your task as one value. Call it once, as the last thing you do; "
    "your turn ends with it and no later call of the same answer runs."
)
_PROMPT: Final = (
    f"Your result is taken from a call of the `{STRUCTURED_OUTPUT}` tool and from nowhere else. "
    "When the task is done, call it with arguments that fit its parameters."
)
_RECORDED: Final = "The result is recorded."
_ALREADY: Final = text_outcome(
    f"Error: this call did not run, because `{STRUCTURED_OUTPUT}` ended the turn before it", is_error=True
)


class StructuredOutput(Extension):
    """The structured answer of one child: the tool it is given by, its line in the prompt, and its value."""

    name = STRUCTURED_OUTPUT
    description = _DESCRIPTION

    def __init__(self, schema: dict[str, Any]) -> None:
        self.parameters = schema
        self._staged: dict[tuple[int, int, str], Any] = {}

    async def assemble(self, agent: Agent, assembly: Assembly) -> Assembly:
        system = "\n\n".join(filter(None, [assembly.system, _PROMPT]))
        return Assembly(system=system, contexts=assembly.contexts)

    def concurrency(self, arguments: Any) -> Concurrency:
        # Alone: earlier calls have run when it runs, later ones start after it.
        return "exclusive"

    async def execute(self, arguments: Any, context: CallContext) -> Outcome:
        self._staged[context.turn, context.step, context.call.call_id] = arguments
        return Outcome(content=[{"type": "text", "text": _RECORDED}], concludes_turn=True)

    def tools(self, inner: Tools) -> Tools:
        """Return `inner` with the child's own tool, which a filter on `inner` does not touch."""
        return _StructuredTools(inner, self)

    def ended(self, turn: int, step: int) -> bool:
        """True when a valid call of this step has been answered."""
        return any(place[:2] == (turn, step) for place in self._staged)

    def value_in(self, own: Events) -> Any:
        """Return the last value whose result the log holds as a success, UNSET when there is none."""
        for event in own.without_chunks_reversed():
            if event.type != "tool/result":
                continue
            result = event.payload
            place = (result.turn, result.step, result.message.source.call_id)
            if place in self._staged and not result.message.content[0].is_error:
                return self._staged[place]
        return UNSET


class _StructuredTools:
    """Tools with `structured_output` among them, which ends the step for the calls after it."""

    def __init__(self, inner: Tools, answer: StructuredOutput) -> None:
        self._inner = inner
        self._answer = answer

    def schemas(self) -> list[Any]:
        answer = self._answer
        schema = {"name": answer.name, "description": answer.description, "parameters": answer.parameters}
        return placed(self._inner.schemas(), schema)

    def concurrency(self, call: Call) -> Concurrency:
        return "exclusive" if call.name == STRUCTURED_OUTPUT else self._inner.concurrency(call)

    async def admit(self, call: Call) -> None:
        if call.name != STRUCTURED_OUTPUT:
            await self._inner.admit(call)

    async def prepare(self, context: CallContext) -> Outcome | None:
        if self._answer.ended(context.turn, context.step):
            return _ALREADY
        if context.call.name != STRUCTURED_OUTPUT:
            return await self._inner.prepare(context)
        try:
            check_arguments(self._answer, parse_arguments(context.call.arguments))
        except (ToolArgsError, ToolSchemaError) as error:
            return failed(error)
        return None

    async def run(self, context: CallContext) -> Outcome:
        if context.call.name != STRUCTURED_OUTPUT:
            return await self._inner.run(context)
        return await self._answer.execute(parse_arguments(context.call.arguments), context)


def placed(schemas: list[Any], added: dict[str, Any]) -> list[Any]:
    """Return the schemas with one more: by its name where they are in the order of names, else last."""
    names = [schema["name"] for schema in schemas]
    if names != sorted(names):
        return [*schemas, added]
    at = sum(name <= added["name"] for name in names)
    return [*schemas[:at], added, *schemas[at:]]


# --- the schema --------------------------------------------------------------------------------------

_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""


def check_output_schema(schema: Any) -> None:
    """Raise `SubagentError` (`INVALID_OUTPUT_SCHEMA`) unless a model can be asked for a value of this schema.

    It is a JSON Schema (2020-12 unless `$schema` says otherwise) with an object at its root, and every
    reference in it leads to a place in it.
    """
    from jsonschema.exceptions import SchemaError  # costs 100 ms: only structured output needs it
    from jsonschema.validators import Draft202012Validator, validator_for

    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        raise _refused("the root must be of type `object`")
    try:
        encode_lossless(schema)
        kind: Any = validator_for(cast("dict[str, Any]", schema), default=Draft202012Validator)
        kind.check_schema(schema)
    except (JsonValueError, SchemaError) as error:
        raise _refused(getattr(error, "message", str(error))) from None
    _check_references(cast("dict[str, Any]", schema))


def _check_references(schema: dict[str, Any]) -> None:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    registry: Any = cast("Any", Registry)()
    resolver = registry.with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise _refused(f"the reference {reference!r} leads nowhere in it") from None


def _references(schema: Any) -> Iterator[str]:
    members: Any = schema
    if isinstance(members, dict):
        for name, member in cast("dict[str, Any]", members).items():
            if name == "$ref" and isinstance(member, str):
                yield member
            elif name not in _VALUES:
                yield from _references(member)
    elif isinstance(members, list):
        for member in cast("list[Any]", members):
            yield from _references(member)


def _refused(reason: str) -> SubagentError:
    return SubagentError("INVALID_OUTPUT_SCHEMA", f"the output schema is refused: {reason}")
