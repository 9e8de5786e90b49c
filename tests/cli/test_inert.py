"""What a log's text may do to a terminal: nothing."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seedline.cli.inert import inert, inert_json
from seedline.jsonvalue import encode

ANY_TEXT = st.text(st.characters(codec=None), max_size=40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, café, 日本, 🙂", "plain, café, 日本, 🙂"),
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("\u2066\u2069\u200f\u061c", r"\u2066\u2069\u200f\u061c"),
        ("one\u2028two", r"one\u2028two"),
        ("ad\u00admin\ufeff", r"ad\xadmin\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        ("half \ud83d!", "half \ufffd!"),
        ("👩\u200d🚀", "👩\u200d🚀"),
    ],
)
def test_what_acts_on_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert inert(text) == shown


@given(ANY_TEXT)
def test_inert_text_holds_no_control_and_no_half_character(text: str) -> None:
    shown = inert(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in ("LRI", "RLI", "FSI", "PDI")]
    assert inert(shown) == shown


@given(ANY_TEXT)
@example("\x7f\x9b\u202e\U000e0041\ud800")
def test_inert_json_keeps_the_value_and_is_utf8(text: str) -> None:
    line = inert_json(encode({"text": text}).decode())
    line.encode()
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads(line) == {"text": joined}
    assert inert(line) == line
