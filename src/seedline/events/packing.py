"""Packed rows: a run of stream deltas as one row, both ways (dsh format version 0, 4.4 and 4.5).

A packed row holds at least three neighbouring deltas of one kind in one (turn, step, index); its texts
stay apart, so unpacking gives back each event with its own seq and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, count, pairwise, repeat
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seedline.errors import JsonSyntaxError
from seedline.events.event import CHUNK, Event
from seedline.jsonvalue import (
    MAX_SAFE_INTEGER,
    convert,
    decode,
    encode,
    is_count,
    is_safe_integer,
    number_text,
)

MIN_RUN: Final = 3
PACKED_TYPES: Final = {
    "text-chunks": "text-delta",
    "reasoning-chunks": "reasoning-delta",
    "tool-call-chunks": "tool-call-delta",
}
_ROW_TYPES: Final = {delta: row for row, delta in PACKED_TYPES.items()}


class PackedRow(msgspec.Struct, frozen=True, gc=False):
    """One packed row, kept as its JSON text. It stands for `count` events from `seq` on."""

    seq: int
    time: int
    count: int
    line: bytes

    def expand(self) -> list[Event]:
        """Return its events, in order."""
        return _expand(_read(self.line))


class _TextRun(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    turn: int | float
    step: int | float
    index: int | float
    dt: tuple[int, ...]
    texts: tuple[str, ...]

    @property
    def members(self) -> tuple[str, ...]:
        return self.texts


class _ToolRun(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    turn: int | float
    step: int | float
    index: int | float
    dt: tuple[int, ...]
    id: str
    args: tuple[str, ...]
    name: str | UnsetType = UNSET

    @property
    def members(self) -> tuple[str, ...]:
        return self.args


class _PackedText(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    type: Literal["text-chunks", "reasoning-chunks"]
    seq0: int
    time0: int
    data: _TextRun


class _PackedTool(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    type: Literal["tool-call-chunks"]
    seq0: int
    time0: int
    data: _ToolRun


_Packed = _PackedText | _PackedTool
_TEXT = msgspec.json.Decoder(_PackedText)
_TOOL = msgspec.json.Decoder(_PackedTool)
_TOOL_START: Final = b'{"type":"tool-call-chunks",'
_TEXT_STARTS: Final = (b'{"type":"text-chunks",', b'{"type":"reasoning-chunks",')


def _read_usual(line: bytes) -> _Packed | None:
    """Decode a packed row in the spelling it is written in, None for any other line."""
    try:
        if line.startswith(_TEXT_STARTS):
            return _TEXT.decode(line)
        if line.startswith(_TOOL_START):
            return _TOOL.decode(line)
    except msgspec.DecodeError:
        pass
    return None


def _read(line: bytes) -> _Packed:
    """Decode a packed row in any of its legal spellings. Raises `JsonSyntaxError`."""
    return _read_usual(line) or _convert(decode(line))


def _convert(value: Any) -> _Packed:
    tool = isinstance(value, dict) and cast("dict[str, Any]", value).get("type") == "tool-call-chunks"
    try:
        return convert(value, _PackedTool if tool else _PackedText)
    except msgspec.ValidationError as error:
        raise JsonSyntaxError(f"malformed packed row: {error}") from None


def read_packed_row(line: bytes) -> PackedRow:
    """Return the packed row of `line` after checking it completely. Raises `JsonSyntaxError`."""
    row = _read(line)
    problem = _problem(row)
    if problem:
        raise JsonSyntaxError(f"malformed packed row: {problem}")
    return PackedRow(row.seq0, row.time0, len(row.data.members), line)


def read_usual_packed_row(line: bytes) -> PackedRow | None:
    """Return the packed row of `line`, None unless it is right and spelled as it is written.

    `line` must hold no number beyond the range of a double.
    """
    row = _read_usual(line)
    if row is None or _problem(row):
        return None
    return PackedRow(row.seq0, row.time0, len(row.data.members), line)


def _problem(row: _Packed) -> str | None:
    members, gaps = len(row.data.members), row.data.dt
    if not members or len(gaps) != members - 1:
        return f"{members} members with {len(gaps)} gaps"
    if row.seq0 < 0 or not is_count(row.seq0 + members - 1):
        return "seq0 is not a safe count"
    return None if _safe_times(row.time0, gaps) else "a time is not a safe integer"


def _safe_times(first: int, gaps: tuple[int, ...]) -> bool:
    if abs(first) + sum(map(abs, gaps)) <= MAX_SAFE_INTEGER:
        return True
    return all(map(is_safe_integer, gaps)) and all(
        is_safe_integer(time) for time in accumulate(gaps, initial=first)
    )


# --- the text that members share ---------------------------------------------------------------------


class _Place(msgspec.Struct, frozen=True, gc=False):
    """What all members of a run have in common; `call` is the id of a tool call and its name."""

    delta: str
    turn: int | float
    step: int | float
    index: int | float
    call: tuple[str, str | UnsetType] | None = None

    def payload_start(self) -> bytes:
        """The text of a member's payload up to its own string; `_PAYLOAD_END` follows that."""
        chunk = f'{{"type":"{self.delta}","index":{number_text(self.index)},'
        member = b'"text":' if self.call is None else b'"argumentsDelta":'
        start = f'{{"turn":{number_text(self.turn)},"step":{number_text(self.step)},"chunk":{chunk}'
        return start.encode() + self._call_text() + member

    def row_start(self, seq: int, time: int, gaps: str) -> bytes:
        """The text of a packed row up to its members' strings; `_ROW_END` follows them."""
        head = f'{{"type":"{_ROW_TYPES[self.delta]}","seq0":{seq},"time0":{time},"data":'
        turn, step, index = number_text(self.turn), number_text(self.step), number_text(self.index)
        place = f'{{"turn":{turn},"step":{step},"index":{index},"dt":[{gaps}],'
        members = b'"texts":[' if self.call is None else b'"args":['
        return (head + place).encode() + self._call_text() + members

    def _call_text(self) -> bytes:
        if self.call is None:
            return b""
        call_id, name = self.call
        named = b"" if name is UNSET else b'"name":' + _literal(name) + b","
        return b'"id":' + _literal(call_id) + b"," + named


_PAYLOAD_END: Final = b"}}"
_ROW_END: Final = b"]}}"


_ENCODER: Final = msgspec.json.Encoder()


def _literals(texts: Iterable[str]) -> list[bytes]:
    """Return the JSON string of each text."""
    try:
        return list(map(_ENCODER.encode, texts))
    except UnicodeEncodeError:
        return list(map(encode, texts))


def _literal(text: str) -> bytes:
    return _literals([text])[0]


def _expand(row: _Packed) -> list[Event]:
    data = row.data
    call = None if isinstance(data, _TextRun) else (data.id, data.name)
    start = _Place(PACKED_TYPES[row.type], data.turn, data.step, data.index, call).payload_start()
    payloads = [Raw(start + literal + _PAYLOAD_END) for literal in _literals(data.members)]
    times = accumulate(data.dt, initial=row.time0)
    return list(map(Event, repeat(CHUNK), count(row.seq0), times, payloads))


# --- packing -------------------------------------------------------------------------------------


class _Delta(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    index: int | float


class _TextDelta(_Delta, frozen=True, gc=False, forbid_unknown_fields=True, tag="text-delta"):
    text: str


class _ReasoningDelta(_Delta, frozen=True, gc=False, forbid_unknown_fields=True, tag="reasoning-delta"):
    text: str


class _ToolDelta(
    _Delta, frozen=True, gc=False, forbid_unknown_fields=True, rename="camel", tag="tool-call-delta"
):
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


class _DeltaData(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    turn: int | float
    step: int | float
    chunk: _TextDelta | _ReasoningDelta | _ToolDelta


_DELTA = msgspec.json.Decoder(_DeltaData)
_PLAIN = re.compile(rb'"[^"\\]*+(?:\\["\\bfnrt][^"\\]*+)*+"}}').fullmatch
"""One JSON string without long escapes, which is spelled as `_literal` spells it, and the payload's end."""


class _Run:
    """A run that still grows."""

    def __init__(self, place: _Place, start: bytes, event: Event, literal: bytes) -> None:
        self._place = place
        self._start = start
        self._events = [event]
        self._literals = [literal]

    def takes(self, event: Event) -> bool:
        """Add `event` if it belongs to this run, and say so."""
        last = self._events[-1]
        if event.seq != last.seq + 1 or not is_safe_integer(event.time - last.time):
            return False
        literal = _own_literal(event, self._start)
        if literal is None:
            return False
        self._events.append(event)
        self._literals.append(literal)
        return True

    def rows(self, text: Callable[[Event], bytes]) -> Iterator[bytes]:
        if len(self._events) < MIN_RUN:
            yield from map(text, self._events)
        else:
            yield self._packed()

    def _packed(self) -> bytes:
        first = self._events[0]
        gaps = ",".join(str(after.time - before.time) for before, after in pairwise(self._events))
        start = self._place.row_start(first.seq, first.time, gaps)
        return start + b",".join(self._literals) + _ROW_END


def _begin(event: Event) -> _Run | None:
    """Return a run of this event alone, None when it cannot be in a packed row."""
    place = _place(event) if event.type == CHUNK else None
    if place is None:
        return None
    start = place.payload_start()
    literal = _own_literal(event, start)
    return None if literal is None else _Run(place, start, event, literal)


def _place(event: Event) -> _Place | None:
    raw = bytes(event.data)
    try:
        data = _DELTA.decode(raw)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        try:
            data = convert(decode(raw), _DeltaData)
        except msgspec.ValidationError:
            return None
    chunk = data.chunk
    call = (chunk.id, chunk.name) if isinstance(chunk, _ToolDelta) else None
    return _Place(str(type(chunk).__struct_config__.tag), data.turn, data.step, chunk.index, call)


def _own_literal(event: Event, start: bytes) -> bytes | None:
    """Return the text of the string that follows `start` in the payload.

    None when anything else is in the event, or when unpacking would spell it otherwise.
    """
    if event.type != CHUNK or event.ignorable or event.surface_op or event.source_event_seqs is not UNSET:
        return None
    raw = bytes(event.data)
    if not raw.startswith(start):
        return None
    literal = raw[len(start) : -len(_PAYLOAD_END)]
    return literal if _PLAIN(raw, len(start)) or _is_literal(raw, literal) else None


def _is_literal(raw: bytes, literal: bytes) -> bool:
    try:
        text = decode(literal)
    except JsonSyntaxError:
        return False
    return raw.endswith(_PAYLOAD_END) and isinstance(text, str) and _literal(text) == literal


def pack(events: Iterable[Event], text: Callable[[Event], bytes]) -> Iterator[bytes]:
    """Yield the rows of one batch, without line ends: runs of three or more packed, the rest by `text`.

    Greedy, one pass, order kept. Unpacking the rows gives equal events: a payload whose spelling a packed
    row would not give back is not packed.
    """
    run: _Run | None = None
    for event in events:
        if run and run.takes(event):
            continue
        if run:
            yield from run.rows(text)
        run = _begin(event)
        if run is None:
            yield text(event)
    if run:
        yield from run.rows(text)
