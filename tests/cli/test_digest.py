"""The fast digests against the plain definition: canonical JSON of each event, line by line."""

from __future__ import annotations

import hashlib
import json
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seedline.cli.digest import events_digest, list_digest
from seedline.events.codec import RowError, encode_event, read_row
from seedline.events.event import Event
from seedline.events.packing import pack
from seedline.jsonvalue import canonical
from seedline.session.sequence import Events, Segment

TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["", "0.5", "-0", "1e5", "\\ud83d", "1234567890123456", '{"text":null}', '":', "\U00010000", "\uffff"]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PLACES = st.fixed_dictionaries({"turn": st.integers(0, 2) | st.just(1.5), "step": st.integers(1, 2)})


def delta(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    index = st.integers(0, 1)
    if kind == "tool-call-delta":
        return st.fixed_dictionaries(
            {"type": st.just(kind), "index": index, "id": TEXT, "argumentsDelta": TEXT},
            optional={"name": TEXT},
        )
    return st.fixed_dictionaries({"type": st.just(kind), "index": index, "text": TEXT})


@st.composite
def runs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Payloads of neighbouring deltas that pack into one row."""
    place = draw(PLACES)
    first = draw(st.sampled_from(["text-delta", "reasoning-delta", "tool-call-delta"]).flatmap(delta))
    name = "argumentsDelta" if "argumentsDelta" in first else "text"
    return [place | {"chunk": first | {name: text}} for text in draw(st.lists(TEXT, min_size=1, max_size=6))]


PAYLOADS = st.lists(runs() | st.lists(VALUES, max_size=2), max_size=5).map(
    lambda groups: [*chain.from_iterable(groups)]
)


def text_of(value: Any) -> bytes:
    """JSON as some writer may spell it: here with every character past ASCII escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


def events_of(payloads: list[Any], times: list[int]) -> list[Event]:
    found: list[Event] = []
    for seq, payload in enumerate(payloads):
        is_delta = isinstance(payload, dict) and "chunk" in payload
        head = {
            "type": "assistant/chunk" if is_delta else "plugin/thing",
            "seq": seq,
            "time": times[seq % len(times)],
        }
        try:
            row = read_row(text_of(head)[:-1] + b',"data":' + text_of(payload) + b"}")
        except RowError:
            continue
        assert isinstance(row, Event)
        found.append(msgspec.structs.replace(row, seq=len(found)))
    return found


def plain_digest(events: list[Event]) -> str:
    """The definition in the slowest way."""
    rows = [{"type": e.type, "seq": e.seq, "time": e.time, "data": e.value} for e in events]
    return hashlib.sha256(b"\n".join(map(canonical, rows))).hexdigest()


def stored(rows: list[bytes]) -> Events:
    segment = Segment()
    for line in rows:
        segment.append(read_row(line))
    return Events((segment,), 0, segment.length)


def kept_as_lines(events: list[Event]) -> Events:
    """The events as a reader keeps chunks: as their lines, where those decode as they stand."""
    segment = Segment()
    for event in events:
        line = encode_event(event)
        try:
            msgspec.json.decode(line)
        except msgspec.DecodeError:
            segment.append(event)
        else:
            segment.append(line)
    return Events((segment,), 0, segment.length)


@given(PAYLOADS, st.lists(st.integers(0, 2**41), min_size=1, max_size=3))
@example([{"turn": 1, "step": 1, "chunk": {"type": "x", "\U00010000": 1, "\uffff": 2}}], [0])
@example([{"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "\ud83d"}}] * 3, [0])
def test_the_digest_is_that_of_the_definition(payloads: list[Any], times: list[int]) -> None:
    events = events_of(payloads, times)
    expected = plain_digest(events)
    assert events_digest(Events.of(events)) == expected
    assert events_digest(stored(list(pack(events, encode_event)))) == expected
    assert events_digest(kept_as_lines(events)) == expected


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
def test_batches_join_without_a_seam(count: int) -> None:
    place = {"turn": 1, "step": 1}
    texts = ["ordinary", "café 🙂", "0.5", "x"]
    payloads = [place | {"chunk": {"type": "x", "text": texts[k % 4]}} for k in range(count)]
    events = events_of(payloads, [5])
    assert len(events) == count
    assert events_digest(kept_as_lines(events)) == plain_digest(events)


def test_nothing_hashes_as_no_bytes_and_an_empty_list_as_brackets() -> None:
    assert events_digest(Events.of([])) == hashlib.sha256(b"").hexdigest()
    assert list_digest([]) == hashlib.sha256(b"[]").hexdigest()


@given(st.lists(VALUES, max_size=4))
def test_a_list_is_hashed_as_one_array(values: list[Any]) -> None:
    values = [value for value in values if "inf" not in repr(value)]
    digest = list_digest(text_of(value) for value in values)
    assert digest == hashlib.sha256(canonical(json.loads(text_of(values)))).hexdigest()
