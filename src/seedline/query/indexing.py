"""Keeping the words of events at hand: what an index takes in, and when it is behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from seedline.errors import ArtifactError
from seedline.query.corpus import Corpus
from seedline.query.text import text_of_event
from seedline.query.words import Phrase, safe_word, words_of
from seedline.session.sequence import Events


class Behind(NamedTuple):
    """A stored session of which only the events before `covered` are indexed; `key` is its row."""

    key: int
    session_id: str
    covered: int


class Entry(NamedTuple):
    """The words of one event, each made of the letters a to z and digits, in order."""

    seq: int
    words: tuple[str, ...]


class Shelf(Protocol):
    """Where an index keeps its entries. Raises `StorageError`."""

    def behind(self) -> list[Behind]:
        """Return the sessions with events that are not indexed; inherited ones count as if they were."""
        ...

    def add(self, behind: Behind, covered: int, entries: list[Entry]) -> bool:
        """Store entries and that the events before `covered` are indexed; both or neither.

        False, and nothing is stored, when another process did so in the meantime.
        """
        ...


def take_in(shelf: Shelf, corpus: Corpus) -> None:
    """Index what is stored and not indexed yet, as far as it can be read. Raises `StorageError`."""
    for behind in shelf.behind():
        with suppress(ArtifactError):  # a search meets the damage and tells it
            _take_in_session(shelf, corpus, behind)


def _take_in_session(shelf: Shelf, corpus: Corpus, behind: Behind) -> None:
    for page in corpus.open(behind.session_id).pages(behind.covered):
        covered = page.first_seq + len(page)
        if not shelf.add(behind, covered, list(_entries(page))):
            return
        behind = behind._replace(covered=covered)


def _entries(page: Events) -> Iterator[Entry]:
    for event in page.without_chunks():
        words = tuple(map(safe_word, words_of(text_of_event(event))))
        if words:
            yield Entry(event.seq, words)


def safe_phrase(phrase: Phrase) -> Phrase:
    """Return a phrase in the words of entries."""
    return Phrase(tuple(map(safe_word, phrase.words)), phrase.is_open)
