"""The table of old shapes (4.9), row by row. The corpus holds no right value for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import Event
from seedline.events.upgrade import Upgrader
from tests.unit.session.make import assistant, event, replace, result, user

USER = {"kind": "user"}
TEXT = [{"type": "text", "text": "hi"}]
FAILURE = {"message": "m", "code": "AUTH", "status": 401, "providerRetryAfterMs": 1.5, "requestId": "r"}


def upgrade(event_type: str, data: Any, seq: int = 7, **envelope: Any) -> Event:
    return Upgrader("sid", lambda at: event("x/y", at)).upgrade(event(event_type, seq, data, **envelope))


def refusal(event_type: str, data: Any) -> SessionPersistenceCorruptionError:
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        upgrade(event_type, data)
    assert caught.value.seq == 7
    assert event_type in str(caught.value)
    return caught.value


# --- turn/start --------------------------------------------------------------------------------------


def test_a_trigger_is_dropped() -> None:
    old = {"turn": 2, "trigger": {"kind": "user", "more": [1]}}
    assert upgrade("turn/start", old).value == {"turn": 2}


@pytest.mark.parametrize("data", [{"turn": 1}, {"turn": 0}, {"turn": "x", "more": 1}, [], None, 3])
def test_a_turn_start_without_trigger_is_left_alone(data: Any) -> None:
    assert upgrade("turn/start", data).value == ({} if data is None else data)


@pytest.mark.parametrize(
    "data",
    [
        {"trigger": {"kind": "user"}},
        {"turn": 1, "trigger": {"kind": "user"}, "more": 1},
        {"turn": 0, "trigger": {"kind": "user"}},
        {"turn": 1.5, "trigger": {"kind": "user"}},
        {"turn": True, "trigger": {"kind": "user"}},
        {"turn": 2**53, "trigger": {"kind": "user"}},
        {"turn": 1, "trigger": "user"},
        {"turn": 1, "trigger": {}},
        {"turn": 1, "trigger": {"kind": ""}},
        {"turn": 1, "trigger": {"kind": 1}},
    ],
)
def test_a_malformed_trigger_is_refused(data: Any) -> None:
    refusal("turn/start", data)


# --- turn/end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason",
    [
        {"kind": "completed"},
        {"kind": "blocked"},
        {"kind": "max-tokens"},
        {"kind": "interrupted"},
        {"kind": "aborted", "reason": {"kind": "user"}},
        {"kind": "aborted", "reason": {"kind": "hook", "reason": "no"}, "more": 1},
        {"kind": "error", "error": {"message": "m", "code": "AUTH"}},
        {"kind": "paused", "by": "a plugin"},
        {"kind": ""},
    ],
)
def test_a_current_reason_is_left_alone(reason: Any) -> None:
    old = event("turn/end", 7, {"turn": 1, "reason": reason})
    assert Upgrader("sid", lambda at: event("x/y", at)).upgrade(old) is old


@pytest.mark.parametrize(
    ("reason", "current"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        ({"kind": "error", "step": 0, "failure": FAILURE}, {"kind": "error", "error": FAILURE}),
        (
            {"kind": "error", "step": 2, "message": "m", "code": "c"},
            {"kind": "error", "error": {"message": "m", "code": "c"}},
        ),
        (
            {"kind": "error", "step": 2, "message": "m"},
            {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}},
        ),
    ],
)
def test_an_old_reason_gets_the_current_form(reason: Any, current: Any) -> None:
    assert upgrade("turn/end", {"turn": 1, "reason": reason}).value == {"turn": 1, "reason": current}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"error": "model exploded"},
        {"turn": 1},
        {"turn": 1, "reason": {"kind": "completed"}, "more": 1},
        {"turn": 0, "reason": {"kind": "completed"}},
        {"turn": "1", "reason": {"kind": "completed"}},
        {"turn": 1, "reason": "completed"},
        {"turn": 1, "reason": {}},
        {"turn": 1, "reason": {"kind": 1}},
    ],
)
def test_every_turn_end_must_have_its_shape(data: Any) -> None:
    refusal("turn/end", data)


@pytest.mark.parametrize(
    "reason",
    [
        {"kind": "completed", "more": 1},
        {"kind": "blocked", "reason": {}},
        {"kind": "max-tokens", "more": None},
        {"kind": "interrupted", "more": 1},
        {"kind": "aborted", "more": 1},
        {"kind": "disposed", "reason": {"kind": "disposed"}},
        {"kind": "error"},
        {"kind": "error", "step": -1, "message": "m"},
        {"kind": "error", "step": "1", "message": "m"},
        {"kind": "error", "message": "m"},
        {"kind": "error", "step": 1},
        {"kind": "error", "step": 1, "message": 1},
        {"kind": "error", "step": 1, "message": "m", "code": None},
        {"kind": "error", "step": 1, "message": "m", "more": 1},
        {"kind": "error", "step": 1, "failure": FAILURE, "message": "m"},
        {"kind": "error", "step": 1, "failure": "m"},
        {"kind": "error", "step": 1, "failure": {"message": "m"}},
        {"kind": "error", "step": 1, "failure": {"message": "m", "code": 1}},
        {"kind": "error", "step": 1, "failure": {**FAILURE, "status": "401"}},
        {"kind": "error", "step": 1, "failure": {**FAILURE, "status": True}},
        {"kind": "error", "step": 1, "failure": {**FAILURE, "more": 1}},
    ],
)
def test_a_malformed_reason_is_refused(reason: Any) -> None:
    refusal("turn/end", {"turn": 1, "reason": reason})


# --- messages ----------------------------------------------------------------------------------------


def test_a_steering_message_becomes_the_user_message_it_holds() -> None:
    upgraded = upgrade("steering/message", {"turn": 1, "message": user("go")}, op="append")
    assert (upgraded.type, upgraded.value, upgraded.surface_op) == ("user/message", user("go"), "append")


def test_a_steering_message_without_id_gets_one() -> None:
    upgraded = upgrade("steering/message", {"turn": 1, "content": TEXT, "source": USER})
    message = {"id": "legacy-message:sid:7", "role": "user", "content": TEXT, "source": USER}
    assert (upgraded.type, upgraded.value) == ("user/message", message)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"turn": 1, "message": "go"},
        {"message": user()},
        {"turn": 1, "message": user(), "more": 1},
        {"turn": 1, "content": TEXT},
        {"turn": 1, "source": USER},
        {"turn": 1, "content": TEXT, "source": USER, "more": 1},
    ],
)
def test_a_malformed_steering_message_is_refused(data: Any) -> None:
    refusal("steering/message", data)


def test_an_unidentified_user_message_gets_id_and_role() -> None:
    old = {"content": TEXT, "source": USER, "more": 1}
    assert upgrade("user/message", old).value == {"id": "legacy-message:sid:7", "role": "user", **old}


def test_an_old_assistant_message_is_wrapped() -> None:
    old = {
        "turn": 1,
        "step": 2,
        "content": TEXT,
        "provenance": {"provider": "p", "model": "m", "replayState": [1]},
        "usage": {"inputTokens": 1, "outputTokens": 2},
    }
    assert upgrade("assistant/message", old).value == {
        "turn": 1,
        "step": 2,
        "usage": {"inputTokens": 1, "outputTokens": 2},
        "message": {
            "id": "legacy-message:sid:7",
            "role": "assistant",
            "content": TEXT,
            "source": {"provider": "p", "model": "m", "replayState": [1], "kind": "model"},
        },
    }


def old_result(call_id: str = "c", text: str = "done", *, failed: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"turn": 1, "step": 1, "callId": call_id, "content": content, "isError": failed, "meta": 3}


def test_an_old_tool_result_is_wrapped() -> None:
    block = {
        "type": "tool-result",
        "toolCallId": "c",
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }
    assert upgrade("tool/result", old_result(text="no", failed=True)).value == {
        "turn": 1,
        "step": 1,
        "meta": 3,
        "message": {
            "id": "legacy-message:sid:7",
            "role": "user",
            "source": {"kind": "tool", "callId": "c"},
            "content": [block],
        },
    }


def test_a_replacing_tool_result_takes_over_a_minted_id() -> None:
    log = [event("tool/result", 0, old_result(), op="append")]
    upgrader = Upgrader("sid", log.__getitem__)
    upgrader.upgrade(log[0])
    again = event("tool/result", 1, old_result(text="short"), op=replace(0, 0), sources=(0,))
    assert upgrader.upgrade(again).value["message"]["id"] == "legacy-message:sid:0"
    third = event("tool/result", 2, old_result(text="shorter"), op=replace(1, 1), sources=(1,))
    assert upgrader.upgrade(third).value["message"]["id"] == "legacy-message:sid:0"


@pytest.mark.parametrize(
    ("event_type", "data", "message_id"),
    [("tool/result", result("c"), "r-c"), ("user/message", user(), "u"), ("turn/start", [1], None)],
)
def test_a_replacing_tool_result_takes_over_a_current_id(
    event_type: str, data: Any, message_id: str | None
) -> None:
    upgrader = Upgrader("sid", lambda seq: event(event_type, seq, data))
    again = event("tool/result", 1, old_result(), op=replace(0, 0), sources=(0,))
    assert upgrader.upgrade(again).value["message"]["id"] == (message_id or "legacy-message:sid:1")


def test_a_replace_of_a_later_event_has_no_id_to_take_over() -> None:
    upgraded = upgrade("tool/result", old_result(), op=replace(9, 9))
    assert upgraded.value["message"]["id"] == "legacy-message:sid:7"


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("user/message", user()),
        ("user/message", {"content": TEXT}),
        ("user/message", {"content": TEXT, "source": USER, "id": "i"}),
        ("user/message", {"content": TEXT, "source": USER, "role": "user"}),
        ("user/message", {"content": TEXT, "source": USER, "message": {}}),
        ("user/message", []),
        ("user/message", None),
        ("assistant/message", assistant()),
        ("assistant/message", {"content": TEXT}),
        ("assistant/message", {"content": TEXT, "provenance": "p"}),
        ("assistant/message", {"content": TEXT, "provenance": {}, "message": 1}),
        ("tool/result", result()),
        ("tool/result", {"callId": "c", "content": TEXT}),
        ("tool/result", {**old_result(), "message": None}),
        ("x/y", {"trigger": 1}),
        ("steering/other", {"turn": 1}),
    ],
)
def test_anything_else_is_left_alone(event_type: str, data: Any) -> None:
    current = event(event_type, 7, data)
    assert Upgrader("sid", lambda at: event("x/y", at)).upgrade(current) is current


def test_texts_survive_byte_for_byte() -> None:
    """Lone halves, odd numbers and odd spacing inside an old shape stay as recorded."""
    content = b'[ {"type":"text","text":"\\ud83d"},{"n":1e2,"m":-0}]'
    old = Event("user/message", 3, 0, Raw(b'{"content":' + content + b',"source":{"kind":"user"}}'))
    upgraded = Upgrader("\ud800", lambda at: event("x/y", at)).upgrade(old)
    assert bytes(upgraded.data) == (
        b'{"id":"legacy-message:\\ud800:3","role":"user","content":' + content + b',"source":{"kind":"user"}}'
    )


def test_a_failing_lookup_is_corruption() -> None:
    upgrader = Upgrader("sid", [].__getitem__)
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        upgrader.upgrade(event("tool/result", 1, old_result(), op=replace(0, 0)))
    assert caught.value.seq == 1
