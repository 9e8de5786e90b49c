"""The scan of a log's text: what is kept, what is torn, what is corruption, and where each stands."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.errors import (
    ArtifactError,
    NotASessionError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import Event
from seedline.events.packing import PackedRow
from seedline.jsonvalue import encode
from seedline.storage.jsonl.scan import Scan, Scanner, TornText, may_read
from tests.unit.session.make import assistant, chunk, delta, packed
from tests.unit.storage.logs import HEADER, TURN, projected, row, rows, shown, text, values

LINES = rows()
GOOD = text(LINES)


def scan(data: bytes, *, piece: int = 1 << 18) -> Scan:
    scanner = Scanner()
    for at in range(0, len(data), piece):
        scanner.feed(data[at : at + piece])
    return scanner.finish()


def refused(data: bytes) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        scan(data)
    return caught.value


def corrupt(data: bytes) -> SessionPersistenceCorruptionError:
    error = refused(data)
    assert isinstance(error, SessionPersistenceCorruptionError), error
    return error


def line_start(line: int, data: bytes = GOOD) -> int:
    """The byte at which a physical line begins."""
    return sum(len(each) + 1 for each in data.split(b"\n")[: line - 1])


# --- what a text holds -----------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 7, 100, 1 << 18])
def test_a_whole_log_reads_in_pieces_of_any_size(piece: int) -> None:
    found = scan(GOOD, piece=piece)
    assert (found.layout, found.torn, found.header_line) == ("complete", None, encode(HEADER))
    assert (found.header.id, found.header.cwd, found.inherited_event_count) == ("s", "/w", 0)
    assert shown(found.events) == values(LINES)


def test_usual_chunks_stay_text_and_everything_else_is_an_event() -> None:
    stored = list(scan(GOOD).events.rows())
    kinds = {
        type(each) for each, value in zip(stored, TURN, strict=True) if value["type"] == "assistant/chunk"
    }
    assert kinds == {bytes}
    assert all(isinstance(each, Event) for each in [*stored[:4], *stored[11:]])


def test_packed_rows_stay_packed() -> None:
    lines = [*rows(TURN[:5]), packed(5, "a", "", "b").line, *rows(TURN[9:], first=8)]
    found = scan(text(lines))
    assert [type(each) for each in found.events.rows()].count(PackedRow) == 1
    assert [event.seq for event in found.events] == list(range(8 + len(TURN[9:])))
    assert found.events[6].value["chunk"] == delta("")


def test_row_texts_are_the_original_lines() -> None:
    odd = [LINES[0].replace(b",", b" , "), LINES[1].replace(b'{"type"', b'{ "type"'), *LINES[2:]]
    odd[4] = odd[4].replace(b'"seq"', b' "seq"')
    found = scan(text(odd))
    assert [found.row_text(event) for event in found.events] == odd


def test_the_text_of_an_event_that_is_not_the_stored_one_is_its_own() -> None:
    found = scan(GOOD)
    other = scan(text(rows([row("turn/start", {"turn": 9})]))).events[0]
    assert found.row_text(other) == rows([row("turn/start", {"turn": 9})])[0]
    assert found.row_text(scan(text(rows(TURN * 2))).events[-1]) == rows(TURN * 2)[-1]


@pytest.mark.parametrize(
    "value",
    [
        row("assistant/chunk", chunk(delta("\ud83d"))),
        row("assistant/chunk", chunk(delta("x")), ignorable=True),
        row("assistant/chunk", chunk({"type": "future", "index": 0, "more": [1.5, None]})),
        row("assistant/chunk", {"turn": 1.5, "step": 1, "chunk": delta("x")}),
        row("assistant/chunk", None),
        row("x/y", {"any": ["thing", 2**70, -0.5]}, ignorable=True),
        row("x/y", None, ignorable=True),
        row("assistant/message", assistant(), surfaceOp={"op": "replace", "start": 0, "end": 0}),
    ],
)
def test_unusual_rows_read_too(value: dict[str, Any]) -> None:
    lines = rows([TURN[0], value, *TURN[1:3]])
    found = scan(text(lines))
    assert shown(found.events) == values(lines)
    assert [found.row_text(event) for event in found.events] == lines


def test_seq_and_time_may_be_spelled_as_decimals() -> None:
    line = b'{"type":"turn/start","seq":0.0,"time":1.5e3,"data":{"turn":1}}'
    event = scan(text([line])).events[0]
    assert (event.seq, event.time, type(event.time)) == (0, 1500, int)


# --- header ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\r\n\t", b"\n\n\n"])
def test_a_text_without_a_header_is_no_session(data: bytes) -> None:
    assert isinstance(refused(data), NotASessionError)


@pytest.mark.parametrize("data", [GOOD[:10], encode(HEADER), b"\n" + encode(HEADER)])
def test_a_header_without_its_end_is_no_session(data: bytes) -> None:
    error = refused(data)
    assert isinstance(error, NotASessionError)
    assert "no end" in str(error)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"3", b"{}", b'{"type":"event"}', b"\xff", b'{"type":"session"']
)
def test_another_first_line_is_no_session(line: bytes) -> None:
    assert isinstance(refused(text(LINES, header=line)), NotASessionError)


@pytest.mark.parametrize("version", [1, 4, -1, 0.5, 1e300])
def test_a_foreign_format_is_refused_before_anything_else(version: float) -> None:
    error = refused(text([b"\xff garbage", *LINES], header={"version": version, "nothing": "else"}))
    assert isinstance(error, SessionFormatUnsupportedError)


@pytest.mark.parametrize("name", ["version", "delegationDepth"])
def test_a_complete_log_needs_a_complete_header(name: str) -> None:
    header = {key: value for key, value in HEADER.items() if key != name}
    error = corrupt(text(LINES, header=header))
    assert (error.line, name in str(error)) == (1, True)
    assert scan(text(projected(), header=header)).layout == "projected"
    assert scan(text([], header=header)).layout == "header-only"


def test_blank_lines_before_the_header_belong_to_recordings_only() -> None:
    assert scan(b"\n \r\n" + text(projected())).layout == "projected"
    assert isinstance(refused(b"\n" + GOOD), NotASessionError)


def test_the_cut_comes_from_seed_length() -> None:
    found = scan(text(LINES, header={**HEADER, "seedLength": 3}))
    assert (found.header.is_seeded, found.inherited_event_count) == (True, 3)


# --- blanks and line ends --------------------------------------------------------------------------


def test_a_byte_order_mark_and_carriage_returns_are_accepted() -> None:
    found = scan(b"\xef\xbb\xbf" + text(LINES, end=b"\r\n"))
    assert found.header_line == encode(HEADER)
    assert shown(found.events) == values(LINES)
    assert [found.row_text(event) for event in found.events] == LINES


def test_blank_lines_are_skipped_and_counted() -> None:
    found = scan(text([b"", LINES[0], b" \t\r", b"", *LINES[1:], b""]))
    assert shown(found.events) == values(LINES)
    assert found.torn is None
    error = corrupt(text([b"", LINES[0], b" ", LINES[2]]))
    assert (error.line, error.seq) == (5, 2)


def test_a_great_many_blank_lines_cost_little() -> None:
    data = text([]) + b"\n" * 2_000_000 + b"".join(line + b"\n" for line in [LINES[0], LINES[0]])
    assert corrupt(data).line == 2_000_003


@pytest.mark.parametrize("blank", ["\u2028", "\x85", "\x0b", "\x0c", "\xa0"])
def test_other_blanks_of_unicode_are_no_line_ends(blank: str) -> None:
    lines = rows([TURN[0], row("x/y", f"a{blank}b", ignorable=True)])
    assert shown(scan(text(lines)).events) == values(lines)
    assert scan(text([*lines, blank.encode()])).torn == TornText(len(text(lines)), "unparsable")


# --- the end of the text ---------------------------------------------------------------------------


def test_a_whole_last_record_without_its_line_end_is_kept() -> None:
    for lines in (LINES, [*LINES[:5], packed(5, "a", "b", "c").line]):
        data = text(lines)[:-1]
        found = scan(data)
        assert found.torn == TornText(len(data), "missing-newline")
        assert len(found.events) == len(scan(data + b"\n").events)


@pytest.mark.parametrize("tail", [b'{"type":', b"\0" * 40, b"\xe6\xbc", b"12", b"null", b"  ", b"{}x"])
def test_a_fragment_that_is_no_record_is_torn(tail: bytes) -> None:
    assert scan(GOOD + tail).torn == TornText(len(GOOD), "unparsable")


@pytest.mark.parametrize("tail", [b"\0\0\n", b"garbage\n", b'{"a":\n\n{"b"', b"\xff\n\xff\n \n", b"[\n"])
def test_bad_lines_with_nothing_readable_after_them_are_torn(tail: bytes) -> None:
    found = scan(GOOD + tail)
    assert found.torn == TornText(len(GOOD), "unparsable")
    assert shown(found.events) == values(LINES)


def test_blank_lines_before_the_torn_tail_are_not_part_of_it() -> None:
    assert scan(GOOD + b"\n \n{").torn == TornText(len(GOOD) + 3, "unparsable")


def test_nothing_but_a_torn_tail_is_a_header_only_log() -> None:
    found = scan(text([]) + b"{\n\0")
    assert (found.layout, found.torn, len(found.events)) == (
        "header-only",
        TornText(len(text([])), "unparsable"),
        0,
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"x/y","seq":16,"time":0,"data":1e999,"ignorable":true}',
        b'{"type":"x/y","seq":16,"time":0,"data":' + b"9" * 400 + b',"ignorable":true}',
        b'{"type":"x/y","seq":16,"time":0,"data":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"type":"assistant/chunk","seq":16,"time":0,"data":{"turn":1e999}}',
        b'{"type":"text-chunks","seq0":16,"time0":0,"data":{}}',
        b'{"type":"x/y","seq":16,"time":0,"data":"\xff"}',
        b'{"type":"assistant/chunk","seq":16,"time":0,"data":{"turn":1,"step":1,"chunk":'
        b'{"type":"text-delta","index":0,"text":"\xed\xa0\xbd"}}}',
    ],
    ids=["exponent", "digits", "nesting", "chunk", "packed", "utf-8", "surrogate-bytes"],
)
def test_what_does_not_read_is_torn_at_the_end_and_corruption_before_it(line: bytes) -> None:
    assert scan(GOOD + line + b"\n").torn == TornText(len(GOOD), "unparsable")
    after = rows([TURN[0]], first=17)
    error = corrupt(GOOD + line + b"\n" + after[0] + b"\n")
    assert (error.line, error.offset) == (len(LINES) + 2, len(GOOD))


# --- corruption ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 5, 6, len(LINES) - 2])
@pytest.mark.parametrize("bad", [b"\0", b"{", b'{"type":"turn/start"', b"\xff\xfe"])
def test_anything_readable_after_a_bad_line_is_corruption(at: int, bad: bytes) -> None:
    data = text([*LINES[:at], bad, *LINES[at:]])
    error = corrupt(data)
    assert (error.line, error.offset) == (at + 2, line_start(at + 2, data))
    assert f"line {at + 3}" in str(error)


@pytest.mark.parametrize("after", [b"5", b"null", b'"x"', b"{}", b"[1]", LINES[0]])
def test_a_json_text_of_any_kind_counts_as_readable(after: bytes) -> None:
    assert corrupt(text([LINES[0], b"{", b"", after])).line == 3


def test_a_whole_record_after_a_bad_line_counts_without_its_line_end() -> None:
    assert corrupt(text([LINES[0], b"{", LINES[1]])[:-1]).line == 3
    assert scan(text([LINES[0], b"{", b"17"])[:-1]).torn


@pytest.mark.parametrize("wrong", [0, 2, 3, 99])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_wrong_seq_is_corruption_also_in_the_last_line(wrong: int, end: bytes) -> None:
    data = text(LINES[:1]) + rows([TURN[1]], first=wrong)[0] + end
    error = corrupt(data)
    assert (error.line, error.offset, error.seq) == (3, line_start(3, data), wrong)
    assert f"seq {wrong} where 1 follows" in str(error)


@pytest.mark.parametrize("at", [4, 6, 9, 12])
def test_a_lost_and_a_repeated_record_are_corruption(at: int) -> None:
    lost = corrupt(text([*LINES[:at], *LINES[at + 1 :]]))
    assert (lost.line, lost.seq, "missing" in str(lost)) == (at + 2, at + 1, True)
    repeated = corrupt(text([*LINES[:at], LINES[at - 1], *LINES[at:]]))
    assert (repeated.line, repeated.seq, "two writers" in str(repeated)) == (at + 2, at - 1, True)


def test_a_packed_row_with_another_seq_is_corruption() -> None:
    assert corrupt(text([*LINES[:5], packed(6, "a", "b", "c").line])).seq == 6
    assert corrupt(text([*LINES[:5], packed(5, "a", "b", "c").line, *LINES[6:]])).seq == 6


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"null",
        b'"text"',
        b"[]",
        b"{}",
        b'{"seq":1}',
        b'{"type":"x/y","seq":1,"data":1}',
        b'{"type":"x/y","time":1,"data":1}',
        b'{"type":"x/y","seq":1,"time":1}',
        b'{"type":5,"seq":1,"time":1,"data":1}',
        b'{"type":"x/y","seq":1,"time":1,"data":1,"more":1}',
        b'{"type":"x/y","seq":"1","time":1,"data":1}',
        b'{"type":"x/y","seq":true,"time":1,"data":1}',
        b'{"type":"x/y","seq":1,"time":1.5,"data":1}',
        b'{"type":"x/y","seq":1,"time":9007199254740992,"data":1}',
        b'{"type":"x/y","seq":1,"time":1,"data":1,"ignorable":false}',
        b'{"type":"x/y","seq":1,"time":1,"data":1,"ignorable":null}',
        b'{"type":"user/message","seq":1,"time":1,"data":1,"surfaceOp":"prepend"}',
        b'{"type":"user/message","seq":1,"time":1,"data":1,"surfaceOp":{"op":"replace","start":0}}',
        b'{"type":"user/message","seq":1,"time":1,"data":1,"surfaceOp":{"op":"replace","start":-1,"end":0}}',
        b'{"type":"user/message","seq":1,"time":1,"data":1,"sourceEventSeqs":[true]}',
        b'{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}',
    ],
)
def test_a_row_that_is_no_event_is_corruption_at_once(line: bytes) -> None:
    for end in (b"\n", b"\n" + LINES[2] + b"\n"):
        assert corrupt(text(LINES[:1]) + line + end).line == 3


# --- event types -----------------------------------------------------------------------------------


def typed(event_type: str, **envelope: Any) -> bytes:
    return text(rows([TURN[0], row(event_type, {}, **envelope), TURN[1]]))


@pytest.mark.parametrize(
    ("event_type", "words"),
    [
        ("elsewhere/event", "unknown event type"),
        ("assistant/chvnk", "unknown or damaged event type"),
        ("turn/stop", "unknown or damaged event type"),
        ("chunk", "unknown or damaged event type"),
    ],
)
def test_an_unknown_type_is_a_format_refusal(event_type: str, words: str) -> None:
    error = refused(typed(event_type))
    assert isinstance(error, SessionFormatUnsupportedError)
    assert (error.line, error.seq) == (3, 1)
    for fact in (words, event_type, "not marked ignorable"):
        assert fact in str(error)
    assert len(scan(typed(event_type, ignorable=True)).events) == 3


@pytest.mark.parametrize("ignorable", [{}, {"ignorable": True}])
@pytest.mark.parametrize("event_type", ["mode/set", "request/header-delta"])
def test_a_retired_type_is_corruption_ignorable_or_not(event_type: str, ignorable: dict[str, Any]) -> None:
    assert corrupt(typed(event_type, **ignorable)).seq == 1


def test_a_retired_reason_is_corruption() -> None:
    line = rows([row("request/header", {"header": {}, "reason": "fallback"})])
    assert corrupt(text(line)).line == 2


def test_damage_comes_before_retired_shapes_and_those_before_unknown_types() -> None:
    lines = rows([row("elsewhere/a", 1), row("mode/set", 1), TURN[0]])
    assert corrupt(text(lines)).seq == 1
    assert corrupt(text([*lines, lines[0]])).line == 5
    assert isinstance(refused(text([*lines[:1], b"{"])), SessionFormatUnsupportedError)


def test_an_old_type_that_readers_upgrade_is_known() -> None:
    assert len(scan(typed("steering/message")).events) == 3


# --- projected -------------------------------------------------------------------------------------


def test_projected_rows_are_numbered_by_their_place() -> None:
    found = scan(text(projected()))
    assert found.layout == "projected"
    assert shown(found.events) == [(value["type"], seq, 0, value["data"]) for seq, value in enumerate(TURN)]
    assert [found.row_text(event) for event in found.events] == projected()


def test_projected_packed_rows_keep_their_gaps() -> None:
    line = b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[5,-7],"texts":["a","b","c"]}}'
    found = scan(text([projected()[0], line, b" " + line, projected()[1]]))
    assert [(event.seq, event.time) for event in found.events] == [
        (0, 0),
        *((1, 0), (2, 5), (3, -2)),
        *((4, 0), (5, 5), (6, -2)),
        (7, 0),
    ]


@pytest.mark.parametrize(
    "odd", [b'{"data":{"turn":2},"type":"turn/start"}', b'{"type":"turn/start","data":{"turn":2.0}}']
)
def test_projected_rows_in_other_spellings_read(odd: bytes) -> None:
    found = scan(text([projected()[0], odd, projected([row("assistant/chunk", chunk(delta("\ud83d")))])[0]]))
    assert found.events[1].value == {"turn": 2}
    assert found.events[2].value["chunk"] == delta("\ud83d")
    assert found.row_text(found.events[1]) == odd


def test_a_projected_row_may_name_its_own_seq() -> None:
    assert len(scan(text([projected()[0], rows(TURN[1:2], first=1)[0]])).events) == 2
    assert corrupt(text([projected()[0], rows(TURN[1:2], first=2)[0]])).line == 3


def test_a_complete_log_must_not_go_on_projected() -> None:
    error = corrupt(text([LINES[0], projected()[1]]))
    assert (error.line, "seq" in str(error)) == (3, True)


@pytest.mark.parametrize(
    "line", [b"5", b"[]", b'{"type":"x/y"}', b'{"data":1}', b'{"type":"text-chunks","data":5}']
)
def test_a_projected_row_that_is_no_event_is_refused(line: bytes) -> None:
    corrupt(text([projected()[0], line, projected()[1]]))


def test_a_torn_recording_is_judged_like_a_log() -> None:
    data = text(projected())
    assert scan(data[:-1]).torn == TornText(len(data) - 1, "missing-newline")
    assert scan(data[:-2]).torn == TornText(data.rindex(b"\n", 0, -2) + 1, "unparsable")


# --- the quick look --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [None, True, False, 0, -1, 1.5, "", "x", [], [1], {}, {"a": "}"}, "\ud800", [[["]"]]]]
)
def test_the_quick_look_never_misses_a_json_text(value: Any) -> None:
    assert may_read(encode(value))
    assert may_read(b" \t" + encode(value) + b"\r")


@pytest.mark.parametrize("line", [b"x", b"{", b"]", b"tru", b"\0\0"])
def test_the_quick_look_sees_hopeless_lines(line: bytes) -> None:
    assert not may_read(line)
