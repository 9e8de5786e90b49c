"""Packed rows: what joins a run, what a row says, what a row must not say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from seedline.errors import JsonSyntaxError
from seedline.events.codec import RowError, encode_event, read_row
from seedline.events.event import CHUNK, Event
from seedline.events.packing import MIN_RUN, PackedRow, pack, read_packed_row, read_usual_packed_row
from seedline.jsonvalue import encode

SAFE = 2**53 - 1


def text_delta(text: str = "x", /, **members: Any) -> dict[str, Any]:
    return {"type": "text-delta", "index": 0, "text": text} | members


def tool_delta(text: str = "x", /, **members: Any) -> dict[str, Any]:
    head = {"type": "tool-call-delta", "index": 0, "id": "c"}
    return head | members | {"argumentsDelta": text}


def event(seq: int, chunk: Any, time: int = 0, **data: Any) -> Event:
    return Event(CHUNK, seq, time, Raw(encode({"turn": 1, "step": 1} | data | {"chunk": chunk})))


def run(*chunks: Any, start: int = 0) -> list[Event]:
    return [event(start + k, chunk) for k, chunk in enumerate(chunks)]


def rows(events: list[Event]) -> list[bytes]:
    return list(pack(events, encode_event))


def counts(events: list[Event]) -> list[int]:
    """How many events each row holds; also checks that the rows give them back."""
    found = [read_row(line) for line in rows(events)]
    back = [e for row in found for e in (row.expand() if isinstance(row, PackedRow) else [row])]
    assert back == events
    return [row.count if isinstance(row, PackedRow) else 1 for row in found]


# --- what a row says -----------------------------------------------------------------------------


def test_the_example_of_the_format() -> None:
    events = [
        event(7 + k, text_delta(text), time)
        for k, (text, time) in enumerate([("a", 100), ("", 90), ("b", 95)])
    ]
    line = (
        b'{"type":"text-chunks","seq0":7,"time0":100,'
        b'"data":{"turn":1,"step":1,"index":0,"dt":[-10,5],"texts":["a","","b"]}}'
    )
    assert rows(events) == [line]
    assert read_packed_row(line) == PackedRow(7, 100, 3, line)
    assert read_packed_row(line).expand() == events


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (
            {"type": "reasoning-delta", "index": 2, "text": "é\n"},
            '{"type":"reasoning-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":2,"dt":[0,0],"texts":["é\\n","é\\n","é\\n"]}}',
        ),
        (
            tool_delta(""),
            '{"type":"tool-call-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],"id":"c","args":["","",""]}}',
        ),
        (
            tool_delta("{", name="t\ud83d"),
            '{"type":"tool-call-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],"id":"c","name":"t\\ud83d","args":["{","{","{"]}}',
        ),
    ],
    ids=["reasoning", "tool call", "tool call with a name"],
)
def test_each_kind_has_its_row(chunk: dict[str, Any], expected: str) -> None:
    events = run(chunk, chunk, chunk)
    assert rows(events) == [expected.encode()]
    assert counts(events) == [3]


def test_members_unpack_with_their_keys_in_the_order_of_the_format() -> None:
    line = rows(run(*[tool_delta(name="t")] * 3))[0]
    data = [bytes(e.data) for e in read_packed_row(line).expand()]
    assert (
        data
        == [
            b'{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":"t","argumentsDelta":"x"}}'
        ]
        * 3
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.5, "1.5"), (0, "0"), (-3, "-3"), (1e-7, "1e-7"), (1e21, "1e+21"), (2**53, "9007199254740992")],
)
def test_places_may_be_any_number(number: float, text: str) -> None:
    events = [event(k, text_delta(index=number), turn=number, step=number) for k in range(3)]
    assert counts(events) == [3]
    assert f'"turn":{text},"step":{text},"index":{text},'.encode() in rows(events)[0]


TEXTS = [
    "",
    "a",
    '"',
    "\\",
    "\\n",
    "\n",
    "\x01",
    "\x7f",
    "/",
    "é",
    "\u2028",
    "\U0001f600",
    "\ud83d",
    "\ude00",
    "a\ud83d",
]


def test_texts_stay_apart_and_exact() -> None:
    events = run(*map(text_delta, TEXTS))
    assert counts(events) == [len(TEXTS)]
    assert [e.value["chunk"]["text"] for e in read_packed_row(rows(events)[0]).expand()] == TEXTS


# --- what joins a run ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [1]), (2, [1, 1]), (3, [3]), (4, [4]), (5000, [5000])]
)
def test_a_run_has_three_members_at_least_and_any_number(count: int, expected: list[int]) -> None:
    assert MIN_RUN == 3
    assert counts(run(*[text_delta()] * count)) == expected


def test_short_runs_are_written_by_the_given_text() -> None:
    events = run(text_delta(), text_delta())
    assert list(pack(events, lambda e: b"row %d" % e.seq)) == [b"row 0", b"row 1"]


def test_an_event_of_another_type_ends_a_run_and_keeps_its_place() -> None:
    other = Event("step/start", 3, 0, Raw(b"{}"))
    events = [*run(*[text_delta()] * 3), other, *run(*[text_delta()] * 3, start=4)]
    assert counts(events) == [3, 1, 3]
    assert rows(events)[1] == encode_event(other)


def test_interleaved_kinds_form_no_runs() -> None:
    reasoning = {"type": "reasoning-delta", "index": 0, "text": "r"}
    assert counts(run(*[text_delta(), reasoning] * 4)) == [1] * 8
    assert counts(run(*[text_delta()] * 3, *[reasoning] * 3, *[tool_delta()] * 3)) == [3, 3, 3]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "x"}},
        {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}},
        {"type": "finish", "reason": {"kind": "stop"}},
        {"type": "another-delta", "index": 0, "text": "x"},
        {"type": 1, "index": 0, "text": "x"},
        {"type": "\ud83d", "index": 0, "text": "x"},
        {"index": 0, "text": "x"},
        text_delta(extra=1),
        text_delta() | {"\ud83d": 1},
        text_delta(id="c"),
        {"type": "text-delta", "index": 0},
        {"type": "text-delta", "text": "x"},
        text_delta(index=None),
        text_delta(index="0"),
        text_delta(index=True),
        {"type": "text-delta", "index": 0, "text": None},
        {"type": "text-delta", "index": 0, "text": ["x"]},
        {"type": "reasoning-delta", "index": 0, "argumentsDelta": "x"},
        {"type": "tool-call-delta", "index": 0, "argumentsDelta": "x"},
        {"type": "tool-call-delta", "index": 0, "id": 1, "argumentsDelta": "x"},
        {"type": "tool-call-delta", "index": 0, "id": "c", "text": "x"},
        tool_delta(name=None),
        tool_delta(name=1),
        tool_delta(more="x"),
        None,
        "text-delta",
        [],
        {},
    ],
    ids=ascii,
)
def test_another_chunk_is_written_whole(chunk: Any) -> None:
    assert counts(run(*[chunk] * 4)) == [1] * 4


@pytest.mark.parametrize(
    "data",
    [
        {"turn": None},
        {"turn": "1"},
        {"turn": True},
        {"step": None},
        {"step": [1]},
        {"more": 1},
        {"\ud83d": 1},
    ],
    ids=ascii,
)
def test_another_payload_is_written_whole(data: dict[str, Any]) -> None:
    assert counts([event(k, text_delta(), **data) for k in range(4)]) == [1] * 4


@pytest.mark.parametrize(
    "data", [b"{}", b"null", b"[]", b'"x"', b'{"turn":1,"step":1}', b'{"step":1,"chunk":{}}']
)
def test_a_chunk_event_of_any_shape_is_kept(data: bytes) -> None:
    assert counts([Event(CHUNK, k, 0, Raw(data)) for k in range(4)]) == [1] * 4


@pytest.mark.parametrize(
    "more",
    [(UNSET, UNSET, True), (UNSET, "append", UNSET), ((), UNSET, UNSET), ((0,), UNSET, UNSET)],
    ids=["ignorable", "surfaceOp", "no sources", "sources"],
)
def test_any_further_envelope_member_blocks_packing(more: tuple[Any, Any, Any]) -> None:
    data = Raw(encode({"turn": 1, "step": 1, "chunk": text_delta()}))
    marked = [Event(CHUNK, k, 0, data, *more) for k in range(4)]
    assert counts(marked) == [1] * 4
    mixed = [*run(*[text_delta()] * 3), Event(CHUNK, 3, 0, data, *more), *run(*[text_delta()] * 3, start=4)]
    assert counts(mixed) == [3, 1, 3]


def test_the_same_data_under_another_type_is_not_packed() -> None:
    data = Raw(encode({"turn": 1, "step": 1, "chunk": text_delta()}))
    assert counts([Event("x/chunk", k, 0, data) for k in range(4)]) == [1] * 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (event(0, text_delta()), event(0, text_delta(), turn=2)),
        (event(0, text_delta()), event(0, text_delta(), step=2)),
        (event(0, text_delta()), event(0, text_delta(index=1))),
        (event(0, text_delta()), event(0, {"type": "reasoning-delta", "index": 0, "text": "x"})),
        (event(0, tool_delta()), event(0, tool_delta(id="d"))),
        (event(0, tool_delta()), event(0, tool_delta(name="t"))),
        (event(0, tool_delta(name="")), event(0, tool_delta())),
        (event(0, tool_delta(name="t")), event(0, tool_delta(name="u"))),
        (event(0, tool_delta(id="\ud83d")), event(0, tool_delta(id="\ude00"))),
        (event(0, text_delta(index=1)), event(0, text_delta(index=1.5))),
    ],
    ids=[
        "turn",
        "step",
        "index",
        "kind",
        "id",
        "name added",
        "name gone",
        "name",
        "surrogate id",
        "fraction",
    ],
)
def test_another_key_starts_another_run(one: Event, other: Event) -> None:
    def numbered(*events: Event) -> list[Event]:
        return [Event(e.type, seq, e.time, e.data) for seq, e in enumerate(events)]

    assert counts(numbered(one, one, one, other, other, other)) == [3, 3]
    assert counts(numbered(one, one, other, other, other, one)) == [1, 1, 3, 1]
    assert counts(numbered(*[one, other] * 3)) == [1] * 6


def test_a_gap_in_the_seqs_ends_a_run() -> None:
    events = [event(seq, text_delta()) for seq in (0, 1, 2, 4, 5, 6, 6, 7, 5)]
    assert counts(events) == [3, 3, 1, 1, 1]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0, -5, -10), [3]),
        ((SAFE, 0, SAFE), [3]),
        ((-SAFE, 0, SAFE), [3]),
        ((-SAFE, SAFE, SAFE, SAFE), [1, 3]),
        ((SAFE, -1, 0, 1), [1, 3]),
        ((0, 0, 0), [3]),
    ],
)
def test_time_gaps_may_be_anything_safe(times: tuple[int, ...], expected: list[int]) -> None:
    assert counts([event(k, text_delta(), time) for k, time in enumerate(times)]) == expected


def test_batches_of_seven_give_other_rows_than_one_batch() -> None:
    events = run(*[text_delta()] * 16)
    assert counts(events) == [16]
    assert [counts(events[at : at + 7]) for at in range(0, 16, 7)] == [[7], [7], [1, 1]]


ODD_SPELLINGS = [
    b'{"turn":1.0,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":-0,"text":"x"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":9007199254740993,"text":"x"}}',
    b'{"step":1,"turn":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}',
    b'{"turn":1,"step":1,"chunk":{"index":0,"type":"text-delta","text":"x"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"} }',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text": "x"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\u0078"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\/"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\uD83D"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"\\ud83d\\ude00"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x","text":"y"}}',
    b'{"turn":1,"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"}}',
    b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"x"},"chunk":{}}',
]


@pytest.mark.parametrize("data", ODD_SPELLINGS)
def test_a_payload_that_a_row_would_spell_otherwise_is_written_whole(data: bytes) -> None:
    assert counts([Event(CHUNK, k, 0, Raw(data)) for k in range(4)]) == [1] * 4
    among = [*run(*[text_delta()] * 3), Event(CHUNK, 3, 0, Raw(data)), *run(*[text_delta()] * 3, start=4)]
    assert counts(among) == [3, 1, 3]


# --- reading rows --------------------------------------------------------------------------------


def packed(**changes: Any) -> dict[str, Any]:
    """The value of a text row; None takes a member out; `data__x` changes a member of `data`."""
    value: dict[str, Any] = {"type": "text-chunks", "seq0": 5, "time0": 100}
    value["data"] = {"turn": 1, "step": 2, "index": 0, "dt": [1, -2], "texts": ["a", "b", ""]}
    return changed(value, changes)


def packed_call(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "tool-call-chunks", "seq0": 5, "time0": 100}
    value["data"] = {"turn": 1, "step": 2, "index": 0, "dt": [1], "id": "c", "name": "t", "args": ["a", "b"]}
    return changed(value, changes)


GONE = object()


def changed(value: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for name, member in changes.items():
        target, _, key = name.rpartition("__")
        holder = value[target] if target else value
        if member is GONE:
            del holder[key]
        else:
            holder[key] = member
    return value


BAD_ROWS: dict[str, dict[str, Any]] = {
    "no seq0": packed(seq0=GONE),
    "no time0": packed(time0=GONE),
    "no data": packed(data=GONE),
    "extra key": packed(extra=1),
    "seq beside seq0": packed(seq=5),
    "ignorable": packed(ignorable=True),
    "surrogate key": packed(**{"\ud83d": 1}),
    "seq0 text": packed(seq0="5"),
    "seq0 null": packed(seq0=None),
    "seq0 true": packed(seq0=True),
    "seq0 negative": packed(seq0=-1),
    "seq0 fraction": packed(seq0=5.5),
    "seq0 unsafe": packed(seq0=2**53),
    "last seq unsafe": packed(seq0=SAFE - 1),
    "time0 text": packed(time0="100"),
    "time0 fraction": packed(time0=0.5),
    "time0 unsafe": packed(time0=-(2**53)),
    "data null": packed(data=None),
    "data list": packed(data=[]),
    "data extra key": packed(data__extra=1),
    "data surrogate key": packed(**{"data__\ud83d": 1}),
    "text row with an id": packed(data__id="c"),
    "text row with args": packed(data__args=["a", "b", "c"]),
    "no turn": packed(data__turn=GONE),
    "no step": packed(data__step=GONE),
    "no index": packed(data__index=GONE),
    "no dt": packed(data__dt=GONE),
    "no texts": packed(data__texts=GONE),
    "turn text": packed(data__turn="1"),
    "turn null": packed(data__turn=None),
    "turn true": packed(data__turn=True),
    "step text": packed(data__step="2"),
    "index list": packed(data__index=[0]),
    "texts empty": packed(data__texts=[], data__dt=[]),
    "texts text": packed(data__texts="abc"),
    "texts null": packed(data__texts=[None, "a", "b"]),
    "texts number": packed(data__texts=["a", 1, "b"]),
    "dt short": packed(data__dt=[1]),
    "dt long": packed(data__dt=[1, 2, 3]),
    "dt null": packed(data__dt=None),
    "dt fraction": packed(data__dt=[0.5, 1]),
    "dt text": packed(data__dt=["1", 1]),
    "dt true": packed(data__dt=[True, 1]),
    "dt unsafe": packed(data__dt=[2**53, -(2**53)]),
    "dt huge": packed(data__dt=[10**30, 1]),
    "a time past the safe": packed(time0=SAFE),
    "a time on the way past the safe": packed(time0=-SAFE, data__dt=[-1, 2]),
    "sum past the safe": packed(time0=0, data__dt=[SAFE, 1]),
    "call without id": packed_call(data__id=GONE),
    "call id number": packed_call(data__id=1),
    "call name null": packed_call(data__name=None),
    "call name number": packed_call(data__name=1),
    "call with texts": packed_call(data__texts=["a", "b"]),
    "call without args": packed_call(data__args=GONE),
    "call args empty": packed_call(data__args=[], data__dt=[]),
    "call args number": packed_call(data__args=["a", 1]),
    "call data extra key": packed_call(data__extra=None),
}


@pytest.mark.parametrize("value", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_malformed_row_is_unparsable(value: dict[str, Any]) -> None:
    plain = json.dumps(value, separators=(",", ":")).encode()
    spaced = json.dumps(value).encode()
    half = plain.replace(b'"a"', b'"\\ud83d"')
    for line in (plain, spaced, half):
        with pytest.raises(RowError, match="malformed packed row") as refused:
            read_row(line)
        assert refused.value.fault == "unparsable"
        assert read_usual_packed_row(line) is None
        with pytest.raises(JsonSyntaxError):
            read_packed_row(line)


@pytest.mark.parametrize(
    "value",
    [
        packed(),
        packed(data__texts=["a"], data__dt=[]),
        packed(data__texts=["a", "b"], data__dt=[0]),
        packed(data__turn=1.5, data__step=-1, data__index=1e300),
        packed(seq0=SAFE - 2, time0=-SAFE, data__dt=[SAFE, SAFE]),
        packed(time0=SAFE, data__dt=[-SAFE, SAFE]),
        packed_call(),
        packed_call(data__name=GONE),
        packed_call(data__name="", data__id=""),
    ],
    ids=range(9),
)
def test_a_right_row_is_read_in_every_spelling(value: dict[str, Any]) -> None:
    plain = encode(value)
    row = read_row(plain)
    assert isinstance(row, PackedRow)
    assert (row.seq, row.time, row.line) == (value["seq0"], value["time0"], plain)
    members = value["data"].get("texts") or value["data"]["args"]
    assert row.count == len(members) == len(row.expand())
    reordered = encode(dict(reversed(value.items())) | {"data": dict(reversed(value["data"].items()))})
    spelled = plain.replace(b'"seq0":5', b'"seq0":5.0').replace(b'"dt":[1', b'"dt":[1e0')
    for line in (
        json.dumps(value).encode(),
        reordered,
        spelled,
        b" " + plain + b"\r",
        plain.replace(b"type", b"t\\u0079pe"),
    ):
        again = read_row(line)
        assert isinstance(again, PackedRow)
        assert again.expand() == row.expand()
        assert again.line == line


def test_minus_zero_in_a_row_is_zero() -> None:
    line = (
        encode(packed(seq0=0, time0=0, data__dt=[0, 0]))
        .replace(b":0,", b":-0,")
        .replace(b"[0,0]", b"[-0,-0]")
    )
    for spelled in (line, b" " + line, line.replace(b"-0,", b"-0.0,")):
        row = read_row(spelled)
        assert isinstance(row, PackedRow)
        assert [(e.seq, e.time) for e in row.expand()] == [(0, 0), (1, 0), (2, 0)]
        assert b'"index":0,' in bytes(row.expand()[0].data)


@pytest.mark.parametrize("number", [b"9" * 400, b"1e999", b"9" * 250 + b"e99", b"9" * 5000])
def test_a_place_past_the_doubles_is_unparsable(number: bytes) -> None:
    line = encode(packed()).replace(b'"turn":1', b'"turn":' + number)
    with pytest.raises(RowError, match="not finite"):
        read_row(line)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("text-chunks", "reasoning-chunks"),
        ("text-chunks", "tool-call-chunks"),
        ("tool-call-chunks", "text-chunks"),
    ],
)
def test_the_last_of_two_types_decides(one: str, other: str) -> None:
    value = packed_call() if other == "tool-call-chunks" else packed()
    line = encode(value | {"type": one})[:-1] + f',"type":"{other}"}}'.encode()
    row = read_row(line)
    assert isinstance(row, PackedRow)
    assert row.expand() == read_packed_row(encode(value | {"type": other})).expand()
    for another in ("assistant/chunk", "session"):
        with pytest.raises(RowError) as refused:
            read_row(encode(value)[:-1] + f',"type":"{another}"}}'.encode())
        assert refused.value.fault == "envelope"


@pytest.mark.parametrize("line", [b"[]", b"1", b'"text-chunks"', b"null", b"{}", b"{", b""])
def test_what_is_no_row_at_all_is_refused(line: bytes) -> None:
    with pytest.raises(JsonSyntaxError):
        read_packed_row(line)
    assert read_usual_packed_row(line) is None


@pytest.mark.parametrize("name", ["text-chunk", "Text-Chunks", "text-chunks ", "block-chunks"])
def test_any_other_type_is_an_ordinary_row(name: str) -> None:
    with pytest.raises(RowError) as refused:
        read_row(encode(packed(type=name)))
    assert refused.value.fault == "envelope"


def test_bad_utf8_in_a_row_is_unparsable() -> None:
    for bad in (b"\xff", b"\xed\xa0\xbd", b"\xc3"):
        with pytest.raises(RowError) as refused:
            read_row(encode(packed()).replace(b'"a"', b'"' + bad + b'"'))
        assert refused.value.fault == "unparsable"


def test_a_row_expands_to_equal_events_each_time() -> None:
    row = read_packed_row(encode(packed()))
    assert row.expand() == row.expand()
    assert [e.seq for e in row.expand()] == [5, 6, 7]
    assert [e.time for e in row.expand()] == [100, 101, 99]
    assert all(e.type == CHUNK for e in row.expand())
