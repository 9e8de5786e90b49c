"""The request header and context in force, folded from the log (3.8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from seedline.events.event import Event
from seedline.events.vocabulary import AdapterDefaults, RequestContext, RequestHeader, RequestHeaderBody
from seedline.jsonvalue import encode


class RequestFolds:
    """The last request header and the last request context, decoded when asked for."""

    __slots__ = ("_contexts", "_headers")

    def __init__(self, headers: Iterable[Event] = (), contexts: Iterable[Event] = ()) -> None:
        self._headers = list(headers)
        self._contexts = list(contexts)

    def take(self, event: Event) -> None:
        """Fold one event."""
        if event.type == "request/header":
            self._headers.append(event)
        elif event.type == "request/context":
            self._contexts.append(event)

    def before(self, stop: int) -> RequestFolds:
        """Return the fold of the events before seq `stop`."""
        return RequestFolds(
            (event for event in self._headers if event.seq < stop),
            (event for event in self._contexts if event.seq < stop),
        )

    @property
    def header(self) -> RequestHeaderBody | None:
        """The header in force, in canonical form, None before the first."""
        if not self._headers:
            return None
        recorded: RequestHeader = self._headers[-1].payload
        return canonical_header(recorded.header)

    @property
    def context(self) -> RequestContext | None:
        """The last context, None before the first. One without a window clears the older window."""
        return self._contexts[-1].payload if self._contexts else None


def canonical_header(header: RequestHeaderBody) -> RequestHeaderBody:
    """Return `header` without what says nothing: no true adapter mark, empty system, empty tools."""
    marks = header.adapter_defaults
    return RequestHeaderBody(
        config=header.config,
        adapter_defaults=marks if marks and (marks.reasoning_effort or marks.max_tokens) else None,
        system=header.system or None,
        tools=header.tools or None,
    )


def _tool_texts(tools: Any) -> list[bytes] | bytes | None:
    if isinstance(tools, list):
        return [encode(tool) for tool in cast("list[Any]", tools)]
    return None if tools is None else encode(tools)


def same_header(a: RequestHeaderBody, b: RequestHeaderBody) -> bool:
    """True when two canonical headers ask the same: tools compare in order by their JSON text."""
    marks_a, marks_b = a.adapter_defaults or AdapterDefaults(), b.adapter_defaults or AdapterDefaults()
    return (
        a.config == b.config
        and marks_a == marks_b
        and a.system == b.system
        and _tool_texts(a.tools) == _tool_texts(b.tools)
    )
