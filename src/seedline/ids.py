"""Identifiers: fresh ones as an argument, and session ids as safe path segments.

Path rules: dsh version-0 layout. They count UTF-16 code units, so that every id, lone surrogates
included, has exactly one spelling and no two ids share one.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Protocol

from seedline.errors import SessionIdRefusedError

_KEPT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_SEPARATORS = frozenset("/\\:")
MAX_PROJECT_KEY_UNITS = 251
MAX_SEGMENT_UNITS = 255


class IdSource(Protocol):
    """Where fresh ids come from. Replay and tests pass a seeded one."""

    def fresh(self) -> str:
        """Return a new UUID version 4 in its text form."""
        ...


class RandomIds:
    """Ids from the operating system's randomness."""

    def fresh(self) -> str:
        return str(uuid.uuid4())


class SeededIds:
    """The same ids in the same order for the same `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def fresh(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def utf16_units(text: str) -> Iterator[str]:
    """Yield the UTF-16 code units of `text` as one-character strings."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return (chr(raw[at] | raw[at + 1] << 8) for at in range(0, len(raw), 2))


def _escape(unit: str) -> str:
    return unit if unit in _KEPT else f"~{ord(unit):04X}"


def encode_segment(session_id: str) -> str:
    """Return the directory name of `session_id`: injective, never `.`, `..` or a path.

    Raises `SessionIdRefusedError` for the empty id and for one whose name exceeds 255 characters.
    """
    if not session_id:
        raise SessionIdRefusedError(session_id, "it is empty")
    if session_id in (".", ".."):
        return "~002E" * len(session_id)
    segment = "".join(map(_escape, utf16_units(session_id)))
    if len(segment) > MAX_SEGMENT_UNITS:
        raise SessionIdRefusedError(
            session_id, f"its directory name has {len(segment)} characters, over {MAX_SEGMENT_UNITS}"
        )
    return segment


def project_key(cwd: str | None) -> str:
    """Return the directory name that groups the sessions of `cwd` (lossy: two folders may share one)."""
    if cwd is None:
        return "_no-cwd"
    parts: list[str] = []
    previous_separator = False
    for unit in utf16_units(cwd):
        separator = unit in _SEPARATORS
        if not separator:
            parts.append(_escape(unit))
        elif not previous_separator:
            parts.append("-")
        previous_separator = separator
    key = "".join(parts).lstrip("-") or "root"
    return f"--{key[:MAX_PROJECT_KEY_UNITS]}--"
