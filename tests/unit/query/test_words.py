"""Words, phrases and snippets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import QueryError
from seedline.query.words import LONGEST, SNIPPET, Phrase, matches, read_query, safe_word, snippet, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The x-ray, 3.5", ["the", "x", "ray", "3", "5"]),
        ("Straße ÄPFEL naïve", ["strasse", "apfel", "naive"]),
        ("A\u0308pfel", ["apfel"]),
        ("漢字abc かな", ["漢", "字", "abc", "か", "な"]),
        ("snake_case", ["snake", "case"]),
        ("\ud83d \x00 --", []),
        ("x" * 100, ["x" * LONGEST]),
    ],
)
def test_words_compare_without_case_and_accents(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("plum Tree", [Phrase(("plum",)), Phrase(("tree",))]),
        ("x-ray", [Phrase(("x", "ray"))]),
        ('"two Words" one', [Phrase(("two", "words")), Phrase(("one",))]),
        ("pre*", [Phrase(("pre",), is_open=True)]),
        ("... plum", [Phrase(("plum",))]),
    ],
)
def test_a_query_is_read_as_phrases(query: str, phrases: list[Phrase]) -> None:
    assert list(read_query(query)) == phrases


@pytest.mark.parametrize("query", ["", "  ", "...", '""', "*"])
def test_a_query_needs_a_word(query: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_query(query)
    assert caught.value.code == "INVALID_QUERY"


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("plum", "a PLUM.", True),
        ("plum", "plums", False),
        ("plum*", "plums", True),
        ("x-ray", "ray x", False),
        ('"b c"', "a b c d", True),
        ('"b c"', "b a c", False),
        ("b c", "c a b", True),
        ("字漢", "漢字", False),
        ("q", "qq", False),
    ],
)
def test_every_phrase_must_occur(query: str, text: str, found: bool) -> None:
    assert matches(read_query(query), text) is found


def test_a_snippet_shows_the_match() -> None:
    text = "a " * 500 + "Plüm " + "b " * 500
    shown = snippet(read_query("plum"), text)
    assert "Plüm" in shown
    assert len(shown) == SNIPPET
    assert shown in text
    assert snippet(read_query("plum"), "no such word") == "no such word"
    assert "plums" in snippet(read_query("plu*"), "x " * 300 + "plums")


@given(st.lists(st.text("aqz0é漢", min_size=1, max_size=4), min_size=2, max_size=2))
def test_safe_words_differ_as_words_do_and_begin_alike(pair: list[str]) -> None:
    one, other = pair
    assert re.fullmatch("[a-z0-9]+", safe_word(one))
    assert (safe_word(one) == safe_word(other)) is (one == other)
    if one.startswith(other):
        assert safe_word(one).startswith(safe_word(other))
