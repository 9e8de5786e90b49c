"""The fallback title: section 7 of the loop's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.agent.title import FallbackTitle, shorten
from seedline.clock import ManualClock
from seedline.llm.scripted import text
from seedline.session.header import SessionHeader
from tests.unit.agent.harness import reopened, rig, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("one two three four five six", "one two three four five"),
        ("  two\n\nlines\tand tabs ", "two lines and tabs"),
        ("a\x00b\x9bc\x7fd", "a b c d"),
        ("x" * 50, "x" * 40),
        ("é" * 21, "é" * 20),
        ("ab€" + "€" * 13, "ab" + "€" * 12),
        ("😀" * 11, "😀" * 10),
        ("x" * 39 + " y", "x" * 39),
        ("x" * 40 + " y", "x" * 40),
        ("family 👩\u200d👧 photo", "family 👩\u200d👧 photo"),
        ("", ""),
        (" \n\x00 ", ""),
        ("\u200b\u2060", ""),
        ("\ud83d broken", "? broken"),
    ],
)
def test_a_title_is_five_words_of_forty_bytes(said: str, title: str) -> None:
    assert shorten(said) == title


@given(st.text())
def test_a_title_fits_one_line(said: str) -> None:
    title = shorten(said)
    assert len(title.encode()) <= 40
    assert len(title.split()) <= 5
    assert title == title.strip()
    assert title.isprintable() or any(not c.isprintable() and c > "\x9f" for c in title)


async def test_the_title_is_logged_between_the_messages_and_the_header_and_once() -> None:
    async with rig(text("a"), text("b"), extensions=[FallbackTitle()]) as run:
        await run.ask("hello there")
        lines = await run.ask("again")
    at = lines.index("session/title")
    assert lines[at - 1 : at + 2] == ["user: hello there", "session/title", "header initial"]
    assert lines.count("session/title") == 1
    [title] = [event.value for event in run.session.events if event.type == "session/title"]
    assert title == {"title": "hello there", "messageSeqs": [4], "source": {"kind": "fallback"}}


async def test_only_a_users_visible_text_names_a_session() -> None:
    silent = {**say("x"), "content": [{"type": "text", "text": " \n"}], "id": "silent"}
    notice = {**say("a notice"), "source": {"kind": "plugin", "plugin": "x"}}
    async with rig(*[text("ok")] * 3, extensions=[FallbackTitle()]) as run:
        for message in (silent, notice, say("the name")):
            run.agent.followup(message)
        await run.agent.wait_idle()
        [title] = [event.value for event in run.session.events if event.type == "session/title"]
        assert title["title"] == "the name"


async def test_a_resumed_session_is_named_after_its_first_message() -> None:
    async with rig(text("a")) as first:
        await first.ask("the first prompt")
    async with rig(text("b"), session=reopened(first.session), extensions=[FallbackTitle()]) as second:
        await second.ask("the second prompt")
        [title] = [event.value for event in second.session.events if event.type == "session/title"]
        assert title["title"] == "the first prompt"


async def test_a_child_that_inherited_a_title_gets_none() -> None:
    async with rig(text("a"), extensions=[FallbackTitle()]) as parent:
        await parent.ask("hello")
    header = SessionHeader(id="child", created_at=0, is_seeded=True, parent_session="s-1")
    child = parent.session.fork(header, parent.session.seq, ManualClock(step=1))
    async with rig(text("b"), session=child, extensions=[FallbackTitle()]) as run:
        await run.ask("task")
        assert "session/title" not in [event.type for event in child.own_events]
