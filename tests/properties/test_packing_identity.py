"""Packing: whatever the events, unpacking the rows of a batch gives them back, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from seedline.events.codec import encode_event, project_row, read_row
from seedline.events.event import CHUNK, Event
from seedline.events.packing import MIN_RUN, PACKED_TYPES, PackedRow, pack
from seedline.jsonvalue import decode, encode
from tests.properties.json_texts import SAFE, json_texts, json_values, texts

# Few values, so that neighbours often agree; every kind of number that a turn may be.
places = st.sampled_from([1, 1, 1, 2, 0, -1, 1.5, 2**53 - 1])
names = st.sampled_from(["a", "b", "\ud83d"])
gaps = st.integers(-3, 3) | st.sampled_from([0, 1000, -(10**9)])
absent: dict[str, Any] = {}


def chunks() -> st.SearchStrategy[dict[str, Any]]:
    text = st.builds(
        lambda kind, index, text: {"type": kind, "index": index, "text": text},
        st.sampled_from(["text-delta", "reasoning-delta"]),
        places,
        texts,
    )
    call = st.builds(
        lambda index, call, name, text: {
            "type": "tool-call-delta",
            "index": index,
            "id": call,
            **name,
            "argumentsDelta": text,
        },
        places,
        names,
        st.just(absent) | names.map(lambda name: {"name": name}),
        texts,
    )
    other = st.sampled_from(
        [
            {"type": "block-start", "index": 0, "blockType": "text"},
            {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}},
            {"type": "text-delta", "index": 0},
            {"type": "text-delta", "index": "0", "text": "x"},
            {"type": "text-delta", "index": True, "text": "x"},
            {"type": "text-delta", "index": 0, "text": None},
            {"type": "text-delta", "index": 0, "text": "x", "more": 1},
            {"type": "reasoning-delta", "index": 0, "id": "a", "text": "x"},
            {"type": "tool-call-delta", "index": 0, "id": "a", "name": None, "argumentsDelta": "x"},
            {"index": 0, "type": "text-delta", "text": "x"},
            {"\ud83d": 0, "type": "text-delta", "index": 0, "text": "x"},
            {"type": "\ud83d", "index": 0, "text": "x"},
        ]
    )
    return text | text | call | other


payloads = st.one_of(
    st.builds(
        lambda turn, step, chunk: encode({"turn": turn, "step": step, "chunk": chunk}),
        places,
        places,
        chunks(),
    ),
    st.builds(lambda chunk: encode({"turn": 1, "step": 1, "chunk": chunk}), chunks()),
    st.builds(lambda chunk: encode({"step": 1, "turn": 1, "chunk": chunk}), chunks()),
    json_values.map(encode),
    json_texts.map(str.encode),
    st.sampled_from(
        [
            b'{"turn":1.0,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":-0,"text":"a"}}',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\u0061"}}',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\/"}}',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"} }',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a","text":"b"}}',
            b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":18446744073709551616,"text":"a"}}',
        ]
    ),
)


@st.composite
def batches(draw: st.DrawFn) -> list[Event]:
    """Events whose seqs mostly follow each other, most of them deltas."""
    seq, time = draw(st.integers(0, 5) | st.just(SAFE - 30)), draw(st.integers(-SAFE, SAFE) | st.just(0))
    events: list[Event] = []
    for payload in draw(st.lists(payloads, max_size=12)):
        for _ in range(draw(st.sampled_from([1, 1, 2, 3, 4]))):
            event_type = draw(st.sampled_from([CHUNK] * 9 + ["x/y"]))
            mark: Any = draw(st.sampled_from([UNSET] * 9 + [True]))
            events.append(Event(event_type, seq, time, Raw(payload.strip(b" \t\r\n")), ignorable=mark))
            seq += draw(st.sampled_from([1] * 9 + [2]))
            time = max(-SAFE, min(SAFE, time + draw(gaps)))
    return [event for event in events if event.seq <= SAFE]


def unpack(rows: Iterator[bytes]) -> list[Event]:
    events: list[Event] = []
    for line in rows:
        row = read_row(line)
        events.extend(row.expand() if isinstance(row, PackedRow) else [row])
    return events


@given(batches())
def test_unpacking_gives_the_packed_events_back(events: list[Event]) -> None:
    assert unpack(pack(events, encode_event)) == events


@given(batches())
def test_rows_agree_with_the_rule_read_word_by_word(events: list[Event]) -> None:
    """The oracle works on values as section 4.4 puts it; both leave out what a row would spell otherwise."""
    rows = [read_row(line) for line in pack(events, encode_event)]
    assert [row.count if isinstance(row, PackedRow) else 1 for row in rows] == list(run_lengths(events))


def run_lengths(events: list[Event]) -> Iterator[int]:
    runs: list[list[Event]] = []
    for event in events:
        if runs and follows(runs[-1][-1], event):
            runs[-1].append(event)
        else:
            runs.append([event])
    for run in runs:
        yield from [len(run)] if len(run) >= MIN_RUN else [1] * len(run)


def follows(first: Event, second: Event) -> bool:
    one, other = key_of(first), key_of(second)
    gap = second.time - first.time
    return one is not None and one == other and second.seq == first.seq + 1 and abs(gap) <= SAFE


def key_of(event: Event) -> str | None:
    """What members of a run share, None for an event that is not packable."""
    data = event.value
    if event.type != CHUNK or event.ignorable or encode(data) != bytes(event.data):
        return None
    if (
        not isinstance(data, dict)
        or list(data) != ["turn", "step", "chunk"]
        or not isinstance(data["chunk"], dict)
    ):
        return None
    chunk = dict(data["chunk"])
    shape = {
        "text-delta": (["type", "index", "text"],),
        "reasoning-delta": (["type", "index", "text"],),
        "tool-call-delta": (
            ["type", "index", "id", "argumentsDelta"],
            ["type", "index", "id", "name", "argumentsDelta"],
        ),
    }.get(str(chunk.get("type")), ())
    if list(chunk) not in list(shape):
        return None
    numbers = [data["turn"], data["step"], chunk["index"]]
    strings = [value for name, value in chunk.items() if name != "index"]
    if not all(type(x) in (int, float) for x in numbers) or not all(isinstance(x, str) for x in strings):
        return None
    chunk.pop("text", None)
    chunk.pop("argumentsDelta", None)
    return repr((data["turn"], data["step"], chunk))


@given(batches(), st.integers(1, 9))
def test_each_batch_packs_by_itself(events: list[Event], size: int) -> None:
    parts = [events[at : at + size] for at in range(0, len(events), size)]
    rows = [line for part in parts for line in pack(part, encode_event)]
    assert unpack(iter(rows)) == events
    assert all(row.count <= size for row in map(read_row, rows) if isinstance(row, PackedRow))


@given(batches())
def test_packing_the_unpacked_gives_the_same_rows(events: list[Event]) -> None:
    rows = list(pack(events, encode_event))
    assert list(pack(unpack(iter(rows)), encode_event)) == rows


@given(batches())
def test_projected_rows_are_completed_in_a_row_of_their_own(events: list[Event]) -> None:
    """A projected log holds a whole log from seq 0; unpacked rows then all have time 0."""
    whole = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events)]
    count = 0
    for line in pack(whole, encode_event):
        projected = project_row(line)
        row = read_row(projected, count)
        found = row.expand() if isinstance(row, PackedRow) else [row]
        assert [event.seq for event in found] == list(range(count, count + len(found)))
        expected = whole[count : count + len(found)]
        assert [bytes(event.data) for event in found] == [bytes(event.data) for event in expected]
        assert [event.time - found[0].time for event in found] == [
            x.time - expected[0].time for x in expected
        ]
        assert found[0].time == 0
        assert project_row(row.line if isinstance(row, PackedRow) else encode_event(row)) == projected
        count += len(found)
    assert count == len(whole)


def test_the_rule_is_tried_on_runs_of_every_kind() -> None:
    """The strategies above would prove little if nothing in them could be packed."""
    for kind in PACKED_TYPES.values():
        own = {"text": "x"} if kind != "tool-call-delta" else {"id": "a", "argumentsDelta": "x"}
        data = encode({"turn": 1, "step": 1, "chunk": {"type": kind, "index": 0, **own}})
        assert key_of(Event(CHUNK, 0, 0, Raw(data))) is not None
        assert decode(data)
