"""Messages and blocks: typed where the type and the shape are known, plain where not, never lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from seedline.errors import JsonSyntaxError
from seedline.events.messages import (
    BLOCKS,
    Attachment,
    Block,
    Dimensions,
    Failure,
    ImageBlock,
    Message,
    OtherBlock,
    ReasoningBlock,
    Source,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    read_block,
    read_hook,
    text_of,
    tool_calls_of,
)
from seedline.jsonvalue import convert

IMAGE = {
    "type": "image",
    "attachment": {
        "attachmentId": "sha256:" + "0" * 64,
        "mediaType": "image/png",
        "bytes": 10,
        "width": 1,
        "height": 2,
        "originalDimensions": {"width": 3, "height": 4},
    },
}


@pytest.mark.parametrize(
    ("value", "block"),
    [
        ({"type": "text", "text": ""}, TextBlock("")),
        ({"type": "text", "text": "\ud83d", "unknown": [1]}, TextBlock("\ud83d")),
        ({"type": "reasoning", "text": "r"}, ReasoningBlock("r")),
        ({"type": "tool-call", "id": "a", "name": "b", "arguments": "{"}, ToolCallBlock("a", "b", "{")),
        ({"type": "tool-result", "toolCallId": "a", "content": []}, ToolResultBlock("a", ())),
        (
            {"type": "tool-result", "toolCallId": "a", "content": [], "isError": True},
            ToolResultBlock("a", (), True),
        ),
        (
            {
                "type": "tool-result",
                "toolCallId": "a",
                "content": [{"type": "text", "text": "x"}, {"type": "new"}, 1],
            },
            ToolResultBlock("a", (TextBlock("x"), OtherBlock({"type": "new"}), OtherBlock(1))),
        ),
        (
            IMAGE,
            ImageBlock(
                Attachment("sha256:" + "0" * 64, "image/png", 10, 1, 2, original_dimensions=Dimensions(3, 4))
            ),
        ),
    ],
)
def test_a_known_block_is_typed(value: dict[str, Any], block: Block) -> None:
    assert read_block(value) == block
    assert type(read_block(value)) is BLOCKS[value["type"]]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "video", "url": "x"},
        {"type": "\ud83d"},
        {"type": 1},
        {"type": None},
        {"type": ["text"]},
        {"text": "x"},
        {},
        {"type": "text"},
        {"type": "text", "text": 1},
        {"type": "text", "text": None, "\ud83d": 1},
        {"type": "tool-call", "id": "\ud83d", "name": 1, "arguments": ""},
        {"type": "tool-result", "toolCallId": "a", "content": "x"},
        {"type": "tool-result", "toolCallId": "a", "content": [], "isError": "\ud83d"},
        {"type": "image", "attachment": {"width": "\ud83d"}},
        [],
        "text",
        1,
        None,
    ],
    ids=ascii,
)
def test_any_other_block_keeps_its_value(value: Any) -> None:
    block = read_block(value)
    assert block == OtherBlock(value)
    assert isinstance(block, OtherBlock)
    assert block.value is value


def test_plain_blocks_compare_by_value() -> None:
    assert OtherBlock({"a": [1]}) == OtherBlock({"a": [1]})
    assert OtherBlock({"a": [1]}) != OtherBlock({"a": [2]})
    assert OtherBlock(1) != 1
    assert hash(OtherBlock([1])) == hash(OtherBlock({}))
    assert repr(OtherBlock({"a": 1})) == "OtherBlock({'a': 1})"


def test_blocks_nested_too_deep_are_refused() -> None:
    block: Any = {"type": "text", "text": "x"}
    for _ in range(5000):
        block = {"type": "tool-result", "toolCallId": "a", "content": [block]}
    with pytest.raises(JsonSyntaxError, match="nesting too deep"):
        read_block(block)


def test_a_message_reads_its_blocks_and_its_source() -> None:
    message = convert(
        {
            "id": "m",
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "x"}],
            "source": {
                "kind": "plugin",
                "plugin": "p",
                "form": "snapshot",
                "sections": [{"name": "a", "text": "b"}],
            },
        },
        Message,
        read_hook,
    )
    assert message.content == (TextBlock("hi"), OtherBlock({"type": "x"}))
    assert message.source == Source(
        "plugin", plugin="p", form="snapshot", sections=[{"name": "a", "text": "b"}]
    )
    with pytest.raises(msgspec.ValidationError):
        convert({"id": "m", "role": "tool", "content": [], "source": {"kind": "user"}}, Message, read_hook)


def test_optional_fields_are_left_out_again() -> None:
    assert msgspec.to_builtins(Usage(1, 2)) == {"inputTokens": 1, "outputTokens": 2}
    assert msgspec.to_builtins(Usage(1, 2, cache_read_tokens=0))["cacheReadTokens"] == 0
    failure = Failure("m", "UNKNOWN", provider_retry_after_ms=1.5)
    assert msgspec.to_builtins(failure) == {"message": "m", "code": "UNKNOWN", "providerRetryAfterMs": 1.5}


def test_texts_and_calls_are_picked_in_order() -> None:
    call = ToolCallBlock("a", "b", "{}")
    content = (TextBlock("x"), ReasoningBlock("no"), call, OtherBlock({"type": "text"}), TextBlock("y"))
    assert text_of(content) == "xy"
    assert tool_calls_of(content) == (call,)
    assert text_of(()) == ""
    assert tool_calls_of(()) == ()


def test_the_hook_knows_blocks_only() -> None:
    with pytest.raises(NotImplementedError):
        read_hook(int, 1)
