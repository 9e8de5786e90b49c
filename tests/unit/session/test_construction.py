"""Building a session: seeds, restored logs, forks, the end-seed mark and the two boundaries."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from seedline.clock import ManualClock
from seedline.errors import (
    EventRefusedError,
    HeaderRefusedError,
    SessionPersistenceCorruptionError,
    SurfaceRefusedError,
)
from seedline.events.event import Event
from seedline.events.vocabulary import PAYLOADS
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.session.log import Session
from seedline.session.sequence import Events
from tests.unit.session.make import (
    FINISH,
    MODEL,
    assistant,
    chunk,
    event,
    events_of,
    new_session,
    one_turn,
    packed,
    replace,
    request,
    result,
    user,
)

HEADER = SessionHeader(id="s", created_at=1)
SEEDED = SessionHeader(id="s", created_at=1, is_seeded=True)


def create(seed: Any, header: SessionHeader = HEADER, cut: int = 0) -> Session:
    return Session.create(
        header, clock=ManualClock(500), inherited_event_count=SessionLogOffset(cut), seed=seed
    )


def restore(events: Events, header: SessionHeader = HEADER, cut: int = 0) -> Session:
    return Session.restore(
        header, clock=ManualClock(500), inherited_event_count=SessionLogOffset(cut), events=events
    )


def both_ways(*rows: Event) -> list[Any]:
    return [lambda: create(list(rows)), lambda: restore(events_of(*rows))]


def types(session: Session) -> list[str]:
    return [e.type for e in session.events]


# --- the end-seed mark ------------------------------------------------------------------------------


def test_no_seed_gives_an_empty_log() -> None:
    session = create(None)
    assert (session.seq, session.first_live_seq, list(session.events)) == (0, 0, [])


def test_an_empty_seed_gives_exactly_the_mark() -> None:
    session = create([])
    assert [(e.type, e.seq, e.value, e.time) for e in session.events] == [("session/end-seed", 0, {}, 500)]
    assert session.first_live_seq == 0


def test_a_seed_is_marked_once_and_reopening_does_not_grow_it() -> None:
    session = create([event("turn/start", 0, {"turn": 1}), event("plugin/note", 1)])
    assert types(session) == ["turn/start", "plugin/note", "session/end-seed"]
    assert session.first_live_seq == 2
    again = restore(session.events)
    assert list(again.events) == list(session.events)
    assert again.first_live_seq == 3


def test_the_mark_is_log_only_and_reaches_no_listener() -> None:
    session = create([event("user/message", 0, user(), op="append")])
    heard: list[Event] = []
    session.subscribe(heard.append)
    assert session.surface == (0,)
    assert [message.seq for message in session.derive_messages()] == [0]
    assert heard == []


def test_after_a_resume_the_two_boundaries_differ() -> None:
    parent = new_session("parent")
    one_turn(parent)
    child = parent.fork(SEEDED, 6, ManualClock())
    one_turn(child, turn=2)
    resumed = restore(child.events, SEEDED, cut=6)
    assert (child.first_live_seq, child.inherited_event_count) == (6, 6)
    assert (resumed.first_live_seq, resumed.inherited_event_count) == (13, 6)
    assert [e.seq for e in resumed.own_events] == list(range(6, 14))
    assert types(resumed)[13] == "session/end-seed"


# --- what a seed may hold ---------------------------------------------------------------------------


def test_a_created_session_keeps_nothing_of_the_callers_list() -> None:
    rows = [event("plugin/note", 0, {"a": 1})]
    session = create(rows)
    rows[0] = event("plugin/other", 0)
    rows.append(event("plugin/more", 1))
    assert types(session) == ["plugin/note", "session/end-seed"]


def test_the_seed_is_read_once() -> None:
    session = create(event("plugin/note", seq) for seq in range(3))
    assert session.seq == 4


def test_unknown_and_ignorable_events_stay() -> None:
    foreign = event("other/thing", 0, None, ignorable=True)
    for build in both_ways(foreign):
        assert build().events[0] == foreign
        assert build().events[0].ignorable is True


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"type": "plugin/note"}, "a seed holds `Event` values"),
        (None, "a seed holds `Event` values"),
        (event("plugin/note", True), "`seq` or `time`"),
        (event("plugin/note", -1), "`seq` or `time`"),
        (event("plugin/note", 0.0), "`seq` or `time`"),  # type: ignore[arg-type]  # the point of the case
        (event("plugin/note", 0, time=2**53), "`seq` or `time`"),
        (event("plugin/note", 0, time=True), "`seq` or `time`"),
        (event("plugin/note", 0, ignorable=False), "`ignorable` may only be true"),
        (event("plugin/note", 0, ignorable="yes"), "`ignorable` may only be true"),
        (event("plugin/note", 0, ignorable=1), "`ignorable` may only be true"),
        (Event(7, 0, 0, event("x", 0).data), "`type` is not a string"),  # type: ignore[arg-type]  # the point of the case
    ],
)
def test_a_borrowed_event_with_a_wrong_envelope_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(EventRefusedError, match=why) as refused:
        create([wrong])
    assert refused.value.code == "envelope"


@pytest.mark.parametrize(("op", "code"), [(7, "marker-malformed"), ("prepend", "marker-malformed")])
def test_a_borrowed_marker_of_another_shape_is_refused(op: Any, code: str) -> None:
    with pytest.raises(SurfaceRefusedError) as refused:
        create([event("user/message", 0, user(), op=op)])
    assert refused.value.surface_code == code


@pytest.mark.parametrize("seqs", [[1], [0, 0], [0, 2], [0, 1, 3]])
def test_seqs_must_be_contiguous_from_zero(seqs: list[int]) -> None:
    rows = [event("plugin/note", seq) for seq in seqs]
    for build in both_ways(*rows):
        with pytest.raises(EventRefusedError, match="is the seq that follows") as refused:
            build()
        assert refused.value.code == "sequence"
        assert refused.value.seq == next(seq for at, seq in enumerate(seqs) if seq != at)


def test_a_packed_row_out_of_place_is_refused() -> None:
    with pytest.raises(EventRefusedError) as refused:
        restore(events_of(event("plugin/note", 0), packed(2, "a", "b", "c")))
    assert (refused.value.code, refused.value.seq) == ("sequence", 2)
    session = restore(events_of(event("plugin/note", 0), packed(1, "a", "b", "c"), event("plugin/note", 4)))
    assert session.seq == 6


@pytest.mark.parametrize("event_type", ["request/header-delta", "mode/set"])
@pytest.mark.parametrize("ignorable", [UNSET, True])
def test_retired_types_are_refused_even_when_ignorable(event_type: str, ignorable: Any) -> None:
    for build in both_ways(event("plugin/note", 0), event(event_type, 1, ignorable=ignorable)):
        with pytest.raises(EventRefusedError) as refused:
            build()
        assert (refused.value.code, refused.value.seq) == ("retired", 1)


def test_the_reason_fallback_is_refused() -> None:
    for build in both_ways(event("request/header", 0, request(reason="fallback"))):
        with pytest.raises(EventRefusedError) as refused:
            build()
        assert (refused.value.code, refused.value.seq) == ("retired", 0)
    assert both_ways(event("request/header", 0, request("the word fallback")))[1]().seq == 2


def without(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """A copy of `value` that lacks the member at `path`."""
    head, *rest = path
    if not rest:
        return {name: member for name, member in value.items() if name != head}
    return value | {head: without(value[head], *rest)}


def with_member(value: dict[str, Any], member: Any, *path: str) -> dict[str, Any]:
    head, *rest = path
    return value | {head: with_member(value[head], member, *rest) if rest else member}


ANSWER, RESULT, REQUEST = assistant(), result("c"), request()
BLOCK: dict[str, Any] = RESULT["message"]["content"][0]


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("user/message", None),
        ("user/message", []),
        *[("user/message", without(user(), name)) for name in ("id", "role", "content", "source")],
        ("user/message", user() | {"id": ""}),
        ("user/message", user() | {"id": 5}),
        ("user/message", user() | {"role": "assistant"}),
        ("user/message", user() | {"content": "text"}),
        ("user/message", user() | {"source": "user"}),
        ("user/message", user() | {"source": {}}),
        ("user/message", user() | {"source": {"kind": ""}}),
        ("assistant/message", {"turn": 1, "step": 1}),
        *[
            ("assistant/message", without(ANSWER, "message", name))
            for name in ("id", "role", "content", "source")
        ],
        ("assistant/message", with_member(ANSWER, "user", "message", "role")),
        ("assistant/message", with_member(ANSWER, {}, "message", "content")),
        ("assistant/message", with_member(ANSWER, {"kind": "user"}, "message", "source")),
        ("assistant/message", with_member(ANSWER, MODEL | {"provider": ""}, "message", "source")),
        ("assistant/message", with_member(ANSWER, MODEL | {"model": ""}, "message", "source")),
        ("assistant/message", without(ANSWER, "message", "source", "model")),
        ("tool/result", {"turn": 1, "step": 1}),
        *[("tool/result", without(RESULT, "message", name)) for name in ("id", "role", "content", "source")],
        ("tool/result", with_member(RESULT, "assistant", "message", "role")),
        ("tool/result", with_member(RESULT, "", "message", "source", "callId")),
        ("tool/result", with_member(RESULT, "user", "message", "source", "kind")),
        ("tool/result", with_member(RESULT, [], "message", "content")),
        ("tool/result", with_member(RESULT, [BLOCK, BLOCK], "message", "content")),
        ("tool/result", with_member(RESULT, [BLOCK | {"type": "text"}], "message", "content")),
        ("tool/result", with_member(RESULT, [BLOCK | {"content": "done"}], "message", "content")),
        ("tool/result", with_member(RESULT, [BLOCK | {"toolCallId": "other"}], "message", "content")),
        ("tool/result", with_member(RESULT, [without(BLOCK, "toolCallId")], "message", "content")),
    ],
)
def test_a_message_that_cannot_be_right_is_refused_in_a_seed(event_type: str, data: Any) -> None:
    row = event(event_type, 1, data if data is not None else 0, op="append")
    for build in both_ways(event("plugin/note", 0), row):
        with pytest.raises(EventRefusedError, match=event_type) as refused:
            build()
        assert (refused.value.code, refused.value.seq) == ("message", 1)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"reason": "initial"},
        without(REQUEST, "header", "config"),
        without(REQUEST, "header", "config", "provider"),
        without(REQUEST, "header", "config", "model"),
        with_member(REQUEST, "", "header", "config", "provider"),
        with_member(REQUEST, "", "header", "config", "model"),
        with_member(REQUEST, 1, "header", "config", "model"),
        with_member(REQUEST, "", "header", "config", "reasoningEffort"),
        with_member(REQUEST, {"maxTokens": True}, "header", "adapterDefaults"),
        with_member(REQUEST, {"reasoningEffort": True}, "header", "adapterDefaults"),
        with_member(REQUEST, {"temperature": True}, "header", "adapterDefaults"),
        with_member(
            with_member(REQUEST, 5, "header", "config", "maxTokens"),
            {"maxTokens": False},
            "header",
            "adapterDefaults",
        ),
        with_member(REQUEST, [], "header", "adapterDefaults"),
    ],
)
def test_a_request_header_that_cannot_be_right_is_refused_in_a_seed(data: Any) -> None:
    for build in both_ways(event("request/header", 0, data)):
        with pytest.raises(EventRefusedError) as refused:
            build()
        assert (refused.value.code, refused.value.seq) == ("request-header", 0)


def test_a_marked_default_that_config_has_is_fine() -> None:
    marked = with_member(REQUEST, {"maxTokens": True}, "header", "adapterDefaults")
    data = with_member(marked, 5, "header", "config", "maxTokens")
    for build in both_ways(event("request/header", 0, data)):
        header = build().request_header()
        assert header is not None
        assert header.adapter_defaults is not None


def test_two_messages_may_have_one_id() -> None:
    rows = [event("user/message", seq, user(message_id="same"), op="append") for seq in range(2)]
    for build in both_ways(*rows):
        assert build().surface == (0, 1)


def test_payloads_of_the_loop_and_of_plugins_are_not_judged() -> None:
    judged = {"user/message", "assistant/message", "tool/result", "request/header"}
    rows = [event(event_type, seq, []) for seq, event_type in enumerate(sorted(PAYLOADS.keys() - judged))]
    for build in both_ways(*rows):
        assert build().first_live_seq == len(rows)


def test_a_seed_whose_surface_cannot_be_folded_is_refused_with_its_seq() -> None:
    rows = [event("user/message", 0, user(), op="append"), event("user/message", 1, user(), op=replace(0, 0))]
    for build in both_ways(*rows):
        with pytest.raises(SurfaceRefusedError) as refused:
            build()
        assert (refused.value.surface_code, refused.value.seq) == ("shadowed-not-cited", 1)


def test_a_message_without_a_marker_is_refused_in_a_seed_and_live() -> None:
    for build in both_ways(event("user/message", 0, user())):
        with pytest.raises(SurfaceRefusedError) as refused:
            build()
        assert refused.value.surface_code == "marker-missing"
    with pytest.raises(SurfaceRefusedError) as refused:
        new_session().append("user/message", user())
    assert refused.value.surface_code == "marker-missing"


# --- headers ------------------------------------------------------------------------------------------


def test_create_looks_at_the_header_last_and_restore_first() -> None:
    bad_header = SessionHeader(id="", created_at=1)
    bad_row = event("plugin/note", 5)
    with pytest.raises(EventRefusedError):
        create([bad_row], bad_header)
    with pytest.raises(HeaderRefusedError):
        restore(events_of(bad_row), bad_header)
    with pytest.raises(HeaderRefusedError):
        create([], bad_header)


def test_an_unseeded_session_cannot_have_a_cut() -> None:
    for build in (lambda: create([], HEADER, 1), lambda: restore(events_of(), HEADER, 1)):
        with pytest.raises(HeaderRefusedError, match="cannot inherit 1 events") as refused:
            build()
        assert refused.value.field == "isSeeded"


def test_the_cut_is_what_the_caller_says_not_the_seed_length() -> None:
    rows = [event("plugin/note", seq) for seq in range(5)]
    assert create(rows, SEEDED, 2).inherited_event_count == 2
    assert create(rows, SEEDED, 0).inherited_event_count == 0
    assert create(rows, HEADER, 0).inherited_event_count == 0
    # A cut may be ahead of the events of a session that is still being filled.
    assert create(None, SEEDED, 3).inherited_event_count == 3


def test_a_stored_log_shorter_than_its_cut_is_corrupt() -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match="3 events are inherited, the log has 2"):
        restore(events_of(event("plugin/note", 0), event("plugin/note", 1)), SEEDED, 3)


# --- forks --------------------------------------------------------------------------------------------


def test_a_fork_shares_rows_and_nothing_else() -> None:
    parent = new_session("parent")
    one_turn(parent)
    child = parent.fork(SEEDED, 6, ManualClock(9000))
    assert all(a is b for a, b in zip(child.events, parent.events, strict=False))
    assert child.events[6].time == 9000
    before = list(child.events)
    one_turn(parent, 2)
    one_turn(child, 2)
    one_turn(child, 3)
    assert list(child.events)[:7] == before
    assert parent.seq == 12
    assert [e.seq for e in parent.events] == list(range(12))
    assert [e.seq for e in child.events] == list(range(19))
    assert child.surface == (1, 3, 8, 10, 14, 16)


def test_a_fork_has_the_folds_of_its_prefix() -> None:
    parent = new_session("parent")
    parent.append("request/header", request("one"))
    parent.append("request/context", {"provider": "p", "model": "m", "contextWindow": 1})
    parent.append("user/message", user("a"), surface_op="append")
    parent.append("user/message", user("b"), surface_op="append")
    parent.append("user/message", user("c"), surface_op=replace(2, 3), source_event_seqs=[2, 3])
    parent.append("user/message", user("d"), surface_op=replace(4, 4), source_event_seqs=[4])
    parent.append("request/header", request("two"))
    parent.append("request/context", {"provider": "p", "model": "m", "contextWindow": 2})
    for stop in range(parent.seq + 1):
        child = parent.fork(SEEDED, stop, ManualClock())
        same = restore(parent.events[:stop], SEEDED, stop)
        assert child.surface == same.surface
        assert [m.value for m in child.derive_messages()] == [m.value for m in same.derive_messages()]
        assert child.request_header() == same.request_header()
        assert child.request_context() == same.request_context()


def test_a_fork_of_a_fork_may_cut_before_its_parents_cut() -> None:
    grandparent = new_session("g")
    one_turn(grandparent)
    one_turn(grandparent, 2)
    parent = grandparent.fork(SEEDED, 12, ManualClock())
    one_turn(parent, 3)
    for stop in (0, 6, 12, 13, 19):
        child = parent.fork(SEEDED, stop, ManualClock())
        one_turn(child, 4)
        assert [e.seq for e in child.events] == list(range(child.seq))
        assert list(child.events)[:stop] == list(parent.events)[:stop]
        assert [e.seq for e in child.events.without_chunks()] == list(range(child.seq))
        assert child.own_events[-1].type == "turn/end"


def test_a_prefix_that_ends_in_the_mark_is_not_marked_again() -> None:
    parent = new_session("p")
    one_turn(parent)
    child = parent.fork(SEEDED, 6, ManualClock())
    grandchild = child.fork(SEEDED, 7, ManualClock())
    assert (grandchild.seq, grandchild.inherited_event_count, list(grandchild.own_events)) == (7, 7, [])


def test_a_fork_may_cut_inside_a_packed_row() -> None:
    parent = restore(events_of(packed(0, "a", "b", "c", "d"), event("assistant/chunk", 4, chunk(FINISH))))
    child = parent.fork(SEEDED, 2, ManualClock())
    assert [e.seq for e in child.events] == [0, 1, 2]
    assert [e.value["chunk"]["text"] for e in child.events[:2]] == ["a", "b"]
    assert child.events[2].type == "session/end-seed"


def test_a_fork_needs_a_seeded_header() -> None:
    parent = new_session()
    one_turn(parent)
    with pytest.raises(HeaderRefusedError):
        parent.fork(HEADER, 6, ManualClock())
    assert parent.fork(SEEDED, 0, ManualClock()).inherited_event_count == START
