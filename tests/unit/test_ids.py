"""Identifiers: fresh ones, and session ids and working directories as path segments."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import SessionIdRefusedError
from seedline.ids import RandomIds, SeededIds, encode_segment, project_key, utf16_units

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
any_text = st.text(st.characters(codec=None) | st.sampled_from("/\\:~.-_a\ud83d\ude00"))


def test_fresh_ids_are_uuids_of_version_4() -> None:
    for source in (RandomIds(), SeededIds(), SeededIds(7)):
        found = [source.fresh() for _ in range(50)]
        assert all(UUID4.fullmatch(text) and uuid.UUID(text).version == 4 for text in found)
        assert len(set(found)) == 50


def test_a_seed_decides_the_ids() -> None:
    def draw(seed: int) -> list[str]:
        source = SeededIds(seed)
        return [source.fresh() for _ in range(5)]

    assert draw(3) == draw(3)
    assert not set(draw(3)) & set(draw(4))


def test_units_are_utf16() -> None:
    assert list(utf16_units("aé\U0001f600\ud83d")) == ["a", "é", "\ud83d", "\ude00", "\ud83d"]
    assert list(utf16_units("")) == []


# --- session ids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("abc", "abc"),
        ("A-Z_0.9", "A-Z_0.9"),
        ("a/b", "a~002Fb"),
        ("~", "~007E"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        (".a", ".a"),
        ("a b", "a~0020b"),
        ("\0", "~0000"),
        ("é", "~00E9"),
        ("\ud800", "~D800"),
        ("\U0001f600", "~D83D~DE00"),
        ("C:\\x", "C~003A~005Cx"),
    ],
    ids=ascii,
)
def test_a_session_id_has_one_segment(session_id: str, segment: str) -> None:
    assert encode_segment(session_id) == segment


@given(any_text.filter(bool))
def test_a_segment_says_its_id_and_is_never_a_path(session_id: str) -> None:
    try:
        segment = encode_segment(session_id)
    except SessionIdRefusedError:
        assert len(list(utf16_units(session_id))) * 5 > 255
        return
    assert re.fullmatch(r"(?:[A-Za-z0-9._-]|~[0-9A-F]{4})+", segment)
    assert segment not in (".", "..")
    assert len(segment) <= 255
    units = re.sub(r"~(....)", lambda match: chr(int(match[1], 16)), segment)
    assert list(utf16_units(units)) == list(utf16_units(session_id)), "no two ids share a segment"


def test_the_longest_id() -> None:
    assert encode_segment("a" * 255) == "a" * 255
    assert len(encode_segment("/" * 51)) == 255
    for session_id in ("a" * 256, "/" * 52, "a" * 251 + "/"):
        with pytest.raises(SessionIdRefusedError, match="over 255"):
            encode_segment(session_id)


def test_the_empty_id_is_refused() -> None:
    with pytest.raises(SessionIdRefusedError, match="empty"):
        encode_segment("")


# --- working directories -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        (None, "_no-cwd"),
        ("/a/b-c", "--a-b-c--"),
        ("/a-b/c", "--a-b-c--"),
        ("C:\\work\\agent", "--C-work-agent--"),
        ("/", "--root--"),
        ("", "--root--"),
        ("///", "--root--"),
        ("--", "--root--"),
        ("/开发/~agent", "--~5F00~53D1-~007Eagent--"),
        ("/a//b", "--a-b--"),
        ("/a/:\\b/", "--a-b---"),
        ("a--b", "--a--b--"),
        ("/-a", "--a--"),
        ("\ud83d\U0001f600", "--~D83D~D83D~DE00--"),
        ("/" + "a" * 251, "--" + "a" * 251 + "--"),
        ("/" + "a" * 252, "--" + "a" * 251 + "--"),
        ("/" + "a" * 248 + "é", "--" + "a" * 248 + "~00--"),
    ],
    ids=ascii,
)
def test_the_project_key_of_a_directory(cwd: str | None, key: str) -> None:
    assert project_key(cwd) == key


@given(any_text)
def test_a_project_key_is_a_file_name(cwd: str) -> None:
    key = project_key(cwd)
    assert re.fullmatch(r"--[A-Za-z0-9._~-]{1,251}--", key)
    assert not key.startswith("---")
