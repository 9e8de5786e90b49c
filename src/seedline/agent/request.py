"""Building a request from the log, and proving that it came from nowhere else (2.7)."""

from __future__ import annotations

from typing import Any

import msgspec

from seedline.agent.extension import Section
from seedline.agent.inbox import MessageValue
from seedline.errors import UnloggedContextError
from seedline.events.vocabulary import (
    AdapterDefaults,
    RequestConfig,
    RequestContext,
    RequestHeader,
    RequestHeaderBody,
)
from seedline.ids import IdSource
from seedline.llm.base import ModelRequest, PreparedConfig
from seedline.session.log import Session
from seedline.session.request import RequestFolds, canonical_header, same_header
from seedline.session.surface import LogMessage, Surface, derive_messages

CONTEXT_PLUGIN = "seedline/runtime-context"
_CONTEXT_LEAD = "Runtime context. It replaces every earlier runtime context."
_NO_CONTEXT = "There is no runtime context any more."


class Declared(msgspec.Struct, frozen=True):
    """The route that an agent was made with."""

    provider: str
    model: str
    max_tokens: int | None = None


def first_config(declared: Declared, logged: RequestHeaderBody | None) -> RequestConfig:
    """Return the seed config of an agent's first request.

    A reasoning effort in the log goes on when it was asked for on the same route; one that the adapter
    supplied does not.
    """
    effort = None
    if logged and (logged.config.provider, logged.config.model) == (declared.provider, declared.model):
        marks = logged.adapter_defaults
        effort = None if marks and marks.reasoning_effort else logged.config.reasoning_effort
    return RequestConfig(
        provider=declared.provider,
        model=declared.model,
        reasoning_effort=effort,
        max_tokens=declared.max_tokens,
    )


def next_config(logged: RequestHeaderBody) -> RequestConfig:
    """Return the seed config of a later request: the last one without what the adapter supplied."""
    marks = logged.adapter_defaults
    if marks is None:
        return logged.config
    return msgspec.structs.replace(
        logged.config,
        reasoning_effort=None if marks.reasoning_effort else logged.config.reasoning_effort,
        max_tokens=None if marks.max_tokens else logged.config.max_tokens,
    )


def log_header(session: Session, header: RequestHeaderBody, *, anchored: bool) -> None:
    """Append `request/header` where the rules want one. `anchored`: this agent has logged one before."""
    logged = session.request_header()
    if anchored and logged is not None and same_header(logged, header):
        return
    reason = "change" if anchored else "initial" if logged is None else "resume"
    session.append("request/header", RequestHeader(header, reason))


def log_context(session: Session, prepared: PreparedConfig) -> None:
    """Append `request/context` when it differs from the last one in the log."""
    config = prepared.config
    context = RequestContext(config.provider, config.model, prepared.context_window)
    if session.request_context() != context:
        session.append("request/context", context)


def header_for(prepared: PreparedConfig, system: str, tools: Any) -> RequestHeaderBody:
    """Return the canonical header of a request to come; an adapter mark stands beside a value only."""
    marks, config = prepared.adapter_defaults or AdapterDefaults(), prepared.config
    supplied = AdapterDefaults(
        reasoning_effort=bool(marks.reasoning_effort and config.reasoning_effort is not None) or None,
        max_tokens=bool(marks.max_tokens and config.max_tokens is not None) or None,
    )
    return canonical_header(RequestHeaderBody(config, supplied, system, tools))


class Witness:
    """A second fold of one session's log, kept apart from the session's own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen = 0
        self._surface = Surface()
        self._folds = RequestFolds()
        self._messages: list[LogMessage] = []
        self._projected = (0, 0)  # surface nodes and replace generation that `_messages` covers

    def check(self, request: ModelRequest) -> None:
        """Raise `UnloggedContextError` unless the log derives exactly this request."""
        self._fold()
        if self._folds.header is None or not same_header(self._folds.header, request.header):
            raise UnloggedContextError(self._session.id, "header")
        if self._messages != list(request.messages):
            raise UnloggedContextError(self._session.id, "message list")

    def _fold(self) -> None:
        events = self._session.events
        for event in events[self._seen :].without_chunks():
            self._surface.commit(event, self._surface.admit(event, events.at_seq))
            self._folds.take(event)
        self._seen = len(events)
        covered, generation = self._projected
        if generation != self._surface.replace_generation:
            covered, self._messages = 0, []
        nodes = self._surface.added_since(covered)
        self._messages += derive_messages(nodes, events.at_seq)
        self._projected = (covered + len(nodes), self._surface.replace_generation)


def context_message(session: Session, contexts: tuple[Section, ...], ids: IdSource) -> MessageValue | None:
    """Return the runtime-context message to enter, None when the surface already shows this context.

    Sections without text say nothing.
    """
    contexts = tuple(section for section in contexts if section.text)
    shown = _shown_context(session)
    if not contexts and shown is None:
        return None
    source: dict[str, Any] = {"kind": "plugin", "plugin": CONTEXT_PLUGIN}
    text = _NO_CONTEXT
    if contexts:
        text = "\n\n".join([_CONTEXT_LEAD, *(section.text for section in contexts)])
        source |= {"form": "snapshot", "sections": [msgspec.to_builtins(section) for section in contexts]}
    if text == shown:
        return None
    return {"content": [{"type": "text", "text": text}], "source": source, "role": "user", "id": ids.fresh()}


def _shown_context(session: Session) -> str | None:
    """Return the text of the last runtime context on the surface."""
    for seq in reversed(session.surface):
        event = session.events.at_seq(seq)
        if event.type != "user/message":
            continue
        message = event.value
        source = message["source"]
        if source.get("plugin") == CONTEXT_PLUGIN:
            return message["content"][0]["text"]
    return None
