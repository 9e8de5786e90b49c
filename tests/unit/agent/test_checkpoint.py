"""Checkpoints: what led to a model request or a tool run is stored before it is made (7.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seedline.agent.loop import Agent, user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.errors import StorageError
from seedline.ids import SeededIds
from seedline.llm.scripted import Answerable, ScriptedModel, call, text, tool_calls
from seedline.runtime import Parts, Runtime
from seedline.storage.memory import MemoryBackend
from seedline.testing.faulty import FaultyBackend
from tests.unit.agent.harness import tool

pytestmark = pytest.mark.anyio


class Watched(ScriptedModel):
    """Looks at the store when it is asked."""

    def __init__(self, look: Callable[[], None], *answers: Answerable) -> None:
        super().__init__(*answers)
        self._look = look

    def stream(self, request: Any) -> Any:
        self._look()
        return super().stream(request)


class Kept:
    """A store, and the agents whose sessions it has to hold in full whenever somebody looks."""

    def __init__(self) -> None:
        self.memory = MemoryBackend()
        self.backend = FaultyBackend(self.memory)
        self.agents: list[Agent] = []
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        for agent in self.agents:
            assert list(self.memory.read(agent.session.id).events) == list(agent.session.events)

    def runtime(self, *answers: Answerable, tools: Any = ()) -> Runtime:
        model = Watched(self.look, *answers)
        ids, clock = SeededIds(1), ManualClock(1, 1)
        declared = Declared("acme", "m")
        return Runtime(
            Parts(model=model, declared=declared, tools=tools, ids=ids, clock=clock, store=self.backend)
        )

    async def ask(self, runtime: Runtime, agent: Agent) -> dict[str, Any]:
        """Send a prompt; return why the turn ended."""
        if agent not in self.agents:
            self.agents.append(agent)
        agent.followup(user_message("go", runtime.parts.ids))
        await agent.wait_idle()
        return agent.session.events[-1].value["reason"]


async def test_everything_is_stored_before_a_request_and_before_a_tool_body() -> None:
    kept = Kept()
    looking = tool("look", lambda arguments, context: kept.look() or "seen")
    async with kept.runtime(tool_calls(call("look")), text("done"), tools=[looking]) as runtime:
        agent = runtime.start(session_id="s")
        assert await kept.ask(runtime, agent) == {"kind": "completed"}
    assert kept.looks == 3
    assert list(kept.memory.read("s").events) == list(agent.session.events)


async def test_a_failed_flush_keeps_the_request_back() -> None:
    kept = Kept()
    async with kept.runtime(text("done")) as runtime:
        agent = runtime.start(session_id="s")
        kept.backend.fail("append")
        reason = await kept.ask(runtime, agent)
        assert reason["kind"] == "error"
        assert "the disk is gone" in reason["error"]["message"]
        assert kept.looks == 0
        kept.backend.mend()
        assert await kept.ask(runtime, agent) == {"kind": "completed"}
        assert kept.looks == 1


async def test_a_failed_flush_keeps_the_tool_back() -> None:
    kept = Kept()
    ran: list[str] = []

    def answered(arguments: Any, context: Any) -> str:
        ran.append("ran")
        return "ran"

    class Failing(Watched):
        def stream(self, request: Any) -> Any:
            kept.backend.fail("append")
            return super().stream(request)

    model = Failing(kept.look, tool_calls(call("act")))
    parts = Parts(
        model=model,
        declared=Declared("acme", "m"),
        tools=[tool("act", answered)],
        ids=SeededIds(1),
        store=kept.backend,
    )
    async with Runtime(parts) as runtime:
        agent = runtime.start(session_id="s")
        reason = await kept.ask(runtime, agent)
        assert reason["kind"] == "error"
        assert ran == []
        kept.backend.mend()


async def test_children_are_stored_a_fork_over_its_parent() -> None:
    kept = Kept()
    answers = (
        text("first"),
        tool_calls(call("subagent_fork", {"description": "d", "prompt": "p"})),
        text("child"),
        text("second"),
    )
    async with kept.runtime(*answers) as runtime:
        agent = runtime.start(session_id="s", cwd="/project")
        await kept.ask(runtime, agent)
        assert await kept.ask(runtime, agent) == {"kind": "completed"}
        _, child = runtime.made
    [made] = [one for one in kept.backend.made if one.call == "create" and one.session_id == child.id]
    assert made.prefix is not None
    assert (made.prefix.owner, made.prefix.count) == ("s", child.inherited_event_count)
    assert list(kept.memory.read(child.id).events) == list(child.events)


async def test_a_stored_session_is_resumed_and_forked() -> None:
    kept = Kept()
    async with kept.runtime(text("one")) as runtime:
        await kept.ask(runtime, runtime.start(session_id="s"))
    kept.agents.clear()
    async with kept.runtime(text("two"), text("three")) as runtime:
        fork = await runtime.fork_stored("s")
        assert await kept.ask(runtime, fork) == {"kind": "completed"}
        kept.agents.clear()  # its last events wait for the end of their window
        again = await runtime.resume_stored("s")
        assert await kept.ask(runtime, again) == {"kind": "completed"}
    turns = [event for event in kept.memory.read("s").events if event.type == "turn/start"]
    assert len(turns) == 2
    assert kept.memory.read(fork.session.id).inherited_event_count == fork.session.inherited_event_count > 0


async def test_a_session_that_could_not_be_stored_is_named_at_the_end() -> None:
    with pytest.raises(StorageError, match="the disk is gone"):
        await _left_unwritten()


async def _left_unwritten() -> None:
    kept = Kept()
    async with kept.runtime(text("one")) as runtime:
        kept.backend.fail("append")
        await kept.ask(runtime, runtime.start(session_id="s"))
