"""`seedline script`: what a replay of one tree of sessions would answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import typer

from seedline.cli.answer import Answer, attempt_all
from seedline.cli.documents import ScriptDocument, ScriptFigures
from seedline.cli.people import Block, Columns
from seedline.replay.overrides import Override, read_override
from seedline.replay.script import SessionScript, load_session_scripts, refuse_unfinished
from seedline.session.tree import ROOT_KEY, RecordedSession
from seedline.storage.jsonl.file import check_identity, read_log

_KEYED: Final = re.compile(r"(0(?:/(?:t\d+\.s\d+\.c\d+\.n\d+|h\d+\.\d+|\?\d+))*)=(.*)", re.DOTALL)


def script_of_files(paths: Sequence[str], overrides: Sequence[str]) -> Answer:
    """Return the script of each file's session; the first file holds the root.

    Raises `FailedError` naming every file that cannot be read, else every unfinished call that no sidecar
    replaces, and `LineageError` when the files form no tree or a key names none of them.
    """
    places = sidecar_places(overrides)
    sessions = attempt_all(_recorded, paths)
    sidecars = dict(zip(places, attempt_all(_sidecar, places.values()), strict=True))
    scripts = load_session_scripts(sessions, sidecars, primary=sessions[0], unfinished="cut")
    attempt_all(lambda script: refuse_unfinished(script.entries), scripts, lambda script: script.session.name)
    document: ScriptDocument = {"sessions": [_figures(script) for script in scripts]}
    return Answer(document, _people(document))


def _recorded(path: str) -> RecordedSession:
    log = read_log(path)
    check_identity(path, log.header)
    return RecordedSession(log.header, log.inherited_event_count, log.events, path)


def sidecar_places(options: Sequence[str]) -> dict[str, str]:
    """Return lineage key -> file of `[KEY=]FILE` options; without a key the root's.

    Raises `typer.BadParameter` for two files for one key.
    """
    places: dict[str, str] = {}
    for option in options:
        keyed = _KEYED.fullmatch(option)
        key, path = keyed.groups() if keyed else (ROOT_KEY, option)
        if key in places:
            raise typer.BadParameter(f"two sidecars for the session {key}", param_hint="'--override'")
        places[key] = path
    return places


def _sidecar(path: str) -> Override:
    return read_override(Path(path).read_bytes(), path)


def _figures(script: SessionScript) -> ScriptFigures:
    return {
        "path": script.session.name,
        "recordedId": script.session.header.id,
        "key": script.key,
        "grade": script.grade,
        "entries": len(script.entries),
        "chunkCounts": script.chunk_counts,
        "digest": script.digest,
    }


def _people(document: ScriptDocument) -> Iterator[Block]:
    yield Columns(
        ("key", "grade", "calls", "chunks", "session", "file"),
        [
            (
                each["key"] or "outside",
                each["grade"],
                str(each["entries"]),
                str(sum(each["chunkCounts"])),
                each["recordedId"],
                each["path"],
            )
            for each in document["sessions"]
        ],
    )
