"""What a child of this process is made of, and the seam that makes it (subagents and replay, 1.4, 1.6, 1.9).

The driver hands an `AgentFactory` a `ChildPlan`. Whoever can run agents (the composition root, the replay
runner) implements the factory and reads this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeVar, cast

import anyio
import anyio.abc
import msgspec
from anyio import TaskHandle
from anyio.abc import TaskStatus

from seedline.agent.extension import Assembly, Decision, Extension, Proposal, Reject, Section
from seedline.agent.loop import Agent
from seedline.agent.request import Declared
from seedline.errors import SubagentError, ToolUnknownError
from seedline.events.vocabulary import SubagentDescriptor, ToolFilter
from seedline.session.header import SessionLogOffset, SpawnFact
from seedline.session.log import Session
from seedline.session.store import CreateSessionOptions
from seedline.subagents.structured import StructuredOutput
from seedline.tools.base import Call, CallContext, Concurrency, Outcome, Signal, Tools
from seedline.tools.registry import failed

DELEGATION_NOTICE: Final = Section(
    "delegation",
    "You work on a task that another agent handed to you. Nobody answers questions here and nobody approves "
    "anything: decide with what you have. Your last message goes back to that agent as the result.",
)
T = TypeVar("T")


class PolicyEvent(msgspec.Struct, frozen=True):
    """A policy that the parent hands down, as the event that says so in the child's log."""

    type: str
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ChildPlan:
    """Everything about a child but how to run an agent.

    `session_id` and `options` are for `SessionStore.prepare`; with a cut, `options.seed` shares the rows of
    the parent's session. `signal` aborts when the child is not wanted any more. `persona` is the request's:
    the factory lets it stand in for the persona of the deployment.
    """

    session_id: str
    options: CreateSessionOptions
    parent: Agent
    declared: Declared
    descriptor: SubagentDescriptor
    policies: tuple[PolicyEvent, ...]
    signal: Signal
    persona: str | None = None
    tool_filter: ToolFilter | None = None
    structured: StructuredOutput | None = None

    @property
    def inherited_event_count(self) -> SessionLogOffset:
        """The cut."""
        return self.options.inherited_event_count

    @property
    def spawn(self) -> SpawnFact:
        """The child's place below its parent."""
        assert self.options.spawn is not None
        return self.options.spawn

    def check_wanted(self) -> None:
        """Raise `SubagentError` (`ABORTED_BEFORE_PUBLICATION`) when the signal has aborted."""
        if self.signal.aborted:
            raise aborted_before_publication(self.parent)

    def set_up(self, session: Session) -> None:
        """Append what belongs into the log before anybody sees the child: the inherited policies."""
        for policy in self.policies:
            session.append(policy.type, policy.data)

    def extensions(self) -> tuple[Extension, ...]:
        """Return the child's own extensions; they go before all others of the agent."""
        own = (DescriptorOnce(self.descriptor, self.signal), DelegationNotice())
        return own if self.structured is None else (*own, self.structured)

    def tools(self, tools: Tools) -> Tools:
        """Return the tools as the child sees them: filtered, and with the one for its structured answer.

        Raises `SubagentError` (`INVALID_REQUEST`) for a filter that names a tool that `tools` does not have.
        """
        filtered = tools if self.tool_filter is None else FilteredTools(tools, self.tool_filter)
        return filtered if self.structured is None else self.structured.tools(filtered)


def _no_fault() -> Exception | None:
    return None


@dataclass(frozen=True)
class ChildHandle:
    """A published child.

    `dispose` cancels it, releases its own children first, waits until it is at rest and takes it out of the
    store; it raises only when the release fails. `fault` returns what broke the child's tasks, if anything.
    """

    agent: Agent
    dispose: Callable[[], Awaitable[None]]
    fault: Callable[[], Exception | None] = _no_fault


class AgentFactory(Protocol):
    """Makes agents from plans. The composition root has one, and so has the replay runner."""

    async def create(self, plan: ChildPlan) -> ChildHandle:
        """Return the child of a plan, published and idle.

        In this order: prepare the session; `plan.set_up(session)` while nobody sees it; build the agent with
        `plan.declared`, `plan.tools(...)` and `plan.extensions()` first; `plan.check_wanted()`; publish, and
        after that await nothing. Any failure before leaves no child and is raised. The child's tasks run in a
        group inside its parent's (`ChildTasks`), so that it cannot outlive its parent.
        """
        ...


class ChildTasks(anyio.abc.TaskGroup):
    """The tasks of one child, inside a task group of its parent.

    An exception ends the task that raised it, becomes `fault`, and spares the parent.
    """

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self._closing = anyio.Event()
        self._closed = anyio.Event()

    @classmethod
    async def open(cls, parent: anyio.abc.TaskGroup) -> ChildTasks:
        """Return a group that lives in `parent` until `close`, or until `parent` ends."""
        tasks = cls()
        await parent.start(tasks._hold)
        return tasks

    async def _hold(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with anyio.create_task_group() as inner:
                self._inner = inner
                self.cancel_scope = inner.cancel_scope
                task_status.started()
                await self._closing.wait()
        except ExceptionGroup as failures:  # of a task that `start` began
            self.fault = self.fault or failures
        finally:
            self._closed.set()

    async def close(self) -> None:
        """Return when every task of the group has ended; takes no more."""
        self._closing.set()
        await self._closed.wait()

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> TaskHandle[T]:
        return self._inner.create_task(self._guarded(coro), name=name, context=context)

    async def start(
        self,
        func: Callable[..., Coroutine[Any, Any, Any]],
        *args: object,
        name: object = None,
        return_handle: Literal[False, True] = False,
    ) -> Any:
        return await self._inner.start(func, *args, name=name, return_handle=return_handle)

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Exception as error:
            self.fault = self.fault or error
            return cast("T", None)  # whoever asks for the value of a broken task reads `fault` first

    async def __aenter__(self) -> ChildTasks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        await self.close()
        return False


# --- what a child gets -------------------------------------------------------------------------------


class DescriptorOnce(Extension):
    """Logs `subagent/descriptor` before the first step that is admitted."""

    def __init__(self, descriptor: SubagentDescriptor, signal: Signal) -> None:
        self._descriptor: SubagentDescriptor | None = descriptor
        self._signal = signal

    async def pre_step(
        self, agent: Agent, proposal: Proposal, proceed: Callable[[Proposal], Awaitable[Decision]]
    ) -> Decision:
        decision = await proceed(proposal)
        admitted = bool(decision) and not isinstance(decision, Reject) and not self._signal.aborted
        if self._descriptor is not None and admitted:
            agent.session.append("subagent/descriptor", self._descriptor)
            self._descriptor = None
        return decision


class DelegationNotice(Extension):
    """Tells the child, in its runtime context, that it works for another agent."""

    async def assemble(self, agent: Agent, assembly: Assembly) -> Assembly:
        return Assembly(system=assembly.system, contexts=(*(assembly.contexts or ()), DELEGATION_NOTICE))


class FilteredTools:
    """Tools of which some are hidden, and refused when called all the same."""

    def __init__(self, inner: Tools, tool_filter: ToolFilter) -> None:
        self._inner = inner
        self._allow = None if tool_filter.allow is None else frozenset(tool_filter.allow)
        self._deny = frozenset(tool_filter.deny or ())
        known = {schema["name"] for schema in inner.schemas()}
        unknown = sorted(((self._allow or frozenset()) | self._deny) - known)
        if unknown:
            raise SubagentError(
                "INVALID_REQUEST", f"the tool filter names {unknown[0]!r}, which is no tool here"
            )

    def _shows(self, name: str) -> bool:
        return (self._allow is None or name in self._allow) and name not in self._deny

    def schemas(self) -> list[Any]:
        return [schema for schema in self._inner.schemas() if self._shows(schema["name"])]

    def concurrency(self, call: Call) -> Concurrency:
        return self._inner.concurrency(call) if self._shows(call.name) else "exclusive"

    async def admit(self, call: Call) -> None:
        if self._shows(call.name):
            await self._inner.admit(call)

    async def prepare(self, context: CallContext) -> Outcome | None:
        if self._shows(context.call.name):
            return await self._inner.prepare(context)
        return failed(ToolUnknownError(context.call.name))

    async def run(self, context: CallContext) -> Outcome:
        return await self._inner.run(context)


def aborted_before_publication(parent: Agent) -> SubagentError:
    """Return the error of a start that was cancelled before its child could be seen."""
    return SubagentError(
        "ABORTED_BEFORE_PUBLICATION",
        f"the start of a subagent of session {parent.session.id!r} was cancelled",
    )
