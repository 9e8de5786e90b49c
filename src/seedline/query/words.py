"""The words of a text, and whether they match a search: the one place that decides it.

Letters compare without case and accents. A word is a run of letters and digits, of which the first 64 count;
a Chinese character or a Japanese syllable is a word of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from seedline.errors import QueryError

LONGEST: Final = 64
"""How many characters of a word count."""
SNIPPET: Final = 240
_LEAD: Final = 60
_ALONE: Final = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD: Final = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_PARTS: Final = re.compile(r'"([^"]*)"|(\S+)')


class Phrase(NamedTuple):
    """Words that stand side by side. Of the last one the beginning is enough where `is_open` says so."""

    words: tuple[str, ...]
    is_open: bool = False


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text in order, as they compare."""
    return (match.group()[:LONGEST] for match in _WORD.finditer(_folded(text)))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in apart if not unicodedata.combining(character)).casefold()


def read_query(query: str) -> tuple[Phrase, ...]:
    """Return the phrases of a query, all of which must occur.

    Each word of it is one, and so is a text in double quotes; a star at the end asks for a beginning only.
    Raises `QueryError` (`INVALID_QUERY`) for a query without a word.
    """
    phrases: list[Phrase] = []
    for quoted, bare in _PARTS.findall(query):
        words = tuple(words_of(quoted or bare))
        if words:
            phrases.append(Phrase(words, is_open=bare.endswith("*")))
    if not phrases:
        raise QueryError("INVALID_QUERY", f"the query {query[:80]!r} holds no word")
    return tuple(phrases)


def matches(phrases: tuple[Phrase, ...], text: str) -> bool:
    """True when every phrase occurs in the text."""
    words = f" {' '.join(words_of(text))} "
    return all(_needle(phrase) in words for phrase in phrases)


def _needle(phrase: Phrase) -> str:
    return f" {' '.join(phrase.words)}{'' if phrase.is_open else ' '}"


def snippet(phrases: tuple[Phrase, ...], text: str) -> str:
    """Return up to 240 characters of a text, around the first place where a phrase may begin."""
    beginnings = {phrase.words[0] for phrase in phrases}
    open_ones = tuple(phrase.words[0] for phrase in phrases if phrase.is_open)
    at = 0
    for match in _WORD.finditer(text):
        word = next(words_of(match.group()), "")
        if word in beginnings or (open_ones and word.startswith(open_ones)):
            at = match.start()
            break
    start = max(0, min(at - _LEAD, len(text) - SNIPPET))
    return text[start : start + SNIPPET]


def safe_word(word: str) -> str:
    """Return a word in letters a to z and digits only; the beginning of a word stays the beginning."""
    if word.isascii():
        return word.replace("q", "qq")
    return "".join(_safe_character(character) for character in word)


def _safe_character(character: str) -> str:
    return character.replace("q", "qq") if character.isascii() else f"q{ord(character):06x}"
