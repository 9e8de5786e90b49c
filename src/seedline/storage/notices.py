"""What happens to a store in the background, told to whoever composes it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from seedline.storage.base import TornTail

_log = logging.getLogger("seedline.storage")


class WriteFailed(msgspec.Struct, frozen=True):
    """A write that nobody waited for failed; the events stay in memory and are tried again."""

    session_id: str
    error: Exception

    def __str__(self) -> str:
        return f"session {self.session_id!r}: events could not be stored: {self.error}"


class Repaired(msgspec.Struct, frozen=True):
    """A stored session was mended before it was used: `torn` was cut off, `closers` were appended."""

    session_id: str
    torn: TornTail | None
    closers: tuple[str, ...]

    def __str__(self) -> str:
        return f"session {self.session_id!r}: repaired: {'; '.join(filter(None, self._parts()))}"

    def _parts(self) -> tuple[str, str]:
        torn = self.torn
        kept = f", kept at {torn.kept_at}" if torn and torn.kept_at else ""
        cut = f"cut {torn.size} torn from seq {torn.seq} on ({torn.reason}){kept}" if torn else ""
        return cut, f"appended {', '.join(self.closers)}" if self.closers else ""


Notice = WriteFailed | Repaired
Notify = Callable[[Notice], None]


def log_notice(notice: Notice) -> None:
    """Log a failure as an error and a repair as a warning."""
    _log.log(logging.ERROR if isinstance(notice, WriteFailed) else logging.WARNING, "%s", notice)
