"""The first difference of a run and its record: where it is, what differs, and what made it so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.events.event import Event
from seedline.jsonvalue import canonical, decode
from seedline.replay.compare import (
    Comparer,
    cause_kind,
    event_differences,
    event_value,
    header_difference,
)
from seedline.replay.divergence import Cause, Difference, differences
from seedline.session.header import START, CallSpawn, SessionHeader
from tests.unit.session.make import event
from tests.unit.snapshot.recording import events_of

KEY = "0/t1.s1.c0.n0"


def run_of(*rows: tuple[str, Any], **more: Any) -> list[Event]:
    return [event(name, seq, data, **more) for seq, (name, data) in enumerate(rows)]


def compared(expected: list[Event], actual: list[Event], **options: Any) -> Comparer:
    comparer = Comparer(expected, 0, KEY, **options)
    for item in actual:
        comparer.take(item, fed=False)
    comparer.finish()
    return comparer


TURN = [
    ("turn/start", {"turn": 3}),
    ("step/start", {"turn": 3, "step": 2}),
    ("step/end", {"turn": 3, "step": 2}),
    ("turn/end", {"turn": 3, "reason": {"kind": "completed"}}),
]


def test_equal_runs_count_every_event() -> None:
    comparer = Comparer(run_of(*TURN), 0, KEY)
    for item in run_of(*TURN):
        assert comparer.take(item, fed=item.type == "turn/start")
    comparer.finish()
    assert (comparer.divergence, comparer.compared, comparer.fed) == (None, 3, 1)


def test_the_first_difference_stands_and_nothing_after_it_counts() -> None:
    wrong = [*TURN]
    wrong[2] = ("step/end", {"turn": 3, "step": 9})
    wrong[3] = ("turn/end", {"turn": 9})
    comparer = compared(run_of(*TURN), run_of(*wrong))
    found = comparer.divergence
    assert found is not None
    assert (found.seq, found.type, found.path, found.expected, found.actual) == (
        2,
        "step/end",
        "/data/step",
        2,
        9,
    )
    assert (found.turn, found.step) == (3, 2)
    assert found.cause == Cause(KEY, 2, "step/end", "record")
    assert (comparer.compared, comparer.next_seq) == (2, 2)


def test_a_missing_event_is_the_first_that_was_expected() -> None:
    found = compared(run_of(*TURN), run_of(*TURN[:2])).divergence
    assert found is not None
    assert (found.seq, found.type, found.path, found.actual) == (2, "step/end", "", None)
    assert found.expected == event_value(run_of(*TURN)[2])


def test_an_event_too_many_differs_whole() -> None:
    found = compared(run_of(*TURN[:2]), run_of(*TURN)).divergence
    assert found is not None
    assert (found.seq, found.type, found.path, found.expected) == (2, "step/end", "", None)
    assert found.actual == event_value(run_of(*TURN)[2])


def test_places_before_the_first_turn_are_unknown() -> None:
    found = compared(run_of(("a", 1)), run_of(("a", 2))).divergence
    assert found is not None
    assert (found.turn, found.step) == (None, None)


def test_every_difference_of_the_event_is_told() -> None:
    left = run_of(("x", {"a": 1, "b": [1, 2], "c": "same"}))
    right = run_of(("x", {"a": 2, "b": [1], "c": "same", "d": None}))
    found = compared(left, right).divergence
    assert found is not None
    assert found.differences == (
        Difference("/data/a", 1, 2),
        Difference("/data/b/1", 2, None),
        Difference("/data/d", None, None),
    )


# --- two events --------------------------------------------------------------------------------------------


def test_the_order_of_keys_is_no_difference() -> None:
    assert event_differences(event("x", 0, {"a": 1, "b": 2}), event("x", 0, {"b": 2, "a": 1})) == []


def test_numbers_differ_by_value() -> None:
    assert event_differences(event("x", 0, {"n": 1}), event("x", 0, {"n": 1.0})) == []
    assert event_differences(event("x", 0, {"n": 1}), event("x", 0, {"n": True})) != []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"time": 5}, "/time"),
        ({"source_event_seqs": (1,)}, "/sourceEventSeqs"),
        ({"surface_op": "append"}, "/surfaceOp"),
        ({"ignorable": True}, "/ignorable"),
    ],
)
def test_the_envelope_is_compared(more: dict[str, Any], path: str) -> None:
    left = Event("user/message", 4, 0, event("x", 0, {}).data)
    right = Event(**{"type": "user/message", "seq": 4, "time": 0, "data": left.data} | more)
    assert [difference.path for difference in event_differences(left, right)] == [path]


def test_a_shifted_event_differs_in_what_it_says_before_its_time() -> None:
    left, right = event("step/start", 1, {"step": 1}, time=10), event("step/start", 1, {"step": 2}, time=17)
    assert [d.path for d in event_differences(left, right)] == ["/data/step", "/time"]


def test_events_of_two_types_differ_in_their_types() -> None:
    found = event_differences(event("turn/start", 0, {"turn": 1}), event("turn/end", 0, {"turn": 2}))
    assert found == [Difference("/type", "turn/start", "turn/end")]


@pytest.mark.parametrize(
    "silent", [{"system": ""}, {"tools": []}, {"adapterDefaults": {}}, {"messagePrefix": [1]}]
)
def test_a_request_header_may_leave_out_what_says_nothing(silent: dict[str, Any]) -> None:
    config = {"provider": "p", "model": "m"}
    left = event("request/header", 0, {"header": {"config": config}, "reason": "initial"})
    right = event("request/header", 0, {"header": {"config": config} | silent, "reason": "initial"})
    assert event_differences(left, right) == []


def test_what_a_request_header_says_is_compared() -> None:
    left = event("request/header", 0, {"header": {"system": "a", "adapterDefaults": {"maxTokens": True}}})
    right = event("request/header", 0, {"header": {"system": "b"}})
    paths = [difference.path for difference in event_differences(left, right)]
    assert paths == ["/data/header/system", "/data/header/adapterDefaults"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~b", max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_values_differ_exactly_where_a_difference_is_told(left: Any, right: Any) -> None:
    found = list(differences(left, right))
    assert (found == []) == (canonical(left) == canonical(right))
    for difference in found:
        assert _at(left, difference.path) == difference.expected
        assert _at(right, difference.path) == difference.actual


def _at(value: Any, pointer: str) -> Any:
    """What a JSON Pointer names, None where there is nothing."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


# --- causes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "path", "fed", "kind"),
    [
        ("turn/end", "/data/reason/kind", False, "record"),
        ("turn/end", "/time", False, "clock"),
        ("agent/inbox/spliced", "/time", True, "clock"),
        ("agent/inbox/spliced", "/data/inserted/0/content/0/text", True, "fed-input"),
        ("agent/inbox/spliced", "/data/start", False, "record"),
        ("request/header", "/data/header/system", False, "prompt"),
        ("request/header", "/data/header/tools/0/description", False, "schema"),
        ("request/header", "/data/reason", False, "record"),
        ("request/header", "/data/header/config/model", False, "record"),
        ("tool/result", "/data/message/content/0/content/0/text", False, "tool-result"),
        ("tool/result", "/data/message/content/0/isError", False, "tool-result"),
        ("tool/result", "/data/error/code", False, "tool-result"),
        ("tool/result", "/data/meta", False, "tool-result"),
        ("tool/result", "/data/message/role", False, "record"),
        ("tool/result", "/data/message/content/0/toolCallId", False, "record"),
        ("tool/result", "/sourceEventSeqs/0", False, "record"),
        ("assistant/message", "/data/message/content/0/text", False, "record"),
    ],
)
def test_where_an_event_differs_says_what_made_it(event_type: str, path: str, fed: bool, kind: str) -> None:
    assert cause_kind(event(event_type, 0, {}), path, fed=fed) == kind


def handed_in(expected: list[Event], actual: list[Event], fed_seq: int) -> str:
    comparer = Comparer(expected, 0, KEY)
    for item in actual:
        comparer.take(item, fed=item.seq == fed_seq)
    assert comparer.divergence is not None
    assert comparer.divergence.cause is not None
    return comparer.divergence.cause.kind


def test_input_that_is_not_expected_was_handed_in() -> None:
    rows: list[tuple[str, Any]] = [("turn/start", {"turn": 1}), ("todo/write", {}), ("turn/end", {"turn": 1})]
    without = [rows[0], rows[2]]
    assert handed_in(run_of(*without), run_of(*rows), fed_seq=1) == "fed-input"


def test_an_event_that_the_record_repeats_is_not_the_fault_of_the_input_after_it() -> None:
    rows: list[tuple[str, Any]] = [("turn/start", {"turn": 1}), ("todo/write", {})]
    doubled = [rows[0], rows[0], rows[1]]
    assert handed_in(run_of(*doubled), run_of(*rows), fed_seq=1) == "record"


def test_a_known_cause_upstream_comes_first() -> None:
    upstream = Cause("0", 1, "tool/result", "tool-result")
    found = compared(run_of(("a", 1)), run_of(("a", 2)), upstream=lambda item, path: upstream).divergence
    assert found is not None
    assert found.cause == upstream


# --- masks -------------------------------------------------------------------------------------------------


def masking(*paths: str) -> Any:
    return lambda item: paths if item.type == "a" else ()


def test_a_masked_difference_is_none_and_the_cause_of_the_next() -> None:
    left = run_of(("a", {"x": {"y": 1}}), ("b", 1), ("c", 1))
    right = run_of(("a", {"x": {"y": 2}}), ("b", 1), ("c", 2))
    comparer = compared(left, right, masked=masking("/data/x"))
    assert comparer.compared == 2
    found = comparer.divergence
    assert found is not None
    assert (found.seq, found.type) == (2, "c")
    assert found.cause == Cause(KEY, 0, "a", "record")


def test_a_mask_covers_a_place_and_what_is_below_it() -> None:
    left, right = run_of(("a", {"x": 1, "xy": 1})), run_of(("a", {"x": 2, "xy": 2}))
    found = compared(left, right, masked=masking("/data/x")).divergence
    assert found is not None
    assert found.path == "/data/xy"
    assert compared(left, right, masked=masking("/data")).divergence is None


# --- headers and prefixes ----------------------------------------------------------------------------------

HEADER = SessionHeader(
    id="child",
    created_at=1,
    parent_session="parent",
    origin="subagent",
    delegation_depth=1,
    spawn=CallSpawn(1, 1, 0, 0, "call", "subagent"),
)


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({"is_seeded": True}, "/isSeeded"),
        ({"parent_session": "other"}, "/parentSession"),
        ({"origin": None}, "/origin"),
        ({"delegation_depth": 2}, "/delegationDepth"),
        ({"spawn": CallSpawn(1, 1, 1, 0, "call", "subagent")}, "/spawn"),
        ({"spawn": None}, "/spawn"),
    ],
)
def test_a_fact_of_a_childs_header_is_compared(facts: dict[str, Any], path: str) -> None:
    other = SessionHeader(**{name: getattr(HEADER, name) for name in HEADER.__struct_fields__} | facts)
    difference = header_difference(HEADER, START, other, START)
    assert difference is not None
    assert difference.path == path


def test_what_a_foreign_header_leaves_out_is_not_compared() -> None:
    foreign = SessionHeader(id="child", created_at=1, parent_session="parent", origin="subagent")
    assert header_difference(foreign, START, HEADER, START) is None
    cut = header_difference(foreign, START, HEADER, 4)
    assert cut == Difference("/inheritedEventCount", 0, 4)


def test_a_header_that_differs_ends_the_comparison() -> None:
    comparer = Comparer(run_of(*TURN), 0, KEY)
    comparer.diverge_header(Difference("/origin", "subagent", None))
    assert not comparer.take(run_of(*TURN)[0], fed=False)
    assert not comparer.take_inherited([event("x", 0, 1)])
    assert comparer.divergence is not None
    assert comparer.divergence.type == "session"


def test_an_inherited_event_that_differs_is_found_and_none_is_counted() -> None:
    comparer = Comparer(run_of(*TURN), 3, KEY)
    assert comparer.take_inherited(run_of(*TURN[:3]))
    wrong = run_of(TURN[0], ("step/start", {"turn": 3, "step": 8}))
    assert not comparer.take_inherited(wrong)
    found = comparer.divergence
    assert found is not None
    assert (found.seq, found.path, comparer.compared, comparer.next_seq) == (1, "/data/step", 0, 3)


def test_an_event_as_a_value_has_what_its_row_has() -> None:
    value = {
        "type": "user/message",
        "seq": 0,
        "time": 9,
        "data": {"text": "\ud83d"},
        "sourceEventSeqs": [],
        "surfaceOp": {"op": "replace", "start": 1, "end": 2},
        "ignorable": True,
    }
    (item,) = events_of([value])
    assert event_value(item) == value
    assert decode(bytes(item.data)) == value["data"]
