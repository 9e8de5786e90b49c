"""Blocks of text for people: what a verb wants shown, and how it looks on a terminal.

A verb describes its output as blocks of plain strings. Only `render` knows colours and widths, and it makes
every string inert; so no verb can forget to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Literal, NamedTuple

Style = Literal["", "good", "bad", "quiet"]
_STYLES: dict[Style, str] = {"": "", "good": "green", "bad": "bold red", "quiet": "dim"}


class Line(NamedTuple):
    """One line of text."""

    text: str
    style: Style = ""


class Facts(NamedTuple):
    """Names with their values, one pair a line, the values aligned."""

    rows: Sequence[tuple[str, str]]


class Columns(NamedTuple):
    """A table with a head; cells are aligned to the left."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Line | Facts | Columns


def render(blocks: Iterable[Block], stream: IO[str] | None) -> str:
    """Return the text of `blocks`, each line ended, with colours only when `stream` is a terminal.

    Lines are never folded or cut to the terminal's width: what is shown can be copied.
    """
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    with console.capture() as captured:
        for block in blocks:
            for spans in _lines(block):
                console.print(_text(spans))
    return captured.get()


_Spans = Sequence[tuple[str, Style]]


def _text(spans: _Spans) -> object:
    from rich.text import Text

    return Text.assemble(*((text, _STYLES[style]) for text, style in spans))


def _lines(block: Block) -> Iterator[_Spans]:
    from seedline.cli.inert import inert

    match block:
        case Line(text, style):
            yield [(inert(text), style)]
        case Facts(rows):
            yield from _facts([(inert(name), inert(value)) for name, value in rows])
        case Columns(heads, rows):
            yield from _table([[*heads], *([inert(cell) for cell in row] for row in rows)])


def _facts(rows: Sequence[tuple[str, str]]) -> Iterator[_Spans]:
    width = max((_width(name) for name, _ in rows), default=0)
    for name, value in rows:
        yield [(_padded(name, width), "quiet"), ("  " + value, "")]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[_Spans]:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [_padded(cell, width) for cell, width in zip(row, widths, strict=True)]
        yield [("  ".join(cells).rstrip(" "), "quiet" if number == 0 else "")]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """Return how many terminal columns `text` takes."""
    from rich.cells import cell_len

    return cell_len(text)
