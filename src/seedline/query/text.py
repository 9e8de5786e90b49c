"""What a search finds of an event (dsh format version 0, section 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.event import Event
from seedline.events.messages import Block, TextBlock, ToolResultBlock
from seedline.events.vocabulary import (
    AssistantMessage,
    TodoWrite,
    ToolCall,
    ToolResult,
    TurnEnd,
    UserMessage,
)


def text_of_event(event: Event) -> str:
    """Return the text that people and models said and tools answered; empty for every other event.

    A tool call gives its name and arguments, a turn its end if that was not a good one. Reasoning, chunks
    and records of plugins give nothing, nor does a payload of another shape.
    """
    read = _PARTS.get(event.type)
    if read is None:
        return ""
    try:
        parts = [part.strip() for part in read(event.payload)]
    except SessionPersistenceCorruptionError:
        return ""
    return "\n".join(filter(None, parts))


def _texts(content: tuple[Block, ...]) -> Iterator[str]:
    for block in content:
        if isinstance(block, TextBlock):
            yield block.text
        elif isinstance(block, ToolResultBlock):
            yield from _texts(block.content)


def _user(message: UserMessage) -> Iterator[str]:
    yield from _texts(message.content)


def _assistant(answer: AssistantMessage) -> Iterator[str]:
    yield from _texts(answer.message.content)


def _call(call: ToolCall) -> Iterator[str]:
    yield call.name
    yield call.arguments


def _result(result: ToolResult) -> Iterator[str]:
    yield from _texts(result.message.content)
    if result.error is not None:
        yield result.error.name
        yield result.error.code


def _todos(written: TodoWrite) -> Iterator[str]:
    for todo in written.todos:
        yield todo.content


def _end(end: TurnEnd) -> Iterator[str]:
    if end.reason.kind == "error" and end.reason.error is not None:
        yield end.reason.error.message
    elif end.reason.kind in ("aborted", "max-tokens", "interrupted"):
        yield end.reason.kind


_PARTS: Final[dict[str, Callable[[Any], Iterator[str]]]] = {
    "user/message": _user,
    "assistant/message": _assistant,
    "tool/call": _call,
    "tool/result": _result,
    "todo/write": _todos,
    "turn/end": _end,
}
SEARCHED: Final = frozenset(_PARTS)
"""The types of event that can have a text."""
