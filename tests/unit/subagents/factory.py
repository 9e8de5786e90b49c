"""An application in memory: a store, a model that answers from a script, the factory and both providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel

from seedline.agent.extension import Assembly, Extension
from seedline.agent.loop import Agent, user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.events.event import Event
from seedline.events.vocabulary import RequestConfig
from seedline.ids import SeededIds
from seedline.jsonvalue import encode
from seedline.llm.base import ModelRequest, PreparedConfig
from seedline.session.header import SpawnFact
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, RestoredSession, SessionStore
from seedline.subagents.base import SubagentEvent, SubagentRequest, SubagentRun, Subagents
from seedline.subagents.child import ChildHandle, ChildPlan, ChildTasks, PolicyEvent
from seedline.subagents.fork import ForkProvider
from seedline.subagents.in_process import InProcessDriver, no_policies, no_stored_children
from seedline.subagents.spawn import SpawnProvider
from seedline.subagents.tools import DelegationOptions, DelegationTool
from seedline.tools.base import CallContext, Signal, Tool
from seedline.tools.registry import FunctionTool, Registry

Chunk = dict[str, Any]
Answer = list[Any]
"""Chunks; an `anyio.Event` waits for it, an exception is raised."""
Brain = Callable[[ModelRequest], Answer]
Script = dict[str, list[Answer]]
"""By the text of the latest prompt: the answers of the steps that it leads to."""
FOREVER = object()


# --- the model ---------------------------------------------------------------------------------------


def finish(kind: str, **more: Any) -> Chunk:
    return {"type": "finish", "reason": {"kind": kind, **more}}


def say(text: str, *, kind: str = "stop", tokens: int = 1) -> Answer:
    usage = {"inputTokens": tokens, "outputTokens": tokens}
    return [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": text},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": text}},
        {"type": "usage", "usage": usage},
        finish(kind),
    ]


def call(*calls: tuple[str, Any]) -> Answer:
    """An answer of tool calls, each a name and its arguments."""
    blocks = [
        {"type": "tool-call", "id": f"call-{at}", "name": name, "arguments": encode(value).decode()}
        for at, (name, value) in enumerate(calls)
    ]
    ends = [{"type": "block-end", "index": at, "block": block} for at, block in enumerate(blocks)]
    return [*ends, finish("tool-calls")]


def delegate(*prompts: str, tool: str = "subagent") -> Answer:
    return call(*((tool, task(prompt)) for prompt in prompts))


def task(prompt: str) -> dict[str, str]:
    return {"description": f"do {prompt}", "prompt": prompt}


def failing(code: str, message: str = "secret", **more: Any) -> Answer:
    return [finish("error", failure={"message": message, "code": code, **more})]


def prompt_of(request: ModelRequest) -> str:
    """The text of the latest message that a user, or a delegating agent, sent."""
    values = [message.value for message in request.messages]
    asked = [value for value in values if value["source"]["kind"] == "user"]
    return asked[-1]["content"][0]["text"]


def from_script(script: Script) -> Brain:
    return lambda request: script[prompt_of(request)][request.step - 1]


class ScriptedModel:
    """Answers from a script and keeps the requests it was asked."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self.requests: list[ModelRequest] = []

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        return PreparedConfig(config=config, context_window=1000)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.requests.append(request)
        for chunk in self.brain(request):
            await anyio.lowlevel.checkpoint()
            if isinstance(chunk, anyio.Event):
                await chunk.wait()
            elif chunk is FOREVER:
                await anyio.sleep_forever()
            elif isinstance(chunk, Exception):
                raise chunk
            else:
                yield chunk


# --- the application ---------------------------------------------------------------------------------


async def at_once(plan: ChildPlan) -> None:
    await anyio.lowlevel.checkpoint()


class App:
    """Everything that a run needs, in memory. It is the `AgentFactory` of its driver."""

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        brain: Brain | Script,
        *,
        policies: Callable[[Agent], Sequence[PolicyEvent]] = no_policies,
        stored_children: Callable[[Session], Iterable[SpawnFact]] = no_stored_children,
        options: DelegationOptions | None = None,
        seed: int = 0,
    ) -> None:
        self.tasks = tasks
        self.ids = SeededIds(seed)
        self.store = SessionStore(ManualClock(1000, 1), self.ids)
        self.model = ScriptedModel(from_script(brain) if isinstance(brain, dict) else brain)
        self.subagents = Subagents(SeededIds(seed + 1))
        self.driver = InProcessDriver(
            self, SeededIds(seed + 2), policies=policies, stored_children=stored_children
        )
        self.undo_spawn = self.subagents.register(SpawnProvider(self.driver))
        self.undo_fork = self.subagents.register(ForkProvider(self.driver))
        self.options = options or DelegationOptions()
        self.heard: list[Any] = []
        self.sessions: list[Session] = []
        self.agents: dict[str, Agent] = {}
        self.plans: list[ChildPlan] = []
        self.events: list[SubagentEvent] = []
        self.extensions: Callable[[str], tuple[Extension, ...]] = lambda session_id: ()
        self.before_publication: Callable[[ChildPlan], Awaitable[None]] = at_once
        self.after_publication: Callable[[Agent], None] = lambda agent: None
        self.release_failure: Exception | None = None
        self._groups: dict[str, anyio.abc.TaskGroup] = {}
        self._handles: list[ChildHandle] = []
        self.store.on_created(self.sessions.append)
        self.subagents.listen(self.events.append)

    # --- agents ------------------------------------------------------------------------------------

    async def root(self, restored: RestoredSession | None = None, depth: int | None = None) -> Agent:
        options = restored or CreateSessionOptions(cwd="/w", delegation_depth=depth)
        session = self.store.prepare(None if restored else self.ids.fresh(), options)
        return (
            await self._publish(session, self.tasks, Declared("p", "m", 100), Registry(self.tools()))
        ).agent

    def tools(self) -> list[Tool]:
        forked = DelegationOptions(tool_name="subagent_fork", max_depth=self.options.max_depth)
        return [
            FunctionTool(
                name="echo",
                description="Gives back what it is told.",
                parameters={"type": "object"},
                function=self._echo,
                parallel=True,
            ),
            DelegationTool(self.subagents, "spawn", self.options),
            DelegationTool(self.subagents, "fork", forked),
        ]

    def _echo(self, arguments: Any, context: CallContext) -> str:
        self.heard.append(arguments)
        return str(arguments)

    async def create(self, plan: ChildPlan) -> ChildHandle:
        self.plans.append(plan)
        session = self.store.prepare(plan.session_id, plan.options)
        plan.set_up(session)
        tools = plan.tools(Registry(self.tools()))
        await self.before_publication(plan)
        return await self._publish(session, self._groups[plan.parent.session.id], plan.declared, tools, plan)

    async def _publish(
        self,
        session: Session,
        parent_tasks: anyio.abc.TaskGroup,
        declared: Declared,
        tools: Any,
        plan: ChildPlan | None = None,
    ) -> ChildHandle:
        tasks = await ChildTasks.open(parent_tasks)
        own = plan.extensions() if plan else ()
        agent = Agent(
            session,
            declared=declared,
            model=self.model,
            tools=tools,
            ids=self.ids,
            tasks=tasks,
            assembly=lambda: Assembly(system="You are an agent."),
            extensions=(*own, *self.extensions(session.id)),
        )
        try:
            if plan:
                plan.check_wanted()
            detach = self.store.enter(session)
            self.store.announce(session)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await tasks.close()
            raise
        self._groups[session.id] = tasks
        self.agents[session.id] = agent
        handle = ChildHandle(agent, lambda: self._dispose(agent, tasks, detach), lambda: tasks.fault)
        self._handles.append(handle)
        self.after_publication(agent)
        return handle

    async def _dispose(self, agent: Agent, tasks: ChildTasks, detach: Callable[[], None]) -> None:
        agent.cancel({"kind": "disposed"})
        try:
            await self.subagents.close(agent)
        finally:
            await agent.wait_idle()
            await tasks.close()
            detach()
        if self.release_failure is not None:
            raise self.release_failure

    async def dispose(self, agent: Agent) -> None:
        """Release one agent and everything below it."""
        await next(handle for handle in self._handles if handle.agent is agent).dispose()

    # --- what a person and a host do -----------------------------------------------------------------

    def prompt(self, agent: Agent, prompt: str) -> None:
        """Send a user's message."""
        agent.followup(user_message(prompt, self.ids))

    async def turn(self, agent: Agent, prompt: str) -> None:
        """Prompt an agent and wait until it has nothing more to do."""
        self.prompt(agent, prompt)
        await agent.wait_idle()

    def request(self, parent: Agent, prompt: str, **more: Any) -> SubagentRequest:
        fields: dict[str, Any] = {"signal": Signal(), "label": f"do {prompt}"}
        block = {"type": "text", "text": prompt}
        return SubagentRequest(prompt=(block,), parent=parent, **(fields | more))

    async def host(self, parent: Agent, prompt: str, provider: str = "spawn", **more: Any) -> SubagentRun:
        """Start a child by host code."""
        return await self.subagents.start(provider, self.request(parent, prompt, **more))

    def child(self, at: int = 0) -> Session:
        """The session of the child that was published as number `at`."""
        return [session for session in self.sessions if session.header.parent_session][at]


@asynccontextmanager
async def open_app(brain: Brain | Script, **more: Any) -> AsyncIterator[App]:
    """An application that must leave nothing behind: no live session, no task."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            app = App(tasks, brain, **more)
            yield app
            app.release_failure = None
            for session in app.store.list():
                if session.header.parent_session is None:
                    await app.dispose(app.agents[session.id])
            assert app.store.list() == []


# --- reading logs ------------------------------------------------------------------------------------


def types(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events if event.type != "assistant/chunk"]


def of_type(session: Session, event_type: str) -> list[Any]:
    """The payload values of one type among a session's own events."""
    return [event.value for event in session.own_events if event.type == event_type]


def results(session: Session) -> list[tuple[str, bool]]:
    """Text and error flag of a session's own tool results, in log order."""
    blocks = [value["message"]["content"][0] for value in of_type(session, "tool/result")]
    return [("".join(part["text"] for part in block["content"]), block["isError"]) for block in blocks]
