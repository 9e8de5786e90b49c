"""Which recorded children a replay makes again by their parents' calls, and through which provider."""

from __future__ import annotations

from typing import Any, Final, cast

from seedline.errors import JsonSyntaxError
from seedline.events.event import Event
from seedline.jsonvalue import decode
from seedline.session.header import CallSpawn
from seedline.session.tree import Node
from seedline.snapshot.record import Record, replay_start, value_of

DELEGATION_TOOLS: Final = {"subagent": "spawn", "subagent_fork": "fork"}
"""Tool -> the provider behind it."""


def is_delegated(child: Node, parent: Record) -> bool:
    """True when a call in the replayed part of `parent` made this child in the foreground, in this process.

    Such a child begins where its parent's call put it: what is replayed of it starts at its cut. Any other
    child (continuable, of a workflow, of host code, resumed) is a run of its own.
    """
    own, cut = child.session, child.session.inherited_event_count
    if child.detached or replay_start(cut, own.events) != cut or cut > len(own.events):
        return False
    if not any(event.type == "turn/start" for event in own.own.without_chunks()):
        return False
    if child.place is None:
        return bool(descriptor_provider(child))
    return (
        isinstance(child.place, CallSpawn)
        and child.place.n == 0
        and child.place.tool in DELEGATION_TOOLS
        and descriptor_provider(child) != ""
        and _has_call_at(parent, child.place)
    )


def _has_call_at(parent: Record, place: CallSpawn) -> bool:
    """True when a call was made in the step of `place`."""
    return any(
        event.type == "tool/call" and _step_of(event) == (place.turn, place.step)
        for event in parent.owned_from(parent.start)
    )


def _step_of(event: Event) -> tuple[Any, Any]:
    value = value_of(event)
    return value.get("turn"), value.get("step")


def descriptor_provider(child: Node) -> str | None:
    """Return the provider that a foreground child names in its descriptor.

    Empty for a child of another kind, None for a child without a descriptor.
    """
    for event in child.session.own.without_chunks():
        if event.type == "subagent/descriptor":
            descriptor = value_of(event)
            provider = descriptor.get("provider")
            known = descriptor.get("mode") == "one-shot" and provider in DELEGATION_TOOLS.values()
            return str(provider) if known else ""
    return None


def provider_of(child: Node, tool: str) -> str:
    """Return the provider of a foreground child: the one its descriptor names, else the one of its tool."""
    return descriptor_provider(child) or DELEGATION_TOOLS[tool]


def arguments_of(text: str) -> Any:
    """Return the arguments of a call: empty text is an empty object, broken JSON stays text."""
    try:
        return decode(text) if text else {}
    except JsonSyntaxError:
        return text


def prompt_of(tool: str, arguments: Any) -> str | None:
    """Return the task that a delegating call gives, None for any other call."""
    if tool not in DELEGATION_TOOLS or not isinstance(arguments, dict):
        return None
    prompt = cast("dict[str, Any]", arguments).get("prompt")
    return prompt if isinstance(prompt, str) else None
