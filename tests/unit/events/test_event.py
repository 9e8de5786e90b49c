"""One event: the exact bytes, the typed payload, the plain value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.codec import encode_event, read_row
from seedline.events.event import Event, ReplaceOp, read_data
from seedline.events.messages import OtherBlock, TextBlock, ToolResultBlock
from seedline.events.vocabulary import (
    RequestHeader,
    StepStart,
    ToolCodeDispatchStart,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from seedline.jsonvalue import encode

DEEP = 5000
DEEP_TEXT = "[" * DEEP + '{"\\ud83d":1.0}' + "]" * DEEP


def event(event_type: str, data: str, **more: Any) -> Event:
    return Event(event_type, 7, 0, Raw(data.encode()), **more)


def test_a_known_payload_is_typed() -> None:
    payload = event("turn/start", '{"turn":3}').payload
    assert payload == TurnStart(3)
    assert isinstance(payload, TurnStart)


def test_an_unknown_payload_is_a_fresh_plain_value() -> None:
    found = event("x/y", '{"a":[1.0]}')
    assert found.payload == {"a": [1]}
    found.payload["a"].append(2)
    found.value["a"].append(2)
    assert found.payload == found.value == {"a": [1]}


def test_the_plain_value_has_every_field() -> None:
    found = event("turn/start", '{"turn":3,"trigger":{"kind":"user"},"\\ud83d":null}')
    assert found.payload == TurnStart(3)
    assert found.value == {"turn": 3, "trigger": {"kind": "user"}, "\ud83d": None}
    assert bytes(found.data).startswith(b'{"turn":3,')


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("turn/start", "{}"),
        ("turn/start", "null"),
        ("turn/start", "[]"),
        ("turn/start", '{"turn":null}'),
        ("turn/start", '{"turn":"1"}'),
        ("turn/start", '{"turn":1.5}'),
        ("turn/start", '{"turn":true}'),
        ("turn/start", '{"turn":"\\ud83d"}'),
        ("turn/end", '{"turn":1,"reason":"completed"}'),
        ("turn/end", '{"turn":1,"reason":{"kind":"\\ud83d","reason":1}}'),
        ("user/message", '{"id":"a","role":"\\ud83d","content":[],"source":{"kind":"user"}}'),
        ("user/message", '{"id":"a","role":"user","content":{},"source":{"kind":"user"}}'),
        ("agent/inbox/spliced", '{"target":"later","start":0,"inserted":[]}'),
    ],
)
def test_another_shape_is_corruption_that_names_the_seq(event_type: str, data: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError) as refused:
        event(event_type, data).payload  # noqa: B018  # reading it is the act
    assert refused.value.seq == 7
    assert event_type in refused.value.reason


def test_damaged_bytes_are_corruption_too() -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match="seq 7"):
        event("turn/start", '{"turn":').payload  # noqa: B018  # reading it is the act


def test_a_payload_can_be_read_as_a_class_of_choice() -> None:
    assert read_data(event("turn/start", '{"turn":1,"step":2}'), StepStart) == StepStart(1, 2)


# --- lone surrogates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "data", "expected"),
    [
        ("turn/start", '{"\\ud83d":1,"turn":1}', TurnStart(1)),
        ("turn/start", '{"turn":1,"x":{"\\ud83d":["\\ude00"]}}', TurnStart(1)),
        ("turn/start", '{"turn":1.0,"a\\ud83d":"\\ude00"}', TurnStart(1)),
    ],
)
def test_lone_surrogates_in_unknown_fields_do_no_harm(event_type: str, data: str, expected: Any) -> None:
    assert event(event_type, data).payload == expected
    assert read_row(encode_event(event(event_type, data))) == event(event_type, data)


def test_lone_surrogates_below_known_fields() -> None:
    reason = event("turn/end", '{"turn":1,"reason":{"kind":"x\\ud83d","\\ud83d":1}}').payload.reason
    assert reason.kind == "x\ud83d"
    open_reason = event(
        "turn/end", '{"turn":1,"reason":{"kind":"aborted","reason":{"\\ud83d":{"kind":1}}}}'
    ).payload
    assert open_reason.reason.reason == {"\ud83d": {"kind": 1}}
    header = event(
        "request/header",
        '{"header":{"config":{"provider":"p","model":"\\ud83d","\\ude00":0},"\\ud800":1},"reason":"r"}',
    ).payload
    assert isinstance(header, RequestHeader)
    assert header.header.config.model == "\ud83d"
    message = event(
        "user/message",
        '{"id":"\\ud83d","role":"user","\\ud83d":1,"source":{"kind":"plugin","\\ud83d":2,"sections":{"\\ud83d":3}},'
        '"content":[{"type":"text","text":"\\ude00","\\ud83d":4},{"type":"\\ud83d"},{"type":"text","text":1,"\\ud83d":5}]}',
    ).payload
    assert isinstance(message, UserMessage)
    assert message.id == "\ud83d"
    assert message.source.sections == {"\ud83d": 3}
    assert message.content == (
        TextBlock("\ude00"),
        OtherBlock({"type": "\ud83d"}),
        OtherBlock({"type": "text", "text": 1, "\ud83d": 5}),
    )


def test_halves_in_neighbouring_strings_stay_apart() -> None:
    found = event("x/y", '["\\ud83d","\\ude00","\\ud83d\\ude00"]').value
    assert found == ["\ud83d", "\ude00", "\U0001f600"]
    assert encode(found[0] + found[1]) == encode(found[2]), "joined they are the character"


# --- deep nesting --------------------------------------------------------------------------------


def test_deep_payloads_are_read() -> None:
    unknown = event("x/y", DEEP_TEXT)
    assert encode(unknown.payload) == encode(unknown.value) == DEEP_TEXT.replace("1.0", "1").encode()
    dispatch = event(
        "tool/code-dispatch-start",
        f'{{"rootCallId":"","parentCallId":"","subCallId":"","name":"","arguments":{DEEP_TEXT}}}',
    ).payload
    assert isinstance(dispatch, ToolCodeDispatchStart)
    assert encode(dispatch.arguments) == DEEP_TEXT.replace("1.0", "1").encode()
    ended = event(
        "turn/end", f'{{"turn":1,"reason":{{"kind":"x","reason":{{"a":{DEEP_TEXT}}},"more":{DEEP_TEXT}}}}}'
    ).payload
    assert isinstance(ended, TurnEnd)


def test_a_deep_meta_of_a_tool_result_is_read() -> None:
    message = '{"id":"m","role":"user","content":[],"source":{"kind":"tool","callId":"c"}}'
    found = event("tool/result", f'{{"turn":1,"step":1,"message":{message},"meta":{DEEP_TEXT}}}').payload
    assert isinstance(found, ToolResult)
    assert encode(found.meta) == DEEP_TEXT.replace("1.0", "1").encode()


def test_deeply_nested_results_are_refused_by_name() -> None:
    blocks = '{"type":"tool-result","toolCallId":"a","content":[' * 3000 + "]}" * 3000
    data = f'{{"id":"m","role":"user","content":[{blocks}],"source":{{"kind":"user"}}}}'
    with pytest.raises(SessionPersistenceCorruptionError, match="nesting too deep") as refused:
        event("user/message", data).payload  # noqa: B018  # reading it is the act
    assert refused.value.seq == 7
    assert encode(event("user/message", data).value) == data.encode()


def test_results_nested_as_far_as_tools_go_are_typed() -> None:
    blocks = '{"type":"tool-result","toolCallId":"a","content":[' * 20 + "]}" * 20
    message = event(
        "user/message", f'{{"id":"m","role":"user","content":[{blocks}],"source":{{"kind":"user"}}}}'
    ).payload
    depth, content = 0, message.content
    while content:
        assert isinstance(content[0], ToolResultBlock)
        depth, content = depth + 1, content[0].content
    assert depth == 20


# --- the envelope --------------------------------------------------------------------------------


def test_events_are_equal_when_every_part_is() -> None:
    one = event("x", "{}", source_event_seqs=(), surface_op="append")
    assert one == event("x", "{}", source_event_seqs=(), surface_op="append")
    assert hash(one) == hash(event("x", "{}", source_event_seqs=(), surface_op="append"))
    others = [
        event("y", "{}", source_event_seqs=(), surface_op="append"),
        event("x", "{ }", source_event_seqs=(), surface_op="append"),
        event("x", "{}", surface_op="append"),
        event("x", "{}", source_event_seqs=(0,), surface_op="append"),
        event("x", "{}", source_event_seqs=()),
        event("x", "{}", source_event_seqs=(), surface_op=ReplaceOp("replace", 0, 0)),
        event("x", "{}", source_event_seqs=(), surface_op="append", ignorable=True),
        msgspec.structs.replace(one, seq=8),
        msgspec.structs.replace(one, time=1),
    ]
    assert all(one != other for other in others)
    assert one != "x"


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        event("x", "{}").seq = 8  # pyright: ignore[reportAttributeAccessIssue]  # what the test is about


def test_absent_members_are_unset_and_an_empty_list_of_sources_is_present() -> None:
    bare = event("x", "{}")
    assert bare.source_event_seqs is bare.surface_op is bare.ignorable is UNSET
    assert encode_event(bare) == b'{"type":"x","seq":7,"time":0,"data":{}}'
    assert b'"sourceEventSeqs":[]' in encode_event(event("x", "{}", source_event_seqs=()))
