"""The composition root: live agents over sessions in memory, their tools, and their subagents.

Only this file and the entry points know which concrete parts an agent is made of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from seedline.agent.checkpoint import Checkpoints
from seedline.agent.extension import Assembly, Extension
from seedline.agent.loop import Agent
from seedline.agent.request import Declared
from seedline.agent.title import FallbackTitle
from seedline.clock import Clock, SystemClock
from seedline.ids import IdSource, RandomIds
from seedline.llm.base import Model
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions, RestoredSession, SessionStore
from seedline.session.tree import ROOT_KEY
from seedline.storage.base import Backend
from seedline.storage.coordinator import Coordinator
from seedline.subagents.base import Subagents
from seedline.subagents.child import ChildHandle, ChildPlan, ChildTasks
from seedline.subagents.fork import ForkProvider
from seedline.subagents.in_process import InProcessDriver
from seedline.subagents.spawn import SpawnProvider
from seedline.subagents.tools import DEFAULT_MAX_DEPTH, DelegationOptions, DelegationTool
from seedline.tools.base import Tool
from seedline.tools.registry import Registry

DISPOSED = {"kind": "disposed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the agents of a runtime are made of.

    `declared` names provider and model of every request. `extensions` returns fresh extensions for each
    agent. `max_depth` is the absolute cap on delegation; 0 forbids it, and the delegation tools stay visible.
    `store` is where sessions are kept; the runtime closes it. With one, everything that led to a model
    request or a tool run is durable before it is made. Without, sessions live in memory only.
    """

    model: Model
    declared: Declared
    tools: Sequence[Tool] = ()
    system: str = ""
    extensions: Callable[[], Sequence[Extension]] = field(default=tuple)
    max_depth: int = DEFAULT_MAX_DEPTH
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    store: Backend | None = None


class Runtime:
    """Live sessions and their agents.

    Use it as an async context manager: leaving it disposes every agent, children first, then writes what
    waits to be stored and closes the store. `made` lists every session that was live here, in the order of
    creation, also after it ended. `storage` reaches the stored ones.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.sessions = SessionStore(parts.clock, parts.ids)
        self.storage = None if parts.store is None else Coordinator(parts.store, self.sessions)
        self.made: list[Session] = []
        self.subagents = Subagents(parts.ids)
        driver = InProcessDriver(self, parts.ids)
        self.subagents.register(SpawnProvider(driver))
        self.subagents.register(ForkProvider(driver))
        delegation = (
            DelegationTool(
                self.subagents, provider, DelegationOptions(tool_name=name, max_depth=parts.max_depth)
            )
            for provider, name in (("spawn", "subagent"), ("fork", "subagent_fork"))
        )
        self._tools = (*parts.tools, *delegation)
        self._tasks: dict[Agent, anyio.abc.TaskGroup] = {}
        self._roots: list[Agent] = []
        self._stack = AsyncExitStack()
        self._group: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        if self.storage is not None:
            await self._stack.enter_async_context(self.storage)
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None:
            for agent in self._roots:
                await self.dispose(agent)
        return await self._stack.__aexit__(kind, error, trace)

    # --- roots -------------------------------------------------------------------------------------

    def start(self, *, session_id: str | None = None, cwd: str | None = None) -> Agent:
        """Create a session and return its idle agent.

        `cwd` is absolute. Raises `StoreRefusedError` or `HeaderRefusedError`.
        """
        chosen = session_id or self.parts.ids.fresh()
        return self._root(self.sessions.create(chosen, CreateSessionOptions(cwd=cwd)))

    def resume(self, stored: RestoredSession) -> Agent:
        """Continue a stored session, its waiting input included, and return its idle agent.

        The whole log seeds it; its cut stays what was stored. Raises what `SessionStore.create` raises.
        """
        return self._root(self.sessions.create(None, stored))

    async def resume_stored(self, session_id: str) -> Agent:
        """Continue a session of the store, repaired where a crash left it unfinished; return the idle agent.

        Raises what `Coordinator.reserved` raises.
        """
        async with self._storage().reserved(session_id) as inspection:
            return self.resume(inspection.restored())

    async def fork_stored(self, source_id: str, boundary: int | None = None) -> Agent:
        """Fork a session of the store, live or not, and return the idle agent.

        Raises what `Coordinator.fork` raises.
        """
        return self._root(await self._storage().fork(source_id, boundary, self.parts.ids.fresh()))

    def _storage(self) -> Coordinator:
        assert self.storage is not None, "give the runtime a store first"
        return self.storage

    def fork(self, source: Session, boundary: int | None = None) -> Agent:
        """Fork a live session after the event `boundary` (its last by default); return the idle agent.

        The new session shares the rows of `source`; it is a run of its own, no child in its tree.
        Raises `ForkRefusedError`.
        """
        return self._root(self.sessions.fork(source, boundary, self.parts.ids.fresh()))

    def _root(self, session: Session) -> Agent:
        assert self._group is not None, "enter the runtime first"
        agent = self._agent(session, self._group, self.parts.declared, ROOT_KEY)
        self._roots.append(agent)
        return agent

    async def dispose(self, agent: Agent) -> None:
        """Cancel an agent, release its children first, wait for its rest and take it out of the store."""
        agent.cancel(DISPOSED, keep_inbox=True)
        try:
            await self.subagents.close(agent)
        finally:
            await agent.wait_idle()
            self.sessions.detach(agent.session)

    # --- children ----------------------------------------------------------------------------------

    async def create(self, plan: ChildPlan) -> ChildHandle:
        """Make the child of a plan: see `AgentFactory`."""
        tasks = await ChildTasks.open(self._tasks[plan.parent])
        try:
            session = self.sessions.prepare(plan.session_id, plan.options)
            plan.set_up(session)
            agent = self._agent(
                session, tasks, plan.declared, f"{plan.parent.key}/{plan.spawn.segment}", plan
            )
            plan.check_wanted()
            detach = self.sessions.enter(session)
            self.sessions.announce(session)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await tasks.close()
            raise
        return ChildHandle(agent, self._release(agent, tasks, detach), lambda: tasks.fault)

    def _release(
        self, agent: Agent, tasks: ChildTasks, detach: Callable[[], None]
    ) -> Callable[[], Awaitable[None]]:
        async def dispose() -> None:
            agent.cancel({"kind": "parent"})
            try:
                await self.subagents.close(agent)
            finally:
                await agent.wait_idle()
                await tasks.close()
                detach()

        return dispose

    # --- agents ------------------------------------------------------------------------------------

    def _agent(
        self,
        session: Session,
        tasks: anyio.abc.TaskGroup,
        declared: Declared,
        key: str,
        plan: ChildPlan | None = None,
    ) -> Agent:
        tools = Registry(self._tools)
        agent = Agent(
            session,
            declared=declared,
            model=self.parts.model,
            tools=tools if plan is None else plan.tools(tools),
            ids=self.parts.ids,
            tasks=tasks,
            key=key,
            assembly=lambda: Assembly(system=(plan and plan.persona) or self.parts.system),
            extensions=self._extensions(plan),
        )
        self.made.append(session)
        self._tasks[agent] = tasks
        return agent

    def _extensions(self, plan: ChildPlan | None) -> list[Extension]:
        """Return the extensions of an agent; checkpoints last, so that they cover what the others log."""
        own = plan.extensions() if plan else ()
        checkpoints = () if self.storage is None else (Checkpoints(self.sessions),)
        return [*own, FallbackTitle(), *self.parts.extensions(), *checkpoints]
