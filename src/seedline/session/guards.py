"""The guards at a log's door: retired shapes, message shapes, request header shapes (3.2 and 2.1)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, UnsetType

from seedline.errors import EventRefusedError, JsonSyntaxError, reason_of
from seedline.events.event import Event
from seedline.events.vocabulary import RETIRED_TYPES
from seedline.jsonvalue import decode_as

_Text = Annotated[str, Meta(min_length=1)]


class _Kind(msgspec.Struct):
    kind: _Text


class _UserShape(msgspec.Struct):
    id: _Text
    role: Literal["user"]
    source: _Kind
    content: list[Any]


class _ModelSource(msgspec.Struct):
    kind: Literal["model"]
    provider: _Text
    model: _Text


class _AssistantMessageShape(msgspec.Struct):
    id: _Text
    role: Literal["assistant"]
    source: _ModelSource
    content: list[Any]


class _AssistantShape(msgspec.Struct):
    message: _AssistantMessageShape


class _ToolSource(msgspec.Struct, rename="camel"):
    kind: Literal["tool"]
    call_id: _Text


class _ResultBlock(msgspec.Struct, rename="camel"):
    type: Literal["tool-result"]
    tool_call_id: str
    content: list[Any]


class _ResultMessageShape(msgspec.Struct):
    id: _Text
    role: Literal["user"]
    source: _ToolSource
    content: Annotated[list[_ResultBlock], Meta(min_length=1, max_length=1)]


class _ResultShape(msgspec.Struct):
    message: _ResultMessageShape


class _ConfigShape(msgspec.Struct, rename="camel"):
    provider: _Text
    model: _Text
    reasoning_effort: _Text | UnsetType = msgspec.UNSET
    max_tokens: Any = msgspec.UNSET


class _DefaultsShape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    reasoning_effort: Literal[True] | UnsetType = msgspec.UNSET
    max_tokens: Literal[True] | UnsetType = msgspec.UNSET


class _HeaderShape(msgspec.Struct, rename="camel"):
    config: _ConfigShape
    adapter_defaults: _DefaultsShape | UnsetType = msgspec.UNSET


class _RequestHeaderShape(msgspec.Struct):
    header: _HeaderShape


_SHAPES: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    "user/message": msgspec.json.Decoder(_UserShape),
    "assistant/message": msgspec.json.Decoder(_AssistantShape),
    "tool/result": msgspec.json.Decoder(_ResultShape),
    "request/header": msgspec.json.Decoder(_RequestHeaderShape),
}


class _Reason(msgspec.Struct):
    reason: Any = None


_REASON: Final = msgspec.json.Decoder(_Reason)


def refuse_retired(event_type: str, data: bytes, seq: int | None) -> None:
    """Raise `EventRefusedError` for an event shape that no build reads any more, ignorable or not."""
    if event_type in RETIRED_TYPES:
        raise EventRefusedError("retired", event_type, "this type is retired", seq)
    if event_type == "request/header" and b"fallback" in data:
        try:
            reason = decode_as(data, _REASON).reason
        except (msgspec.ValidationError, JsonSyntaxError):
            return
        if reason == "fallback":
            raise EventRefusedError("retired", event_type, "the reason `fallback` is retired", seq)


def check_shape(event: Event) -> None:
    """Raise `EventRefusedError` when a message or request header of a stored log cannot be right."""
    decoder = _SHAPES.get(event.type)
    if decoder is None:
        return
    try:
        shape = decode_as(bytes(event.data), decoder)
    except (msgspec.ValidationError, JsonSyntaxError) as error:
        code = "request-header" if event.type == "request/header" else "message"
        raise EventRefusedError(code, event.type, reason_of(error), event.seq) from None
    if isinstance(shape, _ResultShape):
        message = shape.message
        if message.content[0].tool_call_id != message.source.call_id:
            raise EventRefusedError(
                "message", event.type, "`toolCallId` is not the source's `callId`", event.seq
            )
    if isinstance(shape, _RequestHeaderShape):
        _check_defaults(event, shape.header)


def _check_defaults(event: Event, header: _HeaderShape) -> None:
    marks = header.adapter_defaults
    if marks is msgspec.UNSET:
        return
    for name in ("reasoning_effort", "max_tokens"):
        if getattr(marks, name) is True and getattr(header.config, name) is msgspec.UNSET:
            raise EventRefusedError(
                "request-header",
                event.type,
                f"`adapterDefaults` marks {name}, which `config` lacks",
                event.seq,
            )
