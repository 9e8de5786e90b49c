"""A forked child answers with its own words, and the cut is what makes it so.

Each check runs twice: as it is, and with the one function that slices by the cut switched off. The second
run must fail, or the first would prove nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedline.replay.script import load_session_scripts, parse_recording
from seedline.session import lineage
from seedline.session.sequence import Events
from seedline.session.tree import RecordedSession
from tests.conformance.corpus import CORPUS, expected, read_json, read_lines

FORK_IN_PROCESS = "examples/acp-agent/tests/snapshots/subagent-fork-in-process"
FAULT = CORPUS / "faults" / "05-fork-usage-counted-once"


def read(path: Path) -> RecordedSession:
    return parse_recording(b"\n".join(read_lines(path)), path.parent.name + "/" + path.name)


def pairs() -> list[Any]:
    """A parent's file and its forked child's: recorded, written by dsh's backend, and made by hand."""
    recorded = CORPUS / "recorded" / "logs" / FORK_IN_PROCESS
    found = [pytest.param(recorded / "session.jsonl", recorded / "session.1.jsonl", id="fork-in-process")]
    for form in ("none-packed", "none-unpacked", "zstd-packed"):
        folders = CORPUS / "written" / "fork" / form / "--work-project--"
        files = {path.parent.name: path for path in folders.glob("*/session.jsonl*")}
        grandchild = next(name for name in files if name.startswith("grandchild"))
        for parent, child in (("parent-1", "child-1"), ("parent-1", "child-2"), ("child-1", grandchild)):
            found.append(pytest.param(files[parent], files[child], id=f"{form}-{child}"))
    for parent, child in (("parent", "child-fork"), ("child-fork", "grandchild-fork")):
        found.append(pytest.param(FAULT / f"{parent}.jsonl", FAULT / f"{child}.jsonl", id=child))
    return found


def own_chunks(path: Path) -> list[Any]:
    """The chunks after the cut, unpacked and sliced here, by nothing but the standard library."""
    head, *rows = [json.loads(line) for line in read_lines(path) if line.strip()]
    chunks: list[Any] = []
    seq = 0
    for row in rows:
        members = [row["data"]["chunk"]] if row["type"] == "assistant/chunk" else unpacked(row)
        count = len(members) or 1
        chunks += members[max(0, head["seedLength"] - seq) :]
        seq += count
    return chunks


def unpacked(row: Any) -> list[Any]:
    """The chunks of a packed row; none of any other row."""
    if not row["type"].endswith("-chunks"):
        return []
    data, kind = row["data"], row["type"].removesuffix("s").replace("chunk", "delta")
    head = {"type": kind, "index": data["index"]}
    if "texts" in data:
        return [{**head, "text": text} for text in data["texts"]]
    call = {name: data[name] for name in ("id", "name") if name in data}
    return [{**head, **call, "argumentsDelta": part} for part in data["args"]]


def child_answers_in_its_own_words(parent: Path, child: Path) -> None:
    sessions = [read(parent), read(child)]
    scripts = {script.session: script for script in load_session_scripts(sessions)}
    entries = scripts[sessions[1]].entries
    played = [json.loads(chunk) for entry in entries for chunk in entry.chunks]
    assert played == own_chunks(child)


def no_slice(events: Events, inherited_event_count: int) -> Events:
    return events


@pytest.mark.parametrize(("parent", "child"), pairs())
def test_a_forked_child_is_answered_from_its_own_events(parent: Path, child: Path) -> None:
    child_answers_in_its_own_words(parent, child)


@pytest.mark.parametrize(("parent", "child"), pairs())
def test_without_the_slice_the_child_says_what_its_parent_said(
    parent: Path, child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "own", no_slice)
    with pytest.raises(AssertionError):
        child_answers_in_its_own_words(parent, child)
    scripts = load_session_scripts([read(parent), read(child)])
    parents_first, childs_first = (tuple(script.entries[0].chunks) for script in scripts)
    assert childs_first == parents_first


def test_the_recorded_fork_has_one_call_of_its_own_and_two_with_its_parents() -> None:
    """Cut 42 of 99 events, as dsh recorded it."""
    child = read(CORPUS / "recorded" / "logs" / FORK_IN_PROCESS / "session.1.jsonl")
    assert (child.inherited_event_count, len(child.events)) == (42, 99)
    assert child.events[41].type == "turn/end"
    assert child.events[42].type == "session/end-seed"
    name = f"{FORK_IN_PROCESS}/session.1.jsonl"
    [entry] = [e for e in read_json("recorded", "index.json")["logs"] if e["path"] == name]
    replay = expected(entry)["replay"]
    assert (replay["ownOnly"]["entries"], replay["asPrimary"]["entries"]) == (1, 2)
