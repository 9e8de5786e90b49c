"""A log in memory: an immutable sequence of events over shared rows.

Rows stay as they were read. A packed row expands, and a chunk's line decodes, when its events are asked
for, so loading costs one pass over the rows and holding a log costs little more than its text. A fork
shares its parent's rows: both see the same segment up to their own ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeGuard, overload

from seedline.events.codec import decode_event_line, encode_event
from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow

StoredRow = Event | PackedRow | bytes
"""An event, a packed row, or the complete line of one `assistant/chunk` event, decoded when asked for."""


def _event(row: Event | bytes) -> Event:
    return decode_event_line(row) if isinstance(row, bytes) else row


def _is_no_chunk(row: StoredRow) -> TypeGuard[Event]:
    return isinstance(row, Event) and row.type != CHUNK


class Segment:
    """Rows that only grow at the end, holding the events from seq `base` on."""

    __slots__ = ("_events", "_indexed", "_starts", "base", "length", "rows")

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.rows: list[StoredRow] = []
        self.length = 0
        self._starts: list[int] | None = None  # offset of each row; None while every row holds one event
        self._events: list[int] = []  # indices of the rows that are `Event`, as far as `_indexed`
        self._indexed = 0

    def append(self, row: StoredRow) -> None:
        """Add one row."""
        if isinstance(row, PackedRow):
            if self._starts is None:
                self._starts = list(range(len(self.rows)))
            self._starts.append(self.length)
            self.length += row.count
        else:
            if self._starts is not None:
                self._starts.append(self.length)
            self.length += 1
        self.rows.append(row)

    def extend_single(self, rows: Sequence[Event | bytes]) -> None:
        """Add rows of one event each."""
        if self._starts is not None:
            self._starts.extend(range(self.length, self.length + len(rows)))
        self.rows.extend(rows)
        self.length += len(rows)

    def at(self, offset: int) -> Event:
        """Return the event at `offset` from the segment's start."""
        index, within = self._place(offset)
        row = self.rows[index]
        return row.expand()[within] if isinstance(row, PackedRow) else _event(row)

    def event_rows(self, start: int, stop: int, step: Literal[1, -1] = 1) -> Iterator[StoredRow]:
        """Yield the rows of [start, stop) that are `Event`, all but most chunks; skips the rest unread.

        With `step` -1 from the last one backwards.
        """
        rows, known = self.rows, self._events
        known += [k for k in range(self._indexed, len(rows)) if type(rows[k]) is Event]
        self._indexed = len(rows)
        first, last = self._place(start)[0], self._place(stop - 1)[0]
        places = range(bisect_left(known, first), bisect_right(known, last))[::step]
        return (rows[known[place]] for place in places)

    def _place(self, offset: int) -> tuple[int, int]:
        """Return the index of the row that holds an event, and the event's place in the row."""
        if self._starts is None:
            return offset, 0
        index = bisect_right(self._starts, offset) - 1
        return index, offset - self._starts[index]

    def rows_between(self, start: int, stop: int) -> Iterator[StoredRow]:
        """Yield rows that together hold exactly the events of [start, stop)."""
        if self._starts is None:
            for index in range(start, stop):
                yield self.rows[index]
            return
        index = bisect_right(self._starts, start) - 1 if start < stop else len(self.rows)
        at = start
        while at < stop:
            row = self.rows[index]
            first = self._starts[index]
            if isinstance(row, PackedRow) and (at > first or first + row.count > stop):
                part = row.expand()[at - first : stop - first]
                yield from part
                at += len(part)
            else:
                yield row
                at += row.count if isinstance(row, PackedRow) else 1
            index += 1


class Events(Sequence[Event]):
    """An immutable run of events. Element k has seq `first_seq + k`; a slice shares the rows."""

    __slots__ = ("_parts", "_start", "_stop")

    def __init__(self, parts: tuple[Segment, ...], start: int, stop: int) -> None:
        self._parts = parts
        self._start = start
        self._stop = stop

    @classmethod
    def of(cls, events: Iterable[Event]) -> Events:
        """Return the events given, which must be numbered from 0."""
        segment = Segment()
        segment.extend_single(list(events))
        return cls((segment,), 0, segment.length)

    @property
    def first_seq(self) -> int:
        """The seq of the first element, or where it would be."""
        return self._start

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The shared rows, oldest first; later ones may hold more than this run shows."""
        return self._parts

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Events: ...
    def __getitem__(self, index: int | slice) -> Event | Events:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a run of events has no stride; list() it first")
            return self._between(self._start + start, self._start + max(start, stop))
        position = index + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"event {index} of {len(self)}")
        return self.at_seq(self._start + position)

    def _between(self, start: int, stop: int) -> Events:
        """Return the events from seq `start` to before `stop`, without the segments that begin later.

        Bases must grow along the parts: a fork may cut before the segment its parent writes to.
        """
        return Events(tuple(part for part in self._parts if part.base < stop), start, stop)

    def at_seq(self, seq: int) -> Event:
        """Return the event numbered `seq`. Raises `IndexError` outside the run."""
        if self._start <= seq < self._stop:
            for segment in reversed(self._parts):
                if segment.base <= seq:
                    return segment.at(seq - segment.base)
        raise IndexError(f"seq {seq} is outside {self._start}..{self._stop - 1}")

    def rows(self) -> Iterator[StoredRow]:
        """Yield stored rows that together hold exactly these events, packed ones unexpanded."""
        for segment, start, stop in self._stretches():
            yield from segment.rows_between(start, stop)

    def _stretches(self) -> list[tuple[Segment, int, int]]:
        """Return what each segment holds of this run, as offsets into the segment, oldest first."""
        ends = (*(segment.base for segment in self._parts[1:]), self._stop)
        return [
            (segment, start - segment.base, stop - segment.base)
            for segment, end in zip(self._parts, ends, strict=False)
            if (start := max(self._start, segment.base)) < (stop := min(self._stop, end))
        ]

    def __iter__(self) -> Iterator[Event]:
        for row in self.rows():
            if isinstance(row, PackedRow):
                yield from row.expand()
            else:
                yield _event(row)

    def without_chunks(self) -> Iterator[Event]:
        """Yield every event but the `assistant/chunk` ones, in order; skips stored chunks unread."""
        for segment, start, stop in self._stretches():
            yield from filter(_is_no_chunk, segment.event_rows(start, stop))

    def without_chunks_reversed(self) -> Iterator[Event]:
        """`without_chunks` from the last event backwards."""
        for segment, start, stop in reversed(self._stretches()):
            yield from filter(_is_no_chunk, segment.event_rows(start, stop, -1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # any sequence compares

    __hash__ = None  # type: ignore[assignment]  # runs compare by content and are views over growing rows

    def __repr__(self) -> str:
        return f"<Events {self._start}..{self._stop - 1}>" if len(self) else "<Events none>"


def row_text(row: StoredRow) -> bytes:
    """Return the physical line of a stored row, without line end."""
    if isinstance(row, bytes):
        return row
    return row.line if isinstance(row, PackedRow) else encode_event(row)
