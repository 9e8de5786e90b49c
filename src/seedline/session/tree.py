"""The tree that recorded sessions form, and the lineage key of each.

A key is the path from the root: `0`, then `0/t2.s1.c0.n0` for a child of a tool call and `0/h2.0` for a
child of host code. It depends on no id, clock or order of completion. A `spawn` fact in the child's header
states the last step of the path; where a foreign log lacks it, the step is recovered from what the parent's
log says of the child. Only a session of `origin` `subagent`, or with a `spawn` fact, is a child in a tree;
any other `parentSession` is a fork edge, and that session is the root of a run of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from seedline.errors import ArtifactError, JsonSyntaxError, LineageError
from seedline.events.event import Event
from seedline.jsonvalue import decode, is_count
from seedline.session import lineage
from seedline.session.header import CallSpawn, SessionHeader, SessionLogOffset, SpawnFact
from seedline.session.sequence import Events

Grade = Literal["exact", "recovered", "content", "twins", "ordered"]
"""How sure a child's place is.

`exact`: its header says so, or it is the root. `recovered`: the parent's log names the child, or only one
call can have made it. `content`: a running child was told from its siblings by its input, when it was bound.
`twins`: several children with equal scripts, in the order given. `ordered`: only the order of creation.
"""

Method = Literal[
    "id-in-result",
    "id-in-event",
    "prompt-unique",
    "elimination",
    "twins",
    "order-only",
    "parent-not-in-folder",
]
"""By what a place that the header does not state was found, or why it was not."""

ROOT_KEY: Final = "0"


@dataclass(frozen=True, eq=False, slots=True)
class RecordedSession:
    """One recorded session as it was read. `name` is its path, as reports and errors show it."""

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events
    name: str

    @property
    def own(self) -> Events:
        """The events this session wrote itself. A wrong cut raises `SessionPersistenceCorruptionError`."""
        try:
            return lineage.own(self.events, self.inherited_event_count)
        except ArtifactError as error:
            raise error.located(path=self.name) from None


Fingerprint = Callable[[RecordedSession], Hashable]
"""Returns a value that is equal for sessions that answer alike, such as the digest of the script."""


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One session of a tree.

    `key` is the path from the root of its own run. `place` is the last step of that path, stated or
    recovered; None for a root and for an `ordered` child, whose step is written `?0`, `?1`. `grade` and
    `method` say how sure the edge to the parent is, `method` being None where it is `exact`; of a fork
    nothing but its order is known. `detached` says that the parent is a stand-in: the one that the header
    names is not among the sessions given. `children` come in the order of their keys; `forks` inherited
    from this session and run on their own.
    """

    session: RecordedSession
    key: str
    grade: Grade
    method: Method | None
    place: SpawnFact | None
    detached: bool
    children: tuple[Node, ...]
    forks: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """Yield this node and those below it, depth first, in the order of their keys; no forks."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, eq=False, slots=True)
class SessionTree:
    """The tree of the primary session, and the sessions given along with it that belong to no part of it."""

    primary: Node
    strangers: tuple[Node, ...]

    def outside(self) -> Iterator[Node]:
        """Yield what lies outside the primary's run, depth first: forks, their children, and strangers."""
        yield from _forks_below(self.primary)
        for root in self.strangers:
            yield from root.walk()
            yield from _forks_below(root)


def _forks_below(root: Node) -> Iterator[Node]:
    for node in root.walk():
        for fork in node.forks:
            yield from fork.walk()
            yield from _forks_below(fork)


def build_tree(
    sessions: Sequence[RecordedSession], fingerprint: Fingerprint, primary: RecordedSession | None = None
) -> SessionTree:
    """Return the tree of `sessions` with the key and the grade of each.

    The primary is the one given, else the only session that names no parent, else the first whose parent is
    not among them; it is a root even if it names a parent. A tree child whose parent is missing hangs below
    the primary, detached. Raises `LineageError` for no session, a duplicate id, a cycle, or two children of
    one parent with the same stated place.
    """
    if not sessions:
        raise LineageError("no-session", "no session was given", ())
    ids = usable_ids(sessions)
    links = _link(sessions, ids)
    root = primary or _choose_primary(sessions, links)
    family = _Family(root, ids, links, fingerprint)
    for session in sessions:
        if session is not root:
            family.admit(session, sessions)
    tree = SessionTree(family.root_node(root), tuple(map(family.root_node, family.strangers)))
    _refuse_loose(sessions, tree)
    return tree


def _refuse_loose(sessions: Sequence[RecordedSession], tree: SessionTree) -> None:
    """Raise `LineageError` when a session hangs nowhere: a stand-in parent lies below its own child."""
    hung = {node.session for node in (*tree.primary.walk(), *tree.outside())}
    loose = [session.name for session in sessions if session not in hung]
    if loose:
        raise LineageError("cycle", "sessions name each other as parent", loose)


# --- parent edges ------------------------------------------------------------------------------------

_Ids = dict[RecordedSession, str]
_Links = dict[RecordedSession, RecordedSession]
_SHARED_TOKEN: Final = "{{sessionId}}"


def usable_ids(sessions: Sequence[RecordedSession]) -> _Ids:
    """Return the id of each session that has one.

    A normalised recording may hold a placeholder instead: `{{sessionId}}`, and any other `{{...}}` that two
    sessions share or that a session calls its own parent, counts as no id. Raises `LineageError` when two
    sessions have one real id.
    """
    count = Counter(session.header.id for session in sessions)
    ids = {session: session.header.id for session in sessions if _is_id(session.header, count)}
    for session_id, held in count.items():
        if held > 1 and not _is_placeholder(session_id):
            names = [session.name for session in sessions if session.header.id == session_id]
            raise LineageError("duplicate-id", f"{held} sessions have the id {session_id!r}", names)
    return ids


def _is_placeholder(session_id: str) -> bool:
    return not session_id or (session_id.startswith("{{") and session_id.endswith("}}"))


def _is_id(header: SessionHeader, count: Counter[str]) -> bool:
    if not _is_placeholder(header.id):
        return True
    shared = count[header.id] > 1 or header.parent_session == header.id
    return bool(header.id) and header.id != _SHARED_TOKEN and not shared


def _link(sessions: Sequence[RecordedSession], ids: _Ids) -> _Links:
    """Return the parent of each session whose parent is among them. Raises `LineageError` for a cycle."""
    holders = {session_id: session for session, session_id in ids.items()}
    links = {
        session: holders[session.header.parent_session]
        for session in sessions
        if session.header.parent_session in holders
    }
    for session in sessions:
        _refuse_cycle(session, links)
    return links


def _refuse_cycle(session: RecordedSession, links: _Links) -> None:
    seen = {session}
    at = links.get(session)
    while at is not None:
        if at in seen:
            raise LineageError("cycle", "sessions name each other as parent", sorted(s.name for s in seen))
        seen.add(at)
        at = links.get(at)


def _choose_primary(sessions: Sequence[RecordedSession], links: _Links) -> RecordedSession:
    parentless = [session for session in sessions if session.header.parent_session is None]
    if len(parentless) == 1:
        return parentless[0]
    return next(session for session in sessions if session not in links)


class _Family:
    """Who hangs where, while the tree is built."""

    def __init__(self, primary: RecordedSession, ids: _Ids, links: _Links, fingerprint: Fingerprint) -> None:
        self.primary = primary
        self.ids = ids
        self.links = links
        self.fingerprint = fingerprint
        self.children: dict[RecordedSession, list[RecordedSession]] = {}
        self.forks: dict[RecordedSession, list[RecordedSession]] = {}
        self.strangers: list[RecordedSession] = []
        self.detached: set[RecordedSession] = set()
        self.unplaced: set[RecordedSession] = set()

    def admit(self, session: RecordedSession, sessions: Sequence[RecordedSession]) -> None:
        parent = self.links.get(session)
        if not session.header.is_tree_child:
            if parent is None:
                self.strangers.append(session)
            else:
                self.forks.setdefault(parent, []).append(session)
            return
        if parent is None:
            self.detached.add(session)
            parent = self._stand_in(session, sessions)
        self.children.setdefault(parent, []).append(session)

    def _stand_in(self, session: RecordedSession, sessions: Sequence[RecordedSession]) -> RecordedSession:
        """Return where a child hangs whose parent cannot be found by id.

        A placeholder may stand for a session that is there: with one candidate at the depth above, that is
        the parent. Otherwise the child has no known place, and its `spawn` fact speaks of another parent.
        """
        above = [
            other
            for other in sessions
            if other is not session and other.header.depth == session.header.depth - 1
        ]
        if _is_placeholder(session.header.parent_session or "") and len(above) == 1:
            return above[0]
        self.unplaced.add(session)
        return self.primary

    def root_node(self, session: RecordedSession) -> Node:
        method: Method | None = None
        if session is not self.primary and session.header.parent_session is not None:
            method = "order-only" if session in self.links else "parent-not-in-folder"
        return self._node(session, ROOT_KEY, _Place(None, "ordered" if method else "exact", method))

    def _node(self, session: RecordedSession, key: str, place: _Place) -> Node:
        placed = self._placed_children(session)
        segments = _segments(placed)
        return Node(
            session,
            key,
            place.grade,
            place.method,
            place.spawn,
            session in self.detached,
            tuple(self._node(child, f"{key}/{segments[child]}", placed[child]) for child in segments),
            tuple(map(self.root_node, self.forks.get(session, ()))),
        )

    def _placed_children(self, parent: RecordedSession) -> dict[RecordedSession, _Place]:
        children = self.children.get(parent, [])
        placed: dict[RecordedSession, _Place] = {
            child: _Place(None, "ordered", "parent-not-in-folder")
            for child in children
            if child in self.unplaced
        }
        stated = [child for child in children if child.header.spawn is not None and child not in placed]
        placed |= {child: _Place(child.header.spawn, "exact", None) for child in stated}
        _refuse_shared_places(stated)
        rest = [child for child in children if child not in placed]
        if rest:
            taken = {place.spawn.segment for place in placed.values() if place.spawn}
            placed |= _recover_places(parent, rest, self.ids, taken, self.fingerprint)
        return placed


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a child hangs, and how that is known."""

    spawn: SpawnFact | None
    grade: Grade
    method: Method | None


def _refuse_shared_places(children: Sequence[RecordedSession]) -> None:
    by_segment: dict[str, RecordedSession] = {}
    for child in children:
        assert child.header.spawn is not None
        segment = child.header.spawn.segment
        other = by_segment.setdefault(segment, child)
        if other is not child:
            reason = f"two children of one parent say they come from {segment}"
            raise LineageError("duplicate-key", reason, (other.name, child.name))


def place_order(place: SpawnFact) -> tuple[int, ...]:
    """Return what the children of one parent are sorted by: numbers, so that step 10 comes after step 9.

    A child of host code comes after those of the turn that had started last when it was made.
    """
    if isinstance(place, CallSpawn):
        return place.turn, 0, place.step, place.call, place.n
    return place.host.turn, 1, place.host.n


def _segments(placed: dict[RecordedSession, _Place]) -> dict[RecordedSession, str]:
    """Return each child's step of its key, in the order of the keys; those without a place come last."""
    known = [(place_order(p.spawn), child, p.spawn) for child, p in placed.items() if p.spawn]
    known.sort(key=lambda item: item[0])
    rest = sorted(
        (child for child, place in placed.items() if place.spawn is None),
        key=lambda child: (child.header.created_at, child.header.id),
    )
    return {child: spawn.segment for _, child, spawn in known} | {c: f"?{k}" for k, c in enumerate(rest)}


# --- places recovered from a parent's log ----------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Call:
    """One tool call of the parent. `task` is (prompt, description), None where the call delegates nothing."""

    place: CallSpawn
    task: tuple[str, str] | None
    result: str | None = None


class _ParentFacts:
    """What a parent's own events say about children."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.members: dict[str, CallSpawn] = {}  # by child id
        self._blocks: dict[tuple[int, int], list[str | None]] = {}
        self._rows: Counter[tuple[int, int]] = Counter()

    def see(self, event: Event) -> None:
        match event.type:
            case "assistant/message":
                self._see_message(event.value)
            case "tool/call":
                self._see_call(event.value)
            case "tool/result":
                self._see_result(event.value)
            case "tool-workflow/agent-start":
                self._see_member(event.value)
            case _:
                pass

    def _see_message(self, value: Any) -> None:
        step = _step_of(value)
        if step is not None:
            blocks = _list(value, "message", "content") or _list(value, "content")
            self._blocks[step] = [_string(b, "id") for b in blocks if _string(b, "type") == "tool-call"]

    def _see_call(self, value: Any) -> None:
        step = _step_of(value)
        call_id = _string(value, "callId")
        if step is None or call_id is None:
            return
        turn, number = step
        place = CallSpawn(
            turn, number, self._position(step, call_id), 0, call_id, _string(value, "name") or ""
        )
        self.calls.append(_Call(place, _task(_string(value, "arguments"))))

    def _position(self, step: tuple[int, int], call_id: str) -> int:
        """Return the place of a call among the blocks of its message; of equal ids each is taken once.

        Without such a message, calls count in the order of their rows: they start in the model's order.
        """
        row = self._rows[step]
        self._rows[step] += 1
        blocks = self._blocks.get(step, [])
        if call_id not in blocks:
            return row
        position = blocks.index(call_id)
        blocks[position] = None
        return position

    def _see_result(self, value: Any) -> None:
        step = _step_of(value)
        call_id = _string(value, "message", "source", "callId") or _string(value, "callId")
        for call in self.open_calls():
            if (call.place.turn, call.place.step) == step and call.place.call_id == call_id:
                call.result = "\n".join(_strings(value))
                return

    def _see_member(self, value: Any) -> None:
        child_id, number = _string(value, "childId"), _get(value, "seq")
        enclosing = [call for call in self.open_calls() if call.task is None]
        if child_id and is_count(number) and number and len(enclosing) == 1:
            at = enclosing[0].place
            self.members[child_id] = CallSpawn(at.turn, at.step, at.call, number - 1, at.call_id, at.tool)

    def open_calls(self) -> list[_Call]:
        return [call for call in self.calls if call.result is None]


def _recover_places(
    parent: RecordedSession,
    children: Sequence[RecordedSession],
    ids: _Ids,
    taken: set[str],
    fingerprint: Fingerprint,
) -> dict[RecordedSession, _Place]:
    """Return the places of children whose headers state none, from the own events of both sides.

    In this order: the child's id in a call's result; its id in a workflow row inside a call; a task that only
    this call gave and only this child got; the last child to the last delegating call. Children with one
    task and as many calls are `twins` when their fingerprints are equal. The rest is `ordered`.
    """
    facts = _ParentFacts()
    for event in parent.own.without_chunks():
        facts.see(event)
    search = _Search(facts, children, taken)
    search.by_id(ids)
    search.by_task(fingerprint)
    search.by_elimination()
    return search.found | {child: _Place(None, "ordered", "order-only") for child in search.missing()}


class _Search:
    """The children of one parent and the calls that are still free, step by step."""

    def __init__(self, facts: _ParentFacts, children: Sequence[RecordedSession], taken: set[str]) -> None:
        self.facts = facts
        self.children = children
        self.taken = taken
        self.tasks = {child: _Task.of(child) for child in children}
        self.found: dict[RecordedSession, _Place] = {}

    def missing(self) -> list[RecordedSession]:
        return [child for child in self.children if child not in self.found]

    def free(self) -> list[_Call]:
        return [call for call in self.facts.calls if call.task and call.place.segment not in self.taken]

    def settle(self, child: RecordedSession, place: CallSpawn, grade: Grade, method: Method) -> None:
        if place.segment not in self.taken:
            self.taken.add(place.segment)
            self.found[child] = _Place(place, grade, method)

    def by_id(self, ids: _Ids) -> None:
        for child in self.children:
            child_id = ids.get(child)
            if child_id is None:
                continue
            call = self._first_result_with(child_id)
            if call is not None:
                self.settle(child, call.place, "recovered", "id-in-result")
            elif child_id in self.facts.members:
                self.settle(child, self.facts.members[child_id], "recovered", "id-in-event")

    def _first_result_with(self, child_id: str) -> _Call | None:
        """Return the delegating call whose result names the child first: nobody knew the id before."""
        name = re.compile(rf"(?<![\w-]){re.escape(child_id)}(?![\w-])")
        return next((call for call in self.free() if call.result and name.search(call.result)), None)

    def by_task(self, fingerprint: Fingerprint) -> None:
        calls: dict[tuple[str, str], list[_Call]] = {}
        for call in self.free():
            calls.setdefault(cast("tuple[str, str]", call.task), []).append(call)
        siblings: dict[tuple[str, str], list[RecordedSession]] = {}
        for child in self.missing():
            task = self.tasks[child].pair
            if task in calls:
                siblings.setdefault(task, []).append(child)
        for task, group in siblings.items():
            self._pair(group, calls[task], fingerprint)

    def _pair(self, group: list[RecordedSession], calls: list[_Call], fingerprint: Fingerprint) -> None:
        if len(group) != len(calls):
            return
        if len(group) == 1:
            self.settle(group[0], calls[0].place, "recovered", "prompt-unique")
        elif len({fingerprint(child) for child in group}) == 1:
            for child, call in zip(group, calls, strict=True):
                self.settle(child, call.place, "twins", "twins")

    def by_elimination(self) -> None:
        children, calls = self.missing(), self.free()
        if len(children) == 1 and len(calls) == 1 and self.tasks[children[0]].fits(calls[0].task):
            self.settle(children[0], calls[0].place, "recovered", "elimination")


@dataclass(frozen=True, slots=True)
class _Task:
    """What a child says it was asked: the text of its first own input, and its label. None where unsaid."""

    prompt: str | None
    label: str | None

    @classmethod
    def of(cls, child: RecordedSession) -> _Task:
        prompt = label = None
        for event in child.own.without_chunks():
            if event.type == "agent/inbox/spliced" and prompt is None:
                inserted = _list(event.value, "inserted")
                prompt = _text(_list(inserted[0], "content")) if inserted else None
            elif event.type == "subagent/descriptor" and label is None:
                label = _string(event.value, "label")
        return cls(prompt, label)

    @property
    def pair(self) -> tuple[str, str] | None:
        return None if self.prompt is None or self.label is None else (self.prompt, self.label)

    def fits(self, task: tuple[str, str] | None) -> bool:
        """True when nothing that the child says contradicts the call."""
        return task is not None and self.prompt in (None, task[0]) and self.label in (None, task[1])


def _task(arguments: str | None) -> tuple[str, str] | None:
    """Return (prompt, description) of a delegating call's arguments, None for any other call."""
    try:
        value = decode(arguments or "")
    except JsonSyntaxError:
        return None
    prompt, description = _string(value, "prompt"), _string(value, "description")
    return None if prompt is None or description is None else (prompt, description)


# Foreign payloads may have any shape. What is not there helps no search, and is no error of the log here.


def _get(value: Any, *path: str) -> Any:
    for name in path:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _string(value: Any, *path: str) -> str | None:
    found = _get(value, *path)
    return found if isinstance(found, str) else None


def _list(value: Any, *path: str) -> list[Any]:
    found = _get(value, *path)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _step_of(value: Any) -> tuple[int, int] | None:
    turn, step = _get(value, "turn"), _get(value, "step")
    return (turn, step) if is_count(turn) and is_count(step) else None


def _text(content: list[Any]) -> str:
    return "".join(_string(block, "text") or "" for block in content if _string(block, "type") == "text")


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts of a tool result, in either of its recorded shapes."""
    for block in _list(value, "message", "content") or _list(value, "content"):
        yield _text([block, *_list(block, "content")])
