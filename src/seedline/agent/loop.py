"""The agent loop: turns, steps, requests, answers, tool runs (section 2 of the loop's rules).

An agent owns the driving of one session. Everything it does is an event; it keeps no state that the log
does not hold but the phase it is in.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

import anyio
import anyio.abc
import msgspec

from seedline.agent.extension import (
    Assembly,
    Decision,
    Extension,
    FailedAttempt,
    Proposal,
    Reject,
)
from seedline.agent.inbox import Inbox, MessageValue, Target, check_message
from seedline.agent.request import (
    Declared,
    Witness,
    context_message,
    first_config,
    header_for,
    log_context,
    log_header,
    next_config,
)
from seedline.errors import AgentBusyError, MissingRouteError, ModelError, StreamFault, sole_error
from seedline.events.messages import Failure
from seedline.events.vocabulary import RequestConfig
from seedline.ids import IdSource
from seedline.llm.assemble import Assembler
from seedline.llm.base import (
    ChunkValue,
    Model,
    ModelRequest,
    TakenChunk,
    failure_of,
    finish_of,
    take_chunk,
)
from seedline.session.log import Session
from seedline.tools.base import AbortCause, Call, CallContext, Outcome, Signal, Tools
from seedline.tools.schedule import MAX_PARALLEL_TOOL_CALLS, StepPlace, check_limit, run_tool_calls

_log = logging.getLogger("seedline.agent")
T = TypeVar("T")
Phase = Literal["idle", "running", "maintenance"]
StepOutcome = Literal["completed", "max-tokens"]


class _TurnAbortedError(Exception):
    """The turn's signal is aborted; unwinds to the turn's end."""


class _CallFailedError(ModelError):
    """A model call failed for good; `value` is the failure's JSON as the finish chunk has it."""

    def __init__(self, failure: Failure, value: Any) -> None:
        self.value = value
        super().__init__(
            failure.message,
            failure.code,
            status=failure.status,
            provider_retry_after_ms=failure.provider_retry_after_ms,
            request_id=failure.request_id,
        )


class _Turn:
    """One turn under way."""

    def __init__(self, number: int, signal: Signal) -> None:
        self.number = number
        self.signal = signal
        self.step = 0
        self.claimed: list[MessageValue] = []  # input claimed for the step to come

    def check(self) -> None:
        if self.signal.aborted:
            raise _TurnAbortedError


class Agent:
    """Drives one session.

    Start it with a task group that outlives its turns. `followup`, `steer`, `inject` and `send` log their
    input before they return; a waking one on an idle agent also opens the turn and claims its input before
    it returns. They raise what `Inbox.splice` raises, and nothing is logged then.

    A failure inside a turn ends that turn. When the log itself refuses to record that end, the refusal
    reaches the task group. Cancelling the task group closes the open turn as disposed.
    """

    def __init__(
        self,
        session: Session,
        *,
        declared: Declared,
        model: Model,
        tools: Tools,
        ids: IdSource,
        tasks: anyio.abc.TaskGroup,
        key: str = "0",
        assembly: Callable[[], Assembly] = Assembly,
        extensions: Sequence[Extension] = (),
        max_parallel_tool_calls: float = MAX_PARALLEL_TOOL_CALLS,
    ) -> None:
        check_limit(max_parallel_tool_calls)
        self.session = session
        self.declared = declared
        self.inbox = Inbox(session)
        self.model = model
        self.tools = tools
        self.ids = ids
        self.key = key
        self._tasks = tasks
        self._assembly = assembly
        self._extensions = tuple(extensions)
        self._limit = max_parallel_tool_calls
        self._phase: Phase = "idle"
        self._signal = Signal()
        self._latched = False
        self._anchored = False
        self._turns = _last_turn(session)
        self._idle = anyio.Event()
        self._idle.set()
        self._witness = Witness(session)
        self._steps = _StepRunner(self)

    # --- input -------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while a turn runs; maintenance counts as idle."""
        return self._phase == "running"

    @property
    def signal(self) -> Signal:
        """The cancel signal of the activity under way, or of the last one."""
        return self._signal

    @property
    def aborting(self) -> bool:
        """True from the abort of an activity to its end."""
        return self._phase != "idle" and self._signal.aborted

    def followup(self, message: MessageValue) -> None:
        """Queue a message for a turn of its own and wake the agent."""
        self.send(message, "next-turn", wake=True)

    def steer(self, message: MessageValue) -> None:
        """Queue a message for the next step and wake the agent."""
        self.send(message, "next-step", wake=True)

    def inject(self, message: MessageValue) -> None:
        """Queue a message for the next step, whenever that comes."""
        self.send(message, "next-step", wake=False)

    def send(self, message: MessageValue, target: Target, *, wake: bool) -> None:
        """Queue a message. A waking one during an aborted activity waits for a turn of its own."""
        if wake and self._phase != "idle" and self._signal.aborted:
            target = "next-turn"
        self.inbox.insert(target, message)
        if wake:
            self.wake()

    def wake(self) -> None:
        """Look at the inbox: start a turn when idle, remember the wake when that must wait."""
        if self._phase == "idle":
            self._start()
            self._tell_status(running=True)
        elif self._phase == "maintenance" or self._signal.aborted:
            self._latched = True

    def cancel(self, cause: AbortCause, *, keep_inbox: bool = False) -> None:
        """Cancel the current activity; the first cause wins. Unless kept, waiting input is dropped."""
        if not keep_inbox:
            self.inbox.clear()
            self._latched = False
        if self._phase != "idle":
            if cause.get("kind") == "disposed":
                self._latched = False
            self._signal.abort(cause)

    async def wait_idle(self) -> None:
        """Return when no turn runs and none is about to."""
        while self._phase != "idle":
            await self._idle.wait()

    async def maintenance(self, task: Callable[[Signal], Awaitable[T]]) -> T:
        """Run one task that is not a turn. Raises `AgentBusyError` unless the agent is idle."""
        if self._phase != "idle":
            raise AgentBusyError(self.session.id, f"it is {self._phase}")
        self._enter("maintenance")
        restart = True
        try:
            return await task(self._signal)
        except BaseException as error:
            restart = isinstance(error, Exception)
            raise
        finally:
            self._leave(restart=restart)

    # --- driving -----------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._signal = Signal()
        self._latched = False
        if self._idle.is_set():
            self._idle = anyio.Event()

    def _start(self) -> None:
        """Open a turn at once and run it in the background."""
        self._enter("running")
        try:
            turn = self._open_turn(self._signal)
            self._run_in_background(turn)
        except BaseException:
            self._leave(restart=False)
            raise

    def _run_in_background(self, turn: _Turn) -> None:
        try:
            self._tasks.start_soon(self._drive, turn)
        except BaseException:
            self._end_turn(turn, _disposed(turn))
            raise

    def _leave(self, *, restart: bool) -> None:
        """End the activity; a remembered wake starts the next one when there is input for it."""
        again = restart and self._latched and len(self.inbox) > 0 and not _is_disposed(self._signal)
        was_running = self._phase == "running"
        self._phase = "idle"
        if again:
            self._start()
        else:
            self._idle.set()
        if was_running != again:
            self._tell_status(running=again)

    def _tell_status(self, *, running: bool) -> None:
        for extension in self._extensions:
            try:
                extension.status_changed(self, running=running)
            except Exception:
                _log.exception("session %r: an extension failed on a change of status", self.session.id)

    async def _drive(self, turn: _Turn) -> None:
        restart = False
        try:
            while await self._run_turn(turn) and len(self.inbox):
                self._signal = Signal()
                turn = self._open_turn(self._signal)
            restart = True
        finally:
            self._leave(restart=restart)

    def _open_turn(self, signal: Signal) -> _Turn:
        """Log the turn's start and claim its first input, without giving up control."""
        turn = _Turn(self._turns + 1, signal)
        self.session.append("turn/start", {"turn": turn.number})
        self._turns = turn.number
        turn.claimed = self._claim("next-turn")
        return turn

    def _claim(self, target: Target) -> list[MessageValue]:
        claimed = self.inbox.claim("next-step")
        return claimed + self.inbox.claim("next-turn") if target == "next-turn" else claimed

    async def _run_turn(self, turn: _Turn) -> bool:
        """Run one opened turn to its end; say whether the next one may follow at once."""
        normal = False
        try:
            normal, reason = await self._steps_of(turn)
        except _TurnAbortedError:
            reason = _disposed(turn)
        except Exception as error:
            self._tell_failure(turn, error)
            reason = _disposed(turn) if turn.signal.aborted else _error_reason(error)
        except BaseException:
            self._end_turn(turn, _disposed(turn))
            raise
        self._end_turn(turn, reason)
        return normal and not turn.signal.aborted

    def _end_turn(self, turn: _Turn, reason: dict[str, Any]) -> None:
        self.session.append("turn/end", {"turn": turn.number, "reason": reason})

    def _tell_failure(self, turn: _Turn, error: Exception) -> None:
        for extension in self._extensions:
            try:
                extension.turn_failed(self, turn.number, turn.step, error)
            except Exception:
                _log.exception("session %r: an extension failed on a failed turn", self.session.id)

    async def _steps_of(self, turn: _Turn) -> tuple[bool, dict[str, Any]]:
        outcome: StepOutcome | None = None
        while True:
            decision, assembly = await self._propose(turn)
            if isinstance(decision, Reject):
                return False, {"kind": "blocked"}
            if not decision and outcome is not None:
                return True, {"kind": outcome}
            if not decision and turn.step == 0:
                return False, {"kind": "completed"}
            latest = await self._run_step(turn, decision, assembly)
            outcome = _merged(outcome, latest)
            turn.check()
            if outcome is not None and not self.inbox.waiting("next-step"):
                for extension in self._extensions:
                    await extension.turn_stopping(self, turn.number)
                    turn.check()
                if not self.inbox.waiting("next-step"):
                    return True, {"kind": outcome}
            turn.claimed = self._claim("next-step")

    async def _propose(self, turn: _Turn) -> tuple[Decision, Assembly]:
        """Assemble the prompt and decide what enters the step to come."""
        claimed = turn.claimed
        turn.check()
        assembly = self._assembly()
        for extension in self._extensions:
            assembly = await extension.assemble(self, assembly)
            turn.check()
        if assembly.contexts is not None:
            snapshot = context_message(self.session, assembly.contexts, self.ids)
            claimed = [*claimed, snapshot] if snapshot else claimed
        proposal = Proposal(turn.number, turn.step + 1, tuple(claimed))
        decision = await self._pre_step(proposal, 0)
        turn.check()
        return decision, assembly

    async def _pre_step(self, proposal: Proposal, link: int) -> Decision:
        if link == len(self._extensions):
            return proposal.messages
        return await self._extensions[link].pre_step(
            self, proposal, lambda changed: self._pre_step(changed, link + 1)
        )

    async def _run_step(
        self, turn: _Turn, entered: tuple[MessageValue, ...], assembly: Assembly
    ) -> StepOutcome | None:
        for message in entered:
            check_message(message)
        turn.step += 1
        place = {"turn": turn.number, "step": turn.step}
        self.session.append("step/start", place)
        try:
            for message in entered:
                self.session.append("user/message", message, surface_op="append")
            turn.check()
            for extension in self._extensions:
                await extension.step_entered(self, turn.number, turn.step)
                turn.check()
            return await self._steps.run(turn, assembly)
        finally:
            self.session.append("step/end", place)

    # --- requests ----------------------------------------------------------------------------------

    async def build_request(self, turn: int, step: int, assembly: Assembly) -> ModelRequest:
        """Log the header and context of one attempt and return its request."""
        session = self.session
        prepared = self.model.prepare(await self._configured())
        header = header_for(prepared, assembly.system, self.tools.schemas())
        log_header(session, header, anchored=self._anchored)
        self._anchored = True
        self._check()
        log_context(session, prepared)
        request = ModelRequest(
            header=session.request_header() or header,
            messages=tuple(session.derive_messages()),
            session_id=session.id,
            key=self.key,
            turn=turn,
            step=step,
        )
        self._witness.check(request)
        for extension in self._extensions:
            await extension.before_request(self, request)
            self._check()
        return request

    async def _configured(self) -> RequestConfig:
        """Return the config of an attempt. Raises `MissingRouteError`, or `_TurnAbortedError` at an abort."""
        logged = self.session.request_header()
        config = (
            next_config(logged)
            if self._anchored and logged is not None
            else first_config(self.declared, logged)
        )
        for extension in self._extensions:
            config = await extension.configure(self, config)
            self._check()
        for field, value in (("provider", config.provider), ("model", config.model)):
            if not value:
                raise MissingRouteError(self.session.id, field)
        return config

    def _check(self) -> None:
        if self._signal.aborted:
            raise _TurnAbortedError

    async def recover(self, attempt: FailedAttempt, link: int = 0) -> bool:
        """Ask the extensions whether to try a failed call again."""
        if link == len(self._extensions):
            return False
        return await self._extensions[link].recover(
            self, attempt, lambda changed: self.recover(changed, link + 1)
        )

    async def run_tools(self, calls: Sequence[Call], turn: int, step: int, signal: Signal) -> bool:
        """Run the calls of one answer; say whether one of them concludes the turn."""
        place = StepPlace(self.session, self, turn, step, signal, self.ids)
        tools = _Checkpointed(self.tools, self, self._extensions)
        return await run_tool_calls(calls, tools, place, self.inject, limit=self._limit)


class _Attempt:
    """One model call under way: what came of it, and the seqs of its chunks."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.seqs: list[int] = []

    @property
    def failed(self) -> bool:
        return self.assembler.finish_kind in ("error", "aborted")


class _Pull:
    """The chunks of one call, one at a time. What the adapter raises comes out as a finish."""

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._open = lambda: aiter(model.stream(request))
        self._chunks: AsyncIterator[ChunkValue] | None = None

    async def next(self) -> TakenChunk | None:
        """Return the next chunk, None at the end. Raises `StreamFault`."""
        try:
            self._chunks = self._chunks or self._open()
            return take_chunk(await anext(self._chunks))
        except StopAsyncIteration:
            return None
        except Exception as raised:
            error = sole_error(raised)
            if isinstance(error, StreamFault):
                raise error from None
            return take_chunk(finish_of(error, aborted=False))

    async def close(self) -> None:
        """Let the adapter clean up; what it has said stands, whatever comes of this."""
        close = getattr(self._chunks, "aclose", None)
        if close is None:
            return
        try:
            await close()
        except Exception:
            _log.exception("a model's stream failed to close")


class _StepRunner:
    """The model calls and tool runs of one step."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def run(self, turn: _Turn, assembly: Assembly) -> StepOutcome | None:
        """Call the model until an answer holds, log it, run its tools.

        Raises `_TurnAbortedError`, `_CallFailedError`, or whatever fails beside the model.
        """
        while True:
            turn.check()
            request = await self._agent.build_request(turn.number, turn.step, assembly)
            turn.check()
            attempt = _Attempt()
            await self._stream(turn, request, attempt)
            if turn.signal.aborted:
                self._log_interrupted(turn, request, attempt)
                raise _TurnAbortedError
            if not attempt.failed:
                return await self._answer(turn, request, attempt)
            await self._recover(turn, request, attempt)

    async def _stream(self, turn: _Turn, request: ModelRequest, attempt: _Attempt) -> None:
        """Log the chunks of one call as they come, until its finish or an abort."""
        try:
            with anyio.CancelScope() as scope:
                undo = turn.signal.on_abort(scope.cancel)
                pull = _Pull(self._agent.model, request)
                try:
                    await self._take_all(turn, pull, attempt)
                finally:
                    undo()
                    await pull.close()
        except StreamFault:
            if not turn.signal.aborted:
                raise
        except anyio.get_cancelled_exc_class():
            turn.signal.abort({"kind": "disposed"})
            self._log_interrupted(turn, request, attempt)
            raise

    async def _take_all(self, turn: _Turn, pull: _Pull, attempt: _Attempt) -> None:
        while not turn.signal.aborted:
            chunk = await pull.next()
            if chunk is None or turn.signal.aborted:
                return
            data = b'{"turn":%d,"step":%d,"chunk":%b}' % (turn.number, turn.step, chunk.data)
            event = self._agent.session.append("assistant/chunk", msgspec.Raw(data))
            attempt.seqs.append(event.seq)
            attempt.assembler.take(chunk.value)
            if chunk.is_finish:
                return

    async def _recover(self, turn: _Turn, request: ModelRequest, attempt: _Attempt) -> None:
        """Return when the call is to be tried again in this step."""
        value = attempt.assembler.failure
        failure = msgspec.convert(value, Failure)
        failed = FailedAttempt(turn.number, turn.step, request.header.config, failure, value)
        again = await self._agent.recover(failed)
        turn.check()
        if not again:
            raise _CallFailedError(failure, value)

    async def _answer(self, turn: _Turn, request: ModelRequest, attempt: _Attempt) -> StepOutcome | None:
        content, replay_state = attempt.assembler.content()
        calls = _calls_of(content)
        self._log_message(turn, request, attempt, content, replay_state)
        if attempt.assembler.finish_kind == "max-tokens":
            return "max-tokens"
        if not calls:
            return "completed"
        concludes = await self._agent.run_tools(calls, turn.number, turn.step, turn.signal)
        turn.check()
        return "completed" if concludes else None

    def _log_interrupted(self, turn: _Turn, request: ModelRequest, attempt: _Attempt) -> None:
        content = attempt.assembler.visible_prefix()
        if content and not attempt.failed:
            self._log_message(turn, request, attempt, content, None, interrupted=True)

    def _log_message(
        self,
        turn: _Turn,
        request: ModelRequest,
        attempt: _Attempt,
        content: list[Any],
        replay_state: Any,
        *,
        interrupted: bool = False,
    ) -> None:
        config = request.header.config
        source = {"kind": "model", "provider": config.provider, "model": config.model}
        if replay_state is not None:
            source["replayState"] = replay_state
        message = {"role": "assistant", "content": content, "source": source, "id": self._agent.ids.fresh()}
        data: dict[str, Any] = {"turn": turn.number, "step": turn.step, "message": message}
        if interrupted:
            data["interrupted"] = True
        if attempt.assembler.usage is not None:
            data["usage"] = attempt.assembler.usage
        self._agent.session.append(
            "assistant/message", data, surface_op="append", source_event_seqs=attempt.seqs
        )


class _Checkpointed:
    """Tools whose bodies wait for the extensions' `before_tool`."""

    def __init__(self, tools: Tools, agent: Agent, extensions: Sequence[Extension]) -> None:
        self.schemas = tools.schemas
        self.concurrency = tools.concurrency
        self.admit = tools.admit
        self._tools = tools
        self._agent = agent
        self._extensions = extensions

    async def prepare(self, context: CallContext) -> Outcome | None:
        outcome = await self._tools.prepare(context)
        if outcome is None and not context.signal.aborted:
            for extension in self._extensions:
                await extension.before_tool(self._agent, context)
        return outcome

    async def run(self, context: CallContext) -> Outcome:
        return await self._tools.run(context)


def _last_turn(session: Session) -> int:
    starts = (event for event in session.events.without_chunks_reversed() if event.type == "turn/start")
    last = next(starts, None)
    return last.payload.turn if last else 0


def _merged(outcome: StepOutcome | None, latest: StepOutcome | None) -> StepOutcome | None:
    """Return the turn's outcome after one more step: once `max-tokens`, always `max-tokens`."""
    return "max-tokens" if outcome == "max-tokens" else latest


def _is_disposed(signal: Signal) -> bool:
    return signal.cause is not None and signal.cause.get("kind") == "disposed"


def _disposed(turn: _Turn) -> dict[str, Any]:
    return {"kind": "aborted", "reason": turn.signal.cause or {"kind": "disposed"}}


def _error_reason(error: Exception) -> dict[str, Any]:
    value = error.value if isinstance(error, _CallFailedError) else msgspec.to_builtins(failure_of(error))
    return {"kind": "error", "error": value}


def _calls_of(content: list[Any]) -> list[Call]:
    """Return the tool calls of an answer. Raises `ModelError` for ids that cannot tell them apart."""
    blocks = [block for block in content if block.get("type") == "tool-call"]
    ids = {block["id"] for block in blocks}
    if "" in ids or len(ids) != len(blocks):
        raise ModelError(
            "the answer has several tool calls with one id, or one with none; "
            "the adapter must give each call an id of its own",
            "AMBIGUOUS_TOOL_CALLS",
        )
    return [
        Call(position, block["id"], block["name"], block["arguments"])
        for position, block in enumerate(blocks)
    ]


def user_message(text: str, ids: IdSource) -> MessageValue:
    """Return a user's message of one text block."""
    return {
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
        "role": "user",
        "id": ids.fresh(),
    }
