"""`seedline stats`: what sessions spent, each request once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Final, NamedTuple, cast

from seedline.cli.answer import Answer, attempt_all
from seedline.cli.documents import SessionStats, StatsDocument, UsageFigures
from seedline.cli.people import Block, Columns
from seedline.errors import ArtifactError
from seedline.replay.script import recorded_tree
from seedline.session.tree import Node, RecordedSession
from seedline.session.usage import UsageTotals, usage_of
from seedline.snapshot.load import read_sessions, read_stored, recorded_session
from seedline.storage.jsonl.file import LogFile


class _Spent(NamedTuple):
    """One session of a tree and what it spent itself."""

    node: Node
    own: UsageTotals


def stats_of_paths(paths: Sequence[str], store: str | None = None) -> Answer:
    """Return what each session of the paths spent itself, and the sum over all of them.

    A scenario folder, and a stored session with its descendants, is a tree; log files given beside it are one
    tree together. A file that is reached twice counts once. `store` is the folder of a JSONL store whose
    session ids the paths are. Raises `FailedError` naming every path that cannot be read, and `LineageError`.
    """
    read: Callable[[str], list[LogFile]] = read_sessions if store is None else _reader_of(store)
    trees = list(_trees(attempt_all(read, paths)))
    spent = attempt_all(_spent, [node for tree in trees for node in _nodes(tree)], _name)
    total = reduce(add, (each.own for each in spent), UsageTotals())
    document: StatsDocument = {"sessions": list(map(_figures, spent)), "tree": _usage(total)}
    return Answer(document, _people(document))


def _reader_of(store: str) -> Callable[[str], list[LogFile]]:
    return lambda session_id: read_stored(store, session_id)


def _trees(groups: Sequence[Sequence[LogFile]]) -> Iterator[list[RecordedSession]]:
    """Yield the sessions of each tree, in the order in which the first of them was named."""
    seen: set[str] = set()
    loose: list[RecordedSession] = []
    trees: list[list[RecordedSession]] = []
    for logs in groups:
        fresh = [recorded_session(log) for log in logs if not _known(log, seen)]
        if len(logs) > 1:
            trees.append(fresh)
        elif fresh:
            if not loose:
                trees.append(loose)
            loose += fresh
    yield from filter(None, trees)


def _known(log: LogFile, seen: set[str]) -> bool:
    """True when the file was seen before; it is from now on."""
    place = os.path.realpath(log.path)
    known = place in seen
    seen.add(place)
    return known


def _nodes(sessions: Sequence[RecordedSession]) -> Iterator[Node]:
    """Yield the sessions of a tree depth first by lineage key, then the forks and strangers beside it."""
    tree = recorded_tree(sessions)
    yield from tree.primary.walk()
    yield from tree.outside()


def _spent(node: Node) -> _Spent:
    session = node.session
    try:
        return _Spent(node, usage_of(session.events, session.inherited_event_count))
    except ArtifactError as error:
        raise error.located(path=session.name) from None


def _name(node: Node) -> str:
    return node.session.name


def _figures(spent: _Spent) -> SessionStats:
    session = spent.node.session
    return {
        "path": session.name,
        "id": session.header.id,
        "key": spent.node.key,
        "own": _usage(spent.own),
    }


def _usage(totals: UsageTotals) -> UsageFigures:
    return cast("UsageFigures", totals.as_dict())


# --- for people ------------------------------------------------------------------------------------------

_HEADS: Final = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadTokens": "cache read",
    "cacheWriteTokens": "cache write",
    "reasoningTokens": "reasoning",
    "requests": "requests",
    "turns": "turns",
    "toolCalls": "tool calls",
}


def _people(document: StatsDocument) -> Iterator[Block]:
    rows = [
        ("  " * each["key"].count("/") + each["key"], *_cells(each["own"]), each["path"])
        for each in document["sessions"]
    ]
    yield Columns(("key", *_HEADS.values(), "file"), [*rows, ("all", *_cells(document["tree"]), "")])


def _cells(usage: UsageFigures) -> list[str]:
    return [str(cast("dict[str, int]", usage)[name]) for name in _HEADS]
