"""One agent over a fresh session, and a log told in short lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from seedline.agent.extension import Assembly, Extension
from seedline.agent.loop import Agent, user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.errors import sole_error
from seedline.events.event import Event
from seedline.ids import SeededIds
from seedline.llm.base import Model
from seedline.llm.scripted import Answerable, ScriptedModel
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.testing.relations import assert_relations
from seedline.tools.base import Tool, Tools
from seedline.tools.registry import Function, Registry, function_tool

ROUTE = Declared("acme", "acme-1")
IDS = SeededIds(1)


def new_session(session_id: str = "s-1") -> Session:
    header = SessionHeader(id=session_id, created_at=0)
    return Session.create(header, clock=ManualClock(step=1), inherited_event_count=START)


def reopened(session: Session) -> Session:
    """The session as another process would build it from what is stored."""
    return Session.restore(
        session.header,
        clock=ManualClock(step=1),
        inherited_event_count=session.inherited_event_count,
        events=session.events,
    )


def say(text: str) -> dict[str, Any]:
    """A user's message with its text for an id, so that logs read well."""
    return {**user_message(text, IDS), "id": text}


class Recorder(Extension):
    """Keeps what extensions are told of."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, int, Exception]] = []
        self.statuses: list[bool] = []

    def turn_failed(self, agent: Agent, turn: int, step: int, error: Exception) -> None:
        self.failures.append((turn, step, error))

    def status_changed(self, agent: Agent, *, running: bool) -> None:
        self.statuses.append(running)


class Rig:
    """A running agent with what tests look at."""

    def __init__(self, agent: Agent, recorder: Recorder) -> None:
        self.agent = agent
        self.session = agent.session
        self.failures = recorder.failures
        self.statuses = recorder.statuses
        self.model: Any = agent.model

    def outline(self) -> list[str]:
        return outline(self.session.events)

    def types(self) -> list[str]:
        return [event.type for event in self.session.events]

    async def ask(self, *texts: str) -> list[str]:
        """Send prompts and return the outline once the agent rests."""
        for text in texts:
            self.agent.followup(say(text))
        await self.agent.wait_idle()
        return self.outline()

    def on_event(self, matches: Callable[[Event], bool], action: Callable[[], None]) -> None:
        """Do something once, right after the first event that matches has been published."""
        done: list[Event] = []

        def listen(event: Event) -> None:
            if not done and matches(event):
                done.append(event)
                self.session.after_publishing.append(action)

        self.session.subscribe(listen)


@asynccontextmanager
async def rig(
    *answers: Answerable,
    model: Model | None = None,
    session: Session | None = None,
    tools: Tools | Sequence[Tool] = (),
    extensions: Sequence[Extension] = (),
    assembly: Callable[[], Assembly] = Assembly,
    declared: Declared = ROUTE,
    limit: float = 10,
    sound: bool = True,
) -> AsyncIterator[Rig]:
    """Run one agent; afterwards check its log by the rules unless it is not meant to be `sound`."""
    recorder = Recorder()
    session = session or new_session()
    async with _unwrapped(), anyio.create_task_group() as tasks:
        agent = Agent(
            session,
            declared=declared,
            model=model or ScriptedModel(*answers),
            tools=Registry(tools, clock=ManualClock()) if isinstance(tools, Sequence) else tools,
            ids=SeededIds(),
            tasks=tasks,
            assembly=assembly,
            extensions=[*extensions, recorder],
            max_parallel_tool_calls=limit,
        )
        yield Rig(agent, recorder)
        with anyio.fail_after(10):
            await agent.wait_idle()
    if sound:
        assert_sound(session)


@asynccontextmanager
async def _unwrapped() -> AsyncIterator[None]:
    """Let a failure out of a task group as what it is."""
    try:
        yield
    except ExceptionGroup as group:
        raise sole_error(group) from None


def assert_sound(session: Session) -> None:
    """Every relation holds, the log can be read back, and it gives the same messages."""
    assert_relations(session.events)
    again = reopened(session)
    assert again.derive_messages() == session.derive_messages()


def tool(name: str, function: Function | str = "done", *, parallel: bool = False, **options: Any) -> Tool:
    """A tool without parameters that answers with a text or runs a function."""
    body: Function = (lambda arguments, context: function) if isinstance(function, str) else function
    return function_tool(name, f"The tool {name}.", {"type": "object"}, body, parallel, **options)


# --- a log in short lines --------------------------------------------------------------------------


def outline(events: Iterable[Event]) -> list[str]:
    """Tell a log in lines; a run of chunks is one line that ends in how the run ended."""
    lines: list[str] = []
    for event in events:
        if event.type == "assistant/chunk":
            chunk = event.value["chunk"]
            ended = _finish(chunk) if chunk["type"] == "finish" else "chunks"
            if lines and lines[-1] == "chunks":
                lines.pop()
            lines.append(ended)
        else:
            lines.append(_line(event))
    return lines


def _finish(chunk: dict[str, Any]) -> str:
    reason = chunk["reason"]
    failure = reason.get("failure")
    return f"chunks..{reason['kind']}" + (f":{failure['code']}" if failure else "")


def _line(event: Event) -> str:
    data = event.value
    match event.type:
        case "agent/inbox/spliced":
            return _splice(data)
        case "turn/start":
            return f"turn {data['turn']}"
        case "turn/end":
            return f"end {data['turn']}: {_reason(data['reason'])}"
        case "step/start":
            return f"step {data['step']}"
        case "step/end":
            return f"step {data['step']} ends"
        case "user/message":
            return f"user: {_text(data['content'])}"
        case "request/header":
            return f"header {data['reason']}"
        case "request/context":
            return "context"
        case "assistant/message":
            cut = " (interrupted)" if data.get("interrupted") else ""
            return f"answer: {_text(data['message']['content'])}{cut}"
        case "tool/call":
            return f"call {data['callId']} {data['name']}"
        case "tool/result":
            return _result(data)
        case other:
            return other


def _splice(data: dict[str, Any]) -> str:
    verb = "drop" if data.get("outcome") == "canceled" else "claim"
    removed = f"{verb} {data.get('removedCount')}" if "removedCount" in data else ""
    inserted = (
        f"insert {', '.join(message['id'] for message in data['inserted'])}" if data["inserted"] else ""
    )
    return " ".join(filter(None, [data["target"], f"@{data['start']}", removed, inserted]))


def _reason(reason: dict[str, Any]) -> str:
    detail = reason.get("error", {}).get("code") or reason.get("reason", {}).get("kind")
    return f"{reason['kind']}:{detail}" if detail else reason["kind"]


def _text(content: list[dict[str, Any]]) -> str:
    return " ".join(
        f"<{block['name']} {block['id']}>" if block["type"] == "tool-call" else block.get("text", "")
        for block in content
    )


def _result(data: dict[str, Any]) -> str:
    [block] = data["message"]["content"]
    error = data.get("error", {}).get("code") or ("error" if block["isError"] else "")
    return " ".join(filter(None, [f"result {block['toolCallId']}", error and f"!{error}"]))
