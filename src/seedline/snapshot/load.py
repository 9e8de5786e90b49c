"""From a path, or an id in a store, to the recorded sessions that replay as one tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from seedline.errors import ArtifactError, IdentityMismatchError, SessionIdRefusedError, SessionNotFoundError
from seedline.events.codec import raw_members
from seedline.events.event import Event
from seedline.ids import encode_segment, project_key
from seedline.replay.script import recorded_tree
from seedline.session.header import SessionHeader, from_header_line
from seedline.session.lineage import check_cut
from seedline.session.tree import RecordedSession, SessionTree
from seedline.storage.jsonl.file import FILE_NAMES, LogFile, check_identity, read_log

NotReplayable = Literal["header-without-version", "old-shapes", "no-turns", "no-inbox"]
"""Why a recorded session cannot drive a loop; the first that holds."""

_NUMBERED: Final = re.compile(r"session\.([1-9][0-9]*)\.jsonl")
_STORED: Final = frozenset(FILE_NAMES.values())
_HEADER_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """The sessions at one path, as a tree.

    `reasons` holds an entry for each that cannot be replayed. `notices` say what a reader must know of the
    files, such as a torn tail that was left out.
    """

    path: str
    tree: SessionTree
    reasons: dict[RecordedSession, NotReplayable]
    notices: tuple[str, ...] = ()


def load_scenario(path: str) -> Scenario:
    """Read a log, a scenario folder, or a stored session with its subagent descendants.

    A scenario folder holds `session.jsonl` and its children `session.1.jsonl`, `session.2.jsonl` without a
    gap. A `session.jsonl` in the folder of its own id inside a store brings the descendants stored beside
    it. Anything else is one log. Raises `ArtifactError` or `LineageError`.
    """
    return scenario_of(path, read_sessions(path))


def load_stored(store: str, session_id: str) -> Scenario:
    """Read a session of a JSONL store, by its id, as `read_stored` does. Raises also `LineageError`."""
    return scenario_of(session_id, read_stored(store, session_id))


def read_stored(store: str, session_id: str) -> list[LogFile]:
    """Return the log of a session of a JSONL store, by its id, and those of its subagent descendants.

    Raises `SessionNotFoundError`, `IdentityMismatchError` when the store holds it twice, and what reading a
    log raises.
    """
    try:
        segment = encode_segment(session_id)
    except SessionIdRefusedError as error:
        raise SessionNotFoundError(str(error), path=store) from None
    found = sorted(file for file in Path(store).glob(f"*/{segment}/*") if file.name in _STORED)
    if not found:
        raise SessionNotFoundError(f"the store holds no session {session_id!r}", path=store)
    if len(found) > 1:
        raise IdentityMismatchError(f"session {session_id!r} is also at {found[1]}", path=str(found[0]))
    return read_sessions(str(found[0]))


def read_sessions(path: str) -> list[LogFile]:
    """Return the logs at a path, the root session's first. See `load_scenario`."""
    place = Path(path)
    if place.is_dir():
        return [_read(f"{path.rstrip('/')}/{name}") for name in _scenario_files(place, path)]
    root = _read(path)
    return [root, *_descendants(place, root)] if _is_stored(place, root.header) else [root]


def scenario_of(path: str, logs: Sequence[LogFile]) -> Scenario:
    """Return the tree of some logs, the first being the root. Raises `ArtifactError` or `LineageError`."""
    recorded = [recorded_session(log) for log in logs]
    reasons: dict[RecordedSession, NotReplayable] = {}
    for session, log in zip(recorded, logs, strict=True):
        reason = reason_against(log)
        if reason is not None:
            reasons[session] = reason
    return Scenario(path, recorded_tree(recorded, recorded[0]), reasons, tuple(_notices(logs)))


def recorded_session(log: LogFile) -> RecordedSession:
    """Return a log as a session of a tree, under the path that it was read from.

    Raises `SessionPersistenceCorruptionError` for a cut beyond the log.
    """
    try:
        check_cut(len(log.events), log.inherited_event_count)
    except ArtifactError as error:
        raise error.located(path=log.path, line=1) from None
    return RecordedSession(log.header, log.inherited_event_count, log.events, log.path)


def _read(path: str) -> LogFile:
    log = read_log(path)
    check_identity(path, log.header)
    return log


def _notices(logs: Sequence[LogFile]) -> Iterator[str]:
    for log in logs:
        if log.torn is not None and log.torn.bytes:
            yield f"{log.path}: {log.torn.bytes} torn bytes at the end are left out ({log.torn.reason})."


# --- folders ---------------------------------------------------------------------------------------------


def _scenario_files(folder: Path, path: str) -> list[str]:
    names = {entry.name for entry in folder.iterdir()}
    if "session.jsonl" not in names:
        raise SessionNotFoundError("the folder holds no session.jsonl", path=path)
    numbers = sorted(int(match.group(1)) for name in names if (match := _NUMBERED.fullmatch(name)))
    for expected, number in enumerate(numbers, start=1):
        if number != expected:
            missing = f"session.{expected}.jsonl"
            reason = f"children are numbered without a gap, and {missing} is missing"
            raise SessionNotFoundError(reason, path=path)
    return ["session.jsonl", *(f"session.{number}.jsonl" for number in numbers)]


# --- stores ----------------------------------------------------------------------------------------------


def _is_stored(place: Path, header: SessionHeader) -> bool:
    """True for a log that lies in `<project key>/<id>/`."""
    if place.name not in _STORED or not header.id:
        return False
    folder = place.absolute().parent
    try:
        named = folder.name == encode_segment(header.id)
    except SessionIdRefusedError:
        return False
    return named and folder.parent.name == project_key(header.cwd)


def _descendants(place: Path, root: LogFile) -> list[LogFile]:
    """Return the stored subagent descendants of `root`, parents first.

    Other sessions of the store are known by their headers alone: a damaged one hides none.
    """
    store = (place if len(place.parts) > 3 else place.absolute()).parents[2]
    children: dict[str, list[str]] = {}
    for stored in sorted(file for file in store.glob("*/*/session.jsonl*") if file.name in _STORED):
        header = stored_header(str(stored))
        if header is not None and header.is_tree_child:
            children.setdefault(cast("str", header.parent_session), []).append(str(stored))
    found: list[LogFile] = []
    waiting = [root.header.id]
    while waiting:
        logs = [_read(path) for path in children.pop(waiting.pop(), [])]
        found += logs
        waiting += [log.header.id for log in logs]
    return found


def stored_header(path: str) -> SessionHeader | None:
    """Return the header of a stored log, None when the file does not begin with one."""
    try:
        line = _first_line(path)
        return from_header_line(line)[0] if line is not None else read_log(path).header
    except (ArtifactError, OSError):
        return None


def _first_line(path: str) -> bytes | None:
    """Return the first line of a plain log without its end, None for any other file."""
    if os.path.basename(path) != FILE_NAMES["jsonl"]:
        return None
    with open(path, "rb") as file:
        line = file.readline(_HEADER_LIMIT)
    return line.rstrip(b"\r\n") if line.startswith(b"{") else None


# --- what cannot be replayed -----------------------------------------------------------------------------


def reason_against(log: LogFile) -> NotReplayable | None:
    """Return why a recorded log cannot drive a loop, None when it can."""
    if "version" not in raw_members(log.header_line):
        return "header-without-version"
    types: set[str] = set()
    for event in log.events.without_chunks():
        if _is_old_shape(event):
            return "old-shapes"
        types.add(event.type)
    if "turn/start" not in types:
        return "no-turns"
    return None if "agent/inbox/spliced" in types else "no-inbox"


_LACKED: Final = {
    "user/message": ("id", "role"),
    "assistant/message": ("message",),
    "tool/result": ("message",),
}
"""Event type -> the members that its old shape lacks."""


def _is_old_shape(event: Event) -> bool:
    if event.type == "steering/message":
        return True
    if event.type != "turn/start" and event.type not in _LACKED:
        return False
    value = event.value
    payload = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if event.type == "turn/start":
        return "trigger" in payload
    return any(name not in payload for name in _LACKED[event.type])
