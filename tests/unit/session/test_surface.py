"""The surface: every refusal, the replace rules, derived messages."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec import UNSET, Raw

from seedline.errors import (
    SessionPersistenceCorruptionError,
    SurfaceRefusalCode,
    SurfaceRefusedError,
)
from seedline.events.event import Event, ReplaceOp
from seedline.session.log import Session
from seedline.session.surface import Surface, derive_messages, fold_surface, message_of, read_surface_op
from tests.unit.session.make import assistant, event, events_of, new_session, replace, result, user


def no_lookup(seq: int) -> Event:
    raise AssertionError(f"seq {seq} was looked up")


def stage() -> Session:
    """user 0, note 1, user 2, answer 3, result 4, result 5, result 6, error result 7, other call's 8."""
    session = new_session()
    session.append("user/message", user("0"), surface_op="append")
    session.append("plugin/note", {})
    session.append("user/message", user("2"), surface_op="append")
    session.append("assistant/message", assistant(), surface_op="append")
    for text in ("one", "two", "three"):
        session.append("tool/result", result("c", text), surface_op="append")
    failed = result("c", "bad", error={"name": "E", "code": "X"}, meta={"k": [1]})
    session.append("tool/result", failed, surface_op="append")
    session.append("tool/result", result("d", "other"), surface_op="append")
    return session


REFUSALS: list[tuple[SurfaceRefusalCode, dict[str, Any]]] = [
    ("not-eligible", {"event_type": "plugin/note", "surface_op": "append"}),
    ("not-eligible", {"event_type": "plugin/note", "surface_op": replace(0, 0)}),
    ("not-eligible", {"event_type": "plugin/note", "source_event_seqs": [0]}),
    ("not-eligible", {"event_type": "plugin/note", "source_event_seqs": []}),
    ("marker-missing", {"surface_op": UNSET}),
    ("marker-missing", {"surface_op": UNSET, "source_event_seqs": [0]}),
    *[
        ("marker-malformed", {"surface_op": marker})
        for marker in (None, "prepend", "", 1, True, [], ["append"])
    ],
    ("marker-malformed", {"surface_op": b"append"}),
    ("replace-shape", {"surface_op": {}}),
    ("replace-shape", {"surface_op": {"op": "append"}}),
    ("replace-shape", {"surface_op": {"op": "replace", "start": 0}}),
    ("replace-shape", {"surface_op": {"op": "replace", "end": 0}}),
    ("replace-shape", {"surface_op": replace(0, 0) | {"why": "extra"}}),
    ("replace-shape", {"surface_op": replace(0, 0) | {"op": "insert"}}),
    *[
        ("replace-shape", {"surface_op": replace(0, 0) | {"start": bad}})
        for bad in (-1, 0.0, True, "0", None)
    ],
    ("replace-shape", {"surface_op": replace(0, 0) | {"end": 2**53}}),
    ("start-missing", {"surface_op": replace(1, 2), "source_event_seqs": [0, 1, 2]}),
    ("start-missing", {"surface_op": replace(99, 2), "source_event_seqs": [0, 1, 2]}),
    ("start-missing", {"surface_op": replace(9, 9), "source_event_seqs": [0]}),  # itself
    ("end-missing", {"surface_op": replace(0, 1), "source_event_seqs": [0, 1, 2]}),
    ("start-after-end", {"surface_op": replace(3, 2), "source_event_seqs": [2, 3]}),
    ("sources-malformed", {"source_event_seqs": "0"}),
    ("sources-malformed", {"source_event_seqs": 0}),
    ("sources-malformed", {"source_event_seqs": None}),
    ("sources-malformed", {"source_event_seqs": {0}}),
    *[("sources-malformed", {"source_event_seqs": [0, bad]}) for bad in (-1, 1.0, True, "1", None, 2**53)],
    ("sources-empty", {"source_event_seqs": []}),
    ("sources-empty", {"event_type": "tool/result", "data": result(), "source_event_seqs": []}),
    ("sources-duplicate", {"source_event_seqs": [0, 2, 0]}),
    ("sources-not-earlier", {"source_event_seqs": [0, 9]}),
    ("sources-not-earlier", {"source_event_seqs": [100]}),
    ("shadowed-not-cited", {"surface_op": replace(0, 3), "source_event_seqs": [2]}),
    ("shadowed-not-cited", {"surface_op": replace(0, 0)}),
    (
        "tool-rewrite-several",
        {
            "event_type": "tool/result",
            "data": result("c", "cut"),
            "surface_op": replace(4, 5),
            "source_event_seqs": [4, 5],
        },
    ),
    (
        "tool-rewrite-other-type",
        {
            "event_type": "tool/result",
            "data": result("c", "cut"),
            "surface_op": replace(3, 3),
            "source_event_seqs": [3],
        },
    ),
    *[
        (
            "tool-rewrite-beyond-content",
            {
                "event_type": "tool/result",
                "data": data,
                "surface_op": replace(4, 4),
                "source_event_seqs": [4],
            },
        )
        for data in (
            result("d", "cut"),
            result("c", "cut", turn=2),
            result("c", "cut", step=2),
            result("c", "cut", error={"name": "E", "code": "X"}),
            result("c", "cut", meta=None),
            result("c", "cut", turn=True),
        )
    ],
]


@pytest.mark.parametrize(("code", "changes"), REFUSALS)
def test_each_refusal_has_its_code_and_changes_nothing(
    code: SurfaceRefusalCode, changes: dict[str, Any]
) -> None:
    session = stage()
    before = session.surface, session.seq
    arguments: dict[str, Any] = {"event_type": "user/message", "data": user(), "surface_op": "append"}
    if changes.get("event_type") == "plugin/note":
        arguments["surface_op"] = UNSET
    with pytest.raises(SurfaceRefusedError) as refused:
        session.append(**arguments | changes)
    assert refused.value.surface_code == code
    assert refused.value.code == "surface"
    assert code in str(refused.value)
    assert (session.surface, session.seq) == before


def test_every_code_is_reachable() -> None:
    assert {code for code, _ in REFUSALS} == set(get_args(SurfaceRefusalCode))


def test_uncited_nodes_are_listed() -> None:
    with pytest.raises(SurfaceRefusedError, match=r"\[0, 3\]") as refused:
        stage().append("user/message", user(), surface_op=replace(0, 3), source_event_seqs=[2, 1])
    assert refused.value.missing == (0, 3)


def test_an_answer_may_state_that_it_has_no_sources() -> None:
    session = new_session()
    stated = session.append("assistant/message", assistant(), surface_op="append", source_event_seqs=[])
    unknown = session.append("assistant/message", assistant(), surface_op="append")
    assert stated.source_event_seqs == ()
    assert unknown.source_event_seqs is UNSET
    assert stated != unknown


def test_sources_may_stand_in_any_order_and_go_beyond_what_is_replaced() -> None:
    session = stage()
    event = session.append("user/message", user(), surface_op=replace(2, 3), source_event_seqs=[3, 1, 0, 2])
    assert event.source_event_seqs == (3, 1, 0, 2)
    assert session.surface == (0, 9, 4, 5, 6, 7, 8)


def test_the_example_of_the_format() -> None:
    surface = Surface([4, 9, 12])
    summary = event("user/message", 20, user(), op=replace(4, 9), sources=(18, 19, 4, 9))
    surface.commit(summary, surface.admit(summary, no_lookup))
    assert surface.nodes == (20, 12)
    assert surface.replace_generation == 1
    assert surface.replacements == ((20, 4, 9, (4, 9)),)


def test_order_on_the_surface_counts_not_the_seq() -> None:
    surface = Surface([20, 12])
    backwards = event("user/message", 30, user(), op=replace(12, 20), sources=(12, 20))
    with pytest.raises(SurfaceRefusedError, match="start-after-end"):
        surface.admit(backwards, no_lookup)
    forwards = event("user/message", 30, user(), op=replace(20, 12), sources=(12, 20))
    surface.commit(forwards, surface.admit(forwards, no_lookup))
    assert surface.nodes == (30,)


# --- rule 7: a tool result is rewritten in its content only ----------------------------------------


@pytest.mark.parametrize("seq", [4, 5, 6, 7, 8])
def test_a_result_may_be_replaced_by_itself_with_other_content(seq: int) -> None:
    session = stage()
    data = session.events[seq].value
    data["message"]["content"][0]["content"] = []
    reordered = dict(reversed(list(data.items())))
    session.append("tool/result", reordered, surface_op=replace(seq, seq), source_event_seqs=[seq])
    assert 9 in session.surface
    assert seq not in session.surface


def test_a_rewritten_result_may_be_rewritten_again() -> None:
    session = stage()
    session.append("tool/result", result("c", "1"), surface_op=replace(4, 4), source_event_seqs=[4])
    session.append("tool/result", result("c", "2"), surface_op=replace(9, 9), source_event_seqs=[9])
    assert session.surface == (0, 2, 3, 10, 5, 6, 7, 8)
    with pytest.raises(SurfaceRefusedError, match="start-missing"):
        session.append("tool/result", result("c", "3"), surface_op=replace(4, 4), source_event_seqs=[4])


def test_is_error_may_not_change() -> None:
    session = stage()
    data = session.events[4].value
    data["message"]["content"][0]["isError"] = True
    with pytest.raises(SurfaceRefusedError, match="tool-rewrite-beyond-content"):
        session.append("tool/result", data, surface_op=replace(4, 4), source_event_seqs=[4])


def test_a_summary_may_replace_results_and_answers() -> None:
    session = stage()
    session.append(
        "user/message", user("sum"), surface_op=replace(0, 8), source_event_seqs=[0, 2, 3, *range(4, 9)]
    )
    assert session.surface == (9,)


# --- folds -----------------------------------------------------------------------------------------


def test_a_window_cannot_replace_what_lies_before_it() -> None:
    session = stage()
    session.append("user/message", user(), surface_op=replace(2, 2), source_event_seqs=[2])
    session.append("user/message", user(), surface_op=replace(4, 4), source_event_seqs=[4])
    log = session.events
    with pytest.raises(SurfaceRefusedError, match="start-missing") as refused:
        fold_surface(log[3:], log.at_seq)
    assert refused.value.seq == 9
    window = fold_surface([*log[4:9], log[10]], log.at_seq)
    assert window.nodes == (10, 5, 6, 7, 8)
    assert fold_surface(log, log.at_seq).nodes == session.surface


def test_the_surface_as_it_was_before() -> None:
    session = stage()
    session.append("user/message", user(), surface_op=replace(0, 3), source_event_seqs=[0, 2, 3])
    session.append("user/message", user(), surface_op=replace(9, 4), source_event_seqs=[9, 4])
    session.append("user/message", user(), surface_op="append")
    log = session.events
    whole = fold_surface(log, log.at_seq)
    for stop in range(len(log) + 1):
        then, folded = whole.before(stop), fold_surface(log[:stop], log.at_seq)
        assert (then.nodes, then.replacements) == (folded.nodes, folded.replacements)
    assert whole.nodes == session.surface


def test_markers_of_a_row_are_read_as_a_reader_gives_them() -> None:
    assert read_surface_op("append", "user/message") == "append"
    assert read_surface_op(replace(1, 2), "user/message") == ReplaceOp("replace", 1, 2)
    with pytest.raises(SurfaceRefusedError, match="replace-shape"):
        read_surface_op(ReplaceOp("replace", -1, 2), "user/message")
    row = Event("user/message", 1, 0, Raw(b"{}"), (-1,), "append")
    with pytest.raises(SurfaceRefusedError, match="sources-malformed"):
        Surface().admit(row, no_lookup)


# --- messages --------------------------------------------------------------------------------------


def test_only_surface_events_hold_messages() -> None:
    assert message_of(event("plugin/note", 0, user())) is None
    assert message_of(event("turn/start", 0, {"turn": 1})) is None


@pytest.mark.parametrize("event_type", ["assistant/message", "tool/result"])
@pytest.mark.parametrize(
    "text", [b"{}", b"null", b"[]", b'"\\ud800"', b'["\\ud800"]', b'{"a":"\\ud800"}', b'{"messages":1}']
)
def test_an_event_without_its_message_is_corruption_with_its_seq(event_type: str, text: bytes) -> None:
    broken = Event(event_type, 7, 0, Raw(text), UNSET, "append")
    with pytest.raises(SessionPersistenceCorruptionError) as corrupt:
        message_of(broken)
    assert corrupt.value.seq == 7


@pytest.mark.parametrize("message", [b"null", b"[]", b'{"content":5}', b"{}"])
def test_an_answer_whose_content_is_no_list_is_corruption(message: bytes) -> None:
    broken = Event("assistant/message", 7, 0, Raw(b'{"message":' + message + b"}"), UNSET, "append")
    with pytest.raises(SessionPersistenceCorruptionError):
        message_of(broken)


def test_the_typed_view_of_a_misshapen_message_is_corruption_with_its_seq() -> None:
    found = message_of(event("user/message", 3, {"id": 5}))
    assert found is not None
    assert found.value == {"id": 5}
    with pytest.raises(SessionPersistenceCorruptionError) as corrupt:
        _ = found.message
    assert corrupt.value.seq == 3


def test_a_message_with_a_lone_surrogate_is_derived() -> None:
    text = b'{"turn":1,"message":{"id":"a","role":"assistant","content":["\\ud800"],"source":{"kind":"m"}}}'
    found = message_of(Event("assistant/message", 0, 0, Raw(text), UNSET, "append"))
    assert found is not None
    assert found.value["content"] == ["\ud800"]


def test_messages_of_a_fold() -> None:
    log = events_of(
        event("user/message", 0, user("a"), op="append"),
        event("assistant/message", 1, assistant([]), op="append"),
        event("tool/result", 2, result(), op="append"),
    )
    assert [m.seq for m in derive_messages((2, 1, 0), log.at_seq)] == [2, 0]
