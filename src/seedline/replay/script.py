"""From a recorded log to the script that answers in its place.

A script has one entry per model call of the session itself. A forked child's log begins with events that its
parent recorded, so a script is derived from `lineage.own` only; the whole log would answer the child with
its parent's words.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from seedline.errors import (
    ArtifactError,
    JsonSyntaxError,
    LineageError,
    NotASessionError,
    OverrideRefusedError,
    SessionPersistenceCorruptionError,
    UnfinishedCallError,
)
from seedline.events.chunks import CHUNKS
from seedline.events.codec import RowError, raw_members, read_row
from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow
from seedline.jsonvalue import decode, encode, is_number, number_text
from seedline.replay.entries import ChunksEntry, CutEntry, ScriptEntry, chunk_counts, script_digest
from seedline.replay.overrides import Override, Replacement, apply_override
from seedline.session.header import SessionHeader, SessionLogOffset, from_header_line
from seedline.session.sequence import Events, Segment, StoredRow
from seedline.session.tree import Grade, Method, Node, RecordedSession, SessionTree, build_tree

# --- reading a recording ---------------------------------------------------------------------------


def parse_session_header(line: bytes) -> tuple[SessionHeader, SessionLogOffset]:
    """Return the header and the cut of a recording's first line.

    A recording may lack `version` and `delegationDepth`, and also `id` (then empty) and `createdAt` (then 0).
    A field of a wrong type is not a missing one. Raises what `from_header_line` raises.
    """
    try:
        value = decode(line)
    except JsonSyntaxError:
        value = None
    if isinstance(value, dict) and value:
        missing = [text for name, text in _HEADER_DEFAULTS if name not in value]
        line = b"{" + b"".join(missing) + line.lstrip()[1:]
    return from_header_line(line, projected=True)


_HEADER_DEFAULTS: Final = (("id", b'"id":"",'), ("createdAt", b'"createdAt":0,'))
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split(b"\n"), 1):
        if line.strip(b" \t\r"):
            yield number, line


def parse_session_log(text: bytes) -> Events:
    """Return the events of a recording's text; the first line that is not blank is the header.

    Rows are all complete, or all projected: without `seq` and `time`, numbered as they come, at time 0.
    Raises `SessionPersistenceCorruptionError` naming the line.
    """
    segment = Segment()
    projected: bool | None = None
    for number, line in islice(_lines(text), 1, None):
        if projected is None:
            projected = not _is_complete(line)
        elif projected and b'"seq' in line and _is_complete(line):
            raise SessionPersistenceCorruptionError("a complete row among projected ones", line=number)
        segment.append(_row(line, number, segment.length, projected))
    return Events((segment,), 0, segment.length)


def _is_complete(line: bytes) -> bool:
    try:
        read_row(line)
    except RowError:
        return False
    return True


def _row(line: bytes, number: int, seq: int, projected: bool) -> StoredRow:
    try:
        row = read_row(line, seq if projected else None)
    except RowError as error:
        claimed = error.seq if isinstance(error.seq, int) else None
        raise SessionPersistenceCorruptionError(error.reason, line=number, seq=claimed) from None
    if row.seq != seq:
        raise SessionPersistenceCorruptionError(
            f"the row has seq {row.seq} where {seq} follows", line=number, seq=row.seq
        )
    return row


def parse_recording(text: bytes, name: str) -> RecordedSession:
    """Return one recorded session of a file's text. `name` is its path, which every error names.

    Raises `ArtifactError`.
    """
    try:
        header_line = next((line for _, line in _lines(text)), None)
        if header_line is None:
            raise NotASessionError("the file is empty")
        header, cut = parse_session_header(header_line)
        return RecordedSession(header, cut, parse_session_log(text), name)
    except ArtifactError as error:
        raise error.located(path=name) from None


# --- one chunk row -----------------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True, gc=False):
    type: str


class _Head(msgspec.Struct, frozen=True, gc=False):
    """Which call a chunk belongs to, and its type."""

    turn: int | float
    step: int | float
    chunk: _Kind


class _LineHead(msgspec.Struct, frozen=True, gc=False):
    data: _Head


class _Body(msgspec.Struct, frozen=True, gc=False):
    """Which call a chunk belongs to, and its text."""

    turn: int | float
    step: int | float
    chunk: msgspec.Raw


class _LineBody(msgspec.Struct, frozen=True, gc=False):
    data: _Body


class _Place(msgspec.Struct, frozen=True, gc=False):
    turn: int | float
    step: int | float


class _PackedPlace(msgspec.Struct, frozen=True, gc=False):
    data: _Place


_line_head = msgspec.json.Decoder(_LineHead).decode
_line_body = msgspec.json.Decoder(_LineBody).decode
_head = msgspec.json.Decoder(_Head).decode
_body = msgspec.json.Decoder(_Body).decode
_packed_place = msgspec.json.Decoder(_PackedPlace).decode


def _head_of(row: StoredRow) -> _Head:
    """Return the head of a chunk row. Raises `SessionPersistenceCorruptionError` naming the seq."""
    try:
        if isinstance(row, bytes):
            return _line_head(row).data
        if isinstance(row, Event):
            return _head(row.data)
        place = _packed_place(row.line).data
        return _Head(place.turn, place.step, _DELTA)
    except (msgspec.DecodeError, RecursionError):
        return _read_head(_first_event(row))


_DELTA: Final = _Kind("")
"""Stands for the deltas of a packed row, whatever their type: none of them ends a call."""


def _first_event(row: StoredRow) -> Event:
    if isinstance(row, PackedRow):
        return row.expand()[0]
    return _line_event(row) if isinstance(row, bytes) else row


def _line_event(line: bytes) -> Event:
    event = read_row(line)
    assert isinstance(event, Event)
    return event


def _read_head(event: Event) -> _Head:
    """Read a head that msgspec cannot: lone surrogates, deep nesting, a chunk of an unknown shape."""
    value = event.value
    data = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    turn, step, chunk = data.get("turn"), data.get("step"), data.get("chunk")
    if not (is_number(turn) and is_number(step) and isinstance(chunk, dict)):
        raise SessionPersistenceCorruptionError(
            "payload of 'assistant/chunk' lacks a turn, a step or a chunk object", seq=event.seq
        )
    kind = cast("dict[str, Any]", chunk).get("type")
    return _Head(cast("float", turn), cast("float", step), _Kind(kind if isinstance(kind, str) else ""))


def _bodies_of(row: StoredRow) -> Iterator[tuple[_Body, int]]:
    """Yield what each chunk of a row says, and its seq where that is at hand, else -1."""
    if isinstance(row, PackedRow):
        for event in row.expand():
            yield _event_body(event), event.seq
    elif isinstance(row, bytes):
        try:
            yield _line_body(row).data, -1
        except (msgspec.DecodeError, RecursionError):
            yield _event_body(_line_event(row)), -1
    else:
        yield _event_body(row), row.seq


def _event_body(event: Event) -> _Body:
    try:
        return _body(event.data)
    except (msgspec.DecodeError, RecursionError):
        head = _read_head(event)
        return _Body(head.turn, head.step, msgspec.Raw(raw_members(bytes(event.data))["chunk"]))


class StoredChunks(Sequence[bytes]):
    """The chunks of one recorded call, read from its rows when asked for.

    Rows are shared with the log. Reading checks that each belongs to the call, and raises
    `SessionPersistenceCorruptionError` where a row's text only looked as if it did.
    """

    __slots__ = ("_count", "_read", "_rows", "step", "turn")

    def __init__(self, rows: Sequence[StoredRow], turn: int | float, step: int | float) -> None:
        self.turn = turn
        self.step = step
        self._rows = rows
        self._count = sum(row.count if isinstance(row, PackedRow) else 1 for row in rows)
        self._read: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        if self._read is not None:
            yield from self._read
            return
        for row in self._rows:
            for body, seq in _bodies_of(row):
                if body.turn != self.turn or body.step != self.step:
                    raise _stray(row, seq)
                yield bytes(body.chunk)

    def __getitem__(self, index: Any) -> Any:
        if self._read is None:
            self._read = tuple(self)
        return cast("tuple[Any, ...]", self._read)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # any sequence compares

    __hash__ = None  # type: ignore[assignment]  # chunks compare by content and are read late

    def __repr__(self) -> str:
        return f"<{self._count} chunks of turn {number_text(self.turn)}, step {number_text(self.step)}>"


def _stray(row: StoredRow, seq: int) -> SessionPersistenceCorruptionError:
    return SessionPersistenceCorruptionError(
        "a chunk row names its turn and step more than once", seq=seq if seq >= 0 else _first_event(row).seq
    )


# --- grouping rows into calls ------------------------------------------------------------------------

SUMMARY: Final = "compaction/summary"
_TURN_END: Final = "turn/end"
_DATA: Final = b',"data":'
_DATA_FROM, _DATA_TO = 20, 90
"""Where `data` begins in a row as it is usually written: after type, seq and time."""


class _Run(NamedTuple):
    """Rows of chunks of one call: the first, and the ones after it whose text begins alike."""

    head: _Head
    rows: list[StoredRow]


class _Alike(NamedTuple):
    """How rows begin that go on with a call: from `,"data"` on, the payload alone, a packed row."""

    line: tuple[bytes, ...]
    data: tuple[bytes, ...]
    packed: tuple[bytes, ...]


_NONE_ALIKE: Final = _Alike((), (), ())
_KINDS_WITHIN: Final = tuple(sorted((kind for kind in CHUNKS if kind != "finish"), reverse=True))
"""The types of chunk that do not end a call."""


def _alike_after(head: _Head) -> _Alike:
    if head.chunk.type == "finish":
        return _NONE_ALIKE
    place = f'{{"turn":{number_text(head.turn)},"step":{number_text(head.step)},'
    data = tuple(f'{place}"chunk":{{"type":"{kind}",'.encode() for kind in _KINDS_WITHIN)
    return _Alike(tuple(_DATA + text for text in data), data, (_DATA + place.encode(),))


def _runs(rows: Iterable[StoredRow]) -> Iterator[_Run | Event]:
    """Yield the runs, and between them the events that bear on calls.

    Most rows begin like the one before but for the type of the chunk. Comparing the start of the text finds
    them at a fraction of the cost of reading the row; `StoredChunks` reads it when it is played, and checks.
    """
    run: _Run | None = None
    alike = _NONE_ALIKE
    at = 0
    for row in rows:
        # Seqs and times of neighbours have equally many digits, so `data` stays where it was.
        if isinstance(row, bytes) and row.startswith(alike.line, at) and run:
            run.rows.append(row)
        elif isinstance(row, Event) and row.type != CHUNK:
            if row.type in (SUMMARY, _TURN_END):
                yield from (run, row) if run else (row,)
                run, alike = None, _NONE_ALIKE
        elif run and _is_alike(row, alike):
            run.rows.append(row)
            at = _data_at(row)
        else:
            if run:
                yield run
            run = _Run(_head_of(row), [row])
            alike = _alike_after(run.head)
            at = _data_at(row)
    if run:
        yield run


def _is_alike(row: StoredRow, alike: _Alike) -> bool:
    if isinstance(row, Event):
        return bytes(row.data).startswith(alike.data)
    if isinstance(row, bytes):
        return row.startswith(alike.line, _data_at(row))
    return row.line.startswith(alike.packed, row.line.find(_DATA, _DATA_FROM, _DATA_TO))


def _data_at(row: StoredRow) -> int:
    return row.find(_DATA, _DATA_FROM, _DATA_TO) if isinstance(row, bytes) else 0


class _Calls:
    """Groups chunks into calls while they go by."""

    def __init__(self) -> None:
        self.entries: list[ScriptEntry] = []
        self._rows: list[StoredRow] = []
        self._place: tuple[float, float] = (0, 0)
        self._turn_end: Event | None = None

    def add(self, run: _Run) -> None:
        place = (run.head.turn, run.head.step)
        if place != self._place:
            self.cut()
        self._place = place
        self._rows += run.rows
        if run.head.chunk.type == "finish":
            self.entries.append(ChunksEntry(self._take()))

    def _take(self) -> StoredChunks:
        rows, self._rows, self._turn_end = self._rows, [], None
        return StoredChunks(rows, *self._place)

    def cut(self) -> None:
        """Close a call that has no `finish`; nothing is open most of the time."""
        if self._rows:
            end = self._turn_end
            self.entries.append(CutEntry(self._take(), *self._place, end))

    def see(self, event: Event) -> None:
        if event.type == SUMMARY:
            self.cut()
            self.entries.extend(_summary_entries(event))
        elif self._rows and self._turn_end is None:
            self._turn_end = event


def _summary_entries(event: Event) -> Iterator[ChunksEntry]:
    """Yield the entry of a summary that a model call made whose chunks are not in the log.

    Raises `OverrideRefusedError` when the record does not hold the call's whole output.
    """
    value = event.value
    data = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if data.get("llmStreamCall") is not True:
        return
    blocks = data.get("rawOutput")
    if not isinstance(blocks, list) or not all(_is_block(block) for block in cast("list[Any]", blocks)):
        raise OverrideRefusedError(
            "marked-compaction",
            f"the compaction summary at seq {event.seq} is marked as a model call without output",
        )
    chunks: list[Any] = []
    for index, block in enumerate(cast("list[Any]", blocks)):
        chunks.append({"type": "block-start", "index": index, "blockType": block["type"]})
        chunks.append({"type": "block-end", "index": index, "block": block})
    if "usage" in data:
        chunks.append({"type": "usage", "usage": data["usage"]})
    chunks.append({"type": "finish", "reason": {"kind": "stop"}})
    yield ChunksEntry(tuple(map(encode, chunks)), "compaction")


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("type"), str)


Unfinished = Literal["refuse", "cut"]
"""What becomes of a call without a `finish` chunk: an error, or a `CutEntry`."""


def derive_replay_script(events: Events, *, unfinished: Unfinished = "refuse") -> list[ScriptEntry]:
    """Return one entry per model call in `events`, which are a session's own (`lineage.own`).

    A call ends at its `finish` chunk, so a retry within a step is an entry of its own. A compaction summary
    marked as a model call is an entry at its place. Raises `UnfinishedCallError` with turn and step for the
    first call without an end, `OverrideRefusedError` for a marked summary without output, and
    `SessionPersistenceCorruptionError` for a chunk event of another shape.
    """
    calls = _Calls()
    for item in _runs(events.rows()):
        if isinstance(item, _Run):
            calls.add(item)
        else:
            calls.see(item)
    calls.cut()
    if unfinished == "refuse":
        refuse_unfinished(calls.entries)
    return calls.entries


def agent_entries(entries: Iterable[ScriptEntry]) -> list[ScriptEntry]:
    """Return the entries that answer the agent's own calls; auxiliary calls have a channel of their own."""
    return [e for e in entries if not (isinstance(e, ChunksEntry) and e.purpose != "turn")]


def refuse_unfinished(entries: Iterable[ScriptEntry]) -> None:
    """Raise `UnfinishedCallError` when an entry is a recorded call without an end."""
    for entry in entries:
        if isinstance(entry, CutEntry):
            raise UnfinishedCallError(entry.turn, entry.step)


# --- the scripts of a whole run --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class SessionScript:
    """One session's script and its place. `key` is None outside the primary's run; replay binds no such."""

    session: RecordedSession
    key: str | None
    grade: Grade
    method: Method | None
    entries: list[ScriptEntry]

    @property
    def chunk_counts(self) -> list[int]:
        """How many chunks each entry yields."""
        return chunk_counts(self.entries)

    @property
    def digest(self) -> str:
        """The SHA-256 of the script's canonical JSON."""
        return script_digest(self.entries)


_NO_OVERRIDES: Final[Mapping[str, Override]] = MappingProxyType({})


def load_session_scripts(
    sessions: Sequence[RecordedSession],
    overrides: Mapping[str, Override] = _NO_OVERRIDES,
    *,
    primary: RecordedSession | None = None,
    unfinished: Unfinished = "refuse",
) -> list[SessionScript]:
    """Return the script of every session: the primary's, then its descendants depth first by lineage key.

    Sessions outside the primary's run come last. `overrides` maps lineage keys to sidecars, `0` being the
    primary; a sidecar may replace or patch an unfinished call. Raises what `build_tree` and
    `derive_replay_script` raise, naming the file, and `LineageError` for a key that no session has.
    """
    tree = recorded_tree(sessions, primary)
    inside = {node.key: node for node in tree.primary.walk()}
    for key in overrides:
        if key not in inside:
            raise LineageError("unknown-key", f"no session has the lineage key {key!r}", list(inside))
    bound = [_script_of(node, key, overrides.get(key), unfinished) for key, node in inside.items()]
    return bound + [_script_of(node, None, None, unfinished) for node in tree.outside()]


def _script_of(
    node: Node, key: str | None, override: Override | None, unfinished: Unfinished
) -> SessionScript:
    entries = _entries(node.session, override, unfinished)
    return SessionScript(node.session, key, node.grade, node.method, entries)


def recorded_tree(sessions: Sequence[RecordedSession], primary: RecordedSession | None = None) -> SessionTree:
    """Return the tree of `sessions`; siblings whose scripts are equal count as twins. See `build_tree`."""
    return build_tree(sessions, _fingerprint, primary)


def _fingerprint(session: RecordedSession) -> str:
    return script_digest(_entries(session, None, "cut"))


def _entries(
    session: RecordedSession, override: Override | None, unfinished: Unfinished
) -> list[ScriptEntry]:
    if isinstance(override, Replacement):
        return list(override.entries)
    with _naming(session):
        entries = derive_replay_script(session.own, unfinished="cut")
        if override is not None:
            entries = apply_override(entries, override)
        if unfinished == "refuse":
            refuse_unfinished(entries)
    return entries


@contextmanager
def _naming(session: RecordedSession) -> Generator[None]:
    """Let errors name the session's file."""
    try:
        yield
    except ArtifactError as error:
        raise error.located(path=session.name) from None
    except UnfinishedCallError as error:
        raise error.located(session.name) from None
    except OverrideRefusedError as error:
        raise OverrideRefusedError(error.code, error.reason, error.path or session.name) from None
