"""Recorded children are bound to live calls by place, then by content, then by order, each once."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.errors import BindingError
from seedline.replay.router import Bound, LiveCall, Router
from seedline.replay.script import recorded_tree
from seedline.session.header import START, CallSpawn, SessionHeader
from seedline.session.sequence import Events
from seedline.session.tree import Node, RecordedSession
from tests.unit.replay.recordings import call, log

PARENT = SessionHeader(id="parent", created_at=1)


def asked(prompt: str) -> tuple[str, Any]:
    message = {
        "content": [{"type": "text", "text": prompt}],
        "role": "user",
        "id": "m",
        "source": {"kind": "user"},
    }
    return "agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [message]}


def said(text: str) -> tuple[str, Any]:
    content = [{"type": "text", "text": text}] if text else []
    return "assistant/message", {"turn": 1, "step": 1, "message": {"content": content}}


def child(name: str, prompt: str, answer: str, spawn: CallSpawn | None = None) -> RecordedSession:
    header = SessionHeader(
        id=name, created_at=2, parent_session="parent", origin="subagent", delegation_depth=1, spawn=spawn
    )
    return recorded(header, log([asked(prompt), *call(answer), said(answer), said("")]))


def recorded(header: SessionHeader, events: Events) -> RecordedSession:
    return RecordedSession(header, START, events, header.id)


def family(*children: RecordedSession) -> tuple[Node, list[Node], Router]:
    root = recorded(PARENT, log([("turn/start", {"turn": 1})]))
    tree = recorded_tree([root, *children], root)
    router = Router()
    for node in tree.primary.children:
        router.expect(tree.primary, node)
    nodes = {node.session: node for node in tree.primary.children}
    return tree.primary, [nodes[session] for session in children], router


def place(position: int, tool: str = "subagent") -> CallSpawn:
    return CallSpawn(1, 1, position, 0, f"call-{position}", tool)


def live(
    position: int, prompt: str | None = "Do it.", answer: str | None = None, tool: str = "subagent"
) -> LiveCall:
    return LiveCall(place(position, tool), prompt, answer)


def test_a_child_is_bound_by_its_place_whatever_was_asked() -> None:
    root, (one, two), router = family(child("a", "x", "1", place(0)), child("b", "x", "2", place(1)))
    assert router.bind(root, live(1, "y", "9")) == Bound(two, "exact")
    assert router.bind(root, live(0, None)) == Bound(one, "exact")


def test_a_call_that_made_no_recorded_child_binds_none() -> None:
    root, _, router = family(child("a", "x", "1", place(0)))
    assert router.bind(root, live(1)) is None
    assert router.bind(family()[0], live(0)) is None


def test_a_child_is_bound_once() -> None:
    root, (one,), router = family(child("a", "x", "1", place(0)))
    router.bind(root, live(0))
    with pytest.raises(BindingError, match="two calls of one run claim this child") as caught:
        router.bind(root, live(0))
    assert (caught.value.code, caught.value.key) == ("collision", one.key)
    router.release(one)
    assert router.bind(root, live(0)) == Bound(one, "exact")


def test_a_child_of_another_tool_is_a_mismatch() -> None:
    root, (one,), router = family(child("a", "x", "1", place(0, "subagent_fork")))
    with pytest.raises(BindingError, match="'subagent_fork' made this child") as caught:
        router.bind(root, live(0))
    assert (caught.value.code, caught.value.key) == ("mismatch", one.key)


def test_of_children_without_a_place_the_prompt_tells() -> None:
    root, (one, two), router = family(child("a", "Do it.", "1"), child("b", "Do that.", "1"))
    assert router.bind(root, live(0, "Do that.", "1")) == Bound(two, "content")
    assert router.bind(root, live(1, "Do that.", "1")) is None
    assert router.bind(root, live(2, "Do it.")) == Bound(one, "content")


def test_of_one_prompt_the_answer_tells() -> None:
    root, (one, two), router = family(child("a", "Do it.", "1"), child("b", "Do it.", "2"))
    assert router.bind(root, live(0, answer="2")) == Bound(two, "content")
    assert router.bind(root, live(1, answer="3")) is None
    assert router.bind(root, live(1, answer="1")) == Bound(one, "content")


def test_equal_children_are_twins_and_unequal_ones_go_by_order() -> None:
    root, (one, two), router = family(child("a", "Do it.", "1"), child("b", "Do it.", "1"))
    assert router.bind(root, live(0, answer="1")) == Bound(one, "twins")
    assert router.bind(root, live(1, answer="1")) == Bound(two, "content")
    root, (one, two), router = family(child("a", "Do it.", "1"), child("b", "Do it.", "2"))
    assert router.bind(root, live(0)) == Bound(one, "ordered")


def test_a_call_that_gives_no_task_binds_nothing_by_content() -> None:
    root, _, router = family(child("a", "Do it.", "1"))
    assert router.bind(root, live(0, None)) is None
