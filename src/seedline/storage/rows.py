"""A session as rows of a database: its header, its events, and what damage among them means (5.3).

Texts are bytes here, UTF-8 with lone surrogates as three bytes each, so that a damaged one ends no walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from seedline.errors import (
    ArtifactError,
    HeaderRefusedError,
    JsonValueError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import (
    HeaderLine,
    RowError,
    has_large_number,
    join_members,
    read_row,
    write_header_line,
)
from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow
from seedline.jsonvalue import decode, encode, join_surrogates
from seedline.session.header import (
    SessionHeader,
    SessionLogOffset,
    check_absolute_cwd,
    check_header,
    from_header_line,
)
from seedline.session.sequence import Events, Segment
from seedline.storage.base import TornTail
from seedline.storage.reading import graver, type_problem

Row = tuple[Any, ...]
"""The columns `seq, time, data, type, source_event_seqs, surface_op, ignorable` of one event.

The type of a chunk is None: a text object for each of a log's many chunks would cost as much as the row.
"""

# --- texts -----------------------------------------------------------------------------------------


def to_bytes(text: str) -> bytes:
    """Return the bytes of a text, equal exactly for equal texts."""
    return join_surrogates(text).encode("utf-8", "surrogatepass")


def to_text(column: bytes | None) -> str | None:
    """Return the text of a column. Raises `UnicodeDecodeError`."""
    return None if column is None else column.decode("utf-8", "surrogatepass")


# --- sessions --------------------------------------------------------------------------------------


class HeaderColumns(NamedTuple):
    """A session header as columns, `seed_length` standing for the lineage bit and the cut."""

    id: bytes
    version: int
    created_at: int
    cwd: bytes | None
    parent_session: bytes | None
    seed_length: int | None
    origin: bytes | None
    delegation_depth: int | None
    agent_preset: bytes | None
    spawn: bytes | None


def header_columns(header: SessionHeader, cut: SessionLogOffset) -> HeaderColumns:
    """Return the columns of a header that was checked."""

    def text(value: str | None) -> bytes | None:
        return None if value is None else to_bytes(value)

    return HeaderColumns(
        id=to_bytes(header.id),
        version=header.version,
        created_at=header.created_at,
        cwd=text(header.cwd),
        parent_session=text(header.parent_session),
        seed_length=cut if header.is_seeded else None,
        origin=text(header.origin),
        delegation_depth=header.delegation_depth,
        agent_preset=text(header.agent_preset),
        spawn=None if header.spawn is None else encode(msgspec.to_builtins(header.spawn)),
    )


def header_of(columns: HeaderColumns) -> tuple[SessionHeader, SessionLogOffset]:
    """Return header and cut, checked like a header line. Raises an `ArtifactError`."""
    if columns.spawn is None:
        with suppress(HeaderRefusedError, ValueError, TypeError, AttributeError):
            return _plain_header(columns)
    try:
        header, cut = from_header_line(_header_line(columns), projected=True)
        check_header(header, cut)
        check_absolute_cwd(header)
    except ArtifactError as error:
        raise type(error)(error.reason, seq=error.seq) from None  # a row has no line number
    except Exception as error:
        raise SessionPersistenceCorruptionError(f"its row is no session header: {error}") from error
    return header, cut


def _plain_header(columns: HeaderColumns) -> tuple[SessionHeader, SessionLogOffset]:
    """Return a header without the detour over its line; what it raises is not fit for people."""
    header = SessionHeader(
        id=to_text(columns.id) or "",
        version=columns.version,
        created_at=columns.created_at,
        is_seeded=columns.seed_length is not None,
        cwd=to_text(columns.cwd),
        parent_session=to_text(columns.parent_session),
        origin=to_text(columns.origin),  # pyright: ignore[reportArgumentType]  # judged by `check_header`
        delegation_depth=columns.delegation_depth,
        agent_preset=to_text(columns.agent_preset),
    )
    cut = SessionLogOffset(columns.seed_length or 0)
    check_header(header, cut)
    check_absolute_cwd(header)
    return header, cut


def _header_line(columns: HeaderColumns) -> bytes:
    return write_header_line(
        HeaderLine(
            version=columns.version,
            id=to_text(columns.id) or "",
            created_at=columns.created_at,
            cwd=to_text(columns.cwd),
            parent_session=to_text(columns.parent_session),
            seed_length=columns.seed_length,
            origin=to_text(columns.origin),  # pyright: ignore[reportArgumentType]  # judged by the reader of the line
            delegation_depth=columns.delegation_depth,
            agent_preset=to_text(columns.agent_preset),
            spawn=None if columns.spawn is None else decode(columns.spawn),
        )
    )


# --- from events to rows ---------------------------------------------------------------------------


class EventColumns(NamedTuple):
    """An event as columns; what it does not carry is None."""

    seq: int
    type: bytes
    time: int
    data: bytes
    source_event_seqs: bytes | None
    surface_op: bytes | None
    ignorable: int | None


def event_columns(event: Event) -> EventColumns:
    """Return the columns of an event, its payload verbatim."""
    sources, surface_op = event.source_event_seqs, event.surface_op
    return EventColumns(
        event.seq,
        to_bytes(event.type),
        event.time,
        bytes(event.data),
        None if sources is UNSET else msgspec.json.encode(sources),
        None if surface_op is UNSET else msgspec.json.encode(surface_op),
        None if event.ignorable is UNSET else 1,
    )


# --- from rows to events ---------------------------------------------------------------------------


class _ChunkRow(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: str
    seq: int
    time: int
    data: msgspec.Raw


_read_chunk: Final = msgspec.json.Decoder(_ChunkRow).decode
_CHUNK_LINE: Final = b'{"type":"assistant/chunk","seq":%d,"time":%d,"data":%b}'
_envelope: Final = itemgetter(slice(3, 7))
_PLAIN: Final = (None,) * 4


class _Damage(NamedTuple):
    seq: int
    reason: str


class RowScan:
    """Takes rows in order until one does not read; then looks on for what proves corruption."""

    def __init__(self, start: int) -> None:
        self._segments: list[Segment] = []
        self._start = start
        self._count = start
        self._damage: _Damage | None = None
        self._lost_rows = 0
        self._ends_after_damage = False
        self._type_problem: ArtifactError | None = None

    def begin(self, start: int) -> None:
        """Begin a piece, whose first event has this seq."""
        self._segments.append(Segment(start))

    def take(self, rows: Iterable[Row]) -> None:
        """Go on with rows of the piece that was begun last."""
        for envelope, group in groupby(rows, _envelope):
            if envelope == _PLAIN and self._damage is None:
                self._take_chunks(list(group))
            else:
                self._take_each(group)

    def _take_chunks(self, rows: list[Row]) -> None:
        lines = _chunk_lines(rows, self._count)
        if lines is None:
            return self._take_each(rows)
        self._segments[-1].extend_single(lines)
        self._count += len(lines)

    def _take_each(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self._damage is not None:
                self._look_on(row)
                continue
            try:
                self._accept(event_of(row, self._count))
            except RowError as error:
                self._damage = _Damage(self._count, error.reason)
                self._look_on(row)

    def _accept(self, event: Event) -> None:
        if event.type != CHUNK:
            self._type_problem = graver(self._type_problem, type_problem(event))
        self._segments[-1].append(event)
        self._count += 1

    def _look_on(self, row: Row) -> None:
        self._lost_rows += 1
        if row[3] == b"turn/end":
            with suppress(RowError):
                event_of(row, row[0])
                self._ends_after_damage = True

    def check_whole(self, stop: int) -> None:
        """Demand that everything up to `stop` was accepted: a part that other sessions read, too."""
        if self._damage is None and self._count < stop:
            self._damage = _Damage(self._count, f"the row of seq {self._count} is missing")
        if self._damage is not None:
            raise self._corrupt(self._damage)

    def check_end(self, needed: Callable[[], int]) -> TornTail | None:
        """Return the torn tail if there is one. Raises what makes the log unreadable.

        `needed` says how many leading events forks read: damage among those is no torn tail.
        """
        damage = self._damage
        if damage and (self._ends_after_damage or damage.seq < needed()):
            raise self._corrupt(damage)
        if self._type_problem:
            raise self._type_problem
        return damage and TornTail(damage.seq, self._lost_rows, damage.reason)

    @staticmethod
    def _corrupt(damage: _Damage) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(damage.reason, seq=damage.seq)

    def events(self) -> Events:
        """Return what was accepted."""
        return Events(tuple(self._segments), self._start, self._count)


def _chunk_lines(rows: list[Row], first: int) -> list[bytes] | None:
    """Return rows of chunks as the lines that a log holds, None where one has to be looked at by itself."""
    try:
        lines = [_CHUNK_LINE % row[:3] for row in rows]
        read = list(map(_read_chunk, lines))
        text = b"\n".join(lines)
        if not text.isascii():
            text.decode()
    except (TypeError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    # A payload with a comma behind its value would add members to its line.
    is_whole = sum(len(row.data) for row in read) == sum(len(row[2]) for row in rows)
    follows = [row.seq for row in read] == list(range(first, first + len(rows)))
    return lines if is_whole and follows and not has_large_number(text) else None


def event_of(row: Row, expected: int) -> Event:
    """Return the event of a row. Raises `RowError` when it does not read, or is not the one expected."""
    seq, at, data, kind, sources, surface_op, ignorable = row
    if seq != expected:
        raise RowError("envelope", f"the row of seq {expected} is missing, seq {seq} follows", seq)
    if type(at) is not int or type(data) is not bytes or ignorable not in (None, 1):
        raise RowError("envelope", "a column holds a value of another kind", seq)
    try:
        members = {
            "type": encode(CHUNK if kind is None else to_text(kind)),
            "seq": b"%d" % seq,
            "time": b"%d" % at,
            "data": data,
            "sourceEventSeqs": sources,
            "surfaceOp": surface_op,
            "ignorable": ignorable and b"true",
        }
        line = join_members({name: text for name, text in members.items() if text is not None})
    except (TypeError, ValueError, AttributeError, JsonValueError) as error:
        raise RowError("envelope", f"a column holds a value of another kind: {error}", seq) from None
    event = read_row(line)
    if isinstance(event, PackedRow) or bytes(event.data) != data.strip(b" \t\r\n") or event.seq != seq:
        raise RowError("envelope", "its columns do not make one event", seq)
    return event
