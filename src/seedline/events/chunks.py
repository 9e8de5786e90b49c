"""The pieces in which a model's answer arrives, as typed views over recorded JSON."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from seedline.events.messages import Block, Failure, Record, Usage, read_hook
from seedline.jsonvalue import convert


class FinishReason(Record):
    """Why a call ended: `stop`, `tool-calls`, `max-tokens`, or `aborted` and `error` with a failure. Open."""

    kind: str
    failure: Failure | None = None


class BlockStart(Record, tag_field="type", tag="block-start"):
    """A block opens. `index` correlates the chunks of one block; blocks may interleave."""

    index: int
    block_type: str


class TextDelta(Record, tag_field="type", tag="text-delta"):
    """A piece of text, possibly empty."""

    index: int
    text: str


class ReasoningDelta(Record, tag_field="type", tag="reasoning-delta"):
    """A piece of reasoning, possibly empty."""

    index: int
    text: str


class ToolCallDelta(Record, tag_field="type", tag="tool-call-delta"):
    """A piece of a tool call's argument text."""

    index: int
    id: str
    arguments_delta: str
    name: str | None = None


class BlockEnd(Record, tag_field="type", tag="block-end"):
    """A block is complete. `block` is authoritative over the deltas before it."""

    index: int
    block: Block


class UsageChunk(Record, tag_field="type", tag="usage"):
    """Tokens of the call; comes before `finish`."""

    usage: Usage


class Finish(Record, tag_field="type", tag="finish"):
    """The call ended; nothing follows it within the call."""

    reason: FinishReason
    replay_state: Any = None


class OtherChunk(Record):
    """A chunk of a type, or of a shape, that this build does not name. `value` is its JSON value."""

    value: Any


Chunk = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | Finish | OtherChunk
CHUNKS: dict[str, type[Chunk]] = {
    "block-start": BlockStart,
    "text-delta": TextDelta,
    "reasoning-delta": ReasoningDelta,
    "tool-call-delta": ToolCallDelta,
    "block-end": BlockEnd,
    "usage": UsageChunk,
    "finish": Finish,
}


def read_chunk(value: Any) -> Chunk:
    """Return the typed view of one chunk value. Raises `JsonSyntaxError` for blocks nested too deep."""
    tag: Any = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    kind = CHUNKS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        return OtherChunk(value)
    try:
        return convert(value, kind, read_hook)
    except msgspec.ValidationError:
        return OtherChunk(value)
