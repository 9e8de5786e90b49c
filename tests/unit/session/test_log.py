"""`Session.append`: its guards in their order, the commit point, and who is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec import UNSET, Raw

from seedline.errors import EventRefusedError, ReentrantAppendError, SeedlineError, SurfaceRefusedError
from seedline.events.codec import encode_event
from seedline.events.event import Event, ReplaceOp
from seedline.events.messages import OtherBlock, Source, TextBlock, ToolCallBlock
from seedline.events.vocabulary import (
    AgentInboxSpliced,
    AssistantChunk,
    CompactionStart,
    ToolResult,
    TurnStart,
    UserMessage,
)
from seedline.session.log import Session
from tests.unit.session.make import assistant, new_session, one_turn, replace, request, result, user


def test_an_event_gets_the_next_seq_and_the_time_of_the_clock() -> None:
    session = new_session(start=1000, step=5)
    first = session.append("turn/start", {"turn": 1})
    second = session.append("plugin/note", None)
    assert [(e.seq, e.time) for e in (first, second)] == [(0, 1000), (1, 1005)]
    assert session.seq == 2
    assert list(session.events) == [first, second]


def test_the_row_of_an_appended_event_has_the_live_key_order() -> None:
    session = new_session()
    session.append("user/message", user(), surface_op="append")
    event = session.append("user/message", user("b"), surface_op=replace(0, 0), source_event_seqs=[0])
    assert encode_event(event).startswith(b'{"type":"user/message","seq":1,"time":1001,"data":{')
    assert encode_event(event).endswith(
        b'},"sourceEventSeqs":[0],"surfaceOp":{"op":"replace","start":0,"end":0}}'
    )


def test_the_stored_payload_is_a_snapshot() -> None:
    session = new_session()
    data: dict[str, Any] = {"list": [1, {"a": 2}]}
    event = session.append("plugin/note", data)
    data["list"][1]["a"] = 3
    data["more"] = True
    assert event.value == {"list": [1, {"a": 2}]}
    event.value["list"].clear()
    assert event.value == {"list": [1, {"a": 2}]}


@pytest.mark.parametrize("name", ["type", "seq", "time", "data", "surface_op", "ignorable"])
def test_a_stored_event_cannot_be_changed(name: str) -> None:
    event = new_session().append("plugin/note", {})
    with pytest.raises(AttributeError):
        setattr(event, name, 7)


def test_sources_are_snapshots_too() -> None:
    session = new_session()
    session.append("plugin/note", {})
    sources = [0]
    event = session.append("user/message", user(), surface_op="append", source_event_seqs=sources)
    sources.append(99)
    assert event.source_event_seqs == (0,)


def test_an_older_snapshot_does_not_grow_and_a_new_one_is_cached() -> None:
    session = new_session()
    before = session.events
    assert session.events is before
    session.append("plugin/note", {})
    assert len(before) == 0
    assert list(before) == []
    assert len(session.events) == 1
    assert session.events is session.events


# --- typed payloads and raw text ------------------------------------------------------------------


def test_a_typed_payload_is_stored_under_its_wire_names() -> None:
    session = new_session()
    assert session.append("turn/start", TurnStart(turn=1)).value == {"turn": 1}
    message = UserMessage(
        id="u",
        role="user",
        content=(TextBlock(text="hi"), OtherBlock({"type": "video", "n": 1})),
        source=Source(kind="plugin", plugin="x", call_id=None),
    )
    stored = session.append("user/message", message, surface_op="append")
    assert stored.value == {
        "id": "u",
        "role": "user",
        "content": [{"type": "text", "text": "hi"}, {"type": "video", "n": 1}],
        "source": {"kind": "plugin", "plugin": "x"},
    }
    assert stored.payload == message


def test_a_typed_payload_keeps_a_mandatory_null_and_drops_absent_options() -> None:
    stored = new_session().append("compaction/start", CompactionStart(compaction_id="k", turn=None))
    assert stored.value == {"compactionId": "k", "turn": None}


def test_typed_values_inside_open_fields_are_taken() -> None:
    session = new_session()
    block = ToolCallBlock(id="c", name="read", arguments="{}")
    stored = session.append("assistant/chunk", AssistantChunk(turn=1, step=1, chunk={"block": 1}))
    assert stored.value["chunk"] == {"block": 1}
    stored = session.append("assistant/chunk", AssistantChunk(turn=1, step=1, chunk=[block]))
    assert stored.value["chunk"] == [{"type": "tool-call", "id": "c", "name": "read", "arguments": "{}"}]
    message = UserMessage(id="u", role="user", content=(), source=Source(kind="user"))
    spliced = AgentInboxSpliced(target="next-turn", start=0, inserted=[message])  # type: ignore[arg-type]  # a list is what callers often have
    assert session.append("agent/inbox/spliced", spliced).value["inserted"][0]["id"] == "u"


@pytest.mark.parametrize("meta", [b"x", {1, 2}, {1: 2}, float("nan"), object()])
def test_an_open_field_of_a_typed_payload_is_judged_like_any_value(meta: Any) -> None:
    message = UserMessage(id="u", role="user", content=(), source=Source(kind="tool", call_id="c"))
    payload = ToolResult(turn=1, step=1, message=message, meta=meta)
    session = new_session()
    with pytest.raises(EventRefusedError, match="/meta") as refused:
        session.append("tool/result", payload, surface_op="append")
    assert refused.value.code == "data"


def test_raw_json_is_stored_verbatim_but_for_line_ends() -> None:
    session = new_session()
    big = b'{"n": 123456789012345678901234567890, "f": 1.0}'
    assert bytes(session.append("plugin/note", Raw(big)).data) == big
    stored = session.append("plugin/note", Raw(b'{\r\n"a": "x\\n",\n"b": [1,\n2]}'))
    assert stored.value == {"a": "x\n", "b": [1, 2]}
    assert b"\n" not in encode_event(stored)
    assert b"\r" not in encode_event(stored)


@pytest.mark.parametrize("text", [b"", b"{", b"{}{}", b"nan", b"\xff", b"1e999", b'{"a":1,}'])
def test_raw_text_that_is_no_json_is_refused(text: bytes) -> None:
    session = new_session()
    with pytest.raises(EventRefusedError, match="plugin/note") as refused:
        session.append("plugin/note", Raw(text))
    assert refused.value.code == "data"
    assert session.seq == 0


# --- the guards and their order ---------------------------------------------------------------------


class Everything:
    """An append that is wrong in several ways, and how to mend it guard by guard."""

    def __init__(self) -> None:
        self.session = new_session()
        self.arguments: dict[str, Any] = {
            "event_type": "request/header",
            "data": {"header": {}, "reason": object()},
            "surface_op": 7,
            "source_event_seqs": "no",
        }
        self.refusals: list[SeedlineError] = []

    def append(self) -> None:
        self.session.append(**self.arguments)

    def refused(self) -> SeedlineError:
        before = list(self.session.events)
        with pytest.raises(SeedlineError) as refused:
            self.append()
        assert list(self.session.events) == before
        return refused.value


def test_the_guards_refuse_in_order() -> None:
    case = Everything()
    first = case.refused()
    assert isinstance(first, EventRefusedError)
    assert (first.code, first.event_type) == ("data", "request/header")

    case.arguments["data"] = request(reason="fallback")
    second = case.refused()
    assert isinstance(second, EventRefusedError)
    assert second.code == "retired"

    case.arguments["data"] = request()
    third = case.refused()
    assert isinstance(third, SurfaceRefusedError)
    assert (third.surface_code, third.event_type) == ("marker-malformed", "request/header")

    case.arguments["surface_op"] = "append"
    fourth = case.refused()
    assert isinstance(fourth, SurfaceRefusedError)
    assert fourth.surface_code == "sources-malformed"

    case.arguments["source_event_seqs"] = [5]
    vetoes: list[Event] = []
    case.session.guard(vetoes.append)
    fifth = case.refused()
    assert isinstance(fifth, SurfaceRefusedError)
    assert fifth.surface_code == "not-eligible"
    assert not vetoes

    case.arguments["surface_op"] = case.arguments["source_event_seqs"] = UNSET
    case.append()
    assert [event.seq for event in vetoes] == [0]


def test_reentrancy_comes_after_the_payload_and_before_the_surface() -> None:
    session = new_session()
    seen: list[SeedlineError] = []

    def listener(_: Event) -> None:
        for data, op in (({"a": object()}, UNSET), ({}, 7), ({}, "append")):
            try:
                session.append("plugin/note", data, surface_op=op)
            except SeedlineError as error:
                seen.append(error)

    session.subscribe(listener)
    session.append("plugin/note", {})
    assert [type(error) for error in seen] == [EventRefusedError, SurfaceRefusedError, ReentrantAppendError]
    assert session.seq == 1


@pytest.mark.parametrize("event_type", ["request/header-delta", "mode/set"])
def test_a_retired_type_is_refused(event_type: str) -> None:
    session = new_session()
    with pytest.raises(EventRefusedError, match=event_type) as refused:
        session.append(event_type, {})
    assert refused.value.code == "retired"
    assert session.seq == 0


def test_an_unknown_type_is_appended() -> None:
    session = new_session()
    assert session.append("someone/else", None).value is None
    assert session.append("no-slash", [1]).value == [1]


# --- vetoes ------------------------------------------------------------------------------------------


def test_a_veto_leaves_everything_as_it_was_and_its_error_is_raised() -> None:
    session = new_session()
    told: list[Event] = []
    session.subscribe(told.append)

    def veto(event: Event) -> None:
        assert event.seq == session.seq  # it sees the candidate before the commit
        raise RuntimeError("not today")

    undo = session.guard(veto)
    with pytest.raises(RuntimeError, match="not today"):
        session.append("user/message", user(), surface_op="append")
    assert (session.seq, session.surface, told, session.publishing) == (0, (), [], False)
    undo()
    undo()
    session.append("user/message", user(), surface_op="append")
    assert [event.seq for event in told] == [0]


def test_a_veto_cannot_append_to_its_own_session() -> None:
    session = new_session()

    def veto(event: Event) -> None:
        if event.type == "outer/event":
            session.append("inner/event", {})

    session.guard(veto)
    with pytest.raises(ReentrantAppendError):
        session.append("outer/event", {})
    session.append("another/event", {})
    assert [(e.seq, e.type) for e in session.events] == [(0, "another/event")]


def test_a_guard_that_leaves_during_its_turn_does_not_hide_the_next() -> None:
    session = new_session()
    undo = session.guard(lambda _: undo())

    def refuse(_: Event) -> None:
        raise RuntimeError("second")

    session.guard(refuse)
    with pytest.raises(RuntimeError, match="second"):
        session.append("plugin/note", {})


# --- publication ------------------------------------------------------------------------------------


def test_listeners_are_told_after_the_commit_in_order() -> None:
    session = new_session()
    heard: list[tuple[str, int, int]] = []
    session.subscribe(lambda event: heard.append(("a", event.seq, session.seq)))
    undo = session.subscribe(lambda event: heard.append(("b", event.seq, len(session.events))))
    session.append("plugin/note", {})
    undo()
    session.append("plugin/note", {})
    assert heard == [("a", 0, 1), ("b", 0, 1), ("a", 1, 2)]


def test_a_failing_listener_is_logged_and_starves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    session = new_session()
    heard: list[int] = []

    def fail(_: Event) -> None:
        raise ValueError("broken listener")

    session.subscribe(fail)
    session.subscribe(lambda event: heard.append(event.seq))
    with caplog.at_level(logging.ERROR, "seedline.session"):
        session.append("plugin/note", {})
    assert heard == [0]
    assert "broken listener" in caplog.text
    assert "seq 0" in caplog.text
    assert session.append("plugin/note", {}).seq == 1


def test_a_listener_that_comes_or_goes_during_publication_does_not_change_it() -> None:
    session = new_session()
    heard: list[str] = []

    def late(event: Event) -> None:
        heard.append(f"late {event.seq}")

    def first(event: Event) -> None:
        heard.append(f"first {event.seq}")
        if event.seq == 0:
            session.subscribe(late)
            undo_second()

    session.subscribe(first)
    undo_second = session.subscribe(lambda event: heard.append(f"second {event.seq}"))
    session.append("plugin/note", {})
    session.append("plugin/note", {})
    assert heard == ["first 0", "second 0", "first 1", "late 1"]


def test_one_listener_subscribed_twice_is_told_twice_and_each_undo_takes_one_away() -> None:
    session = new_session()
    heard: list[Event] = []
    undo, _ = session.subscribe(heard.append), session.subscribe(heard.append)
    session.append("plugin/note", {})
    undo()
    undo()
    session.append("plugin/note", {})
    assert [event.seq for event in heard] == [0, 0, 1]


def test_a_listener_may_append_to_another_session() -> None:
    one, other = new_session("one"), new_session("other")
    one.subscribe(lambda event: other.append("mirror/note", {"seq": event.seq}) and None)
    one.append("plugin/note", {})
    assert [event.value for event in other.events] == [{"seq": 0}]


@pytest.mark.parametrize("outcome", ["told", "vetoed"])
def test_work_that_waits_runs_when_the_publication_ends(outcome: str) -> None:
    session = new_session()
    ran: list[bool] = []

    def wait(_: Event) -> None:
        assert session.publishing
        session.after_publishing.append(lambda: ran.append(session.publishing))
        if outcome == "vetoed":
            raise RuntimeError("veto")

    if outcome == "vetoed":
        session.guard(wait)
        with pytest.raises(RuntimeError, match="veto"):
            session.append("plugin/note", {})
    else:
        session.subscribe(wait)
        session.append("plugin/note", {})
    assert ran == [False]
    assert session.after_publishing == []


# --- folds of a live session ------------------------------------------------------------------------


def test_messages_are_a_fresh_list_that_follows_appends_and_replaces() -> None:
    session = new_session()
    one_turn(session)
    first = session.derive_messages()
    assert [message.seq for message in first] == [1, 3]
    first.clear()
    assert [message.seq for message in session.derive_messages()] == [1, 3]
    summary = session.append(
        "user/message", user("short"), surface_op=replace(1, 3), source_event_seqs=[1, 3]
    )
    assert [message.seq for message in session.derive_messages()] == [summary.seq]
    later = session.append("user/message", user("more"), surface_op="append")
    assert [message.seq for message in session.derive_messages()] == [summary.seq, later.seq]
    assert session.derive_messages()[0].value == user("short")
    assert session.derive_messages()[0].message.id == "u"


def test_an_answer_without_content_shows_the_model_nothing() -> None:
    session = new_session()
    session.append("assistant/message", assistant([]), surface_op="append", source_event_seqs=[])
    assert session.surface == (0,)
    assert session.derive_messages() == []


def test_a_message_keeps_its_exact_bytes() -> None:
    session = new_session()
    source = b'{"kind":"model","provider":"p","model":"m"}'
    message = b'{ "id":"a","role":"assistant","content":[1.50],"source":' + source + b"}"
    session.append("assistant/message", Raw(b'{"turn":1,"message":' + message + b"}"), surface_op="append")
    assert session.derive_messages()[0].data == message


def test_a_replaced_tool_result_shows_its_new_text_in_place() -> None:
    session = new_session()
    session.append("tool/result", result("c", "long " * 50), surface_op="append")
    session.append("user/message", user(), surface_op="append")
    session.append("tool/result", result("c", "cut"), surface_op=replace(0, 0), source_event_seqs=[0])
    assert session.surface == (2, 1)
    assert session.derive_messages()[0].value["content"][0]["content"][0]["text"] == "cut"


def test_request_folds_follow_the_log() -> None:
    session = new_session()
    assert session.request_header() is None
    assert session.request_context() is None
    session.append("request/header", request("one"))
    session.append("request/context", {"provider": "p", "model": "m", "contextWindow": 10})
    session.append("request/header", request("two", "change"))
    header = session.request_header()
    assert header is not None
    assert header.system == "two"
    context = session.request_context()
    assert context is not None
    assert context.context_window == 10
    session.append("request/context", {"provider": "p", "model": "m"})
    context = session.request_context()
    assert context is not None
    assert context.context_window is None


@pytest.mark.parametrize("mark", [True, 1, "yes"])
def test_an_ignorable_event_carries_exactly_true(mark: Any) -> None:
    session = new_session()
    assert session.append("plugin/note", {}, ignorable=mark).ignorable is True
    assert session.append("plugin/note", {}, ignorable=False).ignorable is UNSET
    assert session.append("plugin/note", {}).ignorable is UNSET
    assert encode_event(session.events[0]).endswith(b',"ignorable":true}')


def test_a_marker_may_be_given_as_its_class() -> None:
    session = new_session()
    session.append("user/message", user(), surface_op="append")
    event = session.append(
        "user/message", user(), surface_op=ReplaceOp("replace", 0, 0), source_event_seqs=(0,)
    )
    assert event.surface_op == ReplaceOp("replace", 0, 0)
    assert isinstance(session, Session)
