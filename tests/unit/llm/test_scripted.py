"""The scripted model: order, pieces, endings and its file form."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.clock import ManualClock
from seedline.errors import AnswersExhaustedError, AnswersRefusedError, ModelError, StreamFault
from seedline.events.messages import Usage
from seedline.events.vocabulary import AdapterDefaults, RequestConfig, RequestHeaderBody
from seedline.llm.assemble import Assembler
from seedline.llm.base import ModelRequest, Purpose, take_chunk
from seedline.llm.scripted import (
    Answer,
    Pace,
    ScriptedModel,
    call,
    chunks,
    failure,
    load_scripted,
    text,
    tool_calls,
)
from seedline.session.surface import LogMessage

pytestmark = pytest.mark.anyio
CONFIG = RequestConfig("acme", "acme-1")


def request(
    session_id: str = "s", purpose: Purpose = "turn", message: bytes = b"12345678", key: str = "0"
) -> ModelRequest:
    return ModelRequest(
        header=RequestHeaderBody(CONFIG),
        messages=(LogMessage(0, message),),
        session_id=session_id,
        turn=1,
        step=1,
        key=key,
        purpose=purpose,
    )


async def played(model: ScriptedModel, asked: ModelRequest | None = None) -> list[dict[str, Any]]:
    return [take_chunk(chunk).value async for chunk in model.stream(asked or request())]


async def said(model: ScriptedModel, session_id: str = "s", purpose: Purpose = "turn", key: str = "0") -> str:
    content, _ = assembled(await played(model, request(session_id, purpose, key=key))).content()
    return "".join(block["text"] for block in content)


def assembled(values: list[dict[str, Any]]) -> Assembler:
    assembler = Assembler()
    for value in values:
        assembler.take(value)
    return assembler


async def test_an_answer_streams_like_a_live_one() -> None:
    answer = tool_calls(
        call("read", {"path": "a b"}),
        said="Let me look.",
        reasoning="Hm.",
        usage=Usage(3, 4, reasoning_tokens=1),
    )
    values = await played(ScriptedModel(answer))
    assert [value["type"] for value in values] == [
        *["block-start", "reasoning-delta"],
        *["block-start", "text-delta", "text-delta", "text-delta"],
        *["block-start", "tool-call-delta", "tool-call-delta", "tool-call-delta"],
        *["block-end"] * 3,
        "usage",
        "finish",
    ]
    assert values[-2]["usage"] == {"inputTokens": 3, "outputTokens": 4, "reasoningTokens": 1}
    assert values[-1] == {"type": "finish", "reason": {"kind": "tool-calls"}}
    content, _ = assembled(values).content()
    assert content == [
        {"type": "reasoning", "text": "Hm."},
        {"type": "text", "text": "Let me look."},
        {"type": "tool-call", "id": "call_1", "name": "read", "arguments": '{"path":"a b"}'},
    ]


@given(st.text(min_size=1))
async def test_the_pieces_are_the_text(text_said: str) -> None:
    values = await played(ScriptedModel(text(text_said)))
    deltas = [value["text"] for value in values if value["type"] == "text-delta"]
    assert "".join(deltas) == text_said
    assert values[-3]["block"]["text"] == text_said
    assert len(deltas) >= len(text_said) / 16


async def test_answers_go_out_in_call_order_or_by_session() -> None:
    model = ScriptedModel(
        text("shared 1"),
        text("shared 2"),
        sessions={"0/t1.s1.c0.n0": [text("child")]},
        auxiliary={"session-title": [text("A title")]},
    )
    answers = [
        await said(model, "a"),
        await said(model, "child-id", key="0/t1.s1.c0.n0"),
        await said(model, "b", key="0/t1.s1.c1.n0"),
    ]
    assert answers == ["shared 1", "child", "shared 2"]
    assert model.left() == {"session-title": 1}
    assert await said(model, "a", "session-title") == "A title"
    assert model.left() == {}
    assert [asked.session_id for asked in model.requests] == ["a", "child-id", "b", "a"]


@pytest.mark.parametrize("purpose", ["turn", "compaction"])
async def test_a_call_too_many_names_the_session_and_the_call(purpose: Purpose) -> None:
    model = ScriptedModel(text("one"))
    await said(model)
    with pytest.raises(
        AnswersExhaustedError, match="session 's' makes model call 2, the script holds 1"
    ) as caught:
        await said(model, purpose=purpose)
    assert isinstance(caught.value, ModelError)
    assert caught.value.code == "ANSWERS_EXHAUSTED"


async def test_an_answer_may_be_made_of_the_request() -> None:
    def echo(asked: ModelRequest) -> Answer:
        return text(f"{asked.session_id} says {asked.messages[0].data.decode()}")

    assert await said(ScriptedModel(echo), "x") == "x says 12345678"


@pytest.mark.parametrize(
    ("answer", "kinds", "raised"),
    [
        (failure("SERVER", "no", said="Hi"), ["block-start", "text-delta"], ModelError),
        (failure("SERVER", "no", how="fault"), [], StreamFault),
        (failure("SERVER", "no", how="finish"), ["usage", "finish"], None),
        (text(""), ["usage", "finish"], None),
        (chunks({"type": "heartbeat"}), ["heartbeat"], None),
    ],
)
async def test_failures(answer: Answer, kinds: list[str], raised: type[Exception] | None) -> None:
    seen: list[str] = []

    async def read() -> None:
        async for chunk in ScriptedModel(answer).stream(request()):
            seen.append(take_chunk(chunk).value["type"])  # noqa: PERF401  # what came before the failure is kept

    if raised is None:
        await read()
    else:
        with pytest.raises(raised, match="no"):
            await read()
    assert seen == kinds


async def test_the_estimated_usage_grows_with_the_history() -> None:
    usages: list[int] = []
    for size in (0, 8, 4000):
        values = await played(ScriptedModel(text("Hi there")), request(message=b"x" * size))
        usages.append(values[-2]["usage"]["inputTokens"])
    assert usages == [0, 2, 1000]
    assert [v["type"] for v in await played(ScriptedModel(text("Hi", usage=None)))][-2:] == [
        "block-end",
        "finish",
    ]


def test_defaults_are_filled_in_and_marked() -> None:
    model = ScriptedModel(context_window=100, default_max_tokens=8, default_reasoning_effort="low")
    prepared = model.prepare(CONFIG)
    assert prepared.config == RequestConfig("acme", "acme-1", reasoning_effort="low", max_tokens=8)
    assert prepared.adapter_defaults == AdapterDefaults(reasoning_effort=True, max_tokens=True)
    assert prepared.context_window == 100
    asked = RequestConfig("acme", "acme-1", reasoning_effort="high", max_tokens=9)
    assert model.prepare(asked).config == asked
    assert model.prepare(asked).adapter_defaults == AdapterDefaults()


async def test_a_pace_draws_from_its_own_source_and_waits_on_its_clock() -> None:
    clock = ManualClock()
    pace = Pace(random.Random(5), low=10, high=20, clock=clock)
    values = await played(ScriptedModel(text("Hello there"), pace=pace))
    drawn = random.Random(5)
    assert clock.now() == sum(drawn.randint(10, 20) for _ in values)


# --- the file form ---------------------------------------------------------------------------------


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


async def test_a_file_of_answers(tmp_path: Path) -> None:
    document = {
        "answers": [
            "plain",
            {"text": "with usage", "reasoning": "Hm", "usage": {"inputTokens": 1, "outputTokens": 2}},
            {
                "calls": [
                    {"name": "read", "arguments": {"path": "a"}},
                    {"name": "raw", "arguments": "{oops", "id": "z"},
                ]
            },
            {"text": "cut", "finish": "max-tokens", "usage": None, "replayState": {"response": {}}},
            {"failure": {"code": "RATE_LIMIT", "message": "slow", "status": 429, "providerRetryAfterMs": 5}},
            {"chunks": [{"type": "finish", "reason": {"kind": "stop"}}]},
            {},
        ],
        "sessions": {"0/h1.0": ["for the child"]},
        "auxiliary": {"compaction": ["a summary"]},
        "contextWindow": 1000,
    }
    model = load_scripted(written(tmp_path / "answers.json", document))
    assert model.prepare(CONFIG).context_window == 1000
    assert await said(model) == "plain"
    assert (await played(model))[-2]["usage"] == {"inputTokens": 1, "outputTokens": 2}
    content, _ = assembled(await played(model)).content()
    assert [(b["id"], b["arguments"]) for b in content] == [("call_1", '{"path":"a"}'), ("z", "{oops")]
    values = await played(model)
    assert values[-1] == {"type": "finish", "reason": {"kind": "max-tokens"}, "replayState": {"response": {}}}
    assert values[-2]["type"] == "block-end"
    with pytest.raises(ModelError) as caught:
        await played(model)
    assert (caught.value.code, caught.value.status, caught.value.provider_retry_after_ms) == (
        "RATE_LIMIT",
        429,
        5,
    )
    assert await played(model) == [{"type": "finish", "reason": {"kind": "stop"}}]
    assert (await played(model))[-1]["reason"]["failure"]["code"] == "EMPTY_RESPONSE"
    assert await said(model, key="0/h1.0") == "for the child"
    assert await said(model, purpose="compaction") == "a summary"
    assert model.left() == {}


@pytest.mark.parametrize(
    ("document", "where", "reason"),
    [
        ("{", "", "unparsable"),
        ([], "", "object"),
        ({"answer": []}, "", "answer"),
        ({"answers": [{"txt": "x"}]}, "$.answers[0]", "txt"),
        ({"answers": ["x", {"finish": "stopped"}]}, "$.answers[1].finish", "stopped"),
        ({"answers": [{"calls": [{"arguments": {}}]}]}, "$.answers[0].calls[0]", "name"),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, document: Any, where: str, reason: str) -> None:
    path = written(tmp_path / "answers.json", document)
    with pytest.raises(AnswersRefusedError, match=reason) as caught:
        load_scripted(path)
    assert (caught.value.path, caught.value.where) == (str(path), where)
