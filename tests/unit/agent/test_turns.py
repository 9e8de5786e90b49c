"""Turns, queues and wakes: 2.1 to 2.3 of the loop's rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from seedline.agent.extension import Decision, Extension, Proposal, Reject
from seedline.agent.loop import Agent
from seedline.errors import AgentBusyError, DuplicateMessageError, EventRefusedError, SettingRefusedError
from seedline.llm.scripted import call, failure, hang, text, tool_calls
from seedline.tools.base import CallContext, Outcome, Signal
from tests.unit.agent.harness import new_session, outline, rig, say, tool

pytestmark = pytest.mark.anyio
Proceed = Callable[[Proposal], Awaitable[Decision]]


async def test_one_turn_from_prompt_to_end() -> None:
    async with rig(text("Hi there.")) as run:
        assert await run.ask("hello") == [
            "next-turn @0 insert hello",
            "turn 1",
            "next-turn @0 claim 1",
            "step 1",
            "user: hello",
            "header initial",
            "context",
            "chunks..stop",
            "answer: Hi there.",
            "step 1 ends",
            "end 1: completed",
        ]
        assert run.statuses == [True, False]


async def test_a_burst_of_prompts_opens_the_turn_inside_the_first_call() -> None:
    async with rig(text("one"), text("two")) as run:
        run.agent.followup(say("a"))
        assert run.outline() == ["next-turn @0 insert a", "turn 1", "next-turn @0 claim 1"]
        run.agent.followup(say("b"))
        assert run.outline()[3:] == ["next-turn @0 insert b"]
        await run.agent.wait_idle()
        assert [line for line in run.outline() if line.startswith(("turn", "user", "end"))] == [
            "turn 1",
            "user: a",
            "end 1: completed",
            "turn 2",
            "user: b",
            "end 2: completed",
        ]
        assert run.statuses == [True, False]


async def test_injected_input_waits_for_a_wake_and_enters_before_the_prompt() -> None:
    async with rig(text("ok")) as run:
        run.agent.inject(say("note 1"))
        run.agent.inject(say("note 2"))
        await anyio.lowlevel.checkpoint()
        assert not run.agent.running
        assert (await run.ask("prompt"))[2:9] == [
            "next-turn @0 insert prompt",
            "turn 1",
            "next-step @0 claim 2",
            "next-turn @0 claim 1",
            "step 1",
            "user: note 1",
            "user: note 2",
        ]


async def test_a_user_steers_while_a_tool_runs() -> None:
    async with rig(tool_calls(call("wait")), text("noted"), tools=[tool("wait")]) as run:
        run.on_event(lambda event: event.type == "tool/call", lambda: run.agent.steer(say("also this")))
        lines = await run.ask("go")
    assert lines[lines.index("call call_1 wait") :] == [
        "call call_1 wait",
        "next-step @0 insert also this",
        "result call_1",
        "step 1 ends",
        "next-step @0 claim 1",
        "step 2",
        "user: also this",
        "chunks..stop",
        "answer: noted",
        "step 2 ends",
        "end 1: completed",
    ]


async def test_steering_during_the_last_answer_keeps_the_turn_going() -> None:
    async with rig(text("first"), text("second")) as run:
        run.on_event(lambda event: event.type == "assistant/message", lambda: run.agent.steer(say("more")))
        lines = await run.ask("go")
    assert lines[-8:] == [
        "step 1 ends",
        "next-step @0 claim 1",
        "step 2",
        "user: more",
        "chunks..stop",
        "answer: second",
        "step 2 ends",
        "end 1: completed",
    ]


async def test_a_silent_claim_leaves_no_trace() -> None:
    async with rig(tool_calls(call("t")), text("done"), tools=[tool("t")]) as run:
        lines = await run.ask("go")
    assert lines[lines.index("step 1 ends") + 1] == "step 2"


class StopsOnce(Extension):
    """Steers when the turn is about to end, the first time."""

    def __init__(self) -> None:
        self.asked = 0

    async def turn_stopping(self, agent: Agent, turn: int) -> None:
        self.asked += 1
        if self.asked == 1:
            agent.steer(say("go on"))


async def test_a_listener_of_the_stopping_turn_forces_another_step() -> None:
    stops = StopsOnce()
    async with rig(text("one"), text("two"), extensions=[stops]) as run:
        lines = await run.ask("go")
    assert lines.count("end 1: completed") == 1
    assert [line for line in lines if line.startswith("step")] == [
        "step 1",
        "step 1 ends",
        "step 2",
        "step 2 ends",
    ]
    assert lines.index("next-step @0 insert go on") == lines.index("step 1 ends") + 1
    assert stops.asked == 2


# --- what leaves input parked ------------------------------------------------------------------------


class Gate(Extension):
    """Decides the first step and lets later ones pass."""

    def __init__(self, decide: Callable[[], Decision]) -> None:
        self.decide: Callable[[], Decision] | None = decide

    async def pre_step(self, agent: Agent, proposal: Proposal, proceed: Proceed) -> Decision:
        await anyio.lowlevel.checkpoint()
        if self.decide is None:
            return await proceed(proposal)
        decide, self.decide = self.decide, None
        return decide()


def _raise() -> Decision:
    raise RuntimeError("disk full")


@pytest.mark.parametrize(
    ("decide", "ending"),
    [
        (Reject, "blocked"),
        (tuple, "completed"),
        (_raise, "error:UNKNOWN"),
    ],
)
async def test_a_turn_that_never_enters_a_step_parks_the_queue(decide: Any, ending: str) -> None:
    async with rig(text("b"), text("c"), extensions=[Gate(decide)]) as run:
        assert await run.ask("a", "b") == [
            "next-turn @0 insert a",
            "turn 1",
            "next-turn @0 claim 1",
            "next-turn @0 insert b",
            f"end 1: {ending}",
        ]
        assert [message["id"] for message in run.agent.inbox.waiting("next-turn")] == ["b"]
        await run.ask("c")
        assert [line for line in run.outline() if line.startswith("user")] == ["user: b", "user: c"]


async def test_a_failed_answer_parks_the_queue_until_the_next_wake() -> None:
    async with rig(failure("AUTH", "no key"), text("b"), text("c")) as run:
        lines = await run.ask("a", "b")
        assert lines[-3:] == ["chunks..error:AUTH", "step 1 ends", "end 1: error:AUTH"]
        assert len(run.agent.inbox) == 1
        await run.ask("c")
        assert not len(run.agent.inbox)


async def test_a_kept_inbox_stays_parked_after_a_cancel() -> None:
    async with rig(hang("partial"), text("b"), text("c")) as run:
        run.agent.followup(say("a"))
        run.agent.followup(say("b"))
        run.on_event(_is_text_delta, lambda: run.agent.cancel({"kind": "parent"}, keep_inbox=True))
        await run.agent.wait_idle()
        assert run.outline()[-3:] == ["answer: partial (interrupted)", "step 1 ends", "end 1: aborted:parent"]
        assert len(run.agent.inbox) == 1
        await run.ask("c")
        assert [line for line in run.outline() if line.startswith("user")] == [
            "user: a",
            "user: b",
            "user: c",
        ]


async def test_a_cancel_drops_queued_input_inside_the_open_turn_steps_first() -> None:
    async with rig(hang("partial")) as run:
        run.agent.followup(say("a"))
        run.agent.followup(say("b"))
        run.agent.inject(say("note"))
        run.on_event(_is_text_delta, lambda: run.agent.cancel({"kind": "user"}))
        await run.agent.wait_idle()
    assert outline(run.session.events)[-6:] == [
        "chunks",
        "next-step @0 drop 1",
        "next-turn @0 drop 1",
        "answer: partial (interrupted)",
        "step 1 ends",
        "end 1: aborted:user",
    ]


async def test_a_cancel_while_idle_only_clears_the_inbox() -> None:
    async with rig(text("ok")) as run:
        run.agent.inject(say("note"))
        run.agent.cancel({"kind": "user"})
        assert run.outline() == ["next-step @0 insert note", "next-step @0 drop 1"]
        run.agent.cancel({"kind": "user"})
        assert len(run.outline()) == 2
        assert (await run.ask("a"))[-1] == "end 1: completed"


def _is_text_delta(event: Any) -> bool:
    return event.type == "assistant/chunk" and event.value["chunk"]["type"] == "text-delta"


# --- wakes that must wait ------------------------------------------------------------------------------


async def test_a_wake_after_the_abort_is_remembered_and_takes_a_turn_of_its_own() -> None:
    async with rig(hang("partial"), text("again")) as run:

        def cancel_and_prompt() -> None:
            run.agent.cancel({"kind": "user"})
            run.agent.steer(say("instead"))

        run.agent.followup(say("a"))
        run.on_event(_is_text_delta, cancel_and_prompt)
        await run.agent.wait_idle()
    lines = run.outline()
    assert "next-turn @0 insert instead" in lines
    assert lines[lines.index("end 1: aborted:user") :][:4] == [
        "end 1: aborted:user",
        "turn 2",
        "next-turn @0 claim 1",
        "step 1",
    ]
    assert lines[-1] == "end 2: completed"
    assert run.statuses == [True, False]


@pytest.mark.parametrize("kinds", [["disposed"], ["user", "disposed"]])
async def test_nothing_starts_after_disposal(kinds: list[str]) -> None:
    async with rig(hang("partial")) as run:

        def prompt_and_dispose() -> None:
            run.agent.cancel({"kind": kinds[0]}, keep_inbox=True)
            run.agent.followup(say("late"))
            for kind in kinds[1:]:
                run.agent.cancel({"kind": kind}, keep_inbox=True)

        run.agent.followup(say("a"))
        run.on_event(_is_text_delta, prompt_and_dispose)
        await run.agent.wait_idle()
        assert run.outline()[-1] == f"end 1: aborted:{kinds[0]}"
        assert len(run.agent.inbox) == 1


async def test_a_second_cancel_drops_the_remembered_wake() -> None:
    async with rig(hang("partial")) as run:

        def cancel_prompt_cancel() -> None:
            run.agent.cancel({"kind": "user"})
            run.agent.followup(say("late"))
            run.agent.cancel({"kind": "parent"})
            run.agent.inject(say("note"))

        run.agent.followup(say("a"))
        run.on_event(_is_text_delta, cancel_prompt_cancel)
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 1: aborted:user"
        assert len(run.agent.inbox) == 1


async def test_a_cancel_between_two_turns_stops_the_driver() -> None:
    async with rig(text("one"), text("two"), text("three")) as run:
        run.agent.followup(say("a"))
        run.agent.followup(say("b"))
        run.on_event(
            lambda event: event.type == "turn/end",
            lambda: run.agent.cancel({"kind": "user"}, keep_inbox=True),
        )
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 1: completed"
        assert len(run.agent.inbox) == 1
        await run.ask("c")
        assert run.outline()[-1] == "end 3: completed"


async def test_maintenance_excludes_turns_and_remembers_a_wake() -> None:
    async with rig(text("ok")) as run:
        seen: list[bool] = []

        async def task(signal: Signal) -> str:
            run.agent.followup(say("a"))
            seen.append(run.agent.running)
            with pytest.raises(AgentBusyError, match="maintenance"):
                await run.agent.maintenance(task)
            await anyio.lowlevel.checkpoint()
            seen.append("turn/start" in run.types())
            return "result"

        assert await run.agent.maintenance(task) == "result"
        assert seen == [False, False]
        assert run.agent.running
        with pytest.raises(AgentBusyError, match="running"):
            await run.agent.maintenance(task)
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 1: completed"


async def test_failed_maintenance_leaves_the_agent_usable() -> None:
    async with rig(text("ok")) as run:

        async def task(signal: Signal) -> None:
            run.agent.cancel({"kind": "user"})
            assert signal.aborted
            raise ValueError("nothing to compact")

        with pytest.raises(ValueError, match="nothing to compact"):
            await run.agent.maintenance(task)
        assert (await run.ask("a"))[-1] == "end 1: completed"


async def test_failed_maintenance_lets_a_remembered_wake_start_its_turn() -> None:
    async with rig(text("ok")) as run:

        async def task(signal: Signal) -> None:
            run.agent.followup(say("a"))
            raise ValueError("nothing to compact")

        with pytest.raises(ValueError, match="nothing to compact"):
            await run.agent.maintenance(task)
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 1: completed"


# --- outcomes ------------------------------------------------------------------------------------------


async def test_a_tool_concludes_the_turn() -> None:
    concluding = Outcome(content=[], concludes_turn=True)
    tools = [tool("finish", lambda arguments, context: concluding), tool("note")]
    async with rig(tool_calls(call("note"), call("finish")), tools=tools) as run:
        assert (await run.ask("go"))[-3:] == ["result call_2", "step 1 ends", "end 1: completed"]


async def test_a_failed_result_concludes_nothing() -> None:
    failing = Outcome(content=[], concludes_turn=True, is_error=True)
    tools = [tool("finish", lambda arguments, context: failing)]
    async with rig(tool_calls(call("finish")), text("sorry"), tools=tools) as run:
        assert (await run.ask("go"))[-3:] == ["answer: sorry", "step 2 ends", "end 1: completed"]


async def test_waiting_input_runs_before_a_concluded_turn_ends() -> None:
    def finish(arguments: Any, context: CallContext) -> Outcome:
        context.owner.steer(say("wait"))
        return Outcome(content=[], concludes_turn=True)

    async with rig(tool_calls(call("finish")), text("yes?"), tools=[tool("finish", finish)]) as run:
        lines = await run.ask("go")
    assert lines[-6:] == [
        "step 2",
        "user: wait",
        "chunks..stop",
        "answer: yes?",
        "step 2 ends",
        "end 1: completed",
    ]


async def test_a_turn_that_hit_the_output_limit_stays_so_when_it_goes_on() -> None:
    cut = tool_calls(call("write", '{"path":'), said="Starting.", finish="max-tokens")
    async with rig(cut, text("Better."), text("c"), extensions=[StopsOnce()]) as run:
        lines = await run.ask("a", "b")
    assert "answer: Starting." in lines
    assert not any(line.startswith("call") for line in lines)
    assert "end 1: max-tokens" in lines
    assert lines[-1] == "end 2: completed"


# --- refusals ------------------------------------------------------------------------------------------


async def test_input_that_is_no_message_is_refused_and_leaves_no_trace() -> None:
    async with rig(text("ok")) as run:
        with pytest.raises(EventRefusedError, match="id"):
            run.agent.followup({"role": "user", "content": [], "source": {"kind": "user"}})
        run.agent.inject(say("twice"))
        with pytest.raises(DuplicateMessageError, match="twice"):
            run.agent.followup(say("twice"))
        assert run.outline() == ["next-step @0 insert twice"]
        assert not run.agent.running


async def test_a_step_refuses_what_is_no_message() -> None:
    async with rig(extensions=[Gate(lambda: ({"role": "user", "content": "x"},))]) as run:
        assert (await run.ask("a"))[-2:] == ["next-turn @0 claim 1", "end 1: error:UNKNOWN"]


async def test_a_limit_below_one_call_is_refused() -> None:
    with pytest.raises(SettingRefusedError, match="at least 1"):
        async with rig(limit=0):
            pass


async def test_a_log_that_refuses_the_turn_leaves_the_agent_idle() -> None:
    async with rig(text("ok")) as run:

        def refuse(event: Any) -> None:
            if event.type == "turn/start":
                raise EventRefusedError("data", event.type, "read-only")

        undo = run.session.guard(refuse)
        with pytest.raises(EventRefusedError, match="read-only"):
            run.agent.followup(say("a"))
        assert not run.agent.running
        undo()
        assert (await run.ask("b"))[2] == "turn 1"


async def test_a_closed_task_group_closes_the_turn_it_cannot_run() -> None:
    async with rig() as run:
        pass
    with pytest.raises(RuntimeError, match="not active"):
        run.agent.followup(say("late"))
    assert run.outline()[-1] == "end 1: aborted:disposed"
    assert not run.agent.running


async def test_a_failing_report_does_not_keep_the_turn_open() -> None:
    class Broken(Extension):
        def turn_failed(self, agent: Agent, turn: int, step: int, error: Exception) -> None:
            raise RuntimeError("no screen")

        def status_changed(self, agent: Agent, *, running: bool) -> None:
            raise RuntimeError("no screen")

    async with rig(failure("AUTH"), extensions=[Broken()]) as run:
        assert (await run.ask("a"))[-1] == "end 1: error:AUTH"
        [(turn, step, error)] = run.failures
        assert (turn, step, getattr(error, "code", None)) == (1, 1, "AUTH")


async def test_turn_numbers_go_on_after_the_last_one_in_the_log() -> None:
    session = new_session()
    async with rig(text("one"), session=session) as run:
        await run.ask("a")
    async with rig(text("two"), session=session) as run:
        assert (await run.ask("b"))[-1] == "end 2: completed"
