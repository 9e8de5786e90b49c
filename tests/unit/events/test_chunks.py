"""Stream chunks: typed where the type and the shape are known, plain where not."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.errors import JsonSyntaxError
from seedline.events.chunks import (
    CHUNKS,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    OtherChunk,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
    read_chunk,
)
from seedline.events.messages import Failure, OtherBlock, TextBlock, Usage


@pytest.mark.parametrize(
    ("value", "chunk"),
    [
        ({"type": "block-start", "index": 0, "blockType": "text"}, BlockStart(0, "text")),
        ({"type": "text-delta", "index": 1, "text": ""}, TextDelta(1, "")),
        ({"type": "text-delta", "index": 1, "text": "\ude00", "\ud83d": 1}, TextDelta(1, "\ude00")),
        ({"type": "reasoning-delta", "index": 2, "text": "r"}, ReasoningDelta(2, "r")),
        (
            {"type": "tool-call-delta", "index": 3, "id": "a", "name": "n", "argumentsDelta": "{"},
            ToolCallDelta(3, "a", "{", "n"),
        ),
        ({"type": "tool-call-delta", "index": 3, "id": "a", "argumentsDelta": ""}, ToolCallDelta(3, "a", "")),
        (
            {"type": "block-end", "index": 0, "block": {"type": "text", "text": "x"}},
            BlockEnd(0, TextBlock("x")),
        ),
        (
            {"type": "block-end", "index": 0, "block": {"type": "\ud83d"}},
            BlockEnd(0, OtherBlock({"type": "\ud83d"})),
        ),
        ({"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}}, UsageChunk(Usage(1, 2))),
        ({"type": "finish", "reason": {"kind": "stop"}}, Finish(FinishReason("stop"))),
        (
            {
                "type": "finish",
                "reason": {"kind": "error", "failure": {"message": "m", "code": "AUTH", "status": 401}},
            },
            Finish(FinishReason("error", Failure("m", "AUTH", 401))),
        ),
        (
            {"type": "finish", "reason": {"kind": "new"}, "replayState": {"response": [1]}},
            Finish(FinishReason("new"), {"response": [1]}),
        ),
    ],
    ids=ascii,
)
def test_a_known_chunk_is_typed(value: dict[str, Any], chunk: Chunk) -> None:
    assert read_chunk(value) == chunk
    assert type(read_chunk(value)) is CHUNKS[value["type"]]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image-delta", "index": 0},
        {"type": "\ud83d"},
        {"type": 1},
        {"type": {}},
        {"index": 0},
        {"type": "text-delta", "index": 0},
        {"type": "text-delta", "index": "0", "text": "x"},
        {"type": "text-delta", "index": 0.5, "text": "x"},
        {"type": "text-delta", "index": "\ud83d", "text": "x"},
        {"type": "usage", "usage": {"inputTokens": "\ud83d"}},
        {"type": "finish", "reason": "stop"},
        [],
        "x",
        None,
        0,
    ],
    ids=ascii,
)
def test_any_other_chunk_keeps_its_value(value: Any) -> None:
    assert read_chunk(value) == OtherChunk(value)


def test_a_chunk_with_a_block_nested_too_deep_is_refused() -> None:
    block: Any = {"type": "text", "text": "x"}
    for _ in range(5000):
        block = {"type": "tool-result", "toolCallId": "a", "content": [block]}
    with pytest.raises(JsonSyntaxError, match="nesting too deep"):
        read_chunk({"type": "block-end", "index": 0, "block": block})
