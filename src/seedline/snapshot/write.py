"""From the sessions of one run to a scenario folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seedline.events.codec import encode_event
from seedline.replay.script import recorded_tree
from seedline.session.header import to_header_line
from seedline.session.log import Session
from seedline.session.tree import RecordedSession
from seedline.storage.jsonl.file import write_log


def write_scenario(folder: Path, sessions: Sequence[Session]) -> list[Path]:
    """Write a run as `session.jsonl` and `session.N.jsonl`, projected and packed; return the paths.

    The first session is the root. Children are numbered depth-first by lineage key, so numbers do not
    depend on clocks. Makes the folder; refuses to overwrite a file. Raises `ArtifactError` or `LineageError`.
    """
    recorded = {RecordedSession(s.header, s.inherited_event_count, s.events, s.id): s for s in sessions}
    tree = recorded_tree(list(recorded), next(iter(recorded)))
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, node in enumerate(tree.primary.walk()):
        session = node.session
        path = folder / ("session.jsonl" if number == 0 else f"session.{number}.jsonl")
        write_log(
            path,
            to_header_line(session.header, session.inherited_event_count),
            session.events,
            layout="projected",
            packed=True,
            encoding="jsonl",
            row_text=encode_event,
        )
        written.append(path)
    return written
