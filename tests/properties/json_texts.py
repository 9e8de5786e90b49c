"""Strategies for JSON values and for JSON texts in every spelling the grammar allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from seedline.jsonvalue import join_surrogates

SAFE = 2**53 - 1

# Characters that some encoder or sort order treats apart: quotes, controls, line ends of other grammars,
# halves of pairs, both sides of the range where UTF-16 and code points sort differently.
MARKED = '"\\/\0\x1f\n\x7f\x85\u2028é漢\ue000\uffff\U00010000\U0001f600\U0010ffff\ud83d\ude00\ud800\udfff'
texts = st.text(st.sampled_from("ab" + MARKED), max_size=6) | st.text(st.characters(codec=None), max_size=4)
"""Any text, lone surrogates and halves that meet included."""
whole_texts = texts.map(join_surrogates)
"""The same without halves that meet: what a JSON reader gives."""

whole_numbers = st.integers(-SAFE, SAFE)
fractions = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0)
leaves = st.none() | st.booleans() | whole_numbers | fractions | texts


def containers(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(members, max_size=4) | st.dictionaries(whole_texts, members, max_size=4)


json_values = st.recursive(leaves, containers, max_leaves=8)
"""Values that `encode_lossless` takes."""

# --- texts ---------------------------------------------------------------------------------------

blanks = st.sampled_from(["", "", "", " ", "\t", "\n", "\r\n", "  "])
_digits = st.from_regex(r"[0-9]{1,20}", fullmatch=True)
_whole = st.from_regex(r"-?(0|[1-9][0-9]{0,20})", fullmatch=True)
number_texts = st.builds(
    lambda whole, fraction, exponent: whole + fraction + exponent,
    _whole,
    st.just("") | _digits.map(".{}".format),
    st.just("")
    | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 250)),
)

_hexadecimal = st.tuples(st.integers(0, 0xFFFF), st.booleans()).map(
    lambda x: f"\\u{x[0]:04{'X' if x[1] else 'x'}}"
)
_surrogate = st.integers(0xD800, 0xDFFF).map(lambda x: f"\\u{x:04x}")
_high_key = st.sampled_from(
    ["\\uffff", "\\uE000", "\uffff", "\ue000", "\U0001f600", "\\ud83d\\ude00", "\\uD83D"]
)
_short = st.sampled_from([f"\\{x}" for x in '"\\/bfnrt'])
_raw = st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters='"\\')
string_texts = st.lists(_raw | _short | _hexadecimal | _surrogate | _high_key | st.just("a"), max_size=5).map(
    lambda parts: '"' + "".join(parts) + '"'
)
_leaf_texts = st.sampled_from(["null", "true", "false"]) | number_texts | string_texts


def _array(members: list[tuple[str, str, str]]) -> str:
    return "[" + ",".join(before + text + after for before, text, after in members) + "]"


def _object(members: list[tuple[str, str, str, str]]) -> str:
    return "{" + ",".join(f"{a}{key}{b}:{a}{text}{b}" for a, key, b, text in members) + "}"


def _container_texts(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.lists(st.tuples(blanks, members, blanks), min_size=1, max_size=4).map(_array)
        | st.lists(st.tuples(blanks, string_texts, blanks, members), min_size=1, max_size=4).map(_object)
        | blanks.map("[{}]".format)
        | blanks.map(lambda blank: "{" + blank + "}")
    )


json_texts = st.builds(
    "{}{}{}".format, blanks, st.recursive(_leaf_texts, _container_texts, max_leaves=10), blanks
)
"""Every spelling: blanks, escapes, lone surrogates, duplicate keys, numbers of any size that is finite."""


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[str] = json_texts) -> bytes:
    """A JSON text with a few bytes put in, taken out or changed; it may still be JSON."""
    data = bytearray(draw(whole).encode())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e9", b"\xff"]
            )
            | st.sampled_from(
                [b"\xed\xa0\xbd", b"\xef\xbb\xbf", b"\0", b"\t", b"NaN", b"1e999", b"\\ud83d", b"/"]
            )
            | st.binary(max_size=2)
        )
        data[at : at + draw(st.integers(0, 2))] = piece
    return bytes(data)
