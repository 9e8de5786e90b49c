"""What must not be in the repository, and what must stand beside an exception to a rule."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.project import ROOT, project_files

MAX_BYTES = 300 * 1024

FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.}-])/(?:work|root|home|Users)/[\w.]"),
    "the host of a package index": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org)\b|--(?:extra-)?index-url"
    ),
    "a key": re.compile(
        r"\bsk-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{30,}|\bhf_\w{30,}|\bxox[abp]-\w{10,}"
        r"|-{5}BEGIN [A-Z ]*PRIVATE KEY-{5}"
    ),
}
FORBIDDEN_NAMES = frozenset({"uv.lock"})

DIRECTIVE = re.compile(
    r"""\#\s*(?P<tool>noqa|type:\s*ignore|pyright:\s*ignore)
        (?P<codes>:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[^\]]*\])?
        (?P<rest>.*)""",
    re.VERBOSE,
)
"""A suppression in a comment: the tool, the rules it names, and whatever follows."""

SKIPS = frozenset({"skip", "skipif", "xfail"})


def is_text(content: bytes) -> bool:
    return b"\0" not in content[:8192]


def text_problems(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, what) for what, pattern in FORBIDDEN.items() if pattern.search(line))


def file_problems(name: str, content: bytes) -> Iterator[tuple[int, str]]:
    """What is wrong with a file whatever its language."""
    if Path(name).name in FORBIDDEN_NAMES:
        yield 1, "a lock file; pins live in requirements/dev.txt"
    if is_text(content):
        yield from text_problems(content.decode("utf-8", "replace"))
    elif len(content) > MAX_BYTES:
        yield 1, f"a binary file of {len(content)} bytes, the limit is {MAX_BYTES}"


def suppression_problems(source: str) -> Iterator[tuple[int, str]]:
    """Suppressions that name no rule or give no reason after it."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        found = token.type == tokenize.COMMENT and DIRECTIVE.match(token.string)
        if not found:
            continue
        if not found["codes"]:
            yield token.start[0], f"{found['tool']} names no rule"
        if len(re.findall(r"\w{2,}", found["rest"])) < 2:
            yield token.start[0], f"{found['tool']} gives no reason on its line"


def skip_problems(source: str) -> Iterator[tuple[int, str]]:
    """Skips and expected failures without a reason, as a call or as a bare mark."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = {id(call.func) for call in calls}
    yield from (
        (call.lineno, "no reason for a skip") for call in calls if is_skip(call.func) and not has_reason(call)
    )
    for node in ast.walk(tree):
        if id(node) not in functions and isinstance(node, ast.Attribute) and is_mark(node):
            yield node.lineno, "no reason for a skip"


def is_mark(node: ast.Attribute) -> bool:
    return node.attr in SKIPS and isinstance(node.value, ast.Attribute) and node.value.attr == "mark"


def is_skip(node: ast.expr) -> bool:
    """`pytest.skip`, `pytest.mark.skipif` and the like."""
    if not isinstance(node, ast.Attribute) or node.attr not in SKIPS:
        return False
    return is_mark(node) or (isinstance(node.value, ast.Name) and node.value.id == "pytest")


def has_reason(call: ast.Call) -> bool:
    """A non-empty `reason=`; a plain `pytest.skip` or `mark.skip` may give it by position."""
    assert isinstance(call.func, ast.Attribute)
    positional = call.args if call.func.attr != "skipif" else []
    given = [*positional, *(keyword.value for keyword in call.keywords if keyword.arg == "reason")]
    return any(not (isinstance(value, ast.Constant) and not value.value) for value in given)


def report(check: Callable[[Path], Iterator[tuple[int, str]]], paths: list[Path]) -> str:
    return "\n".join(
        f"{path.relative_to(ROOT)}:{line}: {what}" for path in paths for line, what in check(path)
    )


def test_files_hold_no_machine_paths_hosts_keys_or_bulk() -> None:
    found = report(lambda path: file_problems(path.name, path.read_bytes()), project_files())
    assert not found, found


def test_suppressions_and_skips_have_reasons() -> None:
    def check(path: Path) -> Iterator[tuple[int, str]]:
        source = path.read_text("utf-8")
        yield from suppression_problems(source)
        yield from skip_problems(source)

    found = report(check, [path for path in project_files() if path.suffix == ".py"])
    assert not found, found


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "work/notes.md",
        "path='/" + "root/x'",
        "cd /" + "home/me/x",
        "open('/" + "Users/me')",
        "from https://pypi" + ".org/simple",
        "pip install --index" + "-url x",
        "key = 'sk-" + "a1" * 12 + "'",
        "-----BEGIN RSA PRIVATE" + " KEY-----",
    ],
)
def test_planted_text_is_found(line: str) -> None:
    assert list(file_problems("a.md", line.encode()))


def test_planted_bulk_and_lock_file_are_found() -> None:
    assert list(file_problems("a.bin", b"\0" * (MAX_BYTES + 1)))
    assert not list(file_problems("a.bin", b"\0" * MAX_BYTES))
    assert list(file_problems("uv.lock", b""))


@pytest.mark.parametrize(
    ("comment", "problem_count"),
    [
        ("noqa", 2),
        ("noqa: E501", 1),
        ("noqa: E501  # the wire text is one line", 0),
        ("noqa: E501, F401 - the wire text is one line", 0),
        ("type: ignore", 2),
        ("type: ignore[arg-type]", 1),
        ("pyright: ignore[reportPrivateUsage]", 1),
        ("pyright: ignore[reportPrivateUsage]  # the test reads the cache", 0),
        ("an ordinary comment", 0),
    ],
)
def test_suppressions_need_a_rule_and_a_reason(comment: str, problem_count: int) -> None:
    assert len(list(suppression_problems(f"x = 1  # {comment}\n"))) == problem_count


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("pytest.skip()", True),
        ("pytest.skip('')", True),
        ("pytest.skip('no initdb on this machine')", False),
        ("@pytest.mark.skip\ndef f(): ...", True),
        ("@pytest.mark.skipif(cond)\ndef f(): ...", True),
        ("@pytest.mark.skipif(cond, reason='')\ndef f(): ...", True),
        ("@pytest.mark.skipif(cond, reason='needs flock')\ndef f(): ...", False),
        ("pytestmark = pytest.mark.xfail", True),
        ("zstd.skip()", False),
    ],
)
def test_skips_need_a_reason(source: str, wrong: bool) -> None:
    assert bool(list(skip_problems(source))) is wrong
