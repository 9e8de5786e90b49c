"""One log for each format version, kept for ever: what it holds is written out here by hand.

A build that cannot read one of them has broken every log of that version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import UNSET

from seedline.clock import ManualClock
from seedline.events.codec import SESSION_FORMAT_VERSION
from seedline.events.event import Event
from seedline.session.header import CallSpawn, SessionHeader
from seedline.session.log import Session
from seedline.storage.jsonl.file import read_log, upgraded, write_log

GOLDEN = Path(__file__).with_name("golden")
V0 = GOLDEN / "v0.jsonl"
HEADER = SessionHeader(
    version=0,
    id="golden/0 漢\ud83d",
    created_at=1_790_000_000_000,
    is_seeded=True,
    cwd="/project",
    parent_session="golden-parent",
    origin="subagent",
    delegation_depth=1,
    agent_preset="reviewer",
    spawn=CallSpawn(turn=1, step=1, call=0, n=0, call_id="call_1", tool="subagent"),
)
CUT = 4


class Told(NamedTuple):
    """One event as the standard JSON reader tells it; absent members are UNSET."""

    type: str
    time: int
    data: Any
    sources: Any = UNSET
    op: Any = UNSET
    ignorable: Any = UNSET


def asked(message_id: str, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"id": message_id, "role": "user", "content": content, "source": {"kind": "user"}}


def answered(message_id: str, *content: dict[str, Any], turn: int, **more: Any) -> dict[str, Any]:
    source = {"kind": "model", "provider": "p", "model": "m"}
    message = {"id": message_id, "role": "assistant", "content": list(content), "source": source}
    return {"turn": turn, "step": 1, "message": message, **more}


def result(text: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}]
    block = {"type": "tool-result", "toolCallId": "c1", "isError": False, "content": parts}
    source = {"kind": "tool", "callId": "c1"}
    message = {"id": "r1", "role": "user", "source": source, "content": [block]}
    # The first is no double: a foreign writer's text, which stays as it stands.
    meta = {"big": 12345678901234567890, "ratio": 1.5, "tiny": 1e-7, "none": None, "": []}
    return {"turn": 2, "step": 1, "message": message, "meta": meta}


def streamed(time: int, turn: int = 2, **chunk: Any) -> Told:
    return Told("assistant/chunk", time, {"turn": turn, "step": 1, "chunk": chunk})


def thought(time: int, text: str) -> Told:
    return streamed(time, type="reasoning-delta", index=0, text=text)


def said(time: int, text: str, turn: int = 2) -> Told:
    return streamed(time, turn, type="text-delta", index=1, text=text)


def called(time: int, arguments: str) -> Told:
    return streamed(time, type="tool-call-delta", index=2, id="c1", name="read", argumentsDelta=arguments)


CALL = {"type": "tool-call", "id": "c1", "name": "read", "arguments": '{"path":"a"}'}
USAGE = {"inputTokens": 7, "outputTokens": 5, "cacheReadTokens": 2, "reasoningTokens": 1}
STEP_2, STEP_3 = {"turn": 2, "step": 1}, {"turn": 3, "step": 1}
REQUEST = {"config": {"provider": "p", "model": "m", "maxTokens": 64}, "system": "Be brief."}
REQUEST["tools"] = [{"name": "read", "description": "Reads.", "parameters": {"type": "object"}}]
EVENTS = [
    Told("turn/start", 100, {"turn": 1}),
    Told("user/message", 101, asked("u1", "first"), op="append"),
    Told("turn/end", 102, {"turn": 1, "reason": {"kind": "completed"}}),
    Told("session/end-seed", 103, {}),
    Told("turn/start", 104, {"turn": 2}),
    Told("step/start", 105, STEP_2),
    Told("user/message", 106, asked("u2", "half \ud83d, 漢, \u2028, \x7f, \0, \U0001f600"), op="append"),
    Told("request/header", 107, {"header": REQUEST, "reason": "initial"}),
    Told("request/context", 108, {"provider": "p", "model": "m", "contextWindow": 1000}),
    streamed(109, type="block-start", index=0, blockType="reasoning"),
    thought(120, "a"),
    thought(110, ""),
    thought(-5, "b\n"),
    streamed(113, type="block-end", index=0, block={"type": "reasoning", "text": "ab\n"}),
    streamed(114, type="block-start", index=1, blockType="text"),
    said(115, "Yay \ud83d"),
    said(115, "\ude00"),
    said(116, "!"),
    streamed(117, type="block-end", index=1, block={"type": "text", "text": "Yay \U0001f600!"}),
    streamed(118, type="block-start", index=2, blockType="tool-call"),
    called(119, '{"p'),
    called(121, 'ath":'),
    called(125, '"a"}'),
    streamed(126, type="block-end", index=2, block=CALL),
    streamed(127, type="usage", usage=USAGE),
    streamed(128, type="finish", reason={"kind": "tool-calls"}),
    Told(
        "assistant/message",
        129,
        answered("a1", {"type": "text", "text": "Yay \U0001f600!"}, CALL, turn=2, usage=USAGE),
        sources=list(range(9, 26)),
        op="append",
    ),
    Told("tool/call", 130, {**STEP_2, "callId": "c1", "name": "read", "arguments": '{"path":"a"}'}),
    Told("tool/result", 131, result("long text"), sources=[27], op="append"),
    Told(
        "tool/result",
        132,
        result("short"),
        sources=[28, 27],
        op={"op": "replace", "start": 28, "end": 28},
    ),
    Told("acme/note", 133, None, ignorable=True),
    Told("todo/write", 134, {"todos": []}, ignorable=True),
    Told("step/end", 135, STEP_2),
    Told("turn/end", 136, {"turn": 2, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
    Told("user/message", 137, asked("u3", "sum"), sources=[6, 1], op={"op": "replace", "start": 1, "end": 6}),
    Told("turn/start", 138, {"turn": 3}),
    Told("step/start", 139, STEP_3),
    # Two neighbours are no run.
    said(140, "x", turn=3),
    said(141, "y", turn=3),
    Told("assistant/message", 142, answered("a2", turn=3, interrupted=True), sources=[], op="append"),
    Told("step/end", 142, STEP_3),
    Told("turn/end", 142, {"turn": 3, "reason": {"kind": "interrupted"}}),
]


def told(event: Event) -> Told:
    op = event.surface_op
    sources = event.source_event_seqs
    return Told(
        event.type,
        event.time,
        json.loads(bytes(event.data)),
        UNSET if sources is UNSET else list(sources),
        op if op is UNSET or op == "append" else {"op": op.op, "start": op.start, "end": op.end},
        event.ignorable,
    )


def test_every_format_version_that_is_written_has_its_log() -> None:
    assert (GOLDEN / f"v{SESSION_FORMAT_VERSION}.jsonl").is_file()


def test_the_log_of_version_0_holds_what_it_held() -> None:
    log = read_log(V0)
    assert (log.layout, log.torn, log.header, log.inherited_event_count) == ("complete", None, HEADER, CUT)
    assert list(map(told, log.events)) == EVENTS
    assert [event.seq for event in log.events] == list(range(len(EVENTS)))


def test_the_log_of_version_0_has_every_kind_of_row() -> None:
    """As the standard JSON reader sees the file, so that nobody keeps an easier one."""
    header, *rows = map(json.loads, V0.read_bytes().splitlines())
    assert {"spawn", "seedLength", "origin", "agentPreset", "parentSession"} <= header.keys()
    packed = {row["type"]: len(row["data"]["dt"]) + 1 for row in rows if "seq0" in row}
    assert packed == {"reasoning-chunks": 3, "text-chunks": 3, "tool-call-chunks": 3}
    assert len(rows) == len(EVENTS) - 3 * 2


def test_the_log_of_version_0_is_a_session() -> None:
    log = read_log(V0)
    session = Session.restore(
        log.header,
        clock=ManualClock(),
        inherited_event_count=log.inherited_event_count,
        events=upgraded(log),
    )
    assert session.surface == (34, 26, 29, 39)
    texts = [message.value["id"] for message in session.derive_messages()]
    assert texts == ["u3", "a1", "r1"]


@pytest.mark.parametrize("packed", [True, False])
def test_the_log_of_version_0_is_written_as_it_was(packed: bool, tmp_path: Path) -> None:
    log, copy, again = read_log(V0), tmp_path / "copy", tmp_path / "again"
    write_log(copy, log.header_line, log.events, layout="complete", packed=packed, encoding="zstd")
    events = read_log(copy).events
    write_log(again, log.header_line, events, layout="complete", packed=True, encoding="jsonl")
    assert again.read_bytes() == V0.read_bytes()
