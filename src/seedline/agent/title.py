"""The fallback title of a session, and the extension that logs it."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from seedline.agent.extension import Extension
from seedline.events.event import Event
from seedline.session.log import Session

if TYPE_CHECKING:
    from seedline.agent.loop import Agent

_WORDS = 5
_BYTES = 40
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
_INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


def fallback_title(session: Session) -> dict[str, Any] | None:
    """Return the `session/title` payload named by the first user message with visible text.

    The title is its first five words, without control characters and with single spaces, cut to 40 UTF-8
    bytes at a character. None when no such message is in the log.
    """
    for event in session.events.without_chunks():
        title = _title_of(event)
        if title:
            return {"title": title, "messageSeqs": [event.seq], "source": {"kind": "fallback"}}
    return None


def _title_of(event: Event) -> str:
    if event.type != "user/message":
        return ""
    message = event.value
    if message["source"].get("kind") != "user":
        return ""
    texts = [block["text"] for block in message["content"] if block.get("type") == "text"]
    return shorten(" ".join(texts))


def shorten(text: str) -> str:
    """Return the first words of `text` as a title, empty when nothing of it can be seen."""
    spaced = text.translate(_CONTROLS)
    if all(unicodedata.category(character) in _INVISIBLE for character in spaced):
        return ""
    title = " ".join(spaced.split()[:_WORDS])
    raw = title.encode("utf-8", "replace")[:_BYTES]
    return raw.decode("utf-8", "ignore").rstrip()


class FallbackTitle(Extension):
    """Names a session that has no title yet, once its first user message is in the log."""

    def __init__(self) -> None:
        self._named: WeakSet[Session] = WeakSet()

    async def step_entered(self, agent: Agent, turn: int, step: int) -> None:
        session = agent.session
        if session in self._named:
            return
        if not _has_title(session):
            title = fallback_title(session)
            if title is None:
                return
            session.append("session/title", title)
        self._named.add(session)


def _has_title(session: Session) -> bool:
    return any(event.type == "session/title" for event in session.events.without_chunks())
