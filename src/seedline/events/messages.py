"""Messages, content blocks, usage and failures, as typed views over recorded JSON.

These classes read. The bytes of an event stay in `Event.data`; a field that a class does not name is
absent from the view and still in the log. A block whose `type` is unknown becomes an `OtherBlock`.
"""

from __future__ import annotations

from typing import Any, Literal, cast, dataclass_transform

import msgspec

from seedline.jsonvalue import convert


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the typed views: frozen, camelCase on the wire, optional fields left out when None."""


class Block:
    """Base of the content blocks. `type` tells them apart."""

    __slots__ = ()


class TextBlock(Record, Block, tag_field="type", tag="text"):
    """Text that the model sees or said."""

    text: str


class ReasoningBlock(Record, Block, tag_field="type", tag="reasoning"):
    """The model's own reasoning."""

    text: str


class ToolCallBlock(Record, Block, tag_field="type", tag="tool-call"):
    """A call the model made. `arguments` is the raw text it produced, possibly not JSON."""

    id: str
    name: str
    arguments: str


class ToolResultBlock(Record, Block, tag_field="type", tag="tool-result"):
    """What a tool answered. `content` holds blocks."""

    tool_call_id: str
    content: tuple[Block, ...]
    is_error: bool | None = None


class Dimensions(Record):
    """Width and height in pixels."""

    width: int
    height: int


class Attachment(Record):
    """A durable reference to an image; its bytes never enter the log."""

    attachment_id: str
    media_type: str
    bytes: int
    width: int
    height: int
    name: str | None = None
    original_dimensions: Dimensions | None = None


class ImageBlock(Record, Block, tag_field="type", tag="image"):
    """An image the model sees."""

    attachment: Attachment


class OtherBlock(Block):
    """A block of a type, or of a shape, that this build does not name. `value` is its JSON object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OtherBlock) and self.value == other.value

    def __hash__(self) -> int:
        return hash(OtherBlock)

    def __repr__(self) -> str:
        return f"OtherBlock({self.value!r})"


BLOCKS: dict[str, type[Block]] = {
    "text": TextBlock,
    "reasoning": ReasoningBlock,
    "tool-call": ToolCallBlock,
    "tool-result": ToolResultBlock,
    "image": ImageBlock,
}


def read_block(value: Any) -> Block:
    """Return the typed view of one block value. Raises `JsonSyntaxError` for blocks nested too deep."""
    tag: Any = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    kind = BLOCKS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        return OtherBlock(value)
    try:
        return convert(value, kind, read_hook)
    except msgspec.ValidationError:
        return OtherBlock(value)


class Source(Record):
    """Who produced a message. `kind` decides which other fields are present; the set is open."""

    kind: str
    plugin: str | None = None
    form: str | None = None
    sections: Any = None
    summary: str | None = None
    provider: str | None = None
    model: str | None = None
    replay_state: Any = None
    call_id: str | None = None
    sender_session_id: str | None = None
    compaction_id: str | None = None


class Message(Record):
    """One message: `id` is minted once and kept through inbox, log and request."""

    id: str
    role: Literal["system", "user", "assistant"]
    content: tuple[Block, ...]
    source: Source


class Usage(Record):
    """Tokens of one request. `input_tokens` counts uncached input only; the input counts are disjoint."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Failure(Record):
    """Why a model request failed."""

    message: str
    code: str
    status: int | None = None
    provider_retry_after_ms: float | None = None
    request_id: str | None = None


def read_hook(kind: type, value: Any) -> Any:
    """msgspec `dec_hook` for the open unions of this room."""
    if kind is Block:
        return read_block(value)
    raise NotImplementedError(kind)


def text_of(content: tuple[Block, ...]) -> str:
    """Return the text blocks of `content` joined, nothing between them."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))


def tool_calls_of(content: tuple[Block, ...]) -> tuple[ToolCallBlock, ...]:
    """Return the tool calls of `content` in order."""
    return tuple(block for block in content if isinstance(block, ToolCallBlock))
