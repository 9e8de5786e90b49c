"""Closers: what repair appends to an interrupted log, and what it calls corruption."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, Raw

from seedline.clock import ManualClock
from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.codec import encode_event
from seedline.events.event import CHUNK, Event
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.session.sequence import Events
from seedline.session.wire_texts import TOOL_OUTCOME_UNKNOWN
from tests.unit.session.make import (
    assistant,
    call,
    calls,
    chunk,
    delta,
    event,
    events_of,
    new_session,
    one_turn,
    packed,
    result,
    user,
)

OPEN: list[tuple[str, Any]] = [("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})]


def log(*rows: tuple[str, Any], time: int = 70) -> Events:
    """Events at times 70, 71 and so on."""
    return events_of(*(event(name, seq, data, time=time + seq) for seq, (name, data) in enumerate(rows)))


def answered(*call_ids: str, step: int = 1) -> tuple[str, Any]:
    return "assistant/message", assistant(calls(*call_ids), step=step)


def short(found: list[Event]) -> list[tuple[Any, ...]]:
    """Type, seq, and what tells results apart: call id, error code, step, sources."""
    return [
        (e.type, e.seq)
        if e.type != "tool/result"
        else (
            e.type,
            e.seq,
            e.value["message"]["source"]["callId"],
            e.value["error"]["code"],
            e.value["step"],
            e.source_event_seqs,
        )
        for e in found
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("plugin/note", {})],
        [("session/end-seed", {})],
        [*OPEN, ("turn/end", {"turn": 1})],
        [*OPEN, answered("c"), ("tool/call", call()), ("turn/end", {"turn": 1})],
        [*OPEN, answered("c"), ("turn/end", {"turn": 1}), ("session/title", {"title": "t"})],
        [("step/start", {"turn": 1, "step": 1}), answered("c"), ("compaction/start", {})],
    ],
)
def test_nothing_to_close(rows: list[tuple[str, Any]]) -> None:
    assert closers(log(*rows)) == []


def test_an_open_turn_is_ended_as_interrupted() -> None:
    [end] = closers(log(("plugin/note", {}), ("turn/start", {"turn": 3}), ("plugin/note", {})))
    assert encode_event(end) == (
        b'{"type":"turn/end","seq":3,"time":72,"data":{"turn":3,"reason":{"kind":"interrupted"}}}'
    )


def test_an_open_step_is_ended_first() -> None:
    found = closers(log(*OPEN))
    assert [encode_event(e) for e in found] == [
        b'{"type":"step/end","seq":2,"time":71,"data":{"turn":1,"step":1}}',
        b'{"type":"turn/end","seq":3,"time":71,"data":{"turn":1,"reason":{"kind":"interrupted"}}}',
    ]


def test_between_steps_only_the_turn_is_ended() -> None:
    rows = [*OPEN, answered("c"), ("step/end", {"turn": 1, "step": 1})]
    assert short(closers(log(*rows))) == [("turn/end", 4)]


def test_a_call_that_was_recorded_has_an_unknown_outcome() -> None:
    found = closers(log(*OPEN, answered("c"), ("tool/call", call("c"))))
    text = TOOL_OUTCOME_UNKNOWN.encode()
    assert bytes(found[0].data) == (
        b'{"turn":1,"step":1,"message":{"id":"interrupted-tool-result-c-4","role":"user",'
        b'"source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c",'
        b'"isError":true,"content":[{"type":"text","text":"' + text + b'"}]}]},'
        b'"error":{"name":"ToolOutcomeUnknownError","code":"TOOL_OUTCOME_UNKNOWN"}}'
    )
    assert (found[0].surface_op, found[0].source_event_seqs) == ("append", (3,))
    assert short(found)[1:] == [("step/end", 5), ("turn/end", 6)]
    assert "retry only if the operation is read-only or idempotent" in TOOL_OUTCOME_UNKNOWN
    assert "if it may have side effects, first verify external state or ask the user" in TOOL_OUTCOME_UNKNOWN


def test_a_call_that_was_not_recorded_was_not_started() -> None:
    found = closers(log(*OPEN, answered("c")))
    value = found[0].value
    assert value["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert list(value) == ["turn", "step", "message", "error"]
    assert found[0].source_event_seqs is UNSET
    assert value["message"]["content"][0]["isError"] is True
    [block] = value["message"]["content"][0]["content"]
    assert list(block) == ["type", "text"]
    assert "never started" in block["text"]


def test_results_come_in_the_order_of_the_calls() -> None:
    rows = [
        *OPEN,
        answered("a", "b", "c", "d"),
        ("tool/call", call("c")),
        ("tool/call", call("a")),
        ("tool/result", result("c")),
    ]
    assert short(closers(log(*rows))) == [
        ("tool/result", 6, "a", "TOOL_OUTCOME_UNKNOWN", 1, (4,)),
        ("tool/result", 7, "b", "TOOL_NOT_STARTED", 1, UNSET),
        ("tool/result", 8, "d", "TOOL_NOT_STARTED", 1, UNSET),
        ("step/end", 9),
        ("turn/end", 10),
    ]


def test_a_reused_call_id_pairs_inside_its_own_step() -> None:
    def step(number: int, *, done: bool) -> list[tuple[str, Any]]:
        rows: list[tuple[str, Any]] = [
            ("step/start", {"turn": 1, "step": number}),
            answered("call_0", step=number),
            ("tool/call", call("call_0", step=number)),
        ]
        ending = [("tool/result", result("call_0", step=number)), ("step/end", {"turn": 1, "step": number})]
        return [*rows, *ending] if done else rows

    rows = [("turn/start", {"turn": 1}), *step(1, done=True), *step(2, done=True), *step(3, done=False)]
    assert short(closers(log(*rows))) == [
        ("tool/result", 14, "call_0", "TOOL_OUTCOME_UNKNOWN", 3, (13,)),
        ("step/end", 15),
        ("turn/end", 16),
    ]


def test_a_call_is_pending_again_when_its_id_is_made_again() -> None:
    rows = [*OPEN, answered("c", "d"), ("tool/call", call("c")), answered("c")]
    assert short(closers(log(*rows)))[:2] == [
        ("tool/result", 5, "c", "TOOL_NOT_STARTED", 1, UNSET),
        ("tool/result", 6, "d", "TOOL_NOT_STARTED", 1, UNSET),
    ]


def test_a_call_of_an_earlier_turn_is_not_closed_now() -> None:
    rows = [*OPEN, answered("old"), ("turn/start", {"turn": 2})]
    assert short(closers(log(*rows))) == [("turn/end", 4)]


def test_a_recorded_call_that_no_answer_made_is_ignored() -> None:
    rows = [*OPEN, ("tool/call", call("stray")), ("tool/result", result("other"))]
    assert short(closers(log(*rows))) == [("step/end", 4), ("turn/end", 5)]


def test_brackets_of_plugins_stay_open() -> None:
    rows = [("turn/start", {"turn": 1}), ("compaction/start", {"compactionId": "k"}), ("command/run", {})]
    assert short(closers(log(*rows))) == [("turn/end", 3)]


def test_the_time_is_the_last_events_even_when_it_went_back() -> None:
    events = events_of(event("turn/start", 0, {"turn": 1}, time=900), packed(1, "a", "b", "c", time=5))
    [end] = closers(events)
    assert (end.seq, end.time) == (4, 7)


def test_chunks_are_not_read() -> None:
    broken = Event(CHUNK, 1, 5, Raw(b"[]"))
    assert short(closers(events_of(event("turn/start", 0, {"turn": 1}), broken))) == [("turn/end", 2)]
    assert chunk(delta("x"))["turn"] == 1


def test_strange_ids_survive() -> None:
    for call_id in ("\ud800", "a b\n", "😀", "__proto__"):
        [made, *_] = closers(log(*OPEN, answered(call_id)))
        assert made.value["message"]["id"] == f"interrupted-tool-result-{call_id}-3"
        assert made.value["message"]["source"]["callId"] == call_id


def test_closing_is_deterministic_and_done_once() -> None:
    events = log(*OPEN, answered("a", "b"), ("tool/call", call("a")))
    found = closers(events)
    assert found == closers(events)
    assert [encode_event(e) for e in found] == [encode_event(e) for e in closers(events)]
    assert closers(events_of(*events, *found)) == []


def test_a_repaired_log_is_a_valid_one() -> None:
    session = new_session()
    one_turn(session)
    session.append("turn/start", {"turn": 2})
    session.append("user/message", user("go"), surface_op="append")
    session.append("step/start", {"turn": 2, "step": 1})
    session.append("assistant/message", assistant(calls("a", "b"), turn=2), surface_op="append")
    session.append("tool/call", call("a", turn=2))
    found = closers(session.events)
    restored = Session.restore(
        SessionHeader(id="s", created_at=1),
        clock=ManualClock(),
        inherited_event_count=START,
        events=events_of(*session.events, *found),
    )
    assert [e.type for e in restored.events[11:]] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
        "session/end-seed",
    ]
    assert [m.seq for m in restored.derive_messages()][-2:] == [11, 12]


# --- payloads of another shape ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("turn/start", {}),
        ("turn/start", {"turn": "1"}),
        ("turn/start", {"turn": True}),
        ("turn/start", {"turn": None}),
        ("turn/start", []),
        ("step/start", {"turn": 1}),
        ("step/start", None),
        ("assistant/message", {"turn": 1, "step": 1}),
        ("assistant/message", {"turn": 1, "step": 1, "message": None}),
        ("assistant/message", {"turn": 1, "step": 1, "message": {"content": "text"}}),
        ("assistant/message", {"turn": 1, "message": {"content": []}}),
        ("assistant/message", assistant([{"type": "tool-call"}])),
        ("assistant/message", assistant([{"type": "tool-call", "id": 5}])),
        ("assistant/message", {"turn": 1, "step": 1, "content": [], "provenance": {}}),
        ("tool/call", {}),
        ("tool/call", {"callId": 1}),
        ("tool/result", {}),
        ("tool/result", {"message": {}}),
        ("tool/result", {"message": {"source": {}}}),
        ("tool/result", {"callId": "c", "content": [], "isError": False}),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_another_shape_is_corruption_with_its_seq(event_type: str, data: Any, ended: bool) -> None:
    rows = [("plugin/note", {}), (event_type, 0 if data is None else data)]
    if ended:
        rows.append(("turn/end", {"turn": 1}))
    with pytest.raises(SessionPersistenceCorruptionError, match=event_type) as corrupt:
        closers(log(*rows))
    assert corrupt.value.seq == 1


@pytest.mark.parametrize("number", [0, -1, 1.5, 2**53, -1e30])
def test_a_turn_that_no_end_can_name_is_corruption(number: float) -> None:
    """Reading refuses such a `turn/end`: to append it would lose the log."""
    rows = [("plugin/note", {}), ("turn/start", {"turn": number})]
    with pytest.raises(SessionPersistenceCorruptionError, match="turn/end") as corrupt:
        closers(log(*rows))
    assert corrupt.value.seq == 1
    assert closers(log(*rows, ("turn/end", {}))) == []


def test_blocks_without_a_meaning_here_are_passed_over() -> None:
    blocks = [None, 5, "text", [], {}, {"type": 5}, {"type": "video", "id": 1}, *calls("c")]
    found = closers(log(*OPEN, ("assistant/message", assistant(blocks))))
    assert short(found)[0] == ("tool/result", 3, "c", "TOOL_NOT_STARTED", 1, UNSET)


def test_ends_need_no_payload() -> None:
    rows = [*OPEN, answered("c"), ("step/end", []), ("turn/end", {"error": "authored"})]
    assert closers(log(*rows)) == []
