"""The feeder: hands a replayed loop what it does not own, at the moment the record says.

It sits in the loop's own seams: here as its extension and its model, in `served.py` as its tools, in
`line.py` as its clock and its ids. It knows one session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain
from typing import Any, NoReturn, cast

import anyio
import anyio.lowlevel
import msgspec

from seedline.agent.extension import Assembly, Decision, Extension, FailedAttempt, Proposal, Reject
from seedline.agent.inbox import MessageValue
from seedline.agent.loop import Agent
from seedline.errors import (
    AuxiliaryCallError,
    ReplayError,
    SeedlineError,
    StreamFault,
    UncancelledHangError,
    UnfinishedCallError,
)
from seedline.events.event import Event
from seedline.events.vocabulary import AdapterDefaults, RequestConfig, RequestHeaderBody
from seedline.llm.base import ModelRequest, PreparedConfig
from seedline.replay.entries import CutEntry, HangEntry, ScriptEntry
from seedline.replay.model import Channel, GiveWay, play
from seedline.session.log import Session
from seedline.snapshot.line import Line, RecordClock
from seedline.snapshot.record import Failure, Record


class Feeder(Extension):
    """Answers the loop's questions from the record."""

    def __init__(self, line: Line, agent: Callable[[], Agent]) -> None:
        self._line = line
        self._agent = agent
        line.on_event = self._between_steps

    @property
    def _record(self) -> Record:
        return self._line.record

    def _end_as(self, ending: Failure | None) -> None:
        """Bring about a recorded ending: cancel, or raise what the turn failed with."""
        if ending is not None and ending.kind == "aborted":
            self._agent().cancel(ending.abort_cause, keep_inbox=True)
        elif ending is not None and ending.kind == "error":
            raise fault_of(ending.value.get("error"))

    def _between_steps(self, event: Event) -> None:
        if event.type == "step/end":
            self._end_if("aborted")

    def _end_if(self, kind: str) -> None:
        ending = self._record.ending(self._line.seq)
        if ending is not None and ending.kind == kind:
            self._end_as(ending)

    async def assemble(self, agent: Agent, assembly: Assembly) -> Assembly:
        header = self._record.request_header(self._line.seq)
        if header is not None:
            return Assembly(system=header.get("system") or "")
        logged = agent.session.request_header()
        return Assembly(system=(logged and logged.system) or "")

    async def pre_step(
        self, agent: Agent, proposal: Proposal, proceed: Callable[[Proposal], Awaitable[Decision]]
    ) -> Decision:
        self._line.release()
        entered = self._record.entered(self._line.seq)
        if entered is not None:
            messages = self._merge(agent.session, proposal.messages, entered)
            return await proceed(Proposal(proposal.turn, proposal.step, tuple(messages)))
        ending = self._record.ending(self._line.seq)
        if ending is None:
            return await proceed(proposal)
        if ending.kind == "blocked":
            return Reject()
        self._end_as(ending)
        return await proceed(Proposal(proposal.turn, proposal.step, ()))

    async def step_entered(self, agent: Agent, turn: int, step: int) -> None:
        self._end_as(self._record.ending(self._line.seq))

    async def recover(
        self, agent: Agent, attempt: FailedAttempt, proceed: Callable[[FailedAttempt], Awaitable[bool]]
    ) -> bool:
        self._end_if("aborted")
        return self._record.retries(self._line.seq)

    async def turn_stopping(self, agent: Agent, turn: int) -> None:
        self._end_if("error")

    # --- what enters a step ------------------------------------------------------------------------

    def _merge(
        self, session: Session, claimed: tuple[MessageValue, ...], entered: list[Event]
    ) -> list[MessageValue]:
        """Return what enters: the record says what stands where, the claim which message and in which order.

        A claimed message that the record does not enter goes last, where the comparison shows it. A runtime
        context that says what the surface says already does not enter.
        """
        waiting = dict(enumerate(claimed))
        are_claimed = [_take(waiting, event.value) for event in entered]
        in_order = iter([message for at, message in enumerate(claimed) if at not in waiting])
        merged: list[MessageValue] = []
        shown = _shown_context(session)
        for event, is_claimed in zip(entered, are_claimed, strict=True):
            message = next(in_order) if is_claimed else self._given(event)
            if _is_context(message):
                if message.get("content") == shown:
                    continue
                shown = message.get("content")
            merged.append(message)
        return [*merged, *waiting.values()]

    def _given(self, event: Event) -> MessageValue:
        """Return a message that somebody adds to a step, by the record."""
        self._line.given.add(event.seq)
        return _derived_context(event.value)


def _take(waiting: dict[int, MessageValue], recorded: Any) -> bool:
    """Take a recorded message out of the claimed ones: an equal one, else one with its id. Say whether."""
    equal = (at for at, message in waiting.items() if message == recorded)
    same = (at for at, message in waiting.items() if _is_same_message(message, recorded))
    match = next(chain(equal, same), None)
    if match is not None:
        del waiting[match]
    return match is not None


def _is_same_message(claimed: MessageValue, recorded: Any) -> bool:
    """True when both have one real id, so that a difference between them is worth showing."""
    message_id = claimed.get("id")
    known = isinstance(message_id, str) and not message_id.startswith("{{")
    return known and isinstance(recorded, dict) and cast("dict[str, Any]", recorded).get("id") == message_id


def _is_context(message: Any) -> bool:
    """True for a runtime-context message: its source lists the sections that its text is made of."""
    source: Any = cast("dict[str, Any]", message).get("source") if isinstance(message, dict) else None
    return isinstance(source, dict) and isinstance(cast("dict[str, Any]", source).get("sections"), list)


def _shown_context(session: Session) -> Any:
    """Return the content of the last runtime context on the surface, None where there is none."""
    for seq in reversed(session.surface):
        event = session.events.at_seq(seq)
        if event.type == "user/message" and _is_context(event.value):
            return event.value.get("content")
    return None


def _derived_context(message: MessageValue) -> MessageValue:
    """Return a runtime-context message with its text made of its sections, any other as it is.

    The recorded lead line is kept: its wording is the producer's.
    """
    content: Any = message.get("content") if _is_context(message) else None
    if not isinstance(content, list) or len(cast("list[Any]", content)) != 1:
        return message
    block: Any = cast("list[Any]", content)[0]
    if not isinstance(block, dict):
        return message
    lead = str(cast("dict[str, Any]", block).get("text", "")).partition("\n\n")[0]
    sections = cast("list[Any]", message["source"]["sections"])
    texts = [
        str(cast("dict[str, Any]", section).get("text", ""))
        for section in sections
        if isinstance(section, dict)
    ]
    return {**message, "content": [{**block, "text": "\n\n".join([lead, *texts])}]}


def fault_of(error: Any) -> StreamFault:
    """Return the exception whose failure record is `error`."""
    record: dict[str, Any] = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    return StreamFault(
        str(record.get("message", "")),
        str(record.get("code", "UNKNOWN")),
        status=record.get("status"),
        provider_retry_after_ms=record.get("providerRetryAfterMs"),
        request_id=record.get("requestId"),
    )


class RecordModel:
    """The model side of the feeder: recorded request headers, recorded answers."""

    def __init__(
        self,
        line: Line,
        channel: Callable[[], Channel],
        agent: Callable[[], Agent],
        *,
        pace: int,
        give_way: GiveWay,
    ) -> None:
        self._line = line
        self._channel = channel
        self._agent = agent
        self._pace = pace
        self._give_way = give_way

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        record, seq, session = self._line.record, self._line.seq, self._line.session
        recorded = record.request_header(seq)
        header = (
            session.request_header() if recorded is None else msgspec.convert(recorded, RequestHeaderBody)
        )
        context, in_force = record.request_context(seq), session.request_context()
        window = context.get("contextWindow") if context else in_force and in_force.context_window
        if header is None:
            return PreparedConfig(config=config, context_window=window)
        marks = header.adapter_defaults or AdapterDefaults()
        return PreparedConfig(config=header.config, adapter_defaults=marks, context_window=window)

    async def stream(self, request: ModelRequest) -> AsyncIterator[msgspec.Raw]:
        if request.purpose != "turn":
            await self._give_up(AuxiliaryCallError(request.key, request.purpose))
        if not self._line.record.call_follows(self._line.seq):
            await self._end(UnfinishedCallError(request.turn, request.step))
        await self._give_way()
        async for chunk in play(
            await self._entry(),
            request,
            clock=RecordClock(self._line),
            pace=self._pace,
            give_way=self._give_way,
            on_open_end=lambda entry: self._end(_no_end(entry, request)),
        ):
            yield chunk

    async def _entry(self) -> ScriptEntry:
        try:
            return self._channel().take()
        except SeedlineError as error:
            await self._give_up(error)

    async def _end(self, otherwise: ReplayError) -> None:
        """End a call as the record ends its turn here: by its cancel, by its failure, or not at all.

        Returns when the record goes on after the call. Where it stops, or where only a cancel can end the
        call and there is none, the run fails with `otherwise`.
        """
        ending = self._line.record.ending(self._line.seq)
        if ending is not None and ending.kind == "aborted":
            self._agent().cancel(ending.abort_cause, keep_inbox=True)
            await anyio.sleep_forever()
        must_be_cancelled = isinstance(otherwise, UncancelledHangError)
        if must_be_cancelled or self._line.record.at(self._line.seq) is None:
            await self._give_up(otherwise)
        if ending is not None and ending.kind == "error":
            raise fault_of(ending.value.get("error"))

    async def _give_up(self, error: SeedlineError) -> NoReturn:
        self._line.fail(error)
        await anyio.lowlevel.checkpoint()  # the run is cancelled here; an auxiliary caller is told
        raise error


def _no_end(entry: HangEntry | CutEntry, request: ModelRequest) -> ReplayError:
    if isinstance(entry, HangEntry):
        return UncancelledHangError(request.key, request.turn, request.step)
    return UnfinishedCallError(request.turn, request.step)
