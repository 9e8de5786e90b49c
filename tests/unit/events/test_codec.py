"""Rows: every fault class, every spelling, projected rows, the raw members of a line, the canonical line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from seedline.errors import JsonSyntaxError
from seedline.events.codec import (
    RowError,
    canonical_event,
    decode_event_line,
    encode_event,
    join_members,
    project_row,
    raw_members,
    read_row,
)
from seedline.events.event import Event, ReplaceOp
from seedline.events.packing import PackedRow
from seedline.jsonvalue import MAX_DEPTH, decode

SAFE = 2**53 - 1
DEEP = 5000


def row(**members: str) -> bytes:
    """A line with the four envelope keys; `seq="1.0"` replaces a text, `seq=""` leaves the member out."""
    texts = {"type": '"x/y"', "seq": "3", "time": "4", "data": "{}"} | members
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items() if text) + "}").encode()


def refused(line: bytes, next_seq: int | None = None) -> RowError:
    with pytest.raises(RowError) as caught:
        read_row(line, next_seq)
    return caught.value


def read_event(line: bytes, next_seq: int | None = None) -> Event:
    found = read_row(line, next_seq)
    assert isinstance(found, Event)
    return found


# --- unparsable ----------------------------------------------------------------------------------

UNPARSABLE = {
    "nothing": b"",
    "blanks": b" \t\r",
    "NULs": b"\0" * 64,
    "torn": row()[:-1],
    "torn in a string": row(data='"abc')[:-1],
    "torn after a high surrogate": row(data='"\\ud83d')[:-1],
    "trailing comma": row()[:-1] + b",}",
    "two records": row() + row(),
    "garbage behind": row() + b"x",
    "a NUL behind": row() + b"\0",
    "byte-order mark": b"\xef\xbb\xbf" + row(),
    "NaN": row(data="[NaN]"),
    "Infinity": row(data="-Infinity"),
    "an exponent past the doubles": row(data='{"a":1e999}'),
    "400 digits": row(data="9" * 400),
    "5000 digits": row(data="9" * 5000),
    "250 digits and an exponent": row(data="9" * 250 + "e99"),
    "400 digits as seq": row(seq="9" * 400),
    "an infinite time": row(time="-1e400"),
    "leading zero": row(data="[01]"),
    "leading zero as seq": row(seq="03"),
    "control character": row(data='"\x01"'),
    "bad escape": row(data='"\\x"'),
    "bad UTF-8 in a value": row(data='"é"').replace(b"\xc3\xa9", b"\xff"),
    "bad UTF-8 in a key": row(data='{"é":1}').replace(b"\xc3\xa9", b"\xc3"),
    "bad UTF-8 in the type": row(type='"é"').replace(b"\xc3\xa9", b"\xe9"),
    "CESU bytes": row(data='"é"').replace(b"\xc3\xa9", b"\xed\xa0\xbd\xed\xb8\x80"),
    "overlong bytes": row(data='"é"').replace(b"\xc3\xa9", b"\xc0\x80"),
    "bad UTF-8 beside a lone surrogate": row(data='"\\ud83dé"').replace(b"\xc3\xa9", b"\xff"),
    "UTF-16": row().decode().encode("utf-16"),
    "nesting over the limit": row(data="[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)),
    "deep and torn": row(data="[" * DEEP)[:-1],
}


@pytest.mark.parametrize("line", UNPARSABLE.values(), ids=UNPARSABLE.keys())
def test_what_is_not_json_is_unparsable(line: bytes) -> None:
    for next_seq in (None, 7):
        error = refused(line, next_seq)
        assert error.fault == "unparsable"
        assert error.reason == str(error)


# --- not a record --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"[]", "list"),
        (b"1", "int"),
        (b"1.5", "float"),
        (b'"x"', "str"),
        (b"null", "NoneType"),
        (b"true", "bool"),
    ],
)
def test_what_is_no_object_is_no_record(line: bytes, kind: str) -> None:
    error = refused(line)
    assert (error.fault, error.seq) == ("not-a-record", None)
    assert kind in error.reason


def test_a_deep_array_is_no_record() -> None:
    assert refused(b"[" * DEEP + b"]" * DEEP).fault == "not-a-record"


# --- envelope ------------------------------------------------------------------------------------

BAD_ENVELOPES = {
    "no type": (row(type=""), "type"),
    "type null": (row(type="null"), "type"),
    "type number": (row(type="1"), "type"),
    "type list": (row(type='["x"]'), "type"),
    "no seq": (row(seq=""), "seq"),
    "seq null": (row(seq="null"), "seq"),
    "seq text": (row(seq='"3"'), "seq"),
    "seq true": (row(seq="true"), "seq"),
    "seq fraction": (row(seq="3.5"), "seq"),
    "seq list": (row(seq="[3]"), "seq"),
    "seq negative": (row(seq="-1"), "seq"),
    "seq negative spelled": (row(seq="-1.0"), "seq"),
    "seq 2**53": (row(seq="9007199254740992"), "seq"),
    "seq 2**53 spelled": (row(seq="9007199254740992.0"), "seq"),
    "seq 1e300": (row(seq="1e300"), "seq"),
    "seq 2**64": (row(seq="18446744073709551616"), "seq"),
    "no time": (row(time=""), "time"),
    "time null": (row(time="null"), "time"),
    "time text": (row(time='"4"'), "time"),
    "time false": (row(time="false"), "time"),
    "time fraction": (row(time="4.25"), "time"),
    "time 2**53": (row(time="9007199254740992"), "time"),
    "time -2**53": (row(time="-9007199254740992"), "time"),
    "time -1e18": (row(time="-1e18"), "time"),
    "no data": (row(data=""), "data"),
    "ignorable false": (row(ignorable="false"), "ignorable"),
    "ignorable null": (row(ignorable="null"), "ignorable"),
    "ignorable text": (row(ignorable='"true"'), "ignorable"),
    "ignorable yes": (row(ignorable='"yes"'), "ignorable"),
    "ignorable 1": (row(ignorable="1"), "ignorable"),
    "ignorable 1.0": (row(ignorable="1.0"), "ignorable"),
    "ignorable list": (row(ignorable="[true]"), "ignorable"),
    "extra key": (row(extra="1"), "extra"),
    "extra null": (row(extra="null"), "extra"),
    "key of another case": (row(Seq="1"), "Seq"),
    "snake key": (row(surface_op='"append"'), "surface_op"),
    "key with a lone surrogate": (row(**{"\\ud83d": "1"}), None),
    "sources null": (row(sourceEventSeqs="null"), "sourceEventSeqs"),
    "sources number": (row(sourceEventSeqs="1"), "sourceEventSeqs"),
    "sources object": (row(sourceEventSeqs="{}"), "sourceEventSeqs"),
    "sources text": (row(sourceEventSeqs='["1"]'), "sourceEventSeqs"),
    "sources true": (row(sourceEventSeqs="[true]"), "sourceEventSeqs"),
    "sources fraction": (row(sourceEventSeqs="[1.5]"), "sourceEventSeqs"),
    "sources nested": (row(sourceEventSeqs="[[1]]"), "sourceEventSeqs"),
    "surfaceOp null": (row(surfaceOp="null"), "surfaceOp"),
    "surfaceOp another word": (row(surfaceOp='"prepend"'), "surfaceOp"),
    "surfaceOp lone surrogate": (row(surfaceOp='"\\ud83d"'), None),
    "surfaceOp true": (row(surfaceOp="true"), "surfaceOp"),
    "surfaceOp list": (row(surfaceOp='["append"]'), "surfaceOp"),
    "surfaceOp empty": (row(surfaceOp="{}"), "surfaceOp"),
    "replace without end": (row(surfaceOp='{"op":"replace","start":1}'), "end"),
    "replace without op": (row(surfaceOp='{"start":1,"end":2}'), "op"),
    "another op": (row(surfaceOp='{"op":"remove","start":1,"end":2}'), "op"),
    "replace with more": (row(surfaceOp='{"op":"replace","start":1,"end":2,"x":3}'), "x"),
    "replace with a surrogate key": (row(surfaceOp='{"op":"replace","start":1,"end":2,"\\ud83d":3}'), None),
    "replace from a text": (row(surfaceOp='{"op":"replace","start":"1","end":2}'), "start"),
    "replace from a fraction": (row(surfaceOp='{"op":"replace","start":0.5,"end":2}'), "start"),
    "replace from -1": (row(surfaceOp='{"op":"replace","start":-1,"end":2}'), "surfaceOp"),
    "replace to 2**53": (row(surfaceOp='{"op":"replace","start":1,"end":9007199254740992}'), "surfaceOp"),
}


@pytest.mark.parametrize(("line", "named"), BAD_ENVELOPES.values(), ids=BAD_ENVELOPES.keys())
def test_what_is_wrong_with_an_envelope_is_named(line: bytes, named: str | None) -> None:
    for spelled in (
        line,
        line.replace(b'"data":{}', b'"data":"\\ud83d"'),
        line.replace(b'"time":4,', b'"time":4.0,'),
    ):
        error = refused(spelled)
        assert error.fault == "envelope"
        assert "invalid envelope" in error.reason
        assert (named or "") in error.reason


@pytest.mark.parametrize(
    ("line", "seq"),
    [
        (row(data=""), 3),
        (row(seq="3.0", extra="1"), 3),
        (row(seq="-1"), -1),
        (row(seq="9007199254740992"), 2**53),
        (row(time="1e300"), 3),
        (row(seq='"3"'), None),
        (row(seq="true"), None),
        (row(seq="3.5"), None),
        (row(seq="", extra="1"), None),
    ],
)
def test_the_seq_that_a_refused_row_claims(line: bytes, seq: int | None) -> None:
    assert refused(line).seq == seq


# --- spellings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1.0", 1),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("1000e-3", 1),
        ("0.5e1", 5),
        ("-0", 0),
        ("-0.0", 0),
        ("0e9", 0),
        ("1e-400000", 0),
        ("9007199254740991", SAFE),
        ("9007199254740991.0", SAFE),
    ],
)
@pytest.mark.parametrize(
    "data", ["{}", '"\\ud83d"', "[" * DEEP + "]" * DEEP], ids=["usual", "surrogate", "deep"]
)
def test_a_whole_number_counts_however_it_is_spelled(text: str, number: int, data: str) -> None:
    found = read_event(row(seq=text, time=text, data=data))
    assert (type(found.seq), found.seq) == (int, number)
    assert (type(found.time), found.time) == (int, number)
    assert bytes(found.data) == data.encode()
    replace = f'{{"op":"replace","start":{text},"end":{text}}}'
    found = read_event(row(surfaceOp=replace, sourceEventSeqs=f"[{text}]", data=data))
    assert found.surface_op == ReplaceOp("replace", number, number)
    assert found.source_event_seqs == (number,)


@pytest.mark.parametrize("text", ["-1", "-1.0", "-9007199254740991", "-9.007199254740991e15"])
def test_a_time_may_be_negative(text: str) -> None:
    assert read_event(row(time=text)).time == int(float(text))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, (UNSET, UNSET, UNSET)),
        ({"surfaceOp": '"append"'}, (UNSET, "append", UNSET)),
        ({"sourceEventSeqs": "[]"}, ((), UNSET, UNSET)),
        ({"sourceEventSeqs": "[5,1,5]"}, ((5, 1, 5), UNSET, UNSET)),
        ({"ignorable": "true"}, (UNSET, UNSET, True)),
        (
            {"surfaceOp": '{"end":2,"start":1,"op":"replace"}', "ignorable": "true"},
            (UNSET, ReplaceOp("replace", 1, 2), True),
        ),
    ],
)
@pytest.mark.parametrize("data", ["{}", '"\\ud83d"'])
def test_optional_members(members: dict[str, str], expected: tuple[Any, ...], data: str) -> None:
    found = read_event(row(data=data, **members))
    assert (found.source_event_seqs, found.surface_op, found.ignorable) == expected
    assert encode_event(found) == encode_event(read_event(encode_event(found)))


@pytest.mark.parametrize("data", ["null", "0", '""', "[]", "false", '{"a":[]}'])
def test_any_payload_will_do_for_an_unknown_type(data: str) -> None:
    assert read_event(row(data=data)).value == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        ' { "a" : [ 1 , 2 ] } ',
        '{"b":1,"a":2,"b":3}',
        '{"n":[1.0,1E3,-0,123456789012345678901234567890,0.10]}',
        '"\\u0041\\/\\uD83D\\uDE00"',
        '{"big":18446744073709551616,"half":"\\uD83D","\\ude00":1.0}',
        '{"deep":' + "[" * DEEP + " 1.0 " + "]" * DEEP + ', "x":"\\u0041"}',
    ],
    ids=["blanks", "duplicates", "numbers", "escapes", "surrogates", "deep"],
)
def test_a_payload_keeps_its_exact_bytes(data: str) -> None:
    for spelled in (row(data=data), row(data=data, seq="3.0")):
        assert bytes(read_event(spelled).data) == data.strip().encode()


def test_the_order_and_the_spelling_of_keys_do_not_matter() -> None:
    usual = read_event(row(surfaceOp='"append"', sourceEventSeqs="[1]"))
    odd = (
        b' { "sourceEventSeqs":[1], "da\\u0074a" : {} ,"surfaceOp":"append","time":4,'
        b'"s\\u0065q":3,\t"type":"x\\/y"}\r'
    )
    assert read_event(odd) == usual
    assert read_event(odd.replace(b"[1]", b"[1.0]")) == usual


def test_of_duplicate_members_the_last_one_counts() -> None:
    line = b'{"type":"a","seq":1,"time":2,"data":1,"type":"b","seq":3,"data":[2]}'
    for spelled in (line, line.replace(b'"time":2', b'"time":2.0')):
        assert read_event(spelled) == Event("b", 3, 2, Raw(b"[2]"))


@pytest.mark.parametrize(
    "event_type", ["x", "", "a/b/c", "é漢", "\ud83d", "a\udfff/b", "\U0001f600", 'q"\\\n'], ids=ascii
)
def test_any_type_name_is_read_and_written(event_type: str) -> None:
    event = Event(event_type, 1, 2, Raw(b'{"\\ud83d":1}'), (1,), ReplaceOp("replace", 0, 0), True)
    line = encode_event(event)
    assert read_row(line) == event
    assert list(decode(line)) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"]
    assert decode(line)["type"] == event_type
    assert line.decode(), "a row is UTF-8"


def test_a_live_row_has_its_members_in_the_order_of_the_format() -> None:
    event = Event("user/message", 5, -6, Raw(b'{"b":1,"a":2}'), (), "append")
    assert encode_event(event) == (
        b'{"type":"user/message","seq":5,"time":-6,"data":{"b":1,"a":2},"sourceEventSeqs":[],"surfaceOp":"append"}'
    )


def test_the_fast_path_decodes_the_usual_spelling_only() -> None:
    assert decode_event_line(row()) == read_row(row())
    for line in (row(seq="3.0"), row(data='"\\ud83d"'), row(extra="1")):
        with pytest.raises(msgspec.DecodeError):
            decode_event_line(line)


# --- storage tags --------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["text-chunks", "reasoning-chunks", "tool-call-chunks"])
def test_a_packed_tag_is_never_an_event(tag: str) -> None:
    for line in (
        row(type=f'"{tag}"'),
        row(type=f'"{tag}"', seq="3.0"),
        row(type=f'"{tag}"', ignorable="true"),
    ):
        error = refused(line)
        assert error.fault == "unparsable"
        assert "packed row" in error.reason


def test_other_types_pass_unjudged() -> None:
    for name in ("session", "mode/set", "text-delta", "no slash"):
        assert read_event(row(type=json.dumps(name))).type == name


# --- projected rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "seq", "time"),
    [
        (row(seq="", time=""), 7, 0),
        (row(seq=""), 7, 4),
        (row(time=""), 3, 0),
        (row(), 3, 4),
        (row(seq="3.0", time=""), 3, 0),
        (row(seq="", time="", data='"\\ud83d"'), 7, 0),
        (row(seq="", time="", data='{"seq":1,"time":2}'), 7, 0),
    ],
)
def test_a_projected_row_is_completed(line: bytes, seq: int, time: int) -> None:
    found = read_event(line, 7)
    assert (found.seq, found.time) == (seq, time)
    assert found.value == decode(line)["data"]


@pytest.mark.parametrize("line", [row(seq=""), row(time=""), row(seq="", time="")])
def test_a_row_is_not_completed_unless_asked(line: bytes) -> None:
    assert refused(line).fault == "envelope"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (row(seq="", time="", data=""), "data"),
        (row(seq="", time="", type=""), "type"),
        (row(seq="", time="", extra="1"), "extra"),
        (row(seq="", time='"x"'), "time"),
        (row(seq="null", time=""), "seq"),
    ],
)
def test_a_projected_row_is_judged_like_any_other(line: bytes, named: str) -> None:
    error = refused(line, 7)
    assert error.fault == "envelope"
    assert named in error.reason


def test_a_projected_packed_row_is_completed_in_the_live_order() -> None:
    data = '{"turn":1,"step":1,"index":0,"dt":[5,5],"texts":["a","b","c"]}'
    found = read_row(f'{{"type":"text-chunks","data":{data}}}'.encode(), 7)
    assert isinstance(found, PackedRow)
    assert found.line == f'{{"type":"text-chunks","seq0":7,"time0":0,"data":{data}}}'.encode()
    assert [(event.seq, event.time) for event in found.expand()] == [(7, 0), (8, 5), (9, 10)]
    assert project_row(found.line) == f'{{"type":"text-chunks","data":{data}}}'.encode()


@pytest.mark.parametrize(
    ("members", "seq", "time"), [('"seq0":3,', 3, 0), ('"time0":4,', 7, 4), ('"seq0":3,"time0":4,', 3, 4)]
)
def test_a_half_projected_packed_row_keeps_what_it_has(members: str, seq: int, time: int) -> None:
    data = '{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}'
    found = read_row(f'{{"type":"text-chunks",{members}"data":{data}}}'.encode(), 7)
    assert isinstance(found, PackedRow)
    assert (found.seq, found.time) == (seq, time)


def test_projecting_takes_only_the_top_level_counts() -> None:
    data = b'{"seq":1.0,"time":2,"seq0":[ 3 ],"s":"\\uD83D"}'
    line = b'{"type":"x","seq":1,"time":2,"data":%b,"ignorable":true}' % data
    assert project_row(line) == b'{"type":"x","data":%b,"ignorable":true}' % data


# --- members of a line ---------------------------------------------------------------------------

MEMBERS: dict[str, dict[str, bytes]] = {
    '{"a":1.0,"b":[ 1 , {"c":"]}"} ],"d":"x,y:{"}': {
        "a": b"1.0",
        "b": b'[ 1 , {"c":"]}"} ]',
        "d": b'"x,y:{"',
    },
    ' { "a" : "\\"" , "b" : null } ': {"a": b'"\\""', "b": b"null"},
    '{"a":"\\\\","b":"\\ud83d"}': {"a": b'"\\\\"', "b": b'"\\ud83d"'},
    '{"\\ud83d":1,"\\u0061":-0}': {"\ud83d": b"1", "a": b"-0"},
    '{"a":1,"b":2,"a":"\\ud83d"}': {"a": b'"\\ud83d"', "b": b"2"},
    '{"a":{},"b":[],"c":"\\ud83d","":true}': {"a": b"{}", "b": b"[]", "c": b'"\\ud83d"', "": b"true"},
    "{}": {},
    " {\n} ": {},
    '{"a":' + "[" * DEEP + "]" * DEEP + ', "b":2}': {"a": b"[" * DEEP + b"]" * DEEP, "b": b"2"},
}


@pytest.mark.parametrize(("line", "members"), MEMBERS.items(), ids=[text[:30] for text in MEMBERS])
def test_raw_members_are_exact(line: str, members: dict[str, bytes]) -> None:
    found = raw_members(line.encode())
    assert found == members
    assert list(found) == list(members)
    assert raw_members(join_members(found)) == members


# --- the canonical line --------------------------------------------------------------------------


def test_the_canonical_line_sorts_the_envelope_and_the_payload() -> None:
    event = Event(
        "user/message", 5, -6, Raw(b'{"b":1.0,"a":"\\u0041"}'), (1, 2), ReplaceOp("replace", 1, 2), True
    )
    assert canonical_event(event) == (
        b'{"data":{"a":"A","b":1},"ignorable":true,"seq":5,"sourceEventSeqs":[1,2],'
        b'"surfaceOp":{"end":2,"op":"replace","start":1},"time":-6,"type":"user/message"}'
    )
    assert canonical_event(Event("x", 0, 0, Raw(b"null"))) == b'{"data":null,"seq":0,"time":0,"type":"x"}'
    assert b'"surfaceOp":"append"' in canonical_event(Event("x", 0, 0, Raw(b"null"), UNSET, "append"))
    assert b'"type":"\\ud83d"' in canonical_event(Event("\ud83d", 0, 0, Raw(b"null")))


def test_the_canonical_line_of_a_deep_payload() -> None:
    deep = b"[" * DEEP + b"1.0" + b"]" * DEEP
    assert canonical_event(Event("x", 0, 0, Raw(deep))).startswith(b'{"data":' + deep.replace(b"1.0", b"1"))


def test_a_payload_that_is_not_json_has_no_canonical_line() -> None:
    with pytest.raises(JsonSyntaxError):
        canonical_event(Event("x", 0, 0, Raw(b"{")))
