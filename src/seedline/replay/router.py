"""Who answers for which live child: recorded children bound to the calls that make them again.

A child is bound when it is created: by its lineage key, else by what it was asked and what came back, else by
order. So siblings may call their models in any order, and none gets another's answers. A recorded child is
bound once. Rules: subagents and replay, 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from seedline.errors import BindingError
from seedline.replay.entries import script_digest
from seedline.replay.script import derive_replay_script
from seedline.session.header import CallSpawn
from seedline.session.tree import Grade, Node


class LiveCall(NamedTuple):
    """A call about to make a child: where it stands, what it asks, and what it is recorded to have got.

    `answer` is None where the recording holds no answer of a child: no result, or an error.
    """

    place: CallSpawn
    prompt: str | None
    answer: str | None


class Bound(NamedTuple):
    """The recorded child of a live call, and how sure that is."""

    node: Node
    grade: Grade


class Router:
    """Binds the recorded children of each parent, `children` of them, to its live calls."""

    def __init__(self) -> None:
        self._placed: dict[tuple[Node, str], Node] = {}
        self._unplaced: dict[Node, list[Node]] = {}
        self._bound: set[Node] = set()

    def expect(self, parent: Node, child: Node) -> None:
        """Let a call of `parent` make this child. One without a known place is found by its content."""
        if child.place is None:
            self._unplaced.setdefault(parent, []).append(child)
        else:
            self._placed[parent, child.place.segment] = child

    def release(self, child: Node) -> None:
        """Let a child be bound once more, for another run of its parent."""
        self._bound.discard(child)

    def bind(self, parent: Node, call: LiveCall) -> Bound | None:
        """Return the recorded child that a call of `parent` makes, None when it made none.

        Raises `BindingError`: `collision` for a child that is bound already, `mismatch` for one that another
        tool made.
        """
        node = self._placed.get((parent, call.place.segment))
        if node is None:
            return self._by_content(parent, call)
        if node in self._bound:
            raise BindingError("collision", node.key, "two calls of one run claim this child")
        self._bound.add(node)
        recorded = cast("CallSpawn", node.place)
        if recorded.tool != call.place.tool:
            reason = (
                f"the tool {recorded.tool!r} made this child, and the call there is of {call.place.tool!r}"
            )
            raise BindingError("mismatch", node.key, reason)
        return Bound(node, node.grade)

    def _by_content(self, parent: Node, call: LiveCall) -> Bound | None:
        """Bind one of the children without a place: by prompt and answer, of equals the next in order."""
        asked = [
            child
            for child in self._unplaced.get(parent, ())
            if child not in self._bound and call.prompt is not None and call.prompt == first_prompt(child)
        ]
        fitting = [child for child in asked if call.answer in (None, last_text(child))]
        if not fitting:
            return None
        self._bound.add(fitting[0])
        return Bound(fitting[0], _grade(fitting))


def _grade(candidates: Sequence[Node]) -> Grade:
    if len(candidates) == 1:
        return "content"
    scripts = {script_digest(derive_replay_script(node.session.own, unfinished="cut")) for node in candidates}
    return "twins" if len(scripts) == 1 else "ordered"


def first_prompt(child: Node) -> str | None:
    """Return the text of a recorded child's first own input, None where it has none."""
    for event in child.session.own.without_chunks():
        if event.type == "agent/inbox/spliced":
            inserted: Any = _member(event.value, "inserted")
            if isinstance(inserted, list) and inserted:
                return _text(_member(cast("list[Any]", inserted)[0], "content"))
    return None


def last_text(child: Node) -> str:
    """Return the text of the last own answer of a recorded child that has content."""
    for event in child.session.own.without_chunks_reversed():
        if event.type == "assistant/message":
            content = _member(_member(event.value, "message"), "content")
            if content:
                return _text(content)
    return ""


def _member(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _text(content: Any) -> str:
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (_member(block, "text") for block in blocks if _member(block, "type") == "text")
    return "".join(text for text in texts if isinstance(text, str))
