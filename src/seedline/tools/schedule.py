"""Running the tool calls of one answer: order, overlap, cancel (2.9 and 2.10 of the loop's rules).

`tool/call` is logged as each call starts; `tool/result` in model order, each citing its own call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import msgspec
from msgspec import UNSET

from seedline.errors import SettingRefusedError
from seedline.ids import IdSource
from seedline.session.log import Session
from seedline.tools.base import BEFORE_DISPATCH, CUT, Call, CallContext, Outcome, Signal, Tools

T = TypeVar("T")

MAX_PARALLEL_TOOL_CALLS: Final = 10


class StepPlace(msgspec.Struct, frozen=True):
    """The step whose calls run, and for whom."""

    session: Session
    owner: Any
    turn: int
    step: int
    signal: Signal
    ids: IdSource


class _Batch:
    """The calls of one answer on their way from model order through bodies back to model order.

    `fault` is the first exception that is no call's outcome; after it nothing starts.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        tools: Tools,
        place: StepPlace,
        inject: Callable[[Any], None],
        limit: float,
    ) -> None:
        self.calls = calls
        self.tools = tools
        self.place = place
        self.inject = inject
        self.limit = limit
        self.call_seqs: list[int] = []
        self.running: set[int] = set()  # positions of calls that started and have no outcome
        self.outcomes: dict[int, Outcome] = {}
        self.committed = 0
        self.concludes = False
        self.fault: Exception | None = None
        self.changed = anyio.Event()

    @property
    def aborted(self) -> bool:
        return self.place.signal.aborted

    @property
    def stopped(self) -> bool:
        return self.aborted or self.fault is not None

    # --- one call ----------------------------------------------------------------------------------

    def start(self, call: Call) -> CallContext:
        place = self.place
        event = place.session.append(
            "tool/call",
            {
                "turn": place.turn,
                "step": place.step,
                "callId": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            },
        )
        self.call_seqs.append(event.seq)
        self.running.add(call.position)
        return CallContext(place.session, place.owner, place.turn, place.step, call, place.signal)

    def settle(self, call: Call, outcome: Outcome) -> None:
        """Keep an outcome and commit every result whose predecessors are committed."""
        self.outcomes[call.position] = outcome
        self._leave(call)
        while self.committed in self.outcomes:
            self._commit(self.calls[self.committed], self.outcomes[self.committed])

    def fail(self, call: Call, fault: Exception) -> None:
        """Give up on a call without an outcome: neither its result nor a later one is ever committed."""
        self.fault = self.fault or fault
        self._leave(call)

    def _leave(self, call: Call) -> None:
        self.running.discard(call.position)
        self.changed.set()
        self.changed = anyio.Event()

    def _commit(self, call: Call, outcome: Outcome) -> None:
        place = self.place
        block = {
            "type": "tool-result",
            "toolCallId": call.call_id,
            "content": outcome.content,
            "isError": outcome.is_error,
        }
        message = {
            "source": {"kind": "tool", "callId": call.call_id},
            "content": [block],
            "role": "user",
            "id": place.ids.fresh(),
        }
        data: dict[str, Any] = {"turn": place.turn, "step": place.step, "message": message}
        if outcome.error is not None:
            data["error"] = outcome.error
        if outcome.meta is not UNSET:
            data["meta"] = outcome.meta
        place.session.append(
            "tool/result",
            data,
            surface_op="append",
            source_event_seqs=[self.call_seqs[call.position]],
        )
        self.committed += 1
        self.concludes = self.concludes or (outcome.concludes_turn and not outcome.is_error)
        for context in outcome.contexts:
            self.inject(context)

    async def body(self, context: CallContext) -> None:
        """Run one body and settle its call."""
        try:
            self.settle(context.call, await self._outcome(context))
        except Exception as error:
            self.fail(context.call, error)

    async def _outcome(self, context: CallContext) -> Outcome:
        if self.aborted:
            return BEFORE_DISPATCH
        outcome = await self.tools.run(context)
        return CUT if self.aborted and not outcome.is_error else outcome

    # --- all of them -------------------------------------------------------------------------------

    async def start_all(self, bodies: anyio.abc.TaskGroup) -> None:
        """Start the calls in model order, each as soon as it may run, until an abort or a fault."""
        for call in self.calls:
            try:
                alone = await self._start(call, bodies)
            except Exception as error:
                self.fail(call, error)
                return
            if self.stopped:
                return
            if alone:
                await self._room_for(1)

    async def _start(self, call: Call, bodies: anyio.abc.TaskGroup) -> bool:
        """Start one call when it may; return whether it runs alone."""
        await self._turn_of(call)
        await self._unless_aborted(self.tools.admit(call))
        alone = await self._turn_of(call)
        if self.stopped:
            return alone
        context = self.start(call)
        denied = await self._unless_aborted(self.tools.prepare(context))
        if denied is not None:
            self.settle(call, denied)
        elif self.aborted:
            self.settle(call, BEFORE_DISPATCH)
        else:
            bodies.start_soon(self.body, context)
        return alone

    async def _turn_of(self, call: Call) -> bool:
        """Wait until `call` may run; return whether alone. The tool is asked again when a call has ended."""
        while True:
            alone = self.tools.concurrency(call) != "parallel"
            if self.stopped or len(self.running) < (1 if alone else self.limit):
                return alone
            await self.changed.wait()

    async def _room_for(self, count: int) -> None:
        while len(self.running) >= count:
            await self.changed.wait()

    async def _unless_aborted(self, work: Awaitable[T]) -> T | None:
        """Await `work`; cancel it at an abort and return None."""
        with anyio.CancelScope() as scope:
            undo = self.place.signal.on_abort(scope.cancel)
            try:
                return await work
            finally:
                undo()
        return None

    def close_unanswered(self) -> None:
        """Log a result for every call without one: cut where its body began, else never dispatched."""
        for call in self.calls[: len(self.call_seqs)]:
            if call.position not in self.outcomes:
                self.settle(call, CUT)
        for call in self.calls[len(self.call_seqs) :]:
            self.start(call)
            self.settle(call, BEFORE_DISPATCH)


async def run_tool_calls(
    calls: Sequence[Call],
    tools: Tools,
    place: StepPlace,
    inject: Callable[[Any], None],
    *,
    limit: float = MAX_PARALLEL_TOOL_CALLS,
) -> bool:
    """Run `calls` and log them; return whether a committed success concludes the turn.

    An exclusive call runs alone. Consecutive parallel calls overlap, at most `limit` at once. After an
    abort no call starts: started ones run to their end and commit, a success becoming `ABORTED`, and each
    call never started gets a call and result pair. `inject` receives each context right after its result.
    An exception out of `tools` stops new starts, waits for running bodies and passes through; calls without
    an outcome stay without a result. When the surrounding scope is cancelled, bodies are cancelled with it
    and every call still gets its result. Raises `SettingRefusedError` for a limit below 1.
    """
    check_limit(limit)
    batch = _Batch(calls, tools, place, inject, limit)
    try:
        async with anyio.create_task_group() as bodies:
            await batch.start_all(bodies)
    except anyio.get_cancelled_exc_class():
        batch.close_unanswered()
        raise
    if batch.fault is not None:
        raise batch.fault
    batch.close_unanswered()
    return batch.concludes


def check_limit(limit: float) -> None:
    """Raise `SettingRefusedError` unless at least one call may run."""
    if not limit >= 1:
        raise SettingRefusedError("max_parallel_tool_calls", limit, "at least 1")
