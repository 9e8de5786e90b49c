"""What a record says of the run ahead."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.llm.scripted import call, failure, text, tool_calls
from seedline.session.header import START, SessionLogOffset
from seedline.session.tree import RecordedSession
from seedline.snapshot.record import Batch, Record, error_code, value_of
from tests.unit.session.make import event
from tests.unit.snapshot.recording import Value, alone, altered, events_of, family, first

HEADER = alone().header


def record_of(*rows: Value, cut: int = 0, delegated: bool = False) -> Record:
    return Record(HEADER, SessionLogOffset(cut), events_of(rows), delegated=delegated)


def value(event_type: str, data: Any = None, **envelope: Any) -> Value:
    return {"type": event_type, "seq": 0, "time": 0, "data": {} if data is None else data, **envelope}


def fed(record: Record) -> list[str]:
    return [event.type for event in record.events[record.start :] if record.is_fed(event.seq)]


def insert(target: str = "next-turn", **more: Any) -> Value:
    return value("agent/inbox/spliced", {"target": target, "start": 0, "inserted": [{"id": "m"}], **more})


def claim(target: str = "next-turn") -> Value:
    return value("agent/inbox/spliced", {"target": target, "start": 0, "removedCount": 1, "inserted": []})


STEP, STEP_END = value("step/start", {"turn": 1, "step": 1}), value("step/end", {"turn": 1, "step": 1})
TURN = value("turn/start", {"turn": 1})


def ends(kind: str, **more: Any) -> Value:
    return value("turn/end", {"turn": 1, "reason": {"kind": kind, **more}})


def test_input_is_fed_and_its_claim_is_not() -> None:
    dropped = insert(outcome="canceled")
    assert (
        fed(record_of(insert(), TURN, claim(), STEP, insert("next-step"), dropped, STEP_END))
        == ["agent/inbox/spliced"] * 3
    )


def test_a_message_in_a_step_is_the_loops_and_any_other_is_fed() -> None:
    message = value("user/message", surfaceOp="append")
    header = value("request/header")
    replacing = value("user/message", surfaceOp={"op": "replace", "start": 0, "end": 0})
    record = record_of(TURN, message, STEP, message, header, message, replacing, STEP_END, message)
    assert [event.seq for event in record.events if record.is_fed(event.seq)] == [1, 6, 8]


def test_a_rewritten_result_is_fed() -> None:
    replacing = value("tool/result", surfaceOp={"op": "replace", "start": 0, "end": 0})
    assert fed(record_of(STEP, value("tool/result", surfaceOp="append"), replacing)) == ["tool/result"]


def test_of_a_delegated_child_the_provider_gives_prompt_and_descriptor() -> None:
    rows = (insert(), TURN, claim(), value("subagent/descriptor"), STEP, insert("next-step"))
    assert fed(record_of(*rows)) == ["agent/inbox/spliced", "subagent/descriptor", "agent/inbox/spliced"]
    assert fed(record_of(*rows, delegated=True)) == ["agent/inbox/spliced"]


def test_what_is_replayed_begins_at_the_last_mark_or_at_the_cut() -> None:
    mark = value("session/end-seed")
    assert record_of(TURN, ends("completed")).start == 0
    assert record_of(TURN, ends("completed"), TURN, cut=2).start == 2
    assert record_of(TURN, mark, TURN, mark, TURN, cut=1).start == 3
    assert [e.type for e in record_of(TURN, mark, insert()).owned_from(1)] == ["session/end-seed"]


def test_every_event_is_the_loops_or_fed() -> None:
    session = family()[0]
    record = Record(session.header, session.inherited_event_count, session.events)
    owned = {event.seq for event in record.owned_from(0)}
    assert owned == {seq for seq in range(len(record)) if not record.is_fed(seq)}
    assert (record.is_fed(len(record)), record.at(len(record)), record.at(-1)) == (False, None, None)


# --- looking ahead -----------------------------------------------------------------------------------------


def test_the_messages_that_enter_a_step() -> None:
    message = value("user/message", {"id": "m"}, surfaceOp="append")
    record = record_of(
        TURN, claim(), value("subagent/descriptor"), STEP, message, message, value("request/header")
    )
    assert [event.seq for event in record.entered(2) or []] == [4, 5]
    assert record.entered(0) is None
    assert record_of(TURN, ends("blocked")).entered(1) is None
    assert record_of(TURN).entered(1) is None


@pytest.mark.parametrize("kind", ["completed", "aborted", "error", "blocked", "max-tokens"])
def test_how_a_turn_ends_when_nothing_else_is_left_of_it(kind: str) -> None:
    record = record_of(TURN, STEP, value("turn/start"), STEP_END, ends(kind))
    ending = record.ending(3)
    assert ending is not None
    assert ending.kind == kind
    assert record.ending(1) is None
    assert record.ending(5) is None


def test_an_interrupted_answer_is_part_of_an_ending() -> None:
    answer = value("assistant/message", {"interrupted": True, "message": {}})
    ending = record_of(answer, STEP_END, ends("aborted", reason={"kind": "user"})).ending(0)
    assert ending is not None
    assert ending.abort_cause == {"kind": "user"}
    assert record_of(value("assistant/message"), STEP_END, ends("aborted")).ending(0) is None


@pytest.mark.parametrize("reason", [None, "text", [], {"kind": "aborted", "reason": 5}])
def test_an_ending_of_another_shape_has_no_cause(reason: Any) -> None:
    ending = record_of(value("turn/end", {"turn": 1, "reason": reason})).ending(0)
    assert ending is not None
    assert ending.abort_cause == {}


def test_the_request_that_a_call_logs() -> None:
    header, context = (
        value("request/header", {"header": {"system": "x"}}),
        value("request/context", {"model": "m"}),
    )
    chunk = value("assistant/chunk")
    record = record_of(STEP, header, context, chunk, STEP_END, header)
    assert record.request_header(1) == {"system": "x"}
    assert record.request_context(1) == {"model": "m"}
    assert record.request_header(3) is None
    assert record.request_context(3) is None
    assert (record.call_follows(3), record.call_follows(2), record.call_follows(9)) == (True, False, False)


def test_a_failed_call_is_tried_again_unless_its_step_ends() -> None:
    chunk = value("assistant/chunk")
    assert record_of(chunk, chunk).retries(1)
    assert not record_of(chunk, STEP_END).retries(1)
    assert not record_of(chunk).retries(1)


def batch_of(*kinds: str) -> Batch:
    """A batch of calls (c) and results (r) in this order."""
    names = {"c": "tool/call", "r": "tool/result"}
    record = record_of(*(value(names[kind], surfaceOp="append") for kind in kinds), STEP_END)
    return record.batch(0)


@pytest.mark.parametrize(
    ("order", "overlaps"),
    [
        ("crcr", [False, False]),
        ("ccrr", [True, True]),
        ("crccrr", [False, True, True]),
        ("ccrcrr", [True, True, True]),
        ("c", [False]),
        ("cc", [True, True]),
    ],
)
def test_calls_overlap_where_one_started_before_the_result_of_the_other(
    order: str, overlaps: list[bool]
) -> None:
    batch = batch_of(*order)
    assert [batch.overlaps(position) for position in range(len(batch.calls))] == overlaps
    assert not batch.overlaps(len(batch.calls))
    assert batch.result(len(batch.results)) is None


def test_input_is_held_when_it_came_after_the_claim() -> None:
    late = insert("next-step")
    assert record_of(STEP_END, late, value("step/start")).held(1)
    assert not record_of(STEP_END, late, claim("next-step"), value("step/start")).held(1)
    assert not record_of(STEP_END, late, ends("completed")).held(1)
    assert not record_of(STEP_END, insert(), value("step/start")).held(1)
    assert not record_of(STEP, late, value("step/start")).held(1)
    assert not record_of(STEP_END, late).held(1)
    assert not record_of(late).held(0)


@pytest.mark.parametrize("target", ["next-turn", "next-step"])
def test_input_behind_the_last_turn_is_held(target: str) -> None:
    end = ends("completed")
    assert record_of(end, insert(target)).held(1)
    assert record_of(end, insert(target), value("todo/write")).held(1)
    assert not record_of(end, insert(target), TURN).held(1)
    assert not record_of(insert(target)).held(0)


# --- crashes -----------------------------------------------------------------------------------------------


def test_what_repair_appended_is_known() -> None:
    unknown = value("tool/result", {"error": {"code": "TOOL_OUTCOME_UNKNOWN"}}, surfaceOp="append")
    rows = (TURN, STEP, value("tool/call"), unknown, STEP_END, ends("interrupted"))
    assert record_of(*rows).crash_seq == 3
    assert record_of(TURN, ends("interrupted")).crash_seq == 1
    assert record_of(ends("interrupted")).crash_seq == 0
    assert record_of(unknown, unknown, ends("interrupted")).crash_seq == 0
    assert record_of(TURN, ends("completed")).crash_seq is None
    assert record_of(TURN, ends("interrupted"), value("session/end-seed")).crash_seq is None


# --- shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, 5, "x", [], {"a": 1}, {"a": {"b": 2}}])
def test_a_record_may_hold_anything(data: Any) -> None:
    item = event("x", 0, data if data is not None else {})
    assert isinstance(value_of(item, "a", "b"), dict)
    assert error_code(item) is None


def test_every_recorded_session_can_be_read_ahead_from_anywhere() -> None:
    sessions = [
        *family(),
        alone(tool_calls(call("none")), text("Hm.")),
        alone(failure("SERVER")),
        altered(alone(text("Hi.")), lambda values: first(values, "turn/end")["data"].update(reason=4)),
    ]
    for session in sessions:
        ask_everything(session)


def ask_everything(session: RecordedSession) -> None:
    record = Record(session.header, START, session.events)
    for seq in range(len(record) + 2):
        questions = (record.entered, record.ending, record.turn_outcome, record.request_header, record.batch)
        for question in (*questions, record.request_context, record.call_follows, record.retries):
            question(seq)
        if record.at(seq):
            record.held(seq)
