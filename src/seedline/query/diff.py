"""Where two runs of the same agents part, and where a fork parts from its parent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final, Literal, cast

from seedline.events.event import Event
from seedline.jsonvalue import is_count
from seedline.query.alike import Run, alike
from seedline.replay.compare import RESULT_BODY
from seedline.replay.divergence import Difference, differences
from seedline.session.header import CallSpawn, SessionLogOffset
from seedline.session.tree import Node, RecordedSession, SessionTree

DiffKind = Literal[
    "inherited",
    "input",
    "prompt",
    "schema",
    "config",
    "answer",
    "tool-result",
    "child-answer",
    "log",
]
"""What a first difference is about.

`inherited`: history that came from the parent. `input`: what was asked. `prompt`, `schema`, `config`: the
system prompt, the tools, and where the request went. `answer`: what the model said. `tool-result`: what a
tool answered. `child-answer`: what a subagent answered. `log`: anything else, such as an event of another
type, or one that only one run has.
"""

Status = Literal["same", "different", "only-left", "only-right"]


@dataclass(frozen=True, slots=True)
class DiffCause:
    """The earliest event that makes runs differ: of which session, by lineage key, and what it is about.

    `seq` counts in the left run, in the right one where the left has no such event.
    """

    key: str
    seq: int
    type: str
    kind: DiffKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first events of a session that differ; one is None where that run has no more.

    `turn` and `step` are those last opened, None before the first. `differences` says where in the event,
    with ids and folders replaced; `expected` is the left side. `cause` is where it began.
    """

    left: Event | None
    right: Event | None
    turn: int | None
    step: int | None
    kind: DiffKind
    differences: tuple[Difference, ...]
    cause: DiffCause


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDiff:
    """One session of two runs, aligned by its lineage key. `alike` counts the events before the difference.

    Chunks are not compared: the message they add up to is.
    """

    key: str
    left: Node | None
    right: Node | None
    status: Status
    alike: int
    first: FirstDifference | None


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Two runs side by side, depth first by lineage key."""

    sessions: tuple[SessionDiff, ...]

    @property
    def same(self) -> bool:
        """True when both runs have the same sessions and no event differs."""
        return all(session.status == "same" for session in self.sessions)


NOTHING: Final = frozenset[DiffKind]()


def diff_runs(left: SessionTree, right: SessionTree, *, ignore: frozenset[DiffKind] = NOTHING) -> RunDiff:
    """Return where the runs of two trees part, session by session; forks and strangers are not looked at.

    What differs between any two runs (see `query.alike`) does not count, nor do differences of the kinds to
    ignore.
    """
    sides = (_by_key(left), _by_key(right))
    keys = [*sides[0], *(key for key in sides[1] if key not in sides[0])]
    runs = (_run(left), _run(right))
    for key in keys:
        _name_session(key, sides, runs)
    found = {key: _session(key, sides, runs, ignore) for key in keys}
    return RunDiff(tuple(_traced(diff, found) for diff in found.values()))


_Sides = tuple[Mapping[str, Node], Mapping[str, Node]]
_Runs = tuple[Run, Run]


def _by_key(tree: SessionTree) -> dict[str, Node]:
    return {node.key: node for node in tree.primary.walk()}


def _run(tree: SessionTree) -> Run:
    return Run(tree.primary.session.header.cwd)


def _name_session(key: str, sides: _Sides, runs: _Runs) -> None:
    """Let the ids of one session stand for the same in both runs."""
    for side, run in zip(sides, runs, strict=True):
        if key in side:
            run.name(side[key].session.header.id, f"session {key}")


def _session(key: str, sides: _Sides, runs: _Runs, ignore: frozenset[DiffKind]) -> SessionDiff:
    left, right = sides[0].get(key), sides[1].get(key)
    if left is None or right is None:
        status: Status = "only-left" if right is None else "only-right"
        return SessionDiff(key=key, left=left, right=right, status=status, alike=0, first=None)
    count, first = _Walk(key, left, right, runs).first(ignore)
    status = "same" if first is None else "different"
    return SessionDiff(key=key, left=left, right=right, status=status, alike=count, first=first)


class _Walk:
    """Two logs side by side."""

    def __init__(self, key: str, left: Node, right: Node, runs: _Runs) -> None:
        self._key = key
        self._sides = tuple(list(node.session.events.without_chunks()) for node in (left, right))
        self._kept = tuple([event.seq for event in side] for side in self._sides)
        self._cut = left.session.inherited_event_count
        self._runs = runs
        self._turn: int | None = None
        self._step: int | None = None

    def first(self, ignore: frozenset[DiffKind]) -> tuple[int, FirstDifference | None]:
        """Return how many events are alike before the first difference that counts, and that."""
        count = 0
        for at, (left, right) in enumerate(zip_longest(*self._sides)):
            self._enter(left or right)
            found = differences(self._alike(0, left, at), self._alike(1, right, at))
            told = tuple(each for each in found if self._kind(left, right, each.path) not in ignore)
            if told:
                return count, self._difference(left, right, told)
            count += 1
        return count, None

    def _alike(self, side: int, event: Event | None, at: int) -> Any:
        if event is None:
            return None
        return alike(event, f"session {self._key}, event {at}", self._runs[side], self._kept[side])

    def _enter(self, event: Event) -> None:
        if event.type == "turn/start":
            self._turn, self._step = _number(event, "turn"), None
        elif event.type == "step/start":
            self._step = _number(event, "step")

    def _kind(self, left: Event | None, right: Event | None, path: str) -> DiffKind:
        """Return what a difference is about; events of two types say nothing about each other."""
        event = cast("Event", left or right)
        if event.seq < self._cut:
            return "inherited"
        is_pair = left is not None and right is not None and left.type == right.type
        return kind_of(event, path) if is_pair else "log"

    def _difference(
        self, left: Event | None, right: Event | None, found: tuple[Difference, ...]
    ) -> FirstDifference:
        event = cast("Event", left or right)
        kind = self._kind(left, right, found[0].path)
        return FirstDifference(
            left=left,
            right=right,
            turn=self._turn,
            step=self._step,
            kind=kind,
            differences=found,
            cause=DiffCause(self._key, event.seq, event.type, kind),
        )


def kind_of(event: Event, path: str) -> DiffKind:
    """Return what a difference at a JSON Pointer of an event is about, by that event alone."""
    match event.type:
        case "user/message" | "agent/inbox/spliced":
            return "input"
        case "request/header" if path.startswith("/data/header/system"):
            return "prompt"
        case "request/header" if path.startswith("/data/header/tools"):
            return "schema"
        case "request/header" | "request/context":
            return "config"
        case "assistant/message" | "tool/call" | "compaction/summary":
            return "answer"
        case "tool/result" if path.startswith(RESULT_BODY):
            return "tool-result"
        case _:
            return "log"


def _number(event: Event, name: str) -> int | None:
    value = event.value
    number = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return number if is_count(number) else None


# --- where it began ----------------------------------------------------------------------------------------

_Found = Mapping[str, SessionDiff]


def _traced(diff: SessionDiff, found: _Found) -> SessionDiff:
    first = diff.first
    if first is None:
        return diff
    upstream = _upstream(diff, found)
    if upstream is None:
        return diff
    kind = "child-answer" if upstream.key.startswith(f"{diff.key}/") else first.kind
    return replace(diff, first=replace(first, kind=kind, cause=_origin(upstream, found)))


def _origin(diff: SessionDiff, found: _Found) -> DiffCause:
    """Return the cause at the end of the chain that begins with a session's difference."""
    seen = {diff.key}
    while (upstream := _upstream(diff, found)) is not None and upstream.key not in seen:
        seen.add(upstream.key)
        diff = upstream
    return cast("FirstDifference", diff.first).cause


def _upstream(diff: SessionDiff, found: _Found) -> SessionDiff | None:
    """Return the session whose difference made this one's, None where it began here."""
    first = diff.first
    if first is None:
        return None
    if first.kind == "tool-result":
        return _child_of_call(diff, first, found)
    if first.kind in ("input", "inherited"):
        return _parent_before(diff, found)
    return None


def _child_of_call(diff: SessionDiff, first: FirstDifference, found: _Found) -> SessionDiff | None:
    """Return the child that differs and whose call the result answers."""
    call = (first.turn, first.step, _call_id(first.left or first.right))
    for child in found.values():
        if child.key.rpartition("/")[0] == diff.key and child.first is not None:
            place = child.left.place if child.left else None
            if isinstance(place, CallSpawn) and (place.turn, place.step, place.call_id) == call:
                return child
    return None


def _call_id(event: Event | None) -> Any:
    value: Any = event.value if event else None
    for name in ("message", "source", "callId"):
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


def _parent_before(diff: SessionDiff, found: _Found) -> SessionDiff | None:
    """Return the parent if it differed before it made this child."""
    parent = found.get(diff.key.rpartition("/")[0])
    if parent is None or parent.first is None or diff.left is None:
        return None
    event, place = parent.first.left, diff.left.place
    if event is None or not isinstance(place, CallSpawn):
        return None
    differed = (parent.first.turn or 0, parent.first.step or 0)
    made = (place.turn, place.step)
    is_answer = differed == made and parent.first.kind != "tool-result"
    return parent if differed < made or is_answer else None


# --- a fork and its parent ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkDiff:
    """A fork beside its parent.

    `cut` is how many events the fork says it inherited, `shared` how many both logs begin with alike: more
    where both went on in the same way, fewer where the parent's log is not the one that was inherited.
    The next events are the first that differ, None at the end of a log; the counts are of what follows
    `shared`.
    """

    parent: RecordedSession
    child: RecordedSession
    cut: SessionLogOffset
    shared: int
    parent_next: Event | None
    child_next: Event | None
    parent_after: int
    child_after: int

    @property
    def intact(self) -> bool:
        """True when the parent still holds all that the fork inherited."""
        return self.shared >= self.cut


def is_fork_of(child: RecordedSession, parent: RecordedSession) -> bool:
    """True when a session says that it inherited from the other one."""
    return child.header.is_seeded and child.header.parent_session == parent.header.id


def diff_fork(child: RecordedSession, parent: RecordedSession) -> ForkDiff:
    """Return what a fork shares with its parent, and where they part. Events are compared as they are."""
    shared = sum(1 for _ in _shared(child, parent))
    return ForkDiff(
        parent=parent,
        child=child,
        cut=child.inherited_event_count,
        shared=shared,
        parent_next=parent.events[shared] if shared < len(parent.events) else None,
        child_next=child.events[shared] if shared < len(child.events) else None,
        parent_after=len(parent.events) - shared,
        child_after=len(child.events) - shared,
    )


def _shared(child: RecordedSession, parent: RecordedSession) -> Iterator[Event]:
    for mine, other in zip(child.events, parent.events, strict=False):
        if mine != other:
            return
        yield mine
