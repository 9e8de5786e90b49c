"""The reference generator on small stand-ins for the vocabulary, the error tree and the command line."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
import typer
from typer.main import get_command

from tools import docs


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    """A nested shape."""

    call_id: str


class Outer(msgspec.Struct, frozen=True, tag_field="type", tag="outer", rename="camel", omit_defaults=True):
    """Written once.

    A second paragraph.
    """

    inner_list: tuple[Inner, ...]
    turn: int | None
    mode: Literal["a", "b"] = "a"
    meta: dict[str, Any] | None = None
    raw: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    seen: list[int] = msgspec.field(default_factory=list[int])


def test_a_struct_becomes_a_section_with_wire_names_types_and_defaults() -> None:
    assert docs.struct_section(Outer).splitlines() == [
        "## Outer",
        "",
        "Written once.",
        "",
        "A second paragraph.",
        "",
        "| Field | Type | Default |",
        "| --- | --- | --- |",
        '| `type` | `"outer"` | required |',
        "| `innerList` | `list[Inner]` | required |",
        "| `turn` | `int \\| null` | required |",
        '| `mode` | `"a" \\| "b"` | `"a"` |',
        "| `meta` | `dict[str, any JSON]` | absent |",
        "| `raw` | `raw JSON` | absent |",
        "| `seen` | `list[int]` | `[]` |",
    ]


def test_nested_structs_are_documented_once_after_their_users() -> None:
    assert docs.with_nested([Outer, Inner]) == [Outer, Inner]
    assert [text.splitlines()[0] for text in docs.shared_shapes([Outer])] == ["## Shared shapes", "### Inner"]
    assert docs.shared_shapes([Inner]) == []


def test_a_public_part_without_a_docstring_is_an_error() -> None:
    bare = msgspec.defstruct("Bare", [("x", int)])
    with pytest.raises(ValueError, match=r"Bare.* has no docstring"):
        docs.struct_section(bare)


def test_errors_are_drawn_as_their_tree() -> None:
    module = types.ModuleType("fake.errors")
    source = (
        "class Root(Exception):\n    'The root.\\n\\n    More.'\n    kind = 'root'\n"
        "class Leaf(Root):\n    'A leaf.'\n"
        "class _Hidden(Root): pass\n"
    )
    exec(source, module.__dict__)
    assert list(docs.error_lines(module)) == ["- **Root** (kind `root`): The root.", "  - **Leaf**: A leaf."]


def test_a_command_lists_arguments_options_defaults_and_variables() -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    def inspect(
        file: Annotated[Path, typer.Argument(help="A session file.")],
        store: Annotated[str, typer.Option(envvar="SEEDLINE_STORE", help="Where it lies.")] = "memory:",
        as_json: Annotated[bool, typer.Option("--json", help="One document.")] = False,
    ) -> None:
        """Show what a file holds."""

    assert docs.command_section("seedline inspect", get_command(app)).splitlines() == [
        "## seedline inspect",
        "",
        "Show what a file holds.",
        "",
        "| Parameter | Default | Meaning |",
        "| --- | --- | --- |",
        "| `FILE` | required | A session file. |",
        "| `--store` | `memory:` | Where it lies. Environment: `SEEDLINE_STORE`. |",
        "| `--json` |  | One document. |",
    ]


class Part(TypedDict):
    """A nested part."""

    count: Annotated[int, "how many"]


class Reply(TypedDict):
    """What is printed."""

    parts: Annotated[list[Part] | None, "the parts"]
    note: NotRequired[Annotated[str, "a remark"]]


def test_a_document_lists_its_members_and_the_shapes_below() -> None:
    assert docs.document_section("### With `--json`", Reply).splitlines() == [
        "### With `--json`",
        "",
        "What is printed.",
        "",
        "| Member | Type | Meaning |",
        "| --- | --- | --- |",
        "| `parts` | `list[Part] \\| null` | the parts |",
        "| `note` | `str` | a remark (may be absent) |",
    ]
    assert list(docs.shapes_below([Reply])) == [Reply, Part]


def test_a_member_without_a_meaning_is_an_error() -> None:
    with pytest.raises(ValueError, match="'bare' has no meaning"):
        docs.member_row("bare", int)


def test_choices_metavars_and_repeated_arguments_are_shown() -> None:
    app = typer.Typer(add_completion=False)

    @app.command()
    def look(
        files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files.")],
        mode: Annotated[Literal["a", "b"] | None, typer.Option(help="How.")] = None,
        side: Annotated[str | None, typer.Option("--side", metavar="[K=]V", help="Beside.")] = None,
    ) -> None:
        """Look."""

    assert docs.command_section("look", get_command(app)).splitlines()[-3:] == [
        "| `FILE ...` | required | Files. |",
        "| `--mode` |  | How. One of `a`, `b`. |",
        "| `--side [K=]V` |  | Beside. |",
    ]


def test_check_names_changed_missing_and_orphaned_pages(tmp_path: Path) -> None:
    texts = docs.render({"a.md": lambda: "a  \n", "b.md": lambda: "b\n", "c.md": lambda: "c\n"})
    docs.write(tmp_path, texts)
    assert docs.stale(tmp_path, texts) == []
    (tmp_path / "a.md").write_text("changed", encoding="utf-8")
    (tmp_path / "b.md").unlink()
    (tmp_path / "old.md").write_text("nobody makes this", encoding="utf-8")
    assert docs.stale(tmp_path, texts) == ["a.md", "b.md", "old.md"]


def test_a_wrong_argument_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_module_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seedline.errors", None)
    with pytest.raises(ImportError):
        docs.render(docs.PAGES)
