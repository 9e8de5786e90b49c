"""The stand-in model: answers recorded calls behind the same seam as a live one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from seedline.clock import Clock
from seedline.errors import ModelError, ScriptExhaustedError
from seedline.llm.base import ModelRequest
from seedline.replay.entries import CutEntry, HangEntry, ScriptEntry, ThrowEntry
from seedline.replay.overrides import request_strings, substitute

GiveWay = Callable[[], Awaitable[None]]
"""Lets other sessions go on; where a replay may be interleaved, it calls this."""
OpenEnd = Callable[[HangEntry | CutEntry], Awaitable[None]]
"""Ends a call whose entry has no end of its own: waits to be cancelled, raises, or returns to end it here."""


class Channel:
    """The entries of one recorded session, each served once, in order.

    The place moves when a call is made, not when its stream is read.
    """

    def __init__(self, key: str, entries: list[ScriptEntry]) -> None:
        self.key = key
        self._entries = entries
        self.consumed = 0

    @property
    def total(self) -> int:
        return len(self._entries)

    def take(self) -> ScriptEntry:
        """Return the next entry. Raises `ScriptExhaustedError` naming the call."""
        if self.consumed == len(self._entries):
            raise ScriptExhaustedError(self.key, self.consumed + 1, len(self._entries))
        self.consumed += 1
        return self._entries[self.consumed - 1]


async def play(
    entry: ScriptEntry,
    request: ModelRequest,
    *,
    clock: Clock,
    pace: int,
    give_way: GiveWay,
    on_open_end: OpenEnd,
) -> AsyncIterator[msgspec.Raw]:
    """Yield the chunks of one entry, each after `pace` milliseconds and `give_way`.

    A throw raises `ModelError` after its chunks; after those of a hang or a cut, `on_open_end` decides.
    Placeholders are filled in from the request. Raises `PlaceholderError`.
    """
    entry = substitute(entry, request_strings([message.value for message in request.messages]))
    for chunk in entry.chunks:
        if pace:
            await clock.sleep(pace)
        await give_way()
        yield msgspec.Raw(chunk)
    if isinstance(entry, ThrowEntry):
        raise ModelError(entry.message, entry.code)
    if isinstance(entry, HangEntry | CutEntry):
        await on_open_end(entry)
