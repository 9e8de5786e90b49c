"""Replaying a whole tree: every recorded session through the real loop, each at its recorded place."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from seedline.agent.extension import Extension
from seedline.agent.loop import Agent
from seedline.agent.request import Declared
from seedline.errors import (
    BindingError,
    SeedlineError,
    SettingRefusedError,
    StalledReplayError,
    sole_error,
)
from seedline.events.event import CHUNK, Event
from seedline.ids import SeededIds
from seedline.replay.compare import RESULT_BODY, Comparer, cause_kind, header_difference
from seedline.replay.divergence import Cause
from seedline.replay.entries import ScriptEntry
from seedline.replay.model import Channel, GiveWay
from seedline.replay.router import LiveCall, Router
from seedline.replay.script import agent_entries, derive_replay_script
from seedline.session.header import CallSpawn, SessionHeader
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.tree import ROOT_KEY, Grade, Node, RecordedSession, SessionTree
from seedline.snapshot.delegated import arguments_of, is_delegated, prompt_of, provider_of
from seedline.snapshot.feeder import Feeder, RecordModel
from seedline.snapshot.line import Line, RecordClock, RecordIds
from seedline.snapshot.load import NotReplayable
from seedline.snapshot.record import Record, value_of
from seedline.snapshot.report import SessionReport, Status
from seedline.snapshot.served import RecordTools, served, text_of_result
from seedline.subagents.base import Subagents
from seedline.subagents.child import ChildHandle, ChildPlan, ChildTasks
from seedline.subagents.fork import ForkProvider
from seedline.subagents.in_process import InProcessDriver
from seedline.subagents.spawn import SpawnProvider
from seedline.subagents.tools import DelegationOptions, DelegationTool
from seedline.tools.base import CallContext, Outcome, Tools

ToolMode = Literal["serve", "execute", "verify"]
"""What becomes of a tool call: its recorded result is served; or it runs and its result stands, whatever it
says; or it runs and its result is compared."""
EVERY_TOOL: Final = "*"
STALL_SECONDS: Final = 10.0
"""A replay that serves everything moves all the time; one that has not for this long never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a tree is replayed.

    `expected` maps a recorded session to the events it is compared with, where those are not its own.
    `scripts` replaces the script of a session's own events. `reasons` names the sessions that cannot be
    replayed, and why. `tool_modes` maps tool names (`*` for any other) to a mode; `live_tools` answers calls
    that are not served. `pace` is in milliseconds before each chunk; `give_way` is awaited before each call
    and each chunk. `route` says which recorded calls answer a session: those of its own lineage key unless
    given. `on_session` is given the lineage key and the session that each replay made, when all is over.

    Raises `SettingRefusedError` for a mode that is none, and for one that runs tools where there are none.
    """

    expected: Mapping[RecordedSession, Events] = field(default_factory=dict[RecordedSession, Events])
    scripts: Mapping[RecordedSession, list[ScriptEntry]] = field(
        default_factory=dict[RecordedSession, list[ScriptEntry]]
    )
    reasons: Mapping[RecordedSession, NotReplayable] = field(
        default_factory=dict[RecordedSession, NotReplayable]
    )
    tool_modes: Mapping[str, ToolMode] = field(default_factory=dict[str, ToolMode])
    live_tools: Tools | None = None
    pace: int = 0
    give_way: GiveWay = checkpoint
    route: Callable[[SessionRun], Channel] = field(default=lambda run: run.channel)
    on_session: Callable[[str, Session], None] = field(default=lambda key, session: None)
    stall_seconds: float = STALL_SECONDS

    def __post_init__(self) -> None:
        for mode in self.tool_modes.values():
            if mode not in get_args(ToolMode):
                raise SettingRefusedError("tool_modes", mode, "serve, execute or verify")
            if mode != "serve" and self.live_tools is None:
                raise SettingRefusedError("tool_modes", mode, "serve where no live tools are given")

    @property
    def serves_all(self) -> bool:
        """True when no tool body runs."""
        return all(mode == "serve" for mode in self.tool_modes.values())

    def mode(self, name: str) -> ToolMode:
        """Return what becomes of a call of the tool `name`."""
        return self.tool_modes.get(name) or self.tool_modes.get(EVERY_TOOL, "serve")

    def live(self, name: str) -> Tools | None:
        """Return what runs a call of the tool `name`, None when its recorded result is served."""
        return None if self.mode(name) == "serve" else self.live_tools


_MASKS: Final[Mapping[ToolMode, tuple[str, ...]]] = {
    "serve": (),
    "verify": ("/data/meta",),
    "execute": RESULT_BODY,
}
"""Where the result of a live call may differ from the recorded one."""

DelegateCall = Callable[["SessionRun", CallContext, Event | None], Awaitable[Outcome | None]]


class SessionRun:
    """One recorded session on its way through the loop.

    `delegated` says that a call of its parent's replay creates it through a provider. A run that is
    `abandoned` was cut off with its parent and says nothing of its own record.
    """

    def __init__(self, node: Node, options: ReplayOptions, *, delegated: bool) -> None:
        session = node.session
        self.node = node
        self.options = options
        self.delegated = delegated
        self.grade: Grade = node.grade
        self.reason = options.reasons.get(session)
        self.record = Record(
            session.header, session.inherited_event_count, session.events, delegated=delegated
        )
        expected = options.expected.get(session)
        self.comparer = Comparer(
            self.record.events if expected is None else expected,
            self.record.start,
            node.key,
            upstream=self._upstream,
            masked=self._masked,
        )
        self.cancel: Callable[[], None] = lambda: None
        self.line = Line(self.record, self.comparer, self._stop)
        self.agent: Agent | None = None
        self.tasks: anyio.abc.TaskGroup | None = None
        self.abandoned = False
        self.made: dict[str, SessionRun] = {}
        """The delegated children by their place in this run."""
        self._by_call: dict[str, SessionRun] = {}
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """The recorded calls that the replayed part makes. Raises what `derive_replay_script` raises."""
        if self._channel is None:
            self._channel = Channel(self.node.key, self._entries())
        return self._channel

    def _entries(self) -> list[ScriptEntry]:
        session, start = self.node.session, self.record.start
        given = self.options.scripts.get(session)
        if given is None:
            return agent_entries(derive_replay_script(session.events[start:], unfinished="cut"))
        before = session.events[session.inherited_event_count : start]
        made_before = agent_entries(derive_replay_script(before, unfinished="cut"))
        return agent_entries(given)[len(made_before) :]

    def make_agent(
        self,
        session: Session,
        tasks: anyio.abc.TaskGroup,
        delegate: DelegateCall,
        extensions: Sequence[Extension] = (),
    ) -> Agent:
        """Build the agent of this run and feed what comes before any turn. Raises what `channel` raises."""
        self._channel = self.channel  # what cannot be derived is refused before anything runs

        def agent() -> Agent:
            assert self.agent is not None
            return self.agent

        async def run_delegate(context: CallContext, recorded: Event | None) -> Outcome | None:
            return await delegate(self, context, recorded)

        self.tasks = tasks
        self.agent = Agent(
            session,
            declared=declared_of(self.record),
            model=RecordModel(
                self.line,
                lambda: self.options.route(self),
                agent,
                pace=self.options.pace,
                give_way=self.options.give_way,
            ),
            tools=RecordTools(self.line, agent, run_delegate, self.options.live),
            ids=RecordIds(self.line),
            tasks=tasks,
            key=self.node.key,
            extensions=[*extensions, Feeder(self.line, agent)],
            max_parallel_tool_calls=sys.maxsize,
        )
        self.line.begin(session, self.agent.inbox)
        return self.agent

    def adopt(self, child: SessionRun, context: CallContext) -> None:
        """Remember the child of a call."""
        self.made[_segment(context)] = child
        self._by_call[context.call.call_id] = child

    # --- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close both ends: what the record holds and the run never made."""
        if not self.line.closed:
            self.comparer.finish()
            self.line.closed = True

    def _stop(self) -> None:
        for child in self.made.values():
            child.abandon()
        self.cancel()

    def abandon(self) -> None:
        """Give the run up, unless it is over: its parent's run has ended around it."""
        if not self.line.closed:
            self.abandoned = True
            self.line.close()

    @property
    def is_broken(self) -> bool:
        """True when the run failed or diverged."""
        return self.line.failure is not None or self.comparer.divergence is not None

    def report(self) -> SessionReport:
        """Return the verdict."""
        status, reason = self._verdict()
        return SessionReport(
            path=self.node.session.name,
            key=self.node.key,
            grade=self.grade,
            status=status,
            reason=reason,
            events=len(self.record),
            inherited=self.record.start if self.reason is None else 0,
            compared=self.comparer.compared,
            fed=self.comparer.fed,
            divergence=self.comparer.divergence if status == "diverged" else None,
        )

    def _verdict(self) -> tuple[Status, str | None]:
        if self.reason is not None:
            return "not-replayable", self.reason
        if self.line.failure is not None:
            return "error", _said(self.line.failure)
        if self.comparer.divergence is not None:
            return "diverged", None
        if self.agent is None:
            return "error", "no replayed call created this session"
        left = self.channel.total - self.channel.consumed
        if left:
            return "error", f"{left} of {self.channel.total} recorded model calls were not made"
        return "identical", None

    # --- what a difference comes from ----------------------------------------------------------------

    def _upstream(self, event: Event, path: str) -> Cause | None:
        """Name the child whose answer a differing tool result is, and content that was handed in."""
        if event.type == "tool/result" and cause_kind(event, path) == "tool-result":
            return self._child_answer(event)
        given_message = event.seq in self.line.given and path.startswith("/data")
        given_chunk = event.type == CHUNK and self._is_overridden and path.startswith("/data/chunk")
        if given_message or given_chunk:
            return Cause(self.node.key, event.seq, event.type, "fed-input")
        return None

    @property
    def _is_overridden(self) -> bool:
        return self.node.session in self.options.scripts

    def _child_answer(self, event: Event) -> Cause | None:
        child = self._by_call.get(_call_id(event))
        said = last_answer(child.node.session.own) if child else None
        return Cause(child.node.key, said.seq, said.type, "child-answer") if child and said else None

    def _masked(self, event: Event) -> Sequence[str]:
        """Return where a result that a live tool gave may differ."""
        if event.type != "tool/result" or self.options.serves_all or _call_id(event) in self._by_call:
            return ()
        return _MASKS[self.options.mode(self._tool_of(_call_id(event)))]

    def _tool_of(self, call_id: str) -> str:
        for event in self.line.session.events.without_chunks_reversed():
            if event.type == "tool/call" and value_of(event).get("callId") == call_id:
                return str(value_of(event).get("name"))
        return ""


def _call_id(result: Event) -> str:
    return str(value_of(result, "message", "source").get("callId", ""))


def _said(failure: Exception) -> str:
    """Return the text of a failure; one that nobody raises on purpose names its type."""
    return str(failure) if isinstance(failure, SeedlineError) else f"{type(failure).__name__}: {failure}"


def declared_of(record: Record) -> Declared:
    """Return the route that the recorded agent was made with: that of its first request."""
    for event in record.owned_from(record.start):
        if event.type == "request/header":
            config = value_of(event, "header", "config")
            return Declared(str(config.get("provider", "")), str(config.get("model", "")))
    return Declared("", "")


def last_answer(own: Events) -> Event | None:
    """Return the last assistant message that a session wrote itself."""
    return next((e for e in own.without_chunks_reversed() if e.type == "assistant/message"), None)


# --- the tree --------------------------------------------------------------------------------------------


async def replay_tree(tree: SessionTree, options: ReplayOptions) -> list[SessionReport]:
    """Replay every session of a tree through the real loop; return the verdicts, depth-first by key.

    The primary's run comes first, then forks and strangers, each a run of its own. No tool body runs unless
    its mode asks for it, and no model is called. Never raises for a record that does not replay, and ends on
    any record: that is a verdict.
    """
    return await _TreeReplay(tree, options).run()


class _TreeReplay:
    """The replay of one tree.

    A child that a recorded delegation call made is created again by that call, through its provider. Every
    other session is started here, side by side.
    """

    def __init__(self, tree: SessionTree, options: ReplayOptions) -> None:
        self.options = options
        self.runs: dict[Node, SessionRun] = {}
        self.live: dict[Session, SessionRun] = {}
        self.router = Router()
        self.parents: dict[Node, Node] = {}
        for root in [tree.primary, *(node for node in tree.outside() if node.key == ROOT_KEY)]:
            self._add(root, None)
        self.subagents = Subagents(SeededIds())
        driver = InProcessDriver(self, SeededIds())
        self.tools: dict[str, DelegationTool] = {}
        for provider in (SpawnProvider(driver), ForkProvider(driver)):
            self.subagents.register(provider)
            limits = DelegationOptions(max_depth="provider-managed")
            self.tools[provider.name] = DelegationTool(self.subagents, provider.name, limits)

    def _add(self, node: Node, parent: SessionRun | None) -> None:
        replayed = parent is not None and parent.reason is None
        delegated = parent is not None and replayed and is_delegated(node, parent.record)
        run = self.runs[node] = SessionRun(node, self.options, delegated=delegated)
        if parent is not None and delegated:
            self.router.expect(parent.node, node)
        for child in node.children:
            self.parents[child] = node
            self._add(child, run)

    async def run(self) -> list[SessionReport]:
        async with anyio.create_task_group() as watch:
            if self.options.serves_all:
                watch.start_soon(self._watch)
            roots = [run for run in self.runs.values() if not run.delegated]
            while roots:
                await self._run_roots(roots)
                roots = self._left_behind()
            watch.cancel_scope.cancel()
        for run in self.runs.values():
            if run.agent is not None:
                self.options.on_session(run.node.key, run.agent.session)
        return [run.report() for run in self.runs.values()]

    async def _watch(self) -> None:
        """End the runs of a replay in which nothing moves."""
        seconds = self.options.stall_seconds
        while True:
            before = self._progress()
            await anyio.sleep(seconds)
            if self._progress() == before:
                for run in self.live.values():
                    run.line.fail(StalledReplayError(run.node.key, run.line.seq, seconds))

    def _progress(self) -> tuple[int, ...]:
        return tuple(session.seq for session in self.live)

    # --- roots -------------------------------------------------------------------------------------

    async def _run_roots(self, roots: Sequence[SessionRun]) -> None:
        async with anyio.create_task_group() as tasks:
            for run in roots:
                if run.reason is None:
                    tasks.start_soon(self._run_root, run)

    async def _run_root(self, run: SessionRun) -> None:
        try:
            await self._drive_root(run)
        except Exception as error:
            run.line.fail(sole_error(error))
        run.finish()

    async def _drive_root(self, run: SessionRun) -> None:
        session = root_session(run)
        with anyio.CancelScope() as scope:
            run.cancel = scope.cancel
            async with anyio.create_task_group() as tasks:
                self.live[session] = run
                await _drive(run, run.make_agent(session, tasks, self.delegate))

    def _left_behind(self) -> list[SessionRun]:
        """Return fresh runs for children whose parents' runs did not get to create them, or cut them off.

        What they record is judged by itself; the tree has its divergence already.
        """
        left = [node for node, run in self.runs.items() if run.delegated and self._is_left_behind(node)]
        within = {below for node in left for child in node.children for below in child.walk()}
        return [self._afresh(node) for node in left if node not in within]

    def _is_left_behind(self, node: Node) -> bool:
        run = self.runs[node]
        if run.abandoned:
            return True
        return run.agent is None and not run.line.closed and self._is_given_up(node)

    def _is_given_up(self, node: Node) -> bool:
        """True when no call can create a child any more, and not for a fault of its own record."""
        parent = self.runs[self.parents[node]]
        return node.place is None or parent.abandoned or parent.report().status != "identical"

    def _afresh(self, node: Node) -> SessionRun:
        """Return a run of `node` on its own, with fresh runs for what it delegates to."""
        for below in node.walk():
            delegated = self.runs[below].delegated and below is not node
            self.runs[below] = SessionRun(below, self.options, delegated=delegated)
            self.router.release(below)
        return self.runs[node]

    # --- children ----------------------------------------------------------------------------------

    async def delegate(
        self, parent: SessionRun, context: CallContext, recorded: Event | None
    ) -> Outcome | None:
        """Run a call whose recorded child is known; None leaves the call to be served."""
        child = self._bound(parent, context, recorded)
        if child is None:
            return None
        parent.adopt(child, context)
        tool = self.tools[provider_of(child.node, context.call.name)]
        outcome = served(recorded)
        try:
            live = await tool.execute(arguments_of(context.call.arguments), context)
        except Exception as error:
            child.line.fail(sole_error(error))
            return outcome
        # A broken child has no answer, and the wording of an error is its producer's.
        given = child.is_broken or (live.is_error and outcome.is_error)
        return outcome if given and recorded is not None else live

    def _bound(self, parent: SessionRun, context: CallContext, recorded: Event | None) -> SessionRun | None:
        """Return the run of the child that a call makes, None when it made none that can be bound."""
        try:
            bound = self.router.bind(parent.node, _live_call(context, recorded))
        except BindingError as error:
            child = next(node for node in parent.node.children if node.key == error.key)
            failed = parent if error.code == "collision" else self.runs[child]
            failed.line.fail(error)
            return None
        if bound is None:
            return None
        run = self.runs[bound.node]
        run.grade = bound.grade
        return run

    async def create(self, plan: ChildPlan) -> ChildHandle:
        """Make the recorded child of a plan: see `AgentFactory`."""
        parent = self.live[plan.parent.session]
        run = parent.made[plan.spawn.segment]
        assert parent.tasks is not None
        tasks = await ChildTasks.open(parent.tasks)
        run.cancel = tasks.cancel_scope.cancel
        try:
            session = child_session(run, plan)
            self.live[session] = run
            plan.set_up(session)
            agent = run.make_agent(session, tasks, self.delegate, plan.extensions())
            plan.check_wanted()
        except Exception as error:
            run.line.fail(error)
            await tasks.close()
            raise

        async def dispose() -> None:
            await agent.wait_idle()
            run.line.release()
            await tasks.close()
            if tasks.fault is not None:
                run.line.fail(sole_error(tasks.fault))
            run.finish()

        return ChildHandle(agent, dispose, lambda: tasks.fault)


def _segment(context: CallContext) -> str:
    return CallSpawn(context.turn, context.step, context.call.position, 0, "", "").segment


def _live_call(context: CallContext, recorded: Event | None) -> LiveCall:
    call = context.call
    place = CallSpawn(context.turn, context.step, call.position, 0, call.call_id, call.name)
    prompt = prompt_of(call.name, arguments_of(call.arguments))
    answer = None if recorded is None or served(recorded).is_error else text_of_result(recorded)
    return LiveCall(place, prompt, answer)


def child_session(run: SessionRun, plan: ChildPlan) -> Session:
    """Return the session of a delegated child, built as the plan says; its facts are checked by the record.

    Id and creation time are the recorded ones. A header fact that differs is a divergence of the header, an
    inherited event that differs one of that event.
    """
    recorded, options, cut = run.record.header, plan.options, plan.inherited_event_count
    header = SessionHeader(
        id=recorded.id,
        created_at=recorded.created_at,
        is_seeded=options.is_seeded,
        cwd=options.cwd,
        parent_session=options.parent_session,
        origin=options.origin,
        delegation_depth=options.delegation_depth,
        spawn=options.spawn,
    )
    difference = header_difference(recorded, run.record.cut, header, cut)
    if difference is not None:
        run.comparer.diverge_header(difference)
    clock = RecordClock(run.line)
    if not cut:
        return Session.create(header, clock=clock, inherited_event_count=cut)
    inherited = plan.parent.session.events[:cut]
    run.comparer.take_inherited(inherited)
    return plan.parent.session.fork(header, cut, clock)


async def _drive(run: SessionRun, agent: Agent) -> None:
    """Start each recorded turn that nothing in the run started."""
    line = run.line
    while not line.closed:
        line.release()
        following = run.record.at(line.seq)
        if line.closed or following is None or following.type != "turn/start":
            return
        agent.wake()
        await agent.wait_idle()


def root_session(run: SessionRun) -> Session:
    """Return the session of a recorded root, seeded with what stands before the replayed part.

    Raises what `Session.create` and `Session.restore` raise.
    """
    record, recorded = run.record, run.node.session
    clock = RecordClock(run.line)
    first = record.at(record.start)
    if record.start == 0 and (first is None or first.type != "session/end-seed"):
        return Session.create(record.header, clock=clock, inherited_event_count=record.cut)
    return Session.restore(
        record.header, clock=clock, inherited_event_count=record.cut, events=recorded.events[: record.start]
    )
