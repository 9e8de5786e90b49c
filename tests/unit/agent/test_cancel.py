"""What a cancel leaves in the log at every moment: 2.10 of the loop's rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from seedline.agent.extension import Extension, Proposal
from seedline.agent.loop import Agent
from seedline.agent.request import Declared
from seedline.agent.retry import Retry
from seedline.agent.title import FallbackTitle
from seedline.clock import ManualClock
from seedline.errors import ReentrantAppendError
from seedline.events.event import Event
from seedline.ids import SeededIds
from seedline.llm.scripted import (
    Answerable,
    Pace,
    ScriptedModel,
    call,
    chunks,
    failure,
    hang,
    text,
    tool_calls,
)
from seedline.session.log import Session
from seedline.tools.base import CallContext
from seedline.tools.policy import Allow
from seedline.tools.registry import Registry
from tests.unit.agent.harness import assert_sound, new_session, outline, rig, say, tool

pytestmark = pytest.mark.anyio

USER = {"kind": "user"}


def is_type(event_type: str, nth: int = 1) -> Callable[[Event], bool]:
    seen: list[Event] = []

    def matches(event: Event) -> bool:
        if event.type == event_type:
            seen.append(event)
        return event.type == event_type and len(seen) == nth

    return matches


def is_chunk(chunk_type: str) -> Callable[[Event], bool]:
    return lambda event: event.type == "assistant/chunk" and event.value["chunk"]["type"] == chunk_type


async def cut(matches: Callable[[Event], bool], *answers: Answerable, **options: Any) -> list[str]:
    """Ask once, cancel right after the event that matches, and return what followed it."""
    async with rig(*answers, **options) as run:
        at: list[int] = []

        def cancel() -> None:
            at.append(run.session.seq)
            run.agent.cancel(USER)

        run.on_event(matches, cancel)
        run.agent.followup(say("go"))
        await run.agent.wait_idle()
        [seq] = at
        return outline(run.session.events[seq:])


ENDS = ["step 1 ends", "end 1: aborted:user"]
TOOLS = [tool("p", parallel=True), tool("x")]


@pytest.mark.parametrize(
    ("matches", "answer", "left"),
    [
        pytest.param(
            is_chunk("text-delta"), text("Hello there."), "answer: Hello (interrupted)", id="open text"
        ),
        pytest.param(is_chunk("block-end"), text("Hello."), "answer: Hello. (interrupted)", id="closed text"),
        pytest.param(is_chunk("finish"), text("Hello."), "answer: Hello. (interrupted)", id="at the finish"),
        pytest.param(
            is_chunk("reasoning-delta"),
            text("x", reasoning="Hm."),
            "answer: Hm. (interrupted)",
            id="reasoning",
        ),
        pytest.param(
            is_chunk("tool-call-delta"),
            tool_calls(call("x"), said="Let me."),
            "answer: Let me. (interrupted)",
            id="a call is dropped",
        ),
        pytest.param(is_chunk("block-start"), text("Hello."), None, id="nothing yet"),
        pytest.param(is_chunk("text-delta"), text(" \n "), None, id="blank text"),
        pytest.param(is_chunk("tool-call-delta"), tool_calls(call("x")), None, id="only a call"),
        pytest.param(is_chunk("finish"), failure("SERVER", said="Half"), None, id="a failed attempt"),
    ],
)
async def test_a_cut_stream_keeps_what_was_visible(matches: Any, answer: Any, left: str | None) -> None:
    assert await cut(matches, answer, tools=TOOLS) == [*([left] if left else []), *ENDS]


async def test_an_interrupted_message_cites_the_chunks_so_far_and_keeps_a_usage_that_came() -> None:
    usage = {"inputTokens": 3, "outputTokens": 1}
    answer = chunks(
        {"type": "usage", "usage": usage},
        {"type": "text-delta", "index": 0, "text": "Hi"},
        {"type": "text-delta", "index": 0, "text": " there"},
    )
    async with rig(answer) as run:
        run.on_event(is_chunk("text-delta"), lambda: run.agent.cancel(USER))
        await run.ask("go")
    [message] = [event for event in run.session.events if event.type == "assistant/message"]
    assert message.source_event_seqs == (7, 8)
    assert list(message.value) == ["turn", "step", "message", "interrupted", "usage"]
    assert message.value["usage"] == usage


async def test_the_adapters_own_end_of_a_cut_stream_is_not_logged() -> None:
    async def stream(request: Any) -> Any:
        yield {"type": "text-delta", "index": 0, "text": "Hi"}
        try:
            await anyio.sleep_forever()
        finally:
            yield {
                "type": "finish",
                "reason": {"kind": "aborted", "failure": {"message": "x", "code": "ABORTED"}},
            }

    model: Any = ScriptedModel()
    model.stream = stream
    lines = await cut(is_chunk("text-delta"), model=model)
    assert lines == ["answer: Hi (interrupted)", *ENDS]


async def test_a_cancel_during_error_recovery_leaves_no_message_of_the_failed_attempt() -> None:
    class Stalls(ManualClock):
        async def sleep(self, milliseconds: int) -> None:
            await anyio.sleep_forever()

    answer = failure("SERVER", said="Half a sentence")
    left = await cut(is_type("llm/retry"), answer, extensions=[Retry(Stalls())])
    assert left == ENDS


async def test_a_cancel_in_pre_step_keeps_the_claim_and_opens_no_step() -> None:
    class Waits(Extension):
        async def pre_step(self, agent: Agent, proposal: Proposal, proceed: Any) -> Any:
            agent.cancel(USER)
            return await proceed(proposal)

    async with rig(text("no"), extensions=[Waits()]) as run:
        lines = await run.ask("go")
    assert lines == ["next-turn @0 insert go", "turn 1", "next-turn @0 claim 1", "end 1: aborted:user"]
    assert run.model.requests == []


async def test_a_cancel_while_tools_run_answers_every_call() -> None:
    async def forever(arguments: Any, context: CallContext) -> str:
        await anyio.sleep_forever()
        return "never"

    def cancels(arguments: Any, context: CallContext) -> str:
        context.owner.cancel(USER)
        raise ValueError("broke meanwhile")

    tools = [tool("forever", forever, parallel=True), tool("cancels", cancels, parallel=True), *TOOLS]
    answer = tool_calls(call("forever"), call("cancels"), call("x"), call("p"))
    async with rig(answer, tools=tools) as run:
        lines = await run.ask("go")
    assert lines[lines.index("call call_2 cancels") + 1 :] == [
        "result call_1 !ABORTED",
        "result call_2 !error",
        "call call_3 x",
        "result call_3 !ABORTED_BEFORE_DISPATCH",
        "call call_4 p",
        "result call_4 !ABORTED_BEFORE_DISPATCH",
        *ENDS,
    ]


async def test_a_call_whose_body_has_not_begun_at_the_cancel_was_never_dispatched() -> None:
    left = await cut(is_type("tool/call", 2), tool_calls(call("p"), call("p")), tools=TOOLS)
    assert left == ["result call_1 !ABORTED_BEFORE_DISPATCH", "result call_2 !ABORTED_BEFORE_DISPATCH", *ENDS]


async def test_a_cancel_while_policy_judges_keeps_the_body_and_its_checkpoint_from_running() -> None:
    reached: list[str] = []

    class Checkpoint(Extension):
        async def before_tool(self, agent: Agent, context: CallContext) -> None:
            reached.append("before_tool")

    class Cancels:
        async def judge(self, context: CallContext, arguments: Any) -> Allow:
            context.owner.cancel(USER)
            return Allow()

    tools = Registry([tool("x", lambda arguments, context: reached.append("body") or "")], Cancels())
    async with rig(tool_calls(call("x")), tools=tools, extensions=[Checkpoint()]) as run:
        lines = await run.ask("go")
    assert lines[-3:] == ["result call_1 !ABORTED_BEFORE_DISPATCH", *ENDS]
    assert reached == []


async def test_what_fails_because_of_a_cancel_is_reported_and_the_turn_is_aborted() -> None:
    class Breaks(Extension):
        async def step_entered(self, agent: Agent, turn: int, step: int) -> None:
            agent.cancel(USER)
            raise ConnectionError("the helper went away")

    async with rig(text("no"), extensions=[Breaks()]) as run:
        assert (await run.ask("go"))[-2:] == ENDS
        [(_, _, error)] = run.failures
        assert isinstance(error, ConnectionError)


async def test_a_cancel_right_after_the_answer_answers_its_calls() -> None:
    left = await cut(is_type("assistant/message"), tool_calls(call("p"), call("x")), tools=TOOLS)
    assert left == [
        "call call_1 p",
        "result call_1 !ABORTED_BEFORE_DISPATCH",
        "call call_2 x",
        "result call_2 !ABORTED_BEFORE_DISPATCH",
        *ENDS,
    ]


async def test_a_success_that_came_with_the_cancel_becomes_aborted() -> None:
    def cancels(arguments: Any, context: CallContext) -> str:
        context.owner.cancel(USER)
        return "done"

    async with rig(tool_calls(call("x")), tools=[tool("x", cancels)]) as run:
        lines = await run.ask("go")
    assert lines[-3:] == ["result call_1 !ABORTED", *ENDS]
    [result] = [event for event in run.session.events if event.type == "tool/result"]
    [block] = result.value["message"]["content"]
    assert block["content"] == [{"type": "text", "text": "Error: tool call aborted"}]
    assert result.value["error"] == {"name": "AbortError", "code": "ABORTED"}


async def test_a_cancel_between_steps_and_at_the_stopping_turn() -> None:
    answers = tool_calls(call("x")), text("no")
    assert await cut(is_type("step/end"), *answers, tools=TOOLS) == ["end 1: aborted:user"]

    class Cancels(Extension):
        async def turn_stopping(self, agent: Agent, turn: int) -> None:
            agent.cancel(USER)

    async with rig(text("ok"), extensions=[Cancels()]) as run:
        assert (await run.ask("go"))[-2:] == ENDS


async def test_input_kept_at_a_cancel_between_steps_is_not_claimed_by_the_dying_turn() -> None:
    async with rig(tool_calls(call("x")), text("ok"), tools=TOOLS) as run:
        run.agent.followup(say("go"))
        run.on_event(is_type("tool/call"), lambda: run.agent.steer(say("more")))
        run.on_event(is_type("step/end"), lambda: run.agent.cancel(USER, keep_inbox=True))
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 1: aborted:user"
        assert [message["id"] for message in run.agent.inbox.waiting("next-step")] == ["more"]
        run.agent.wake()


async def test_the_first_cause_wins() -> None:
    async with rig(hang("Hi")) as run:

        def cancel_twice() -> None:
            run.agent.cancel({"kind": "hook", "reason": "stop rule"})
            run.agent.cancel(USER)

        run.on_event(is_chunk("text-delta"), cancel_twice)
        await run.ask("go")
    assert run.session.events[-1].value["reason"] == {
        "kind": "aborted",
        "reason": {"kind": "hook", "reason": "stop rule"},
    }


async def test_a_cancel_from_inside_a_listener_is_refused_and_changes_nothing() -> None:
    async with rig(text("ok"), text("ok")) as run:
        caught: list[Exception] = []

        def listen(event: Event) -> None:
            if event.type == "step/start" and not caught:
                try:
                    run.agent.cancel(USER)
                except ReentrantAppendError as error:
                    caught.append(error)

        run.agent.followup(say("a"))
        run.agent.followup(say("b"))
        run.session.subscribe(listen)
        await run.agent.wait_idle()
        assert len(caught) == 1
        assert run.outline()[-1] == "end 2: completed"


# --- every moment of a rich run ------------------------------------------------------------------------


async def _step(arguments: Any, context: CallContext) -> str:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    return "ok"


def rich_agent(session: Session, tasks: Any) -> Agent:
    """An agent whose run has a title, a retry, parallel and exclusive calls, several steps and turns."""
    tools = [tool("p", _step, parallel=True), tool("x", _step), tool("fails", _fails)]
    model = ScriptedModel(
        failure("SERVER", said="Half"),
        tool_calls(call("p"), call("p"), call("x"), call("fails"), call("p"), said="First.", reasoning="Hm."),
        text("Second.", reasoning="So."),
        tool_calls(call("x")),
        text("Third."),
        pace=Pace(random.Random(3)),
    )
    return Agent(
        session,
        declared=Declared("acme", "acme-1"),
        model=model,
        tools=Registry(tools),
        ids=SeededIds(),
        tasks=tasks,
        extensions=[FallbackTitle(), Retry(ManualClock())],
    )


def _fails(arguments: Any, context: CallContext) -> str:
    raise ValueError("no")


def prompt(agent: Agent) -> None:
    agent.inject(say("note"))
    agent.followup(say("one"))
    agent.followup(say("two"))


async def rich_run(at_seq: int | None, act: Callable[[Agent, Any], None]) -> Session:
    """Run it, acting right after the event numbered `at_seq`."""
    session = new_session()

    async with anyio.create_task_group() as tasks:
        agent = rich_agent(session, tasks)

        def listen(event: Event) -> None:
            if event.seq == at_seq:
                session.after_publishing.append(lambda: act(agent, tasks))

        session.subscribe(listen)
        prompt(agent)
        await agent.wait_idle()
    return session


async def test_the_rich_run_is_rich() -> None:
    session = await rich_run(None, lambda agent, tasks: None)
    lines = outline(session.events)
    assert lines[-1] == "end 2: completed"
    assert {"llm/retry", "session/title", "tool/result"} <= {event.type for event in session.events}
    assert session.seq == LENGTH
    assert_sound(session)


LENGTH = 86
FIRST = 5  # the last event of `prompt`; a prompt after a cancel would wake the agent again
AFTER_A_CANCEL = {
    "agent/inbox/spliced",
    "user/message",
    "assistant/message",
    "tool/call",
    "tool/result",
    "step/end",
    "turn/end",
}


def assert_closed(session: Session, cause: str, at_seq: int) -> None:
    """The log is sound, each turn closed, each call of a message answered, and little followed the cancel."""
    assert_sound(session)
    events = list(session.events)
    assert [e.type for e in events if e.type.startswith("turn/")][-1] == "turn/end"
    made = [e.value["callId"] for e in events if e.type == "tool/call"]
    answered = [e.value["message"]["source"]["callId"] for e in events if e.type == "tool/result"]
    asked = [
        block["id"]
        for e in events
        if e.type == "assistant/message"
        for block in e.value["message"]["content"]
        if block["type"] == "tool-call"
    ]
    assert sorted(made) == sorted(answered) == sorted(asked)
    open_turn = [e for e in events[: at_seq + 1] if e.type.startswith("turn/")][-1].type == "turn/start"
    if open_turn:
        assert {e.type for e in events[at_seq + 1 :]} <= AFTER_A_CANCEL
        assert events[-1].value["reason"] == {"kind": "aborted", "reason": {"kind": cause}}


@pytest.mark.parametrize("at_seq", range(FIRST, LENGTH - 1))
async def test_a_cancel_after_any_event_closes_the_turn(at_seq: int) -> None:
    session = await rich_run(at_seq, lambda agent, tasks: agent.cancel(USER))
    assert_closed(session, "user", at_seq)


@pytest.mark.parametrize("at_seq", range(FIRST, LENGTH - 1))
async def test_a_cancelled_task_group_closes_the_turn_after_any_event(at_seq: int) -> None:
    session = await rich_run(at_seq, lambda agent, tasks: tasks.cancel_scope.cancel())
    events = list(session.events)
    assert_sound(session)
    assert events[-1].type == "turn/end"
    made = [e.value["callId"] for e in events if e.type == "tool/call"]
    answered = [e.value["message"]["source"]["callId"] for e in events if e.type == "tool/result"]
    assert sorted(made) == sorted(answered)


async def test_a_cancelled_task_group_keeps_the_text_that_was_visible() -> None:
    session = new_session()
    async with anyio.create_task_group() as tasks:
        agent = rich_agent(session, tasks)
        agent.model = ScriptedModel(hang("Hello there."))
        agent.followup(say("go"))
        while len(session.derive_messages()) < 1 or session.events[-1].type != "assistant/chunk":
            await anyio.lowlevel.checkpoint()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert outline(session.events)[-3:] == [
        "answer: Hello there. (interrupted)",
        "step 1 ends",
        "end 1: aborted:disposed",
    ]
    assert_sound(session)
