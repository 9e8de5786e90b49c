"""What a session itself spent: tokens, requests, turns and tool calls of its own events.

Inherited history is never billed to a child; the sum over a tree counts every request once.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from seedline.events.codec import decode_event_line
from seedline.events.event import CHUNK, Event, read_data
from seedline.events.messages import Record, Usage
from seedline.events.packing import PackedRow
from seedline.session import lineage
from seedline.session.header import SessionLogOffset
from seedline.session.sequence import Events, StoredRow


class UsageTotals(Record, frozen=True):
    """Sums over requests. The input counts are disjoint; `reasoning_tokens` is part of `output_tokens`.

    `requests` counts model calls, failed and cut ones included, and compactions that were model calls.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    turns: int = 0
    tool_calls: int = 0

    def __add__(self, other: UsageTotals) -> UsageTotals:
        """Return the sum, for a tree of sessions."""
        return UsageTotals(*map(sum, zip(_values(self), _values(other), strict=True)))

    def as_dict(self) -> dict[str, int]:
        """Return all eight figures under their wire names, zeros included."""
        return dict(zip(self.__struct_encode_fields__, _values(self), strict=True))


def _values(totals: UsageTotals) -> tuple[int, ...]:
    return msgspec.structs.astuple(totals)


def usage_of(events: Events, inherited_event_count: SessionLogOffset) -> UsageTotals:
    """Return the totals of the events from the cut on.

    Tokens of a model call come from its `usage` chunk, else from the `assistant/message` that answers it.
    Text and argument deltas are never decoded.
    Raises `SessionPersistenceCorruptionError` for a usage record of another shape (naming its seq) and
    for a cut beyond the log.
    """
    fold = _Fold()
    for row in lineage.own(events, inherited_event_count).rows():
        fold.take(row)
    return fold.total()


# --- the fold ----------------------------------------------------------------------------------------


class _ChunkEvent(Record, frozen=True):
    chunk: Any = None


class _UsageChunk(Record, frozen=True):
    usage: Usage


class _UsageEvent(Record, frozen=True):
    chunk: _UsageChunk


class _Answer(Record, frozen=True):
    usage: Usage | None = None


class _Summary(Record, frozen=True):
    usage: Usage | None = None
    llm_stream_call: Any = None


_BRACKETS = frozenset({"turn/start", "turn/end", "step/start", "step/end"})
# Only these chunks matter here. A writer that escapes letters may hide either word.
_TELLING = re.compile(rb'"usage"|"finish"|\\u00')


class _Call:
    """A model call whose answer is not in the log yet."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finished = False


class _Fold:
    """Counts rows in log order. A call ends with its answer, the next call's first chunk, or its step."""

    def __init__(self) -> None:
        self._total = UsageTotals()
        self._call: _Call | None = None

    def total(self) -> UsageTotals:
        self._settle(None)
        return self._total

    def take(self, row: StoredRow) -> None:
        if isinstance(row, PackedRow):
            self._chunk_arrived()
        elif isinstance(row, bytes):
            self._take_chunk(row, row)
        elif row.type == CHUNK:
            self._take_chunk(row, bytes(row.data))
        else:
            self._take_event(row)

    def _take_chunk(self, row: Event | bytes, text: bytes) -> None:
        call = self._chunk_arrived()
        if _TELLING.search(text) is None:
            return
        event = decode_event_line(row) if isinstance(row, bytes) else row
        chunk: Any = read_data(event, _ChunkEvent).chunk
        kind = cast("dict[str, Any]", chunk).get("type") if isinstance(chunk, dict) else None
        if kind == "usage":
            call.usage = read_data(event, _UsageEvent).chunk.usage
        elif kind == "finish":
            call.finished = True

    def _chunk_arrived(self) -> _Call:
        """Return the call that the chunk at hand belongs to."""
        if self._call is None or self._call.finished:
            self._settle(None)
            self._call = _Call()
        return self._call

    def _take_event(self, event: Event) -> None:
        if event.type in _BRACKETS:
            self._settle(None)
        if event.type == "turn/start":
            self._total += UsageTotals(turns=1)
        elif event.type == "tool/call":
            self._total += UsageTotals(tool_calls=1)
        elif event.type == "assistant/message":
            self._call = self._call or _Call()
            self._settle(read_data(event, _Answer).usage)
        elif event.type == "compaction/summary":
            summary: _Summary = read_data(event, _Summary)
            if summary.llm_stream_call is True:
                self._total += _request(summary.usage)

    def _settle(self, answered: Usage | None) -> None:
        """Count the call at hand, by its own record of usage or else by that of its answer."""
        if self._call is not None:
            self._total += _request(self._call.usage or answered)
            self._call = None


def _request(usage: Usage | None) -> UsageTotals:
    if usage is None:
        return UsageTotals(requests=1)
    return UsageTotals(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
        requests=1,
    )
