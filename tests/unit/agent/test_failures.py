"""What a failing call, a broken stream and a failing harness leave in the log: 2.11 of the loop's rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from seedline.agent.extension import Assembly, Extension, FailedAttempt
from seedline.agent.loop import Agent
from seedline.errors import EventRefusedError, ModelError, SeedlineError
from seedline.events.vocabulary import RequestConfig
from seedline.llm.base import ChunkValue, ModelRequest, PreparedConfig
from seedline.llm.scripted import Answer, call, chunks, failure, text, tool_calls
from seedline.tools.base import CallContext, Outcome
from tests.unit.agent.harness import rig, tool

pytestmark = pytest.mark.anyio

STOP: dict[str, Any] = {"type": "finish", "reason": {"kind": "stop"}}


def delta(said: str, index: int = 0) -> dict[str, Any]:
    return {"type": "text-delta", "index": index, "text": said}


def failed(kind: str, code: str) -> dict[str, Any]:
    return {"type": "finish", "reason": {"kind": kind, "failure": {"message": "no", "code": code}}}


class Asks(Extension):
    """Keeps what recovery is asked about and never recovers."""

    def __init__(self) -> None:
        self.attempts: list[FailedAttempt] = []

    async def recover(self, agent: Agent, attempt: FailedAttempt, proceed: Any) -> bool:
        self.attempts.append(attempt)
        return await proceed(attempt)


RATE = {
    "message": "slow down",
    "code": "RATE_LIMIT",
    "status": 429,
    "providerRetryAfterMs": 1500,
    "requestId": "r-1",
}


@pytest.mark.parametrize(
    ("answer", "finish", "error"),
    [
        pytest.param(
            failure("RATE_LIMIT", "slow down", status=429, provider_retry_after_ms=1500, request_id="r-1"),
            "error",
            RATE,
            id="raised with every field",
        ),
        pytest.param(
            failure("AUTH", "no", how="finish"), "error", {"message": "no", "code": "AUTH"}, id="in band"
        ),
        pytest.param(
            failure("SERVER", "no", said="half a sen"),
            "error",
            {"message": "no", "code": "SERVER"},
            id="after chunks",
        ),
        pytest.param(
            failure("ABORTED", "no"), "aborted", {"message": "no", "code": "ABORTED"}, id="raised aborted"
        ),
        pytest.param(
            chunks(delta("x"), failed("aborted", "ABORTED")),
            "aborted",
            {"message": "no", "code": "ABORTED"},
            id="aborted without our abort",
        ),
        pytest.param(
            chunks(delta("x"), failed("error", "CONTENT_FILTER")),
            "error",
            {"message": "no", "code": "CONTENT_FILTER"},
            id="content filter",
        ),
        pytest.param(
            failure("", "", status=99),
            "error",
            {"message": "the model call failed", "code": "UNKNOWN"},
            id="a failure out of range keeps message and code",
        ),
    ],
)
async def test_a_failed_call_leaves_chunks_and_no_message(
    answer: Answer, finish: str, error: dict[str, Any]
) -> None:
    asks = Asks()
    async with rig(answer, extensions=[asks]) as run:
        lines = await run.ask("hello")
    assert lines[-3:] == [f"chunks..{finish}:{error['code']}", "step 1 ends", f"end 1: error:{error['code']}"]
    assert not any(line.startswith("answer") for line in lines)
    assert run.session.events[-1].value["reason"]["error"] == error
    [attempt] = asks.attempts
    assert (attempt.turn, attempt.step, attempt.failure_value) == (1, 1, error)
    assert attempt.config == RequestConfig("acme", "acme-1")
    [(turn, step, reported)] = run.failures
    assert (turn, step) == (1, 1)
    assert isinstance(reported, ModelError)
    assert reported.code == error["code"]


class Adapter:
    """An adapter made of one function."""

    def __init__(self, stream: Any) -> None:
        self.stream: Any = stream

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        return PreparedConfig(config=config)


def _no_iterator(request: ModelRequest) -> Any:
    raise ConnectionError("refused") from OSError("no route")


async def _late(request: ModelRequest) -> AsyncIterator[ChunkValue]:
    yield delta("x")
    raise ConnectionError("reset")


async def _own(request: ModelRequest) -> AsyncIterator[ChunkValue]:
    yield delta("x")
    raise EventRefusedError("data", "x", "y")


async def _grouped(request: ModelRequest) -> AsyncIterator[ChunkValue]:
    async with anyio.create_task_group():
        yield delta("x")
        raise ModelError("busy", "SERVER")


@pytest.mark.parametrize(
    ("stream", "message", "code"),
    [
        (_no_iterator, "refused: no route", "UNKNOWN"),
        (_late, "reset", "UNKNOWN"),
        (_own, "event 'x' is refused (data): y", "data"),
        (_grouped, "busy", "SERVER"),
    ],
)
async def test_whatever_an_adapter_raises_becomes_a_finish_chunk(
    stream: Any, message: str, code: str
) -> None:
    async with rig(model=Adapter(stream)) as run:
        lines = await run.ask("hello")
    assert lines[-3:] == [f"chunks..error:{code}", "step 1 ends", f"end 1: error:{code}"]
    assert run.session.events[-1].value["reason"]["error"]["message"].startswith(message)


def test_a_cause_that_is_its_own_cause_is_told_once() -> None:
    from seedline.llm.base import failure_of

    error = ValueError("again")
    error.__cause__ = error
    assert failure_of(error).message == "again"


# --- streams -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"index": 0}, id="no type"),
        pytest.param({"type": "text-delta", "index": 0}, id="no text"),
        pytest.param({"type": "text-delta", "index": True, "text": "x"}, id="an index that is no number"),
        pytest.param({"type": "text-delta", "index": 0, "text": 5}, id="a text that is none"),
        pytest.param({"type": "block-end", "index": 0, "block": {"type": "text"}}, id="a block without text"),
        pytest.param({"type": "block-end", "index": 0, "block": "x"}, id="a block that is none"),
        pytest.param({"type": "finish", "reason": {"kind": "error"}}, id="an error without its failure"),
        pytest.param({"type": "usage", "usage": {"inputTokens": 1}}, id="half a usage"),
        pytest.param({"type": "text-delta", "index": 0, "text": "x", "extra": float("nan")}, id="not JSON"),
    ],
)
async def test_a_malformed_chunk_is_the_adapters_failure_and_not_logged(bad: dict[str, Any]) -> None:
    async with rig(chunks(delta("x"), bad, STOP)) as run:
        lines = await run.ask("hello")
    assert lines[-1] == "end 1: error:MALFORMED_RESPONSE"
    assert sum(event.type == "assistant/chunk" for event in run.session.events) == 2


async def test_a_chunk_of_an_unknown_type_is_logged_and_changes_nothing() -> None:
    async with rig(chunks({"type": "heartbeat"}, delta("x"), STOP)) as run:
        await run.ask("hello")
    [answer] = [event for event in run.session.events if event.type == "assistant/message"]
    assert answer.value["message"]["content"] == [{"type": "text", "text": "x"}]
    assert answer.source_event_seqs == (7, 8, 9)


async def test_nothing_is_read_after_the_finish_and_the_stream_is_closed() -> None:
    closed: list[bool] = []

    async def stream(request: ModelRequest) -> AsyncIterator[ChunkValue]:
        try:
            yield delta("x")
            yield STOP
            yield STOP
        finally:
            closed.append(True)

    async with rig(model=Adapter(stream)) as run:
        lines = await run.ask("hello")
    assert closed == [True]
    assert sum(event.type == "assistant/chunk" for event in run.session.events) == 2
    assert lines[-1] == "end 1: completed"


async def test_a_stream_that_fails_to_close_has_answered_all_the_same() -> None:
    async def stream(request: ModelRequest) -> AsyncIterator[ChunkValue]:
        try:
            yield STOP
        finally:
            raise ConnectionError("reset")

    async with rig(model=Adapter(stream)) as run:
        assert (await run.ask("hello"))[-1] == "end 1: completed"


async def test_a_missing_finish_counts_as_stop() -> None:
    async with rig(chunks(delta("x"))) as run:
        lines = await run.ask("hello")
    assert lines[-4:] == ["chunks", "answer: x", "step 1 ends", "end 1: completed"]


async def test_no_chunk_at_all_is_an_empty_answer_without_sources() -> None:
    async with rig(chunks()) as run:
        await run.ask("hello")
    [answer] = [event for event in run.session.events if event.type == "assistant/message"]
    assert answer.source_event_seqs == ()
    assert len(run.session.derive_messages()) == 1


async def test_an_answer_that_ends_inside_an_unknown_block_ends_the_turn() -> None:
    async with rig(chunks({"type": "block-start", "index": 0, "blockType": "video"}, STOP)) as run:
        lines = await run.ask("hello")
    assert lines[-3:] == ["chunks..stop", "step 1 ends", "end 1: error:UNKNOWN"]


@pytest.mark.parametrize("ids", [("x", "x"), ("x", "")])
async def test_an_answer_whose_calls_cannot_be_told_apart_is_refused_before_a_tool_runs(
    ids: tuple[str, str],
) -> None:
    answer = tool_calls(*(call("t", id=call_id) for call_id in ids))
    async with rig(answer, tools=[tool("t")]) as run:
        lines = await run.ask("hello")
    assert lines[-3:] == ["chunks..tool-calls", "step 1 ends", "end 1: error:AMBIGUOUS_TOOL_CALLS"]


async def test_the_same_call_id_in_two_steps_is_two_calls() -> None:
    answer = tool_calls(call("t", id="call_0"))
    async with rig(answer, answer, text("ok"), tools=[tool("t")]) as run:
        lines = await run.ask("hello")
    assert lines.count("call call_0 t") == lines.count("result call_0") == 2
    assert lines[-1] == "end 1: completed"


# --- faults beside the model ---------------------------------------------------------------------------


async def test_a_stream_fault_ends_the_turn_without_a_finish_chunk_or_recovery() -> None:
    asks = Asks()
    async with rig(failure("SCRIPT", "gone", said="half", how="fault"), extensions=[asks]) as run:
        lines = await run.ask("hello")
    assert lines[-3:] == ["chunks", "step 1 ends", "end 1: error:SCRIPT"]
    assert asks.attempts == []


async def test_a_log_that_refuses_a_chunk_is_no_failure_of_the_model() -> None:
    asks = Asks()
    async with rig(text("some words here"), extensions=[asks]) as run:
        refused: list[Any] = []

        def refuse(event: Any) -> None:
            if event.type == "assistant/chunk" and not refused:
                refused.append(event)
                raise EventRefusedError("data", event.type, "disk quota")

        run.session.guard(refuse)
        lines = await run.ask("hello")
    assert lines[-3:] == ["context", "step 1 ends", "end 1: error:UNKNOWN"]
    assert asks.attempts == []
    assert "disk quota" in run.session.events[-1].value["reason"]["error"]["message"]


class Breaks(Extension):
    """Raises from one hook."""

    def __init__(self, hook: str) -> None:
        async def broken(*args: Any) -> Any:
            raise LookupError(f"no such variable in {hook}") from KeyError("name")

        setattr(self, hook, broken)


@pytest.mark.parametrize(
    ("hook", "entered"),
    [
        ("assemble", False),
        ("pre_step", False),
        ("step_entered", True),
        ("configure", True),
        ("before_request", True),
        ("recover", True),
        ("before_tool", True),
        ("turn_stopping", True),
    ],
)
async def test_a_failing_extension_ends_the_turn_with_its_text_and_causes(hook: str, entered: bool) -> None:
    answers = {"recover": [failure("SERVER")], "turn_stopping": [text("ok")]}
    script = answers.get(hook, [tool_calls(call("t")), text("ok")])
    async with rig(*script, extensions=[Breaks(hook)], tools=[tool("t")]) as run:
        lines = await run.ask("hello")
    assert lines[-1] == "end 1: error:UNKNOWN"
    assert ("step 1" in lines) is entered
    assert lines.count("step 1 ends") == entered
    error = run.session.events[-1].value["reason"]["error"]
    assert error == {"message": f"no such variable in {hook}: 'name'", "code": "UNKNOWN"}


async def test_a_failing_assembly_ends_the_turn_before_a_step() -> None:
    def assembly() -> Assembly:
        raise ValueError("unknown variable {{planet}}")

    async with rig(assembly=assembly) as run:
        lines = await run.ask("hello")
    assert lines[-2:] == ["next-turn @0 claim 1", "end 1: error:UNKNOWN"]
    assert run.failures[0][:2] == (1, 0)


async def test_a_fault_of_the_tools_waits_for_running_bodies_and_makes_up_no_result() -> None:
    events: list[str] = []

    async def slow(arguments: Any, context: CallContext) -> str:
        await anyio.sleep(0.01)
        events.append("slow ended")
        return "ok"

    class Broken:
        """Tools whose call `b` is a fault of the harness."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.schemas, self.concurrency = inner.schemas, inner.concurrency
            self.admit, self.prepare = inner.admit, inner.prepare

        async def run(self, context: CallContext) -> Outcome:
            if context.call.name == "b":
                raise SeedlineError("the runner lost its place")
            return await self.inner.run(context)

    from seedline.tools.registry import Registry

    tools = Registry(
        [tool("a", slow, parallel=True), tool("b", parallel=True), tool("c", slow, parallel=True)]
    )
    answer = tool_calls(call("a", id="a"), call("b", id="b"), call("c", id="c"))
    async with rig(answer, tools=Broken(tools)) as run:
        lines = await run.ask("hello")
    assert events == ["slow ended"] * 2
    assert lines[lines.index("call a a") :] == [
        "call a a",
        "call b b",
        "call c c",
        "result a",
        "step 1 ends",
        "end 1: error:UNKNOWN",
    ]
