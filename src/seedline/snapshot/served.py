"""The tool side of the feeder: recorded schemas, recorded results, recorded overlap.

No tool body runs here unless its mode asks for it. A call that made a recorded child runs that child.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio.lowlevel
import msgspec

from seedline.agent.loop import Agent
from seedline.events.event import Event
from seedline.session.log import Session
from seedline.session.wire_texts import ABORTED
from seedline.snapshot.line import Line
from seedline.snapshot.record import Batch, error_code, value_of
from seedline.tools.base import Call, CallContext, Concurrency, Outcome, Tools, text_outcome

Delegate = Callable[[CallContext, Event | None], Awaitable[Outcome | None]]
"""Runs a call that made a recorded child; None leaves the call to be served."""


class RecordTools:
    """Answers the calls of one session. `live` gives what runs a tool for real, None for a served one."""

    def __init__(
        self,
        line: Line,
        agent: Callable[[], Agent],
        delegate: Delegate,
        live: Callable[[str], Tools | None],
    ) -> None:
        self._line = line
        self._agent = agent
        self._delegate = delegate
        self._live = live
        self._batch = Batch()
        self._expected = 0  # calls of the answer at hand
        self._started = 0
        self._running: set[int] = set()  # positions whose bodies are under way
        self._delegating: set[int] = set()  # of these, the ones whose child is at work

    def schemas(self) -> Any:
        recorded = self._line.record.request_header(self._line.seq)
        if recorded is not None:
            return recorded.get("tools")
        logged = self._line.session.request_header()
        return logged.tools if logged else None

    # --- when a call may start and end -------------------------------------------------------------

    def concurrency(self, call: Call) -> Concurrency:
        if call.position == 0:
            self._batch = self._line.record.batch(self._line.seq)
            self._expected = _calls_of_last_answer(self._line.session)
            self._started = 0
            self._running.clear()
            self._delegating.clear()
        return "parallel" if self._batch.overlaps(call.position) else "exclusive"

    async def admit(self, call: Call) -> None:
        recorded = self._batch.result(call.position)
        if recorded is not None and error_code(recorded) == "ABORTED_BEFORE_DISPATCH":
            await self._while(lambda: bool(self._running))
            self._abort()
        else:
            await self._while(lambda: bool(self._running) and self._next_type() == "tool/result")

    async def prepare(self, context: CallContext) -> Outcome | None:
        self._started += 1
        self._running.add(context.call.position)
        return None

    async def run(self, context: CallContext) -> Outcome:
        position = context.call.position
        recorded = self._batch.result(position)
        try:
            outcome = await self._answer(context, recorded)
            await self._while(lambda: self._is_early(position))
            if recorded is not None and error_code(recorded) == "ABORTED":
                await self._while(lambda: bool(self._delegating))  # each child's record says how it was cut
                self._abort()
                if _is_aborted_text(recorded):
                    outcome = text_outcome("")
            concludes = outcome.concludes_turn or self._concludes(position)
            return msgspec.structs.replace(outcome, concludes_turn=concludes)
        finally:
            self._running.discard(position)
            self._line.notify()

    async def _answer(self, context: CallContext, recorded: Event | None) -> Outcome:
        position = context.call.position
        self._delegating.add(position)
        try:
            outcome = await self._delegate(context, recorded)
        finally:
            self._delegating.discard(position)
            self._line.notify()
        if outcome is not None:
            return outcome
        live = self._live(context.call.name)
        return served(recorded) if live is None else await _run_live(live, context)

    def _is_early(self, position: int) -> bool:
        """True while the record shows another call's start, or an earlier result, before this result."""
        event = self._line.record.next_owned(self._line.seq)
        if event is None:
            return False
        if event.type == "tool/call":
            return self._started < self._expected
        return any(self._batch.result(at) is event for at in self._running if at < position)

    def _next_type(self) -> str:
        event = self._line.record.next_owned(self._line.seq)
        return event.type if event else ""

    async def _while(self, blocked: Callable[[], bool]) -> None:
        """Return when `blocked` is false, or the turn is aborted; a run that is over is cancelled here."""
        while blocked() and not self._line.closed and not self._agent().aborting:
            await self._line.change()
        if self._line.closed:
            await anyio.lowlevel.checkpoint()

    def _abort(self) -> None:
        ending = self._line.record.turn_outcome(self._line.seq)
        if ending is not None and ending.kind == "aborted":
            self._agent().cancel(ending.abort_cause, keep_inbox=True)

    def _concludes(self, position: int) -> bool:
        """True when the recorded turn completes right after this batch: its last success concluded it."""
        if position != len(self._batch.calls) - 1:
            return False
        closing = [event.type for event in self._line.record.owned_from(self._batch.end)][:2]
        ending = self._line.record.turn_outcome(self._batch.end)
        return closing == ["step/end", "turn/end"] and ending is not None and ending.kind == "completed"


async def _run_live(live: Tools, context: CallContext) -> Outcome:
    denied = await live.prepare(context)
    return await live.run(context) if denied is None else denied


def _calls_of_last_answer(session: Session) -> int:
    for seq in reversed(session.surface):
        event = session.events.at_seq(seq)
        if event.type == "assistant/message":
            content = event.value["message"]["content"]
            return sum(block.get("type") == "tool-call" for block in content)
    return 0


def _is_aborted_text(result: Event) -> bool:
    return _result_block(result).get("content") == [{"type": "text", "text": ABORTED}]


def _result_block(result: Event) -> dict[str, Any]:
    content = value_of(result, "message").get("content")
    block = cast("list[Any]", content)[0] if isinstance(content, list) and content else None
    return cast("dict[str, Any]", block) if isinstance(block, dict) else {}


def served(result: Event | None) -> Outcome:
    """Return the outcome that a recorded result stands for; without one, an error that says so."""
    if result is None:
        return text_outcome("The record holds no result for this call.", is_error=True)
    data, block = value_of(result), _result_block(result)
    content = block.get("content")
    return Outcome(
        content=cast("list[Any]", content) if isinstance(content, list) else [],
        is_error=block.get("isError") is True,
        error=data.get("error"),
        meta=data.get("meta", msgspec.UNSET),
    )


def text_of_result(result: Event | None) -> str | None:
    """Return the joined texts of a recorded result, None without one."""
    if result is None:
        return None
    content = _result_block(result).get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict))
    return "".join(text for text in texts if isinstance(text, str))
