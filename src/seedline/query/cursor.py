"""Opaque cursors: where a question goes on. One fits only the question that it came from."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

import msgspec

from seedline.errors import JsonValueError, QueryError
from seedline.jsonvalue import convert, decode, encode

T = TypeVar("T")
_MARK_BYTES: Final = 9


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some answers. `cursor` asks for the next ones; None when these were the last."""

    items: tuple[T, ...]
    cursor: str | None = None


def seal(question: object, *place: int | str) -> str:
    """Return the cursor of a question that goes on after `place`."""
    sealed = _mark(question) + encode(list(place))
    return urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(question: object, cursor: str, kind: type[T]) -> T:
    """Return the place in a cursor of this question, a tuple type. Raises `QueryError` (`INVALID_CURSOR`)."""
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        place = convert(decode(sealed[_MARK_BYTES:]), kind)
    except (ValueError, JsonValueError, msgspec.ValidationError):
        raise QueryError("INVALID_CURSOR", f"{cursor[:80]!r} is no cursor") from None
    if sealed[:_MARK_BYTES] != _mark(question):
        raise QueryError("INVALID_CURSOR", f"the cursor {cursor[:80]!r} belongs to another question")
    return place


def _mark(question: object) -> bytes:
    return blake2b(repr(question).encode("utf-8", "backslashreplace"), digest_size=_MARK_BYTES).digest()


def check_limit(limit: Any, most: int) -> None:
    """Raise `QueryError` (`INVALID_LIMIT`) unless 1 <= limit <= most."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise QueryError("INVALID_LIMIT", f"a limit of {limit!r} is not within 1 and {most}")
