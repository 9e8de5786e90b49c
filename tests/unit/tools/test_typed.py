"""Typed functions as tools: schema, arguments, results, refusals."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

import anyio
import msgspec
import pytest

from seedline.errors import ToolSetRefusedError
from seedline.tools.base import CallContext, Outcome, Signal, text_outcome
from seedline.tools.registry import FunctionTool, Registry
from seedline.tools.typed import tool
from tests.unit.tools.harness import context as context_of
from tests.unit.tools.harness import new_place, text_in


class Point(msgspec.Struct):
    x: int
    y: int = 0


@tool
async def shift(
    point: Point,
    by: Annotated[int, msgspec.Meta(description="How far.", ge=1)] = 1,
    way: Literal["x", "y"] = "x",
) -> Point:
    """Shift a point."""
    return Point(point.x + by, point.y) if way == "x" else Point(point.x, point.y + by)


def answer(of: FunctionTool, arguments: str) -> Outcome:
    async def run() -> Outcome:
        context = context_of(of.name, arguments)
        registry = Registry([of])
        return await registry.prepare(context) or await registry.run(context)

    return anyio.run(run)


def test_name_words_and_schema_come_from_the_function() -> None:
    assert (shift.name, shift.description) == ("shift", "Shift a point.")
    assert shift.parameters["type"] == "object"
    assert shift.parameters["required"] == ["point"]
    assert shift.parameters["additionalProperties"] is False
    by = shift.parameters["properties"]["by"]
    assert by == {"type": "integer", "description": "How far.", "minimum": 1, "default": 1}
    assert shift.parameters["properties"]["way"]["enum"] == ["x", "y"]
    assert shift.parameters["properties"]["point"] == {"$ref": "#/$defs/Point"}
    assert set(shift.parameters["$defs"]) == {"Point"}


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"point":{"x":1}}', '{"x":2,"y":0}'),
        ('{"point":{"x":1,"y":2},"by":3,"way":"y"}', '{"x":1,"y":5}'),
    ],
)
def test_arguments_arrive_as_their_types_and_the_result_is_json(arguments: str, result: str) -> None:
    assert text_in(answer(shift, arguments)) == result


@pytest.mark.parametrize(
    "arguments",
    ['{"point":{"x":"1"}}', '{"point":{"x":1},"by":0}', '{"point":{"x":1},"more":1}', "{}", "no"],
)
def test_arguments_that_do_not_fit_never_reach_the_function(arguments: str) -> None:
    outcome = answer(shift, arguments)
    assert outcome.is_error
    assert outcome.error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}


def test_the_context_is_not_the_models() -> None:
    @tool(name="where", description="Say where.", parallel=True, timeout_ms=50)
    async def locate(context: CallContext, word: str = "at") -> str:
        return f"{word} {context.turn}.{context.step}"

    assert (locate.name, locate.parallel, locate.timeout_ms) == ("where", True, 50)
    assert list(locate.parameters["properties"]) == ["word"]
    assert text_in(answer(locate, "{}")) == "at 1.1"


def test_a_plain_function_leaves_the_event_loop_free() -> None:
    @tool
    def thread() -> str:
        """Name the thread."""
        return threading.current_thread().name

    assert text_in(answer(thread, "")) != threading.main_thread().name


def test_an_outcome_passes_and_a_default_is_not_shared() -> None:
    @tool
    def collect(items: list[str] = []) -> Outcome:  # noqa: B006  # the mutable default is what is tested
        """Collect."""
        items.append("x")
        return text_outcome(",".join(items), is_error=True)

    assert [text_in(answer(collect, "{}")) for _ in range(2)] == ["x", "x"]


def test_a_function_may_raise() -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("the disk is full")

    outcome = answer(fail, "{}")
    assert (outcome.is_error, outcome.error) == (True, None)
    assert text_in(outcome) == "Error: the disk is full"


def undescribed(a: int) -> int:
    return a


def untyped(a) -> int:
    """Do."""
    return a


def nameless(*a: int) -> int:
    """Do."""
    return sum(a)


def unreadable(a: threading.Thread) -> int:
    """Do."""
    return 1


def dangling(a: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821  # a dangling name is what is tested
    """Do."""
    return 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (undescribed, "docstring"),
        (untyped, "'a' of function 'untyped' has no type"),
        (nameless, "no name to call it by"),
        (unreadable, "what JSON cannot give"),
        (dangling, "leads nowhere"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ToolSetRefusedError, match=reason):
        tool(function)


def test_a_cancel_ends_an_async_function() -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep_forever()
        return ""

    async def run() -> Outcome:
        place = new_place()
        context = context_of("wait", "{}", place)
        outcome = text_outcome("not run")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_abort_soon, place.signal)
            outcome = await wait.execute({}, context)
        return outcome

    outcome = anyio.run(run)
    assert outcome.error == {"name": "AbortError", "code": "ABORTED"}


async def _abort_soon(signal: Signal) -> None:
    await anyio.lowlevel.checkpoint()
    signal.abort({"kind": "user"})
