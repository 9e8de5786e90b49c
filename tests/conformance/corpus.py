"""Where the corpus lies, and its files as values.

The corpus is `$SEEDLINE_CORPUS`, else `../shared/corpus` beside the repository. Without it a module that
imports this one is skipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import zstandard

from seedline.events.codec import canonical_event, read_row
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset, from_header_line
from seedline.session.sequence import Events, Segment
from tests.project import ROOT

CORPUS = Path(os.environ.get("SEEDLINE_CORPUS") or ROOT.parent / "shared" / "corpus")
if not (CORPUS / "README.md").is_file():
    pytest.skip("no corpus: set SEEDLINE_CORPUS", allow_module_level=True)


def read_json(*parts: str) -> Any:
    """The JSON document at a path inside the corpus."""
    return json.loads(CORPUS.joinpath(*parts).read_bytes())


def read_lines(path: Path) -> list[bytes]:
    """The lines of a log, plain or zstd."""
    if path.suffix != ".zstd":
        return path.read_bytes().split(b"\n")[:-1]
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return text.split(b"\n")[:-1]


@cache
def read_log(path: Path) -> tuple[SessionHeader, SessionLogOffset, Events]:
    """The header, the cut and the events of an undamaged log, complete or projected. Read once."""
    head, *lines = read_lines(path)
    header, cut = from_header_line(head, projected=True)
    segment = Segment()
    for line in filter(None, lines):
        segment.append(read_row(line, segment.length))
    return header, cut, Events((segment,), 0, segment.length)


def recorded(group: str | None = None) -> list[Any]:
    """The recorded logs of a group, each as a test parameter holding its index entry."""
    entries = read_json("recorded", "index.json")["logs"]
    return [pytest.param(e, id=e["path"]) for e in entries if group in (None, e["group"])]


def recorded_log(entry: Any) -> tuple[SessionHeader, SessionLogOffset, Events]:
    return read_log(CORPUS / "recorded" / "logs" / entry["path"])


def expected(entry: Any) -> Any:
    """What dsh's own code said of a recorded log."""
    return read_json("recorded", "expected", entry["expected"])


def written(prefix: str) -> list[Any]:
    """The entries of the written corpus whose case begins so, as test parameters."""
    entries = read_json("written", "manifest.json")
    return [pytest.param(e, id=e["case"]) for e in entries if e["case"].startswith(prefix)]


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def events_digest(events: Iterable[Event]) -> str:
    """The digest of an event list: one canonical line for each, joined by line feeds."""
    return digest(b"\n".join(map(canonical_event, events)))
