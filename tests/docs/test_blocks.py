"""The reader of Markdown pages that the documentation tests rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import (
    Block,
    Command,
    anchors,
    blocks,
    commands,
    info_problem,
    link_problem,
    links,
    matches,
)

PAGE = """\
# Title

```python
print(1)
```

```text
1
```

Words.

```text
not an output
```

````console no-run reason="it is what runs this"
$ make test
```
````
"""


def test_blocks_are_read_with_their_lines_and_outputs() -> None:
    first, output, other, console = blocks(PAGE)
    assert first == Block("python", "", "print(1)\n", 4, output="1\n")
    assert (output.language, other.text) == ("text", "not an output\n")
    assert console.text == "$ make test\n```\n"
    assert console.no_run


def test_an_output_block_after_words_belongs_to_no_program() -> None:
    [program, _] = blocks("```python\nx = 1\n```\nwords\n```text\n1\n```\n")
    assert program.output is None


def test_an_open_fence_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2 is not closed"):
        blocks("words\n```python\nprint(1)\n")


def test_a_page_without_blocks_has_none() -> None:
    assert blocks("# Title\n") == []


@pytest.mark.parametrize(
    ("language", "info", "text", "problem"),
    [
        ("bash", "", "ls\n", "language 'bash'"),
        ("", "", "ls\n", "language ''"),
        ("console", "no-run", "$ ls\n", "reason"),
        ("console", 'no-run reason=""', "$ ls\n", "reason"),
        ("python", "no-run", "x\n", "reason"),
        ("console", "", "ls\n", "starts with"),
    ],
)
def test_blocks_that_nothing_would_run_are_refused(language: str, info: str, text: str, problem: str) -> None:
    assert problem in (info_problem(Block(language, info, text, 1)) or "")


@pytest.mark.parametrize(
    ("language", "info", "text"),
    [
        ("console", 'no-run reason="needs a key"', "$ ls\n"),
        ("json", "", "{}\n"),
        ("console", "exit=3", "$ x\n"),
    ],
)
def test_sound_blocks_pass(language: str, info: str, text: str) -> None:
    assert info_problem(Block(language, info, text, 1)) is None


def test_console_blocks_split_into_commands_with_their_output() -> None:
    block = Block("console", "exit=3", "$ one \\\n>   two\nout\n\n$ three\n", 10)
    assert list(commands(block)) == [Command("one two", ("out", ""), 10), Command("three", (), 14)]
    assert block.exit_code == 3


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\nb", "a\nb\n\n", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a\n...", "a\nb\nc", True),
        ("a\n...\nc", "a\nc", True),
        ("...\nc", "a\nb\nd", False),
        ("id ... done", "id 7f3a done  ", True),
        ("id ... done", "id 7f\n3a done", False),
        ("a.b", "axb", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_output_matches_with_ellipsis(expected: str, actual: str, same: bool) -> None:
    assert matches(expected.splitlines(), actual.splitlines()) is same


def test_links_are_found_outside_code() -> None:
    text = "[a](x.md) and ![i](i.png)\n`[no](n.md)`\n```text\n[no](n.md)\n```\n[b](#c)\n"
    assert list(links(text)) == [(1, "x.md"), (1, "i.png"), (6, "#c")]


def test_links_must_lead_somewhere(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One word\n\n## `code` & more\n\n## One word\n", encoding="utf-8")
    assert anchors(page.read_text("utf-8")) == {"one-word", "code--more", "one-word-1"}
    assert link_problem(page, "https://example.org/x") is None
    assert link_problem(page, "a.md#one-word") is None
    assert link_problem(page, "#code--more") is None
    assert link_problem(page, "b.md") == "b.md does not exist"
    assert link_problem(page, "#two") == "#two: no such heading"
