"""Structured output: the child's tool, when its value counts, and the schema subset."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from seedline.errors import SubagentError
from seedline.events.vocabulary import ToolFilter
from seedline.subagents.structured import (
    STRUCTURED_OUTPUT,
    StructuredOutput,
    check_output_schema,
    placed,
)
from seedline.tools.base import Call, CallContext, Signal
from tests.unit.subagents.factory import App, call, of_type, open_app, results, say

pytestmark = pytest.mark.anyio
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


def hand_in(value: Any) -> tuple[str, Any]:
    return STRUCTURED_OUTPUT, value


async def result_of(app: App, **more: Any) -> Any:
    run = await app.host(await app.root(), "A", output_schema=SCHEMA, **more)
    return await run.result()


async def test_a_valid_call_ends_the_turn_and_is_the_result() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))]}) as app:
        result = await result_of(app)
        assert result.stop_reason == "completed"
        assert result.structured == {"n": 7}
        assert of_type(app.child(), "turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]
        assert len(app.model.requests) == 1


async def test_the_child_sees_the_schema_as_a_tool_and_a_line_at_the_end_of_the_prompt() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))]}) as app:
        await result_of(app)
        [request] = app.model.requests
        names = [schema["name"] for schema in request.header.tools]
        assert names == ["echo", STRUCTURED_OUTPUT, "subagent", "subagent_fork"]
        assert request.header.tools[1]["parameters"] == SCHEMA
        assert request.header.system is not None
        lead, line = request.header.system.split("\n\n")
        assert lead == "You are an agent."
        assert STRUCTURED_OUTPUT in line


async def test_only_the_child_has_the_tool() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))], "go": [say("hm")]}) as app:
        parent = await app.root()
        await (await app.host(parent, "A", output_schema=SCHEMA)).result()
        await app.turn(parent, "go")
        assert STRUCTURED_OUTPUT not in [schema["name"] for schema in app.model.requests[-1].header.tools]


async def test_arguments_that_do_not_fit_are_an_error_and_the_turn_goes_on() -> None:
    async with open_app({"A": [call(hand_in({"n": "7"})), call(hand_in({"n": 8}))]}) as app:
        assert (await result_of(app)).structured == {"n": 8}
        first, second = results(app.child())
        assert first[1]
        assert "n must be an integer" in first[0]
        assert not second[1]
        [error] = [value["error"] for value in of_type(app.child(), "tool/result") if "error" in value]
        assert error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}


async def test_arguments_that_are_no_json_do_not_fit() -> None:
    broken = call(hand_in({}))
    broken[0]["block"]["arguments"] = "{"
    async with open_app({"A": [broken, call(hand_in({"n": 1}))]}) as app:
        assert (await result_of(app)).structured == {"n": 1}
        assert results(app.child())[0][1]


async def test_later_calls_of_the_same_answer_are_refused_and_earlier_ones_run() -> None:
    answer = call(("echo", {"at": 0}), hand_in({"n": 7}), ("echo", {"at": 2}), hand_in({"n": 9}))
    async with open_app({"A": [answer]}) as app:
        assert (await result_of(app)).structured == {"n": 7}
        assert app.heard == [{"at": 0}]
        assert [is_error for _, is_error in results(app.child())] == [False, False, True, True]


async def test_a_clean_end_without_a_value_is_an_error_and_nobody_asks_again() -> None:
    async with open_app({"A": [say("I forgot")]}) as app:
        result = await result_of(app)
        assert result.stop_reason == "error"
        assert result.structured is UNSET
        assert result.diagnostic is not None
        assert result.output == ({"type": "text", "text": "I forgot"},)
        assert len(app.model.requests) == 1


async def test_a_value_whose_call_was_cut_by_a_cancel_does_not_count() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))]}) as app:
        signal = Signal()
        parent = await app.root()

        def abort_at_the_call(agent: Any) -> None:
            def watch(event: Any) -> None:
                if event.type == "tool/call":
                    signal.abort({"kind": "user"})

            agent.session.subscribe(watch)

        app.after_publication = abort_at_the_call
        run = await app.host(parent, "A", output_schema=SCHEMA, signal=signal)
        result = await run.result()
        assert result.stop_reason == "aborted"
        assert result.structured is UNSET
        assert results(app.child())[0][1]


async def test_a_value_counts_only_when_the_log_says_that_its_call_succeeded() -> None:
    async with open_app({}) as app:
        session = (await app.root()).session
        answer = StructuredOutput(SCHEMA)
        for step, is_error in ((1, False), (2, True), (3, None)):
            context = CallContext(session, None, 1, step, Call(0, "c", STRUCTURED_OUTPUT, ""), Signal())
            await answer.execute({"n": step}, context)
            if is_error is None:
                continue  # never logged
            block = {"type": "tool-result", "toolCallId": "c", "content": [], "isError": is_error}
            message = {
                "id": f"r{step}",
                "role": "user",
                "source": {"kind": "tool", "callId": "c"},
                "content": [block],
            }
            data = {"turn": 1, "step": step, "message": message}
            session.append("tool/result", data, surface_op="append")
        assert answer.value_in(session.own_events) == {"n": 1}


async def test_a_filter_does_not_touch_the_childs_own_tool() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))]}) as app:
        result = await result_of(app, tool_filter=ToolFilter(allow=("echo",)))
        assert result.structured == {"n": 7}


async def test_steering_that_waits_still_runs_before_the_turn_ends() -> None:
    async with open_app({"A": [call(hand_in({"n": 7}))], "more": [[], call(hand_in({"n": 8}))]}) as app:
        parent = await app.root()

        def steer_at_the_call(agent: Any) -> None:
            async def steer() -> None:
                agent.steer(
                    {
                        "id": "x",
                        "role": "user",
                        "source": {"kind": "user"},
                        "content": [{"type": "text", "text": "more"}],
                    }
                )

            def watch(event: Any) -> None:
                if event.type == "step/start" and event.value["step"] == 1:
                    app.tasks.start_soon(steer)

            agent.session.subscribe(watch)

        app.after_publication = steer_at_the_call
        run = await app.host(parent, "A", output_schema=SCHEMA)
        assert (await run.result()).structured == {"n": 8}
        await anyio.lowlevel.checkpoint()


def test_a_schema_is_placed_by_name_among_sorted_ones_and_last_otherwise() -> None:
    a, c, s = ({"name": name} for name in "acs")
    assert placed([a, s], c) == [a, c, s]
    assert placed([s, a], c) == [s, a, c]
    assert placed([], c) == [c]


# --- the schema --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"const": {"$ref": "#/nowhere"}}}},
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
    ],
)
def test_schemas_a_child_can_be_asked_for(schema: Any) -> None:
    check_output_schema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "the root must be of type `object`"),
        ({"type": "array"}, "the root must be of type `object`"),
        ({"anyOf": [{"type": "object"}]}, "the root must be of type `object`"),
        ({"type": "object", "properties": {"a": {"type": "strange"}}}, "'strange'"),
        ({"type": "object", "required": "a"}, "'a'"),
        ({"type": "object", "properties": {"a": {"const": float("nan")}}}, "not lossless JSON"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, "'#/$defs/A' leads nowhere"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}, "leads nowhere"),
        ({"type": "object", "allOf": [{"$ref": "#/$defs/A"}]}, "leads nowhere"),
    ],
)
def test_schemas_nobody_can_be_asked_for(schema: Any, reason: str) -> None:
    with pytest.raises(SubagentError, match=re.escape(reason)) as caught:
        check_output_schema(schema)
    assert caught.value.code == "INVALID_OUTPUT_SCHEMA"


async def test_references_within_the_schema_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "required": ["a"],
        "$defs": {"A": {"type": "integer"}},
    }
    async with open_app({"A": [call(hand_in({"a": "x"})), call(hand_in({"a": 1}))]}) as app:
        run = await app.host(await app.root(), "A", output_schema=schema)
        assert (await run.result()).structured == {"a": 1}
