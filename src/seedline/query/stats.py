"""What sessions spent: tokens, requests, time, tools and money, each to the session that did the work.

Everything is counted over the events that a session wrote itself. Inherited history was its parent's work,
and keeps its own times; the sum over a tree counts every request once. Durations are in milliseconds, as the
times in the log say; None where an end is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Final, NamedTuple, cast

import msgspec

from seedline.errors import ArtifactError
from seedline.events.event import Event, read_data
from seedline.events.messages import Record
from seedline.query.prices import ModelName, Prices, price_of
from seedline.session import lineage
from seedline.session.header import START
from seedline.session.sequence import Events
from seedline.session.tree import Node, RecordedSession, SessionTree
from seedline.session.usage import UsageTotals, usage_of

NO_PRICES: Final = Prices()


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """One step: its requests, failed ones included, and the tool calls of its answer."""

    turn: int | None
    step: int | None
    seq: int
    started: int
    duration_ms: int | None
    usage: UsageTotals


class TurnStats(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. `usage` is that of its steps, and of compactions between them.

    `ended` is the kind of its end, None while it is open.
    """

    turn: int | None
    seq: int
    started: int
    duration_ms: int | None
    ended: str | None
    usage: UsageTotals
    steps: tuple[StepStats, ...]


class ToolStats(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one tool. Those without an answer are in `calls` and in no other figure."""

    name: str
    calls: int = 0
    answered: int = 0
    failed: int = 0
    total_ms: int = 0
    longest_ms: int = 0

    def __add__(self, other: ToolStats) -> ToolStats:
        """Return the figures of both, of the same tool."""
        return ToolStats(
            name=self.name,
            calls=self.calls + other.calls,
            answered=self.answered + other.answered,
            failed=self.failed + other.failed,
            total_ms=self.total_ms + other.total_ms,
            longest_ms=max(self.longest_ms, other.longest_ms),
        )


class ModelStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one model was asked, and what that cost; None where the table has no price for it.

    `usage` counts tokens and requests, its other figures are 0. `model` is None for requests of which the log
    names no model.
    """

    model: ModelName | None
    usage: UsageTotals
    cost: Decimal | None


class SessionStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one session did itself.

    `cost` is the sum over the priced models, `unpriced` names the others. `first_time` and `last_time` are
    those of its first and last own event.
    """

    name: str
    session_id: str
    key: str
    own: UsageTotals
    turns: tuple[TurnStats, ...]
    tools: tuple[ToolStats, ...]
    models: tuple[ModelStats, ...]
    cost: Decimal
    unpriced: tuple[ModelName | None, ...]
    first_time: int | None
    last_time: int | None


class TreeStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of a tree did, and the sum: depth first by lineage key, forks and strangers last."""

    sessions: tuple[SessionStats, ...]
    total: UsageTotals
    tools: tuple[ToolStats, ...]
    models: tuple[ModelStats, ...]
    cost: Decimal
    unpriced: tuple[ModelName | None, ...]


def cache_hit_rate(usage: UsageTotals) -> float | None:
    """Return which part of the input came from a cache, from 0 to 1; None where there was no input."""
    asked = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return usage.cache_read_tokens / asked if asked else None


def stats_of_tree(tree: SessionTree, prices: Prices = NO_PRICES) -> TreeStats:
    """Return what every session of a tree did, those outside the primary's run included.

    Raises `SessionPersistenceCorruptionError` naming the session, for what `usage_of` raises.
    """
    nodes = [*tree.primary.walk(), *tree.outside()]
    return total_of([stats_of_node(node, prices) for node in nodes])


def total_of(sessions: Sequence[SessionStats]) -> TreeStats:
    """Return the sum over sessions."""
    models = _merged_models(model for session in sessions for model in session.models)
    return TreeStats(
        sessions=tuple(sessions),
        total=reduce(add, (session.own for session in sessions), UsageTotals()),
        tools=_merged_tools(tool for session in sessions for tool in session.tools),
        models=models,
        cost=_cost(models),
        unpriced=_unpriced(models),
    )


def stats_of_node(node: Node, prices: Prices = NO_PRICES) -> SessionStats:
    """Return what one session of a tree did. Raises `SessionPersistenceCorruptionError` naming it."""
    try:
        return stats_of_session(node.session, node.key, prices)
    except ArtifactError as error:
        raise error.located(path=node.session.name) from None


def stats_of_session(session: RecordedSession, key: str, prices: Prices = NO_PRICES) -> SessionStats:
    """Return what one session did, under its lineage key. Raises `SessionPersistenceCorruptionError`."""
    own = lineage.own(session.events, session.inherited_event_count)
    models = _models(session, own, prices)
    return SessionStats(
        name=session.name,
        session_id=session.header.id,
        key=key,
        own=usage_of(own, START),
        turns=tuple(map(_turn, _turns(own))),
        tools=_tools(own),
        models=models,
        cost=_cost(models),
        unpriced=_unpriced(models),
        first_time=own[0].time if own else None,
        last_time=own[-1].time if own else None,
    )


# --- turns and steps ---------------------------------------------------------------------------------------


class _Place(Record, frozen=True):
    turn: Any = None
    step: Any = None


class _Reason(Record, frozen=True):
    kind: Any = None


class _End(Record, frozen=True):
    reason: _Reason = _Reason()


class _Stretch(NamedTuple):
    """The events of a turn or a step, and its last bracket where there is one."""

    events: Events
    end: Event | None

    @property
    def duration_ms(self) -> int | None:
        return None if self.end is None else self.end.time - self.events[0].time

    @property
    def place(self) -> _Place:
        return cast("_Place", read_data(self.events[0], _Place))


def _stretches(events: Events, start: str, end: str) -> Iterator[_Stretch]:
    """Yield what lies between each `start` and its `end`, or else the next `start`."""
    marks = [event for event in events.without_chunks() if event.type in (start, end)]
    for number, mark in enumerate(marks):
        if mark.type == start:
            after = marks[number + 1] if number + 1 < len(marks) else None
            closed = after if after is not None and after.type == end else None
            stop = after.seq if after is not None else events.first_seq + len(events)
            first = mark.seq - events.first_seq
            yield _Stretch(events[first : stop - events.first_seq], closed)


def _turns(own: Events) -> Iterator[_Stretch]:
    return _stretches(own, "turn/start", "turn/end")


def _turn(turn: _Stretch) -> TurnStats:
    return TurnStats(
        turn=_count(turn.place.turn),
        seq=turn.events.first_seq,
        started=turn.events[0].time,
        duration_ms=turn.duration_ms,
        ended=None if turn.end is None else end_kind(turn.end),
        usage=usage_of(turn.events, START),
        steps=tuple(map(_step, _stretches(turn.events, "step/start", "step/end"))),
    )


def end_kind(end: Event) -> str:
    """Return the kind of a `turn/end`. Raises `SessionPersistenceCorruptionError` for no object."""
    return str(cast("_End", read_data(end, _End)).reason.kind)


def _step(step: _Stretch) -> StepStats:
    return StepStats(
        turn=_count(step.place.turn),
        step=_count(step.place.step),
        seq=step.events.first_seq,
        started=step.events[0].time,
        duration_ms=step.duration_ms,
        usage=usage_of(step.events, START),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


# --- models and money --------------------------------------------------------------------------------------


class _Config(Record, frozen=True):
    provider: Any = None
    model: Any = None


class _Header(Record, frozen=True):
    config: _Config = _Config()


class _Requested(Record, frozen=True):
    header: _Header = _Header()


_ENDS_CALL: Final = frozenset({"turn/start", "turn/end", "step/start", "step/end"})


def _models(session: RecordedSession, own: Events, prices: Prices) -> tuple[ModelStats, ...]:
    """Return what each model was asked, in the order of first use.

    A request belongs to the model of the request header that is in force at the end of its step; a
    compaction names its own.
    """
    inherited = lineage.inherited(session.events, session.inherited_event_count)
    model = _model_in_force(inherited, None)
    asked: dict[ModelName | None, UsageTotals] = {}
    for part in _parts(own):
        model = _model_in_force(part, model)
        for name, usage in _asked(part, model):
            asked[name] = asked.get(name, UsageTotals()) + usage
    return tuple(
        ModelStats(model=name, usage=usage, cost=price_of(prices, name, usage))
        for name, usage in asked.items()
    )


def _parts(own: Events) -> Iterator[Events]:
    """Yield the log in parts that no model call crosses."""
    first = own.first_seq
    cuts = [event.seq - first for event in own.without_chunks() if event.type in _ENDS_CALL]
    return (own[start:stop] for start, stop in pairwise([0, *cuts, len(own)]) if start < stop)


def _model_in_force(events: Events, before: ModelName | None) -> ModelName | None:
    last = next((e for e in events.without_chunks_reversed() if e.type == "request/header"), None)
    return before if last is None else _named(cast("_Requested", read_data(last, _Requested)).header.config)


def _named(config: _Config) -> ModelName | None:
    provider, model = config.provider, config.model
    return ModelName(provider, model) if isinstance(provider, str) and isinstance(model, str) else None


def _asked(part: Events, model: ModelName | None) -> Iterator[tuple[ModelName | None, UsageTotals]]:
    """Yield what each model was asked in a part."""
    rest = usage_of(part, START)
    for event in part.without_chunks():
        if event.type == "compaction/summary":
            at = event.seq - part.first_seq
            usage = usage_of(part[at : at + 1], START)
            rest = _less(rest, usage)
            if usage.requests:
                yield _named(cast("_Config", read_data(event, _Config))), usage
    if rest.requests:
        yield model, msgspec.structs.replace(rest, turns=0, tool_calls=0)


def _less(usage: UsageTotals, part: UsageTotals) -> UsageTotals:
    figures = zip(msgspec.structs.astuple(usage), msgspec.structs.astuple(part), strict=True)
    return UsageTotals(*(whole - taken for whole, taken in figures))


def _merged_models(models: Iterable[ModelStats]) -> tuple[ModelStats, ...]:
    merged: dict[ModelName | None, ModelStats] = {}
    for each in models:
        known = merged.get(each.model)
        merged[each.model] = each if known is None else _both(known, each)
    return tuple(merged.values())


def _both(one: ModelStats, other: ModelStats) -> ModelStats:
    has_price = one.cost is not None and other.cost is not None
    cost = (one.cost or Decimal()) + (other.cost or Decimal()) if has_price else None
    return ModelStats(model=one.model, usage=one.usage + other.usage, cost=cost)


def _cost(models: Iterable[ModelStats]) -> Decimal:
    return sum((model.cost or Decimal() for model in models), Decimal())


def _unpriced(models: Iterable[ModelStats]) -> tuple[ModelName | None, ...]:
    return tuple(model.model for model in models if model.cost is None)


# --- tools -------------------------------------------------------------------------------------------------


class _Call(Record, frozen=True):
    name: Any = None
    call_id: Any = None


class _ResultSource(Record, frozen=True):
    call_id: Any = None


class _ResultBlock(Record, frozen=True):
    is_error: Any = None


class _ResultMessage(Record, frozen=True):
    source: _ResultSource = _ResultSource()
    content: tuple[_ResultBlock, ...] = ()


class _Result(Record, frozen=True):
    message: _ResultMessage = _ResultMessage()


def _tools(own: Events) -> tuple[ToolStats, ...]:
    """Return the figures of each tool by name. A result answers the earliest call of its id without one."""
    waiting: dict[str, deque[tuple[str, int]]] = {}
    seen: list[ToolStats] = []
    for event in own.without_chunks():
        if event.type == "tool/call":
            call: _Call = read_data(event, _Call)
            seen.append(ToolStats(name=str(call.name), calls=1))
            waiting.setdefault(repr(call.call_id), deque()).append((str(call.name), event.time))
        elif event.type == "tool/result" and event.surface_op == "append":
            seen += _answer(event, waiting)
    return _merged_tools(seen)


def _answer(event: Event, waiting: Mapping[str, deque[tuple[str, int]]]) -> Iterator[ToolStats]:
    message: _ResultMessage = read_data(event, _Result).message
    calls = waiting.get(repr(message.source.call_id))
    if calls:
        name, started = calls.popleft()
        spent = event.time - started
        failed = any(block.is_error is True for block in message.content)
        yield ToolStats(name=name, answered=1, failed=failed, total_ms=spent, longest_ms=spent)


def _merged_tools(tools: Iterable[ToolStats]) -> tuple[ToolStats, ...]:
    merged: dict[str, ToolStats] = {}
    for tool in tools:
        merged[tool.name] = merged.get(tool.name, ToolStats(name=tool.name)) + tool
    return tuple(merged[name] for name in sorted(merged))
