"""Reads the fenced blocks and links of a Markdown page, and compares output with what a page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
NO_RUN = re.compile(r"\bno-run\b")
REASON = re.compile(r'\breason="([^"]*\w[^"]*)"')
EXIT = re.compile(r"\bexit=(\d+)\b")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")

RUNNABLE = frozenset({"python", "console"})
OUTPUT = frozenset({"text", "output"})
DATA = frozenset({"json", "jsonl", "toml", "yaml", "ini", "sql", "diff", "mermaid", "markdown"})


@dataclass(frozen=True)
class Block:
    """A fenced block: the first word after the fence, the rest of that line, the text, and where it starts.

    `line` is the number of the first line inside the fence. `output` is the text of an output block that
    follows with only blank lines between, None without one.
    """

    language: str
    info: str
    text: str
    line: int
    output: str | None = None

    @property
    def no_run(self) -> bool:
        return bool(NO_RUN.search(self.info))

    @property
    def exit_code(self) -> int:
        found = EXIT.search(self.info)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class Command:
    """One `$ ` line of a console block with the lines shown after it."""

    command: str
    expected: tuple[str, ...]
    line: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page in order, each with its output block attached."""
    lines = text.splitlines()
    found = list(raw_blocks(lines))
    joined = [attach(lines, block, follower) for block, follower in pairwise(found)]
    return joined + found[-1:]


def raw_blocks(lines: Sequence[str]) -> Iterator[Block]:
    start, fence, info = 0, "", ""
    for number, line in enumerate(lines, 1):
        opening = FENCE.match(line)
        if not fence and opening:
            start, fence, info = number, opening["fence"], opening["info"].strip()
        elif fence and re.fullmatch(rf" {{0,3}}{re.escape(fence)}{fence[0]}*\s*", line):
            language, _, rest = info.partition(" ")
            yield Block(language, rest, "\n".join([*lines[start : number - 1], ""]), start + 1)
            fence = ""
    if fence:
        raise ValueError(f"the fence opened on line {start} is not closed")


def attach(lines: Sequence[str], block: Block, follower: Block) -> Block:
    """The block with the follower's text as its output, if that is an output block directly after it."""
    if block.language != "python" or follower.language not in OUTPUT:
        return block
    end = block.line + block.text.count("\n")
    between = lines[end : follower.line - 2]
    if any(line.strip() for line in between):
        return block
    return Block(block.language, block.info, block.text, block.line, follower.text)


def info_problem(block: Block) -> str | None:
    """Why a block may not stand in a page as it is, or None."""
    if block.language not in RUNNABLE | OUTPUT | DATA:
        return f"language {block.language!r} is not run by any test; use python, console, or a data language"
    if block.no_run and not REASON.search(block.info):
        return 'a no-run block needs reason="..."'
    if block.language == "console" and not block.no_run and not list(commands(block)):
        return "a console block needs a line that starts with `$ `"
    return None


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; a line ending in a backslash goes on in the next one."""
    command, expected, line = "", list[str](), 0
    for number, text in enumerate(block.text.splitlines(), block.line):
        if command.endswith("\\") and not expected:
            command = f"{command[:-1]}{text.removeprefix('> ').strip()}"
        elif text.startswith("$ "):
            if command:
                yield Command(command, tuple(expected), line)
            command, expected, line = text[2:], [], number
        elif command:
            expected.append(text)
    if command:
        yield Command(command, tuple(expected), line)


def matches(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether the output is what the page shows.

    A line that is only `...` stands for any number of lines; `...` inside a line for any text. Blanks at line
    ends and blank lines at the end do not count.
    """
    return (
        re.fullmatch(pattern(trimmed(expected)), "".join(f"{line}\n" for line in trimmed(actual))) is not None
    )


def trimmed(lines: Sequence[str]) -> list[str]:
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    return kept


def pattern(lines: Sequence[str]) -> str:
    return "".join(line_pattern(line) for line in lines)


def line_pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*"
    return "[^\n]*".join(re.escape(part) for part in line.split("...")) + "\n"


def first_difference(expected: Sequence[str], actual: Sequence[str]) -> str:
    """Both texts around the first line that differs, for the failure message."""
    for number, (shown, seen) in enumerate(zip_longest(trimmed(expected), trimmed(actual)), 1):
        if shown is None or seen is None or not matches([shown], [seen]):
            return f"line {number}: the page shows {shown!r}, the run printed {seen!r}"
    return "the order of lines differs"


def prose(text: str) -> list[str]:
    """The lines of a page, those inside fenced blocks emptied, so that line numbers hold."""
    inside = {block.line - 1 + offset for block in blocks(text) for offset in range(block.text.count("\n"))}
    return ["" if index in inside else line for index, line in enumerate(text.splitlines())]


def links(text: str) -> Iterator[tuple[int, str]]:
    """The targets of inline links and images outside code, with their lines."""
    for number, line in enumerate(prose(text), 1):
        yield from ((number, found[1]) for found in LINK.finditer(re.sub(r"`[^`]*`", "``", line)))


def headings(text: str) -> list[str]:
    return [found[1] for found in map(HEADING.match, prose(text)) if found]


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get where Markdown is shown with links to headings."""
    seen: dict[str, int] = {}
    names: set[str] = set()
    for heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        names.add(f"{slug}-{count}" if count else slug)
    return names


def link_problem(page: Path, target: str) -> str | None:
    """Why a relative link leads nowhere, or None; links with a scheme are not followed."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    if not file.exists():
        return f"{target} does not exist"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
        return f"{target}: no such heading"
    return None
