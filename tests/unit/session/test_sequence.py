"""A log over rows: events, packed rows and stored chunk lines give one sequence."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.events.codec import encode_event, read_row
from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow
from seedline.session.sequence import Events, Segment, row_text
from tests.unit.session.make import FINISH, chunk, delta, event, events_of, packed


def line(seq: int, text: str) -> bytes:
    """A stored chunk kept as its line."""
    return encode_event(event(CHUNK, seq, chunk(delta(text)), time=seq))


def mixed() -> Events:
    return events_of(
        event("turn/start", 0, {"turn": 1}),
        packed(1, "a", "b", "c", "d", time=1),
        event(CHUNK, 5, chunk(FINISH), time=5),
        line(6, "e"),
        line(7, "f"),
        event("turn/end", 8, {"turn": 1}, time=8),
        packed(9, "g", "h", "i", time=9),
    )


def expanded() -> list[Event]:
    return [
        event("turn/start", 0, {"turn": 1}),
        *[event(CHUNK, seq, chunk(delta(text)), time=seq) for seq, text in enumerate("abcd", 1)],
        event(CHUNK, 5, chunk(FINISH), time=5),
        *[event(CHUNK, seq, chunk(delta(text)), time=seq) for seq, text in enumerate("ef", 6)],
        event("turn/end", 8, {"turn": 1}, time=8),
        *[event(CHUNK, seq, chunk(delta(text)), time=seq) for seq, text in enumerate("ghi", 9)],
    ]


def test_a_log_is_the_sequence_of_its_events() -> None:
    log, plain = mixed(), expanded()
    assert len(log) == len(plain) == 12
    assert list(log) == plain
    assert log == plain
    assert [log[at] for at in range(12)] == plain
    assert [log[at] for at in range(-12, 0)] == plain
    assert [log.at_seq(at) for at in range(12)] == plain
    assert list(reversed(log)) == plain[::-1]
    assert plain[3] in log
    assert log.index(plain[6]) == 6


@pytest.mark.parametrize("index", [12, -13, 100])
def test_outside_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        mixed()[index]
    with pytest.raises(IndexError):
        mixed().at_seq(index)


def test_every_slice_equals_the_slice_of_the_list() -> None:
    log, plain = mixed(), expanded()
    for start in range(13):
        for stop in range(13):
            part = log[start:stop]
            assert list(part) == plain[start:stop]
            assert part.first_seq == start
            assert len(part) == max(0, stop - start)
            assert [e.seq for row in part.rows() for e in unpacked(row)] == list(range(start, stop))
            assert list(part.without_chunks()) == [e for e in plain[start:stop] if e.type != CHUNK]
            assert list(part.without_chunks_reversed()) == list(part.without_chunks())[::-1]
    assert list(log[2:10][1:4]) == plain[3:6]
    assert list(log[-3:]) == plain[-3:]
    assert log[2:10].at_seq(3) == plain[3]
    with pytest.raises(IndexError):
        log[2:10].at_seq(1)
    with pytest.raises(ValueError, match="no stride"):
        log[::2]


def unpacked(row: Any) -> list[Event]:
    if isinstance(row, PackedRow):
        return row.expand()
    found = read_row(row) if isinstance(row, bytes) else row
    assert isinstance(found, Event)
    return [found]


def test_whole_rows_stay_whole() -> None:
    log = mixed()
    assert [type(row).__name__ for row in log.rows()] == [
        "Event",
        "PackedRow",
        "Event",
        "bytes",
        "bytes",
        "Event",
        "PackedRow",
    ]
    assert [type(row).__name__ for row in log[1:5].rows()] == ["PackedRow"]
    assert [type(row).__name__ for row in log[2:5].rows()] == ["Event"] * 3
    assert read_row(row_text(next(log.rows()))) == expanded()[0]
    assert row_text(packed(0, "a", "b", "c")).startswith(b'{"type":"text-chunks"')


def test_single_rows_may_come_in_bulk_before_and_after_packed_ones() -> None:
    segment = Segment()
    segment.extend_single([event("a/b", 0), event("a/b", 1)])
    segment.append(packed(2, "x", "y", "z"))
    segment.extend_single([event("a/b", 5), line(6, "t")])
    log = Events((segment,), 0, segment.length)
    assert [e.seq for e in log] == list(range(7))
    assert [log[at].seq for at in range(7)] == list(range(7))


def test_an_empty_log() -> None:
    for log in (Events((), 0, 0), Events.of([]), mixed()[4:4], mixed()[9:2]):
        assert len(log) == 0
        assert list(log) == list(log.rows()) == list(log.without_chunks_reversed()) == []
        assert log == []
        assert not log
        assert repr(log) == "<Events none>"
    assert repr(mixed()[2:4]) == "<Events 2..3>"


def test_comparison_is_by_content() -> None:
    assert mixed() == mixed()
    assert mixed() != expanded()[:-1]
    assert mixed() != "text"
    with pytest.raises(TypeError):
        hash(mixed())


def test_a_run_does_not_see_later_rows() -> None:
    segment = Segment()
    segment.append(event("a/b", 0))
    log = Events((segment,), 0, 1)
    segment.append(event("a/b", 1))
    assert [e.seq for e in log] == [0]
    assert [e.seq for e in log.without_chunks()] == [0]
    assert len(log[0:5]) == 1


def chain(*bases: int) -> tuple[Segment, ...]:
    """Segments as forks of forks leave them, each marked by its place in the chain and holding ten rows."""
    segments: list[Segment] = []
    for place, base in enumerate(bases):
        segment = Segment(base)
        segment.extend_single([event("a/b", base + at, {"segment": place}) for at in range(10)])
        segments.append(segment)
    return tuple(segments)


def owners(log: Events) -> list[int]:
    return [e.value["segment"] for e in log]


def test_a_later_segment_hides_what_an_earlier_one_grew_beyond_it() -> None:
    log = Events(chain(0, 5, 8), 0, 12)
    assert [e.seq for e in log] == list(range(12))
    assert owners(log) == [0] * 5 + [1] * 3 + [2] * 4
    assert owners(log[3:9]) == [0, 0, 1, 1, 1, 2]
    assert [e.seq for e in log.without_chunks_reversed()] == list(range(11, -1, -1))


def test_a_slice_leaves_out_segments_that_begin_later() -> None:
    log = Events(chain(0, 5, 8), 0, 12)
    assert [len(log[:stop].segments) for stop in (0, 1, 5, 6, 8, 9)] == [0, 1, 1, 2, 2, 3]
    # A fork of that slice writes its own events where the hidden segments begin.
    own = Segment(3)
    own.extend_single([event("a/b", 3 + at, {"segment": 9}) for at in range(6)])
    forked = Events((*log[:3].segments, own), 0, 9)
    assert [e.seq for e in forked] == list(range(9))
    assert owners(forked) == [0] * 3 + [9] * 6
    assert [forked.at_seq(seq).value["segment"] for seq in range(9)] == owners(forked)


def test_empty_segments_between_others_do_no_harm() -> None:
    empty = Segment(4)
    first, last = chain(0, 4)
    log = Events((first, empty, last), 0, 10)
    assert owners(log) == [0] * 4 + [1] * 6
    assert [log[at].seq for at in range(10)] == list(range(10))
