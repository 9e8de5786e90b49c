"""How blocks look as text."""

from __future__ import annotations

import io

import pytest

from seedline.cli.people import Columns, Facts, Line, render


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_values_are_aligned_and_nothing_is_folded() -> None:
    text = render([Facts([("id", "x" * 200), ("events", "3")])], io.StringIO())
    assert text == f"id      {'x' * 200}\nevents  3\n"


def test_columns_count_wide_characters_as_two() -> None:
    text = render([Columns(("name", "n"), [("日本", "1"), ("ab", "2")])], io.StringIO())
    assert text == "name  n\n日本  1\nab    2\n"


def test_every_string_of_a_log_is_made_inert() -> None:
    hostile = "\x1b[2J[red]\u202e"
    text = render([Line(hostile), Facts([("a", hostile)]), Columns(("h",), [(hostile,)])], io.StringIO())
    assert text.splitlines() == [shown := r"\x1b[2J[red]\u202e", f"a  {shown}", "h", shown]


@pytest.mark.parametrize(("stream", "coloured"), [(Terminal(), True), (io.StringIO(), False)])
def test_colour_only_on_a_terminal(
    stream: io.StringIO, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert ("\x1b[" in render([Line("bad", "bad")], stream)) is coloured


def test_a_closed_stream_renders_plainly() -> None:
    assert render([Line("text")], None) == "text\n"
