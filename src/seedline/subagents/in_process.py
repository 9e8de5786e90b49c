"""The driver of children that live in this process (subagents and replay, 1.3, 1.4, 1.6 and 1.9).

The driver decides what a child is: its header, its cut, its setup, when it counts as done and what its result
is. How an agent is made is the business of an `AgentFactory`; the driver knows no model and no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import anyio
from msgspec import UNSET

from seedline.agent.inbox import SPLICED, MessageValue
from seedline.agent.loop import Agent
from seedline.agent.request import Declared
from seedline.errors import SubagentError
from seedline.events.vocabulary import AgentInboxSpliced, SubagentDescriptor, TurnEndReason
from seedline.ids import IdSource
from seedline.jsonvalue import is_safe_integer
from seedline.session.header import START, HostPlace, HostSpawn, SessionLogOffset, SpawnFact
from seedline.session.log import Session
from seedline.session.sequence import Events
from seedline.session.store import CreateSessionOptions, SharedPrefix
from seedline.session.turns import last_bracket
from seedline.subagents.base import Capabilities, SubagentRequest, SubagentResult, select_output
from seedline.subagents.child import (
    AgentFactory,
    ChildHandle,
    ChildPlan,
    PolicyEvent,
    aborted_before_publication,
)
from seedline.subagents.structured import StructuredOutput
from seedline.tools.base import Signal

ALL_CAPABILITIES: Final = Capabilities(output_schema=True, depth_limit=True, tool_filter=True, persona=True)
PARENT_CANCELLED: Final = {"kind": "parent"}
_STOP_REASONS: Final = {
    "completed": "completed",
    "aborted": "aborted",
    "max-tokens": "max-tokens",
    "blocked": "refusal",
}


def delegated_policies(parent: Session, *, approvals: bool) -> tuple[PolicyEvent, ...]:
    """Return what a parent hands down: its own explicit sandbox mode, and never to ask for approval.

    A sandbox mode that nobody chose in this session is the deployment's and not copied. `approvals` says
    whether there is anything that could ask.
    """
    chosen = (event for event in parent.events.without_chunks_reversed() if event.type == "sandbox/mode")
    sandbox = next(chosen, None)
    policies: list[PolicyEvent] = []
    if sandbox is not None:
        policies.append(PolicyEvent("sandbox/mode", {"mode": sandbox.payload.mode, "source": "delegation"}))
    if approvals:
        policies.append(PolicyEvent("approval/policy", {"policy": "never", "source": "delegation"}))
    return tuple(policies)


# --- the driver --------------------------------------------------------------------------------------


def no_policies(parent: Agent) -> Sequence[PolicyEvent]:
    """Hand nothing down."""
    return ()


def no_stored_children(parent: Session) -> Iterable[SpawnFact]:
    """Nothing is stored anywhere."""
    return ()


class InProcessDriver:
    """Starts children of agents in this process.

    `policies` returns what a parent hands down at the moment of the call. `stored_children` returns the
    places of a parent's stored children, which an earlier process may have made. Both are called before the
    first await of a start.
    """

    def __init__(
        self,
        factory: AgentFactory,
        ids: IdSource,
        *,
        policies: Callable[[Agent], Sequence[PolicyEvent]] = no_policies,
        stored_children: Callable[[Session], Iterable[SpawnFact]] = no_stored_children,
    ) -> None:
        self._factory = factory
        self._ids = ids
        self._policies = policies
        self._stored_children = stored_children
        self._places: dict[str, set[str]] = {}  # by parent, of children made or in the making

    async def start(
        self, request: SubagentRequest, descriptor: SubagentDescriptor, cut: SessionLogOffset = START
    ) -> InProcessRun:
        """Return a published child at work that inherits the parent's first `cut` events.

        Raises `SubagentError` (`ABORTED_BEFORE_PUBLICATION`, `DEPTH_EXCEEDED`, `DUPLICATE_CHILD`) and
        whatever the factory raises. No child exists then.
        """
        if request.signal.aborted:
            raise aborted_before_publication(request.parent)
        plan = self._plan(request, descriptor, cut)
        try:
            handle = await self._factory.create(plan)
        except BaseException:
            self._places[request.parent.session.id].discard(plan.spawn.segment)
            raise
        run = InProcessRun(handle, request.signal, plan.structured)
        run.begin(request.prompt)
        return run

    def _plan(
        self, request: SubagentRequest, descriptor: SubagentDescriptor, cut: SessionLogOffset
    ) -> ChildPlan:
        parent = request.parent
        header = parent.session.header
        depth = child_depth(request)
        session_id = self._ids.fresh()
        policies = tuple(self._policies(parent))
        options = CreateSessionOptions(
            seed=SharedPrefix(source=parent.session, count=cut) if cut else None,
            inherited_event_count=cut,
            cwd=header.cwd,
            parent_session=header.id,
            is_seeded=cut > 0,
            origin="subagent",
            delegation_depth=depth,
            spawn=self._take_place(request),
        )
        return ChildPlan(
            session_id=session_id,
            options=options,
            parent=parent,
            declared=_declared(request),
            descriptor=descriptor,
            policies=policies,
            signal=request.signal,
            persona=request.persona,
            tool_filter=request.tool_filter,
            structured=None if request.output_schema is None else StructuredOutput(request.output_schema),
        )

    def _take_place(self, request: SubagentRequest) -> SpawnFact:
        """Return the child's place and keep it from being taken again. Raises `SubagentError`."""
        parent = request.parent.session
        mine = self._places.setdefault(parent.id, set())
        taken = mine | {place.segment for place in self._stored_children(parent)}
        place = request.spawn or _host_place(turns_started(parent.events), taken)
        if place.segment in taken:
            raise SubagentError(
                "DUPLICATE_CHILD", f"session {parent.id!r} has a child at {place.segment} already"
            )
        mine.add(place.segment)
        return place


def _host_place(turn: int, taken: set[str]) -> HostSpawn:
    """Return the next free place for a child of host code."""
    n = 0
    while (place := HostSpawn(HostPlace(turn, n))).segment in taken:
        n += 1
    return place


def turns_started(events: Events) -> int:
    """Return the number of the last turn that started, 0 before the first."""
    last = last_bracket(events)
    return 0 if last is None else last.payload.turn


def child_depth(request: SubagentRequest) -> int:
    """Return the depth of the child to come. Raises `SubagentError` (`DEPTH_EXCEEDED`).

    The depth in the parent's header is a floor; the cap counts from the root.
    """
    depth = max(request.parent.session.header.depth, request.parent_depth) + 1
    if not is_safe_integer(depth):
        raise SubagentError("DEPTH_EXCEEDED", "the depth of the subagent is no safe integer")
    if request.max_depth is not None and depth > request.max_depth:
        raise SubagentError(
            "DEPTH_EXCEEDED", f"a subagent at depth {depth} is over the limit of {request.max_depth}"
        )
    return depth


def _declared(request: SubagentRequest) -> Declared:
    parent, asked = request.parent.declared, request.agent_options
    return Declared(
        provider=parent.provider if asked.provider is None else asked.provider,
        model=parent.model if asked.model is None else asked.model,
        max_tokens=parent.max_tokens if asked.max_tokens is None else asked.max_tokens,
    )


# --- the run -----------------------------------------------------------------------------------------


class InProcessRun:
    """A child at work in this process."""

    def __init__(self, handle: ChildHandle, signal: Signal, structured: StructuredOutput | None) -> None:
        self._handle = handle
        self._agent = handle.agent
        self._signal = signal
        self._structured = structured
        self._cancelled = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self._fault: Exception | None = None
        self._settled: SubagentResult | Exception | None = None
        self._released: anyio.Event | None = None
        self._release_failure: Exception | None = None

    @property
    def id(self) -> str:
        return self._agent.session.id

    @property
    def local_agent(self) -> Agent | None:
        return self._agent

    def begin(self, prompt: Sequence[Any]) -> None:
        """Follow the signal and, unless it has aborted by now, give the child its task."""
        self._unsubscribe = self._signal.on_abort(self._cancel)
        if self._cancelled:
            return
        try:
            self._agent.followup(_task(prompt, self._agent.ids))
        except Exception as error:  # the child is published: what breaks here breaks the run, not the start
            self._fault = error

    def _cancel(self) -> None:
        self._cancelled = True
        self._agent.cancel(PARENT_CANCELLED)

    async def result(self) -> SubagentResult:
        await self._agent.wait_idle()
        if self._settled is None:
            self._settled = self._settle()
        if isinstance(self._settled, Exception):
            raise self._settled
        return self._settled

    def _settle(self) -> SubagentResult | Exception:
        try:
            fault = self._fault or self._handle.fault()
            return fault or self._read()
        except Exception as error:
            return error

    def _read(self) -> SubagentResult:
        """Read the result from what the child itself wrote."""
        own = self._agent.session.own_events
        reason = reason_that_counts(own)
        stop = stop_reason(reason, cancelled=self._cancelled)
        diagnostic = _diagnostic(reason) if stop == "error" else None
        structured = UNSET
        if stop == "completed" and self._structured is not None:
            structured = self._structured.value_in(own)
            if structured is UNSET:
                stop = "aborted" if self._cancelled else "error"
                diagnostic = "The subagent ended its turn without handing in a structured result."
        return SubagentResult(
            stop_reason=stop, output=select_output(own), structured=structured, diagnostic=diagnostic
        )

    async def dispose(self) -> None:
        if self._released is not None:
            await self._released.wait()
        else:
            self._released = anyio.Event()
            try:
                await self._release()
            finally:
                self._released.set()
        if self._release_failure is not None:
            raise self._release_failure

    async def _release(self) -> None:
        self._unsubscribe()
        if not self._agent.running and self._settled is None:
            self._settled = self._settle()  # it ended by itself; being released does not change how
        self._cancelled = True
        try:
            await self._handle.dispose()
        except Exception as error:
            self._release_failure = error
            self._agent.cancel(PARENT_CANCELLED)
        await self._agent.wait_idle()
        if self._settled is None:
            self._settled = self._settle()


def _task(prompt: Sequence[Any], ids: IdSource) -> MessageValue:
    return {"content": list(prompt), "source": {"kind": "user"}, "role": "user", "id": ids.fresh()}


class _TurnFacts:
    """What is known of the turn at hand."""

    def __init__(self) -> None:
        self.entered = False
        self.claimed = False


def reason_that_counts(own: Events) -> TurnEndReason | None:
    """Return why the turn that counts ended, None when no turn counts.

    That is the last closed turn which entered a step, or which claimed input and then did not complete: a
    turn stopped before its first step would else look like one that had nothing to do.
    """
    counting: TurnEndReason | None = None
    turn: _TurnFacts | None = None
    for event in own.without_chunks():
        if event.type == "turn/start":
            turn = _TurnFacts()
        elif turn is None:
            continue
        elif event.type == "step/start":
            turn.entered = True
        elif event.type == SPLICED:
            turn.claimed = turn.claimed or _is_claim(event.payload)
        elif event.type == "turn/end":
            reason = event.payload.reason
            if turn.entered or (turn.claimed and reason.kind != "completed"):
                counting = reason
            turn = None
    return counting


def _is_claim(splice: AgentInboxSpliced) -> bool:
    """True when a splice took input into the turn; one that carries an outcome dropped or replaced it."""
    return bool(splice.removed_count) and splice.outcome is None


def stop_reason(reason: TurnEndReason | None, *, cancelled: bool) -> str:
    """Return the stop reason that a turn's end comes to."""
    stop = "error" if reason is None else _STOP_REASONS.get(reason.kind, "error")
    return "aborted" if cancelled and stop != "completed" else stop


def _diagnostic(reason: TurnEndReason | None) -> str | None:
    """Return what may be said of a failure: its code and status. Its message may hold anything."""
    if reason is None:
        return "The subagent ended before it took up its task."
    if reason.kind != "error" or reason.error is None:
        return f"The subagent's last turn ended as {reason.kind}."
    status = "" if reason.error.status is None else f", HTTP status {reason.error.status}"
    return f"The subagent's last turn failed with code {reason.error.code}{status}."
