"""From a log to the script that answers in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import (
    LineageError,
    NotASessionError,
    OverrideRefusedError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    UnfinishedCallError,
)
from seedline.events.event import CHUNK, Event
from seedline.events.packing import PackedRow
from seedline.jsonvalue import encode
from seedline.replay.entries import (
    ChunksEntry,
    CutEntry,
    HangEntry,
    ScriptEntry,
    ThrowEntry,
    chunk_counts,
    kind_of,
    script_digest,
)
from seedline.replay.overrides import read_override
from seedline.replay.script import (
    StoredChunks,
    derive_replay_script,
    load_session_scripts,
    parse_recording,
    parse_session_header,
    parse_session_log,
)
from seedline.session import lineage
from seedline.session.header import SessionLogOffset
from tests.unit.replay.recordings import (
    FINISH,
    as_lines,
    as_packed,
    call,
    chunk_row,
    digest_of,
    line_of,
    log,
    packed_rows,
    text,
    values,
)
from tests.unit.session.make import event, events_of, packed

# --- the header line ---------------------------------------------------------------------------------


def test_a_recording_may_lack_version_depth_id_and_creation_time() -> None:
    header, cut = parse_session_header(b'{"type":"session","seedLength":7,"parentSession":"p"}')
    assert (header.id, header.created_at, header.parent_session, cut) == ("", 0, "p", 7)
    assert header.is_seeded


def test_what_a_header_says_is_kept() -> None:
    line = b' {"id":"{{sessionId}}","createdAt":1.76e12,"cwd":"{{cwd}}/w","type":"session"}\r'
    header, cut = parse_session_header(line)
    assert (header.id, header.created_at, header.cwd, cut) == ("{{sessionId}}", 1760000000000, "{{cwd}}/w", 0)
    assert not header.is_seeded


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b'{"type":"session","id":7}', "id"),
        (b'{"type":"session","createdAt":"now"}', "createdAt"),
        (b'{"type":"session","createdAt":-0}', "createdAt"),
        (b'{"type":"session","seedLength":-1}', "seedLength"),
        (b'{"type":"session","spawn":{"turn":1}}', "spawn"),
    ],
)
def test_a_field_of_a_wrong_type_is_not_a_missing_one(line: bytes, field: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match=f"`{field}`"):
        parse_session_header(line)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"{", b'"session"', b'{"type":"turn/start"}'])
def test_what_is_no_session_header_is_refused(line: bytes) -> None:
    with pytest.raises(NotASessionError):
        parse_session_header(line)


def test_a_foreign_version_is_refused_before_anything_else() -> None:
    with pytest.raises(SessionFormatUnsupportedError):
        parse_session_header(b'{"type":"session","version":3,"id":7}')


# --- the body ------------------------------------------------------------------------------------------

HEADER = b'{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}\n'


def test_projected_rows_are_numbered_as_they_come() -> None:
    events = parse_session_log(
        HEADER
        + b'{"type":"a/b","data":{}}\n'
        + b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[3],"texts":["a","b"]}}\n'
        + b'{"type":"a/c","data":{}}\n'
    )
    assert [(e.seq, e.time, e.type) for e in events] == [
        (0, 0, "a/b"),
        (1, 0, CHUNK),
        (2, 3, CHUNK),
        (3, 0, "a/c"),
    ]


def test_mark_blank_lines_and_both_line_ends_are_accepted() -> None:
    rows = b'\r\n \t\r\n{"type":"a/b","data":"x\\u2028"}\r\n\n{"type":"a/b","data":"\xe2\x80\xa8"}'
    events = parse_session_log(b"\xef\xbb\xbf\n" + HEADER.replace(b"\n", b"\r\n") + rows)
    assert [e.value for e in events] == ["x\u2028", "\u2028"]


def test_a_header_alone_has_no_events() -> None:
    assert len(parse_session_log(HEADER)) == 0


@pytest.mark.parametrize(
    ("rows", "line", "seq", "reason"),
    [
        (b'{"type":"a/b","data":{}}\n\n{"type":\n', 4, None, "Expecting value"),
        (b'{"type":"a/b","data":{}}\n7\n', 3, None, "no record"),
        (b'{"type":"a/b","data":{},"extra":1}\n', 2, 0, "extra"),
        (
            b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[],"texts":[]}}',
            2,
            None,
            "packed",
        ),
        (b'{"type":"a/b","seq":1,"time":0,"data":{}}\n', 2, 1, "has seq 1 where 0 follows"),
        (
            b'{"type":"a/b","data":{}}\n{"type":"a/b","seq":1,"time":0,"data":{}}',
            3,
            None,
            "a complete row among projected",
        ),
        (
            b'{"type":"a/b","seq":0,"time":0,"data":{}}\n{"type":"a/b","data":{}}',
            3,
            None,
            "`seq`",
        ),
    ],
)
def test_a_bad_row_names_its_line(rows: bytes, line: int, seq: int | None, reason: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match=reason) as caught:
        parse_session_log(HEADER + rows)
    assert (caught.value.line, caught.value.seq) == (line, seq)


def test_errors_of_a_recording_name_its_file() -> None:
    for body in (b"", b"\n \n", b"{", HEADER + b"{"):
        with pytest.raises((NotASessionError, SessionPersistenceCorruptionError), match=r"^a/b\.jsonl: "):
            parse_recording(body, "a/b.jsonl")


# --- grouping --------------------------------------------------------------------------------------------


def contents(entries: list[ScriptEntry]) -> list[list[Any]]:
    return [values(entry.chunks) for entry in entries]


def test_a_call_ends_at_its_finish_so_that_a_retry_is_a_call_of_its_own() -> None:
    failed = {"type": "finish", "reason": {"kind": "error", "failure": {"message": "m", "code": "C"}}}
    rows = [chunk_row(text("a")), chunk_row(failed), ("llm/retry", {"turn": 1, "step": 1}), *call("b")]
    entries = derive_replay_script(log(rows))
    assert contents(entries) == [[text("a"), failed], [text("b"), FINISH]]
    assert entries == [ChunksEntry(tuple(map(encode, c))) for c in contents(entries)]


def test_other_events_between_chunks_do_not_matter() -> None:
    rows = [("turn/start", {"turn": 1}), *call("a", "b")]
    rows[2:2] = [
        ("session/title", {"title": "x"}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
    ]
    assert contents(derive_replay_script(log(rows))) == [[text("a"), text("b"), FINISH]]


def test_no_chunks_make_no_script() -> None:
    assert derive_replay_script(log([])) == []
    assert derive_replay_script(log([("turn/start", {"turn": 1})])) == []
    assert script_digest([]) == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


@pytest.mark.parametrize("after", [call("b", turn=2, step=3), call("b", step=2), []])
def test_a_call_without_finish_is_refused_with_its_turn_and_step(after: list[Any]) -> None:
    events = log([*call("a", turn=1, step=1), chunk_row(text("x"), 1, 4), *after])
    with pytest.raises(UnfinishedCallError) as caught:
        derive_replay_script(events)
    assert (caught.value.turn, caught.value.step) == (1, 4)


@pytest.mark.parametrize("kind", ["aborted", "interrupted", "error"])
def test_a_cut_call_keeps_the_recorded_end_of_its_turn(kind: str) -> None:
    reason: dict[str, Any] = {"kind": kind}
    if kind == "error":
        reason["error"] = {"message": "disk full", "code": "UNKNOWN"}
    rows = [
        chunk_row(text("x"), 2, 3),
        ("assistant/message", {"interrupted": True}),
        ("step/end", {"turn": 2, "step": 3}),
        ("turn/end", {"turn": 2, "reason": reason}),
        *call("y", turn=3),
        ("turn/end", {"turn": 3, "reason": {"kind": "completed"}}),
    ]
    cut, done = derive_replay_script(log(rows), unfinished="cut")
    assert isinstance(cut, CutEntry)
    assert (cut.turn, cut.step, values(cut.chunks)) == (2, 3, [text("x")])
    assert cut.reason is not None
    assert cut.reason.kind == kind
    assert kind != "error" or (cut.reason.error is not None and cut.reason.error.message == "disk full")
    assert isinstance(done, ChunksEntry)


def test_a_call_cut_where_the_log_stops_has_no_reason() -> None:
    [cut] = derive_replay_script(log([chunk_row(text("x"))]), unfinished="cut")
    assert isinstance(cut, CutEntry)
    assert cut.reason is None


def test_a_turn_end_before_the_cut_call_is_not_its_reason() -> None:
    rows = [*call("a"), ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}), chunk_row(text("x"), 2)]
    cut = derive_replay_script(log(rows), unfinished="cut")[1]
    assert isinstance(cut, CutEntry)
    assert cut.reason is None


# --- compaction ------------------------------------------------------------------------------------------

BLOCKS = [{"type": "reasoning", "text": "r"}, {"type": "text", "text": "t"}]


def test_a_marked_summary_is_a_call_at_its_place() -> None:
    summary = {"llmStreamCall": True, "rawOutput": BLOCKS, "usage": {"inputTokens": 1, "outputTokens": 2}}
    rows = [*call("a"), ("compaction/summary", summary), *call("b")]
    assert contents(derive_replay_script(log(rows)))[1] == [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "block-end", "index": 0, "block": BLOCKS[0]},
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "block-end", "index": 1, "block": BLOCKS[1]},
        {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}},
        FINISH,
    ]


def test_a_marked_summary_without_usage_has_no_usage_chunk() -> None:
    entries = derive_replay_script(log([("compaction/summary", {"llmStreamCall": True, "rawOutput": []})]))
    assert contents(entries) == [[FINISH]]


@pytest.mark.parametrize(
    "data", [{}, {"llmStreamCall": False, "rawOutput": 1}, {"llmStreamCall": 1}, None, [1]]
)
def test_an_unmarked_summary_adds_nothing_but_ends_the_call_before_it(data: Any) -> None:
    rows: list[tuple[str, Any]] = [("compaction/summary", data), *call("a")]
    assert len(derive_replay_script(log(rows))) == 1
    entries = derive_replay_script(
        log([chunk_row(text("x")), ("compaction/summary", data), *call("a")]), unfinished="cut"
    )
    assert [kind_of(entry) for entry in entries] == ["cut", "chunks"]


@pytest.mark.parametrize("output", [None, "text", [1], [{}], [{"type": 1}]])
def test_a_marked_summary_needs_its_whole_output(output: Any) -> None:
    data = {"llmStreamCall": True} | ({} if output is None else {"rawOutput": output})
    with pytest.raises(OverrideRefusedError, match="seq 1") as caught:
        derive_replay_script(log([("a/b", {}), ("compaction/summary", data)]))
    assert caught.value.code == "marked-compaction"


def one(chunk: Any, seq: int) -> Event:
    """One chunk event of the first step."""
    name, data = chunk_row(chunk)
    return event(name, seq, data)


# --- odd rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"turn": 1, "step": 1},
        {"turn": "1", "step": 1, "chunk": {}},
        {"turn": 1, "chunk": {}},
        {"turn": True, "step": 1, "chunk": {}},
        {"turn": 1, "step": 1, "chunk": None},
        {"turn": 1, "step": 1, "chunk": []},
    ],
)
def test_a_chunk_event_of_another_shape_names_its_seq(data: Any) -> None:
    events = log([("a/b", {}), (CHUNK, data)])
    for spelled in (events, as_lines(events)):
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            derive_replay_script(spelled)
        assert caught.value.seq == 1


@pytest.mark.parametrize("chunk", [{}, {"type": 1}, {"type": "novel", "x": 1}, {"type": ["finish"]}])
def test_a_chunk_of_an_unknown_type_is_kept_and_ends_nothing(chunk: Any) -> None:
    events = log([chunk_row(chunk), *call("a")])
    for spelled in (events, as_lines(events)):
        assert contents(derive_replay_script(spelled)) == [[chunk, text("a"), FINISH]]


SPELLED = [
    b'{"type":"assistant/chunk","seq":%d,"time":0,"data":{"turn":1,"step":1,"chunk":%b}}',
    b'{"time":0,"data":{"step":1,"chunk":%b,"turn":1},"seq":%d,"type":"assistant/chunk"}',
    b'{ "type" : "assistant/chunk", "seq":%d, "time":0, "data" : {"turn":1, "step":1, "chunk":%b}}',
    b'{"type":"assistant/chunk","seq":%d,"time":-1760000000000,"data":{"turn":1.0,"step":1e0,"chunk":%b}}',
    b'{"type":"assistant\\/chunk","seq":%d,"time":0,"data":{"chunk":%b,"turn":1,"step":1}}',
]
CHUNK_TEXTS = [
    b'{"type":"text-delta","index":0,"text":"a"}',
    b'{"text":",\\"data\\":{\\"turn\\":2,","type":"text-delta","index":0}',
    b'{ "type":"text-delta","index":0,"text":"\\ud83d" }',
    b'{"type":"f\\u0069nish","reason":{"kind":"stop"}}',
    b'{"type":"finish","reason":{"kind":"stop"}}',
    b'{"reason":{"kind":"stop"},"type":"finish"}',
]


@given(st.lists(st.tuples(st.sampled_from(SPELLED), st.sampled_from(CHUNK_TEXTS)), max_size=12))
def test_any_spelling_of_a_row_gives_the_same_calls(rows: list[tuple[bytes, bytes]]) -> None:
    lines = [
        form % ((chunk, seq) if form.index(b"%b") < form.index(b"%d") else (seq, chunk))
        for seq, (form, chunk) in enumerate(rows)
    ]
    expected: list[list[Any]] = [[]]
    for _, chunk in rows:
        expected[-1].append(json.loads(chunk))
        if expected[-1][-1]["type"] == "finish":
            expected.append([])
    expected = [entry for entry in expected if entry]
    for events in (events_of(*lines), parse_session_log(HEADER + b"\n".join(lines))):
        assert contents(derive_replay_script(events, unfinished="cut")) == expected


def test_a_row_that_only_looks_like_its_neighbours_is_refused_when_played() -> None:
    twice = b'{"type":"assistant/chunk","seq":1,"time":0,"data":{"turn":1,"step":1,"chunk":{"type":"usage",'
    twice += b'"usage":{}},"turn":2}}'
    rows = [line_of(one(text("a"), 0)), twice, line_of(one(FINISH, 2))]
    entries = derive_replay_script(events_of(*rows))
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        list(entries[0].chunks)
    assert caught.value.seq == 1


# --- the same log however it is stored -----------------------------------------------------------------

PIECES = st.sampled_from(["", "a", "b\n", '"', "\\", "é🙂", "\u2028", "\ud83d", ',"data":{"turn":1,'])
CHUNKS_OF_A_CALL = st.lists(
    st.builds(text, PIECES)
    | st.builds(lambda t: {"type": "reasoning-delta", "index": 1, "text": t}, PIECES)
    | st.builds(
        lambda t: {"type": "tool-call-delta", "index": 2, "id": "c", "name": "n", "argumentsDelta": t}, PIECES
    )
    | st.just({"type": "block-start", "index": 0, "blockType": "text"}),
    max_size=9,
)
ROWS = st.lists(
    st.tuples(
        CHUNKS_OF_A_CALL,
        st.booleans(),
        st.sampled_from([1, 1, 2, 3, 1.5, 10**6]),
        st.sampled_from([1, 1, 2]),
        st.booleans(),
    ),
    max_size=6,
)


def rows_of(calls: list[tuple[list[Any], bool, Any, int, bool]]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for chunks, finished, turn, step, ended in calls:
        rows += [chunk_row(chunk, turn, step) for chunk in chunks + [FINISH] * finished]
        if ended:
            rows.append(("turn/end", {"turn": turn, "reason": {"kind": "completed"}}))
    return rows


def plain_script(rows: list[tuple[str, Any]]) -> list[tuple[str, list[Any]]]:
    """The calls by the rule as it is written: (kind, chunks)."""
    entries: list[tuple[str, list[Any]]] = []
    group: list[Any] = []
    key: Any = None
    for name, data in rows:
        if name != CHUNK:
            continue
        if group and (data["turn"], data["step"]) != key:
            entries.append(("cut", group))
            group = []
        key = (data["turn"], data["step"])
        group.append(data["chunk"])
        if data["chunk"]["type"] == "finish":
            entries.append(("chunks", group))
            group = []
    return entries + ([("cut", group)] if group else [])


@given(ROWS, st.data())
def test_the_script_is_that_of_the_rule_however_the_log_is_stored(
    calls: list[Any], data: st.DataObject
) -> None:
    rows = rows_of(calls)
    events = log(rows)
    cut = SessionLogOffset(data.draw(st.integers(0, len(rows))))
    expected = plain_script(rows[cut:])
    digests: set[str] = set()
    for stored in (events, as_lines(events), as_packed(events)):
        entries = derive_replay_script(lineage.own(stored, cut), unfinished="cut")
        assert [(kind_of(e), values(e.chunks)) for e in entries] == expected
        assert chunk_counts(entries) == [len(chunks) for _, chunks in expected]
        digests.add(script_digest(entries))
    assert len(digests) == 1


def test_a_cut_inside_a_packed_row_leaves_the_rest_of_the_row() -> None:
    events = events_of(packed(0, "a", "b", "c", "d"), one(FINISH, 4))
    assert packed_rows(events) == 1
    for cut in range(5):
        own = lineage.own(events, SessionLogOffset(cut))
        expected = [*map(text, "abcd"[cut:]), FINISH]
        assert contents(derive_replay_script(own)) == [expected]


def test_packed_rows_stay_packed_until_they_are_played() -> None:
    events = events_of(packed(0, "a", "b", "c"), one(FINISH, 3))
    [entry] = derive_replay_script(events)
    assert isinstance(entry.chunks, StoredChunks)
    assert len(entry.chunks) == 4
    assert entry.chunks[1] == b'{"type":"text-delta","index":0,"text":"b"}'
    assert entry.chunks[-1] == encode(FINISH)
    assert entry.chunks[1:3] == tuple(entry.chunks)[1:3]
    assert repr(entry.chunks) == "<4 chunks of turn 1, step 1>"
    assert any(isinstance(row, PackedRow) for row in events.rows())


def test_chunks_are_the_recorded_bytes() -> None:
    odd = b'{"type":"text-delta", "index":0,"text":"\\u0061","n":1.50,"big":12345678901234567890}'
    line = b'{"type":"assistant/chunk","seq":0,"time":0,"data":{"turn":1,"step":1,"chunk":' + odd + b"}}"
    [entry] = derive_replay_script(events_of(line), unfinished="cut")
    assert list(entry.chunks) == [odd]


# --- digests ---------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_entries_as_one_list() -> None:
    chunks = (
        b'{"type":"text-delta","index":0,"text":"\xc3\xa9"}',
        b'{"type":"finish","reason":{"kind":"stop"}}',
    )
    decoded = [json.loads(chunk) for chunk in chunks]
    entries: list[ScriptEntry] = [
        ChunksEntry(chunks),
        ThrowEntry((), "m", "C"),
        HangEntry(),
        HangEntry("ready"),
        CutEntry(chunks[:1], 1, 2, None),
    ]
    assert script_digest(entries) == digest_of(
        [
            {"kind": "chunks", "chunks": decoded},
            {"kind": "throw", "chunks": [], "message": "m", "code": "C"},
            {"kind": "hang"},
            {"kind": "hang", "readyFile": "ready"},
            {"kind": "cut", "chunks": decoded[:1]},
        ]
    )
    assert chunk_counts(entries) == [2, 0, 2, 2, 1]


# --- the scripts of a run --------------------------------------------------------------------------------


def recording(name: str, rows: list[tuple[str, Any]], **header: Any) -> Any:
    head = {"type": "session", "version": 0, "id": name, "createdAt": 1, "delegationDepth": 0} | header
    body = [encode({"type": kind, "data": data}) for kind, data in rows]
    return parse_recording(b"\n".join([encode(head), *body]), f"{name}.jsonl")


def child(name: str, rows: list[tuple[str, Any]], turn: int, **header: Any) -> Any:
    spawn = {"turn": turn, "step": 1, "call": 0, "n": 0, "callId": "c", "tool": "subagent"}
    return recording(name, rows, parentSession="root", origin="subagent", spawn=spawn, **header)


def test_the_primary_comes_first_and_children_by_key_whatever_their_clocks() -> None:
    root = recording("root", call("r"), createdAt=9)
    first, second = child("z", call("1"), 2, createdAt=8), child("a", call("2"), 10, createdAt=1)
    fork = recording("fork", call("f"), parentSession="root")
    scripts = load_session_scripts([fork, second, first, root])
    assert [(s.session.name, s.key, s.grade) for s in scripts] == [
        ("root.jsonl", "0", "exact"),
        ("z.jsonl", "0/t2.s1.c0.n0", "exact"),
        ("a.jsonl", "0/t10.s1.c0.n0", "exact"),
        ("fork.jsonl", None, "ordered"),
    ]
    assert [contents(s.entries)[0][0] for s in scripts] == [text(t) for t in ("r", "1", "2", "f")]
    assert [s.chunk_counts for s in scripts] == [[2]] * 4
    assert scripts[0].digest == digest_of([{"kind": "chunks", "chunks": [text("r"), FINISH]}])


def test_a_child_is_cut_where_its_own_events_begin() -> None:
    inherited = [*call("parent"), ("turn/end", {"turn": 1, "reason": {"kind": "completed"}})]
    root = recording("root", inherited)
    fork = child("fork", [*inherited, *call("child", turn=2)], 1, seedLength=len(inherited))
    scripts = load_session_scripts([root, fork])
    assert contents(scripts[1].entries) == [[text("child"), FINISH]]


def test_errors_name_the_file_of_the_session() -> None:
    root = recording("root", call("r"))
    unfinished = child("kid", [chunk_row(text("x"), 4, 5)], 1)
    with pytest.raises(UnfinishedCallError, match=r"^kid\.jsonl: .*turn 4, step 5"):
        load_session_scripts([root, unfinished])
    with pytest.raises(SessionPersistenceCorruptionError, match=r"^kid\.jsonl: .*9 events are inherited"):
        load_session_scripts([root, child("kid", [], 1, seedLength=9)])
    with pytest.raises(OverrideRefusedError, match=r"^kid\.jsonl: "):
        load_session_scripts([root, child("kid", [("compaction/summary", {"llmStreamCall": True})], 1)])


def test_an_unfinished_call_can_be_played_as_a_cut_stream() -> None:
    [script] = load_session_scripts([recording("root", [chunk_row(text("x"))])], unfinished="cut")
    assert [kind_of(entry) for entry in script.entries] == ["cut"]


REPLACED = read_override(b'[{"kind":"hang"}]')
PATCHED = read_override(b'{"patches":[{"at":1,"entry":{"kind":"hang"}}]}')


def test_a_sidecar_applies_to_the_session_of_its_key() -> None:
    root, kid = recording("root", call("r")), child("kid", call("k"), 1)
    scripts = load_session_scripts([root, kid], {"0/t1.s1.c0.n0": PATCHED})
    assert [[kind_of(e) for e in s.entries] for s in scripts] == [["chunks"], ["chunks", "hang"]]


def test_a_sidecar_may_replace_or_patch_an_unfinished_call() -> None:
    root = recording("root", [*call("r"), chunk_row(text("x"), 2)])
    for sidecar, kinds in ((REPLACED, ["hang"]), (PATCHED, ["chunks", "hang"])):
        [script] = load_session_scripts([root], {"0": sidecar})
        assert [kind_of(entry) for entry in script.entries] == kinds


def test_a_patch_elsewhere_leaves_an_unfinished_call_refused() -> None:
    root = recording("root", [chunk_row(text("x")), *call("y", turn=2)])
    with pytest.raises(UnfinishedCallError):
        load_session_scripts([root], {"0": PATCHED})


def test_a_sidecar_for_no_session_is_refused() -> None:
    with pytest.raises(LineageError, match=r"0/t9\.s1\.c0\.n0") as caught:
        load_session_scripts([recording("root", [])], {"0/t9.s1.c0.n0": REPLACED})
    assert (caught.value.code, caught.value.names) == ("unknown-key", ("0",))


def test_equal_siblings_are_twins_by_their_scripts() -> None:
    arguments = encode({"prompt": "p", "description": "l"}).decode()
    blocks = [{"type": "tool-call", "id": i, "name": "subagent", "arguments": arguments} for i in "ab"]
    message = {"id": "m", "role": "assistant", "content": blocks, "source": {"kind": "model"}}
    rows: list[tuple[str, Any]] = [("assistant/message", {"turn": 1, "step": 1, "message": message})]
    rows += [
        ("tool/call", {"turn": 1, "step": 1, "callId": i, "name": "subagent", "arguments": arguments})
        for i in "ab"
    ]
    inbox = {"content": [{"type": "text", "text": "p"}]}
    task: list[tuple[str, Any]] = [
        ("agent/inbox/spliced", {"inserted": [inbox]}),
        ("subagent/descriptor", {"label": "l"}),
    ]

    def grades(*answers: str) -> list[str]:
        kids = [
            recording(f"k{n}", [*task, *call(answer)], parentSession="root", origin="subagent")
            for n, answer in enumerate(answers)
        ]
        return [s.grade for s in load_session_scripts([recording("root", rows), *kids])[1:]]

    assert grades("same", "same") == ["twins", "twins"]
    assert grades("one", "two") == ["ordered", "ordered"]
