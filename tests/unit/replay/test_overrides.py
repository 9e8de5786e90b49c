"""Sidecars, and placeholders that a live request fills in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import OverrideRefusedError, PlaceholderError
from seedline.jsonvalue import encode
from seedline.replay.entries import ChunksEntry, CutEntry, HangEntry, ScriptEntry, ThrowEntry
from seedline.replay.overrides import (
    Patches,
    Replacement,
    apply_override,
    fill_in,
    read_override,
    request_strings,
    substitute,
)
from seedline.replay.script import derive_replay_script
from tests.unit.replay.recordings import FINISH, call, log, text, values

CHUNKS: list[Any] = [text("a"), FINISH]
ENTRY = {"kind": "chunks", "chunks": CHUNKS}
KNOWN_TYPES = [
    "block-start",
    "text-delta",
    "reasoning-delta",
    "tool-call-delta",
    "block-end",
    "usage",
    "finish",
]


def read(value: Any) -> Any:
    return read_override(json.dumps(value).encode(), "side.json")


# --- documents -------------------------------------------------------------------------------------------


def test_a_list_replaces_the_script() -> None:
    throw = {"kind": "throw", "chunks": [], "message": "m", "code": "C"}
    override = read([ENTRY, throw, {"kind": "hang", "readyFile": "r"}])
    assert override == Replacement(
        (ChunksEntry(tuple(map(encode, CHUNKS))), ThrowEntry((), "m", "C"), HangEntry("r"))
    )
    assert apply_override([HangEntry()], override) == list(override.entries)


def test_an_empty_list_replaces_the_script_by_nothing() -> None:
    assert apply_override([HangEntry()], read([])) == []


def test_patches_replace_single_entries_and_may_append_one() -> None:
    derived: list[ScriptEntry] = [HangEntry(str(k)) for k in range(3)]
    patches = [{"at": 3, "entry": {"kind": "hang"}}, {"at": 0, "entry": ENTRY}]
    patched = apply_override(derived, read({"patches": patches}))
    assert patched == [ChunksEntry(tuple(map(encode, CHUNKS))), derived[1], derived[2], HangEntry()]
    assert derived[0] == HangEntry("0")


def test_no_patches_change_nothing() -> None:
    assert read({"patches": []}) == Patches((), "side.json")
    assert apply_override([HangEntry()], read({"patches": []})) == [HangEntry()]


@pytest.mark.parametrize("at", [2, 3, 100])
def test_the_bound_of_a_patch_is_the_derived_length(at: int) -> None:
    """A patch for the place after an appended one is out of range, whatever their order."""
    hang = {"kind": "hang"}
    for patches in ([{"at": 1, "entry": hang}, {"at": at, "entry": hang}], [{"at": at, "entry": hang}]):
        with pytest.raises(OverrideRefusedError, match=r"^side\.json: ") as caught:
            apply_override([HangEntry()], read({"patches": patches}))
        assert caught.value.code == "index-range"


HANG = {"kind": "hang"}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "document"),
        ({}, "document"),
        ("list", "document"),
        ({"patches": {}}, "document"),
        ({"patches": [], "more": 1}, "document"),
        ({"entries": []}, "document"),
        ({"patches": [1]}, "patch"),
        ({"patches": [{"at": 0}]}, "patch"),
        ({"patches": [{"at": 0, "entry": HANG, "more": 1}]}, "patch"),
        ({"patches": [{"at": -1, "entry": HANG}]}, "patch"),
        ({"patches": [{"at": 0.5, "entry": HANG}]}, "patch"),
        ({"patches": [{"at": True, "entry": HANG}]}, "patch"),
        ({"patches": [{"at": "0", "entry": HANG}]}, "patch"),
        ({"patches": [{"at": 1, "entry": HANG}, {"at": 1, "entry": HANG}]}, "index-duplicate"),
        ({"patches": [{"at": 0, "entry": 1}]}, "entry"),
        ([1], "entry"),
        ([[]], "entry"),
        ([{}], "kind"),
        ([{"kind": "wait"}], "kind"),
        ([{"kind": ["hang"]}], "kind"),
        ([{"kind": "cut", "chunks": []}], "kind"),
        ([{"kind": "chunks"}], "entry"),
        ([{"kind": "chunks", "chunks": [], "message": "m"}], "entry"),
        ([{"kind": "chunks", "chunks": {}}], "entry"),
        ([{"kind": "throw", "chunks": [], "message": "m"}], "entry"),
        ([{"kind": "throw", "chunks": [], "message": "", "code": "C"}], "entry"),
        ([{"kind": "throw", "chunks": [], "message": "m", "code": 1}], "entry"),
        ([{"kind": "throw", "message": "m", "code": "C"}], "entry"),
        ([{"kind": "hang", "readyFile": ""}], "entry"),
        ([{"kind": "hang", "readyFile": None}], "entry"),
        ([{"kind": "hang", "chunks": []}], "entry"),
        ([{"kind": "chunks", "chunks": [1]}], "chunk"),
        ([{"kind": "chunks", "chunks": [{}]}], "chunk"),
        ([{"kind": "chunks", "chunks": [{"type": "novel"}]}], "chunk"),
        ([{"kind": "chunks", "chunks": [{"type": ["finish"]}]}], "chunk"),
        ([{"kind": "throw", "chunks": [{"type": "Finish"}], "message": "m", "code": "C"}], "chunk"),
    ],
)
def test_what_is_wrong_is_refused_with_its_code(value: Any, code: str) -> None:
    with pytest.raises(OverrideRefusedError, match=r"^side\.json: ") as caught:
        read(value)
    assert caught.value.code == code


@pytest.mark.parametrize("text", [b"", b"[", b"\xff", b"[]x", b"[NaN]"])
def test_what_is_no_json_is_a_bad_document(text: bytes) -> None:
    with pytest.raises(OverrideRefusedError) as caught:
        read_override(text)
    assert caught.value.code == "document"


def test_an_integral_index_may_be_spelled_with_a_fraction() -> None:
    override = read_override(b'{"patches":[{"at":1.0,"entry":{"kind":"hang"}}]}')
    assert apply_override([HangEntry("x")], override) == [HangEntry("x"), HangEntry()]


@pytest.mark.parametrize("kind", KNOWN_TYPES)
def test_of_a_chunk_only_the_type_is_checked(kind: str) -> None:
    [entry] = read([{"kind": "chunks", "chunks": [{"type": kind, "anything": [1]}]}]).entries
    assert values(entry.chunks) == [{"type": kind, "anything": [1]}]


# --- placeholders ----------------------------------------------------------------------------------------


def test_the_last_match_wins() -> None:
    assert fill_in("id {{fromRequest:goal-[0-9a-f]+}}!", "goal-1\ngoal-2f goal-3") == "id goal-3!"


def test_a_group_is_taken_where_it_took_part() -> None:
    assert fill_in("{{fromRequest:id=(\\w+)}}", "id=a id=b") == "b"
    assert fill_in("{{fromRequest:id=(?:x(\\w+)|y)}}", "id=xa id=y") == "id=y"
    assert fill_in("{{fromRequest:(?:a|b)(?=c)}}", "ac bc") == "b"


def test_several_placeholders_and_the_text_around_them() -> None:
    assert fill_in("<{{fromRequest:a.}}|{{fromRequest:b.}}>", "a1 b2") == "<a1|b2>"


def test_what_was_filled_in_is_not_searched_again() -> None:
    corpus = "{{fromRequest:x}}"
    assert fill_in("{{fromRequest:.+}}", corpus) == corpus


@pytest.mark.parametrize(
    ("placeholder", "corpus", "found"),
    [
        ("{{fromRequest:a{2}}}", "aaa", "aa"),
        ("{{fromRequest:[ab]{1,2}}}", "ab", "ab"),
        ("{{fromRequest:a\\}}}}", "a}}", "a}}"),
        ("{{fromRequest:a}}{", "a", "a{"),
        ("{{fromRequest:a}} }}", "a", "a }}"),
    ],
)
def test_the_closing_pair_is_the_last_two_of_the_first_run_of_braces(
    placeholder: str, corpus: str, found: str
) -> None:
    assert fill_in(placeholder, corpus) == found


@pytest.mark.parametrize(
    ("placeholder", "code"),
    [
        ("{{fromRequest:a", "unterminated"),
        ("{{fromRequest:a} }", "unterminated"),
        ("{{fromRequest:b}}", "no-match"),
        ("{{fromRequest:^b}}", "no-match"),
        ("{{fromRequest:(}}", "pattern"),
        ("{{fromRequest:(?<n>a)}}", "pattern"),
        ("{{fromRequest:(?P<n>a)}}", "pattern"),
        ("{{fromRequest:(?i)a}}", "pattern"),
        ("{{fromRequest:(a)\\1}}", "pattern"),
        ("{{fromRequest:a{2}}b}}", "no-match"),  # the first pair closes: the pattern is `a{2`
    ],
)
def test_what_cannot_be_filled_in_is_refused_with_its_code(placeholder: str, code: str) -> None:
    with pytest.raises(PlaceholderError) as caught:
        fill_in(f"x {placeholder}", "a")
    assert caught.value.code == code
    assert "{{fromRequest:" in str(caught.value)


def tool_call(arguments: str) -> dict[str, Any]:
    block = {"type": "tool-call", "id": "c", "name": "n", "arguments": arguments}
    return {"type": "block-end", "index": 0, "block": block}


def test_every_string_of_an_entry_is_filled_in_and_no_key() -> None:
    mark = "{{fromRequest:g-\\d}}"
    marked = {"type": "usage", "{{fromRequest:x}}": [mark, 1, {"a": mark}]}
    entry = ChunksEntry(tuple(map(encode, (marked, tool_call(f'{{"id":"{mark}"}}'), FINISH))))
    filled = substitute(entry, ["g-1", "g-2"])
    assert values(filled.chunks) == [
        {"type": "usage", "{{fromRequest:x}}": ["g-2", 1, {"a": "g-2"}]},
        tool_call('{"id":"g-2"}'),
        FINISH,
    ]
    assert values(entry.chunks)[0] == marked


def test_message_code_and_ready_file_are_filled_in() -> None:
    mark = "{{fromRequest:g-\\d}}"
    assert substitute(ThrowEntry((), f"m {mark}", mark), ["g-7"]) == ThrowEntry((), "m g-7", "g-7")
    assert substitute(HangEntry(f"/{mark}"), ["g-7"]) == HangEntry("/g-7")
    assert substitute(HangEntry(), []) == HangEntry()
    cut = CutEntry((encode(text(mark)),), 1, 2, None)
    assert substitute(cut, ["g-7"]) == CutEntry((encode(text("g-7")),), 1, 2, None)


def test_a_marker_spelled_with_escapes_is_found() -> None:
    chunk = b'{"type":"text-delta","index":0,"text":"\\u007b{fromRequest:a}}"}'
    assert values(substitute(ChunksEntry((chunk,)), ["a"]).chunks) == [text("a")]


def test_an_entry_without_a_placeholder_is_returned_as_it_is() -> None:
    odd = b'{"type":"text-delta", "index":0,"text":"\\u00e9 {{other}}","n":1.50}'
    entry = ChunksEntry((odd,))
    assert substitute(entry, []).chunks == (odd,)
    [derived] = derive_replay_script(log(call("a")))
    assert substitute(derived, []) is derived


def test_the_strings_of_a_request_stand_in_the_order_of_the_text() -> None:
    messages = [{"role": "user", "content": [{"text": "a"}, "b"]}, {"role": "x", "n": [1, None, True, "c"]}]
    assert request_strings(messages) == ["user", "a", "b", "x", "c"]
    assert request_strings(({"k": ("d",)},)) == ["d"]
    assert request_strings("alone") == ["alone"]


LEAVES = st.text(max_size=2) | st.integers()


@given(st.recursive(LEAVES, lambda v: st.lists(v) | st.dictionaries(st.text(max_size=2), v), max_leaves=12))
def test_no_string_of_a_request_is_missed(value: Any) -> None:
    def strings(item: Any) -> list[str]:
        if isinstance(item, str):
            return [item]
        members = item.values() if isinstance(item, dict) else item if isinstance(item, list) else []
        return [found for member in members for found in strings(member)]

    assert request_strings(value) == strings(value)


def test_deep_requests_and_chunks_are_read() -> None:
    deep: Any = "{{fromRequest:x}}"
    for _ in range(3000):
        deep = [deep]
    assert request_strings(deep) == ["{{fromRequest:x}}"]
    filled = substitute(ChunksEntry((encode({"type": "usage", "d": deep}),)), ["x"])
    assert b'"x"' in filled.chunks[0]
