"""The shape of a run: its sessions with what each came from, how far it got and what it spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from seedline.errors import ArtifactError
from seedline.query.sessions import latest_title
from seedline.query.stats import end_kind
from seedline.session.header import CallSpawn, SessionLogOffset
from seedline.session.sequence import Events
from seedline.session.tree import Grade, Node, SessionTree
from seedline.session.turns import last_bracket
from seedline.session.usage import UsageTotals, usage_of

Edge = Literal["root", "spawn", "fork", "stranger"]
"""How a session hangs where it is shown.

`root` is the primary of the tree, `spawn` a child of its run, `fork` began with a copy of its parent's
history and runs on its own, `stranger` was given along with the others and belongs to none of them.
"""

IDLE: Final = "idle"
OPEN: Final = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineNode:
    """One session of an outline.

    `status` is the kind of the last own turn's end, `open` while a turn runs or was cut off by a crash,
    `idle` before the first. `place` is the last step of its lineage key, such as `t2.s1.c0.n0`; None for a
    root. `tool` is the tool whose call made it, where a tool did. `cut` counts the inherited events, and
    `seeded` says whether it has a parent's history at all. `events`, `turns` and `own` are its own. Children
    come before forks.
    """

    session_id: str
    name: str
    key: str
    edge: Edge
    place: str | None
    tool: str | None
    grade: Grade
    title: str | None
    created_at: int
    seeded: bool
    cut: SessionLogOffset
    events: int
    turns: int
    status: str
    own: UsageTotals
    children: tuple[OutlineNode, ...]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, OutlineNode]]:
        """Yield this node and those below it with their depth, each parent before what hangs below it."""
        waiting = [(depth, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            waiting += [(depth + 1, child) for child in reversed(node.children)]


@dataclass(frozen=True, slots=True)
class Outline:
    """A tree's outline: the primary's run with all forks, then the strangers. `total` sums over them all."""

    roots: tuple[OutlineNode, ...]
    total: UsageTotals

    def walk(self) -> Iterator[tuple[int, OutlineNode]]:
        """Yield every session with its depth, in the order it is shown."""
        for root in self.roots:
            yield from root.walk()


def outline_of(tree: SessionTree) -> Outline:
    """Return the outline of a tree.

    Raises `SessionPersistenceCorruptionError` naming the session, for a record of usage or a title of
    another shape.
    """
    roots = (_node(tree.primary, "root"), *(_node(node, "stranger") for node in tree.strangers))
    total = sum((node.own for root in roots for _, node in root.walk()), start=UsageTotals())
    return Outline(roots, total)


def _node(node: Node, edge: Edge) -> OutlineNode:
    session = node.session
    try:
        own, title = session.own, latest_title(session.events.without_chunks())
        usage, status = usage_of(session.events, session.inherited_event_count), status_of(own)
    except ArtifactError as error:
        raise error.located(path=session.name) from None
    return OutlineNode(
        session_id=session.header.id,
        name=session.name,
        key=node.key,
        edge=edge,
        place=None if edge != "spawn" else node.key.rpartition("/")[2],
        tool=node.place.tool if isinstance(node.place, CallSpawn) else None,
        grade=node.grade,
        title=title and title.text,
        created_at=session.header.created_at,
        seeded=session.header.is_seeded,
        cut=session.inherited_event_count,
        events=len(own),
        turns=usage.turns,
        status=status,
        own=usage,
        children=(
            *(_node(child, "spawn") for child in node.children),
            *(_node(fork, "fork") for fork in node.forks),
        ),
    )


def status_of(own: Events) -> str:
    """Return the kind of the last turn's end, `open` for one that has not ended, `idle` before the first.

    Raises `SessionPersistenceCorruptionError` for an end that is no object.
    """
    last = last_bracket(own)
    if last is None:
        return IDLE
    return end_kind(last) if last.type == "turn/end" else OPEN
