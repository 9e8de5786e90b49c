"""The rules for children, held against recorded parents and children."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedline.events.event import Event
from seedline.session import lineage
from seedline.session.sequence import Events
from seedline.session.turns import completed_turn_prefix
from seedline.subagents.base import DESCRIPTOR_VERSION, select_output, text_of
from seedline.subagents.in_process import reason_that_counts, stop_reason
from tests.conformance.corpus import CORPUS, read_log

LOGS = CORPUS / "recorded" / "logs"


def children() -> list[Any]:
    """Parent and child of each one-shot delegation whose both logs have ids of their own."""
    pairs: list[Any] = []
    for path in sorted(LOGS.rglob("session.[0-9].jsonl")):
        header, cut, events = read_log(path)
        parent = next(
            (p for p in sorted(path.parent.glob("session*.jsonl")) if id_of(p) == header.parent_session), None
        )
        described = [e.value for e in lineage.own(events, cut) if e.type == "subagent/descriptor"]
        if (
            parent is not None
            and described
            and described[0]["mode"] == "one-shot"
            and "label" in described[0]
        ):
            pairs.append(pytest.param(parent, path, id=f"{path.parent.name}/{path.name}"))
    return pairs


def id_of(path: Path) -> str:
    return read_log(path)[0].id


def delegating_call(parent: Events, own: Events) -> Event:
    """The call whose task the child was given."""
    prompt = next(e.value for e in own if e.type == "agent/inbox/spliced")["inserted"][0]["content"][0][
        "text"
    ]
    calls = [event for event in parent if event.type == "tool/call"]
    return next(c for c in calls if json.loads(c.value["arguments"]).get("prompt") == prompt)


def result_of(parent: Events, call: Event) -> Any:
    results = [
        event for event in parent if event.type == "tool/result" and event.source_event_seqs == (call.seq,)
    ]
    return results[0].value["message"]["content"][0]


@pytest.mark.parametrize(("parent_path", "child_path"), children())
def test_a_recorded_child(parent_path: Path, child_path: Path) -> None:
    parent_header, parent_cut, parent = read_log(parent_path)
    header, cut, events = read_log(child_path)
    own = lineage.own(events, cut)
    call = delegating_call(lineage.own(parent, parent_cut), own)
    result = result_of(parent, call)

    assert header.depth == parent_header.depth + 1
    assert header.origin == "subagent"
    assert stop_reason(reason_that_counts(own), cancelled=False) == "completed"
    assert not result["isError"]
    assert text_of(select_output(own)) == "".join(block["text"] for block in result["content"])

    kinds = [event.type for event in own]
    at = kinds.index("subagent/descriptor")
    assert (kinds[at - 1], kinds[at + 1]) == ("agent/inbox/spliced", "step/start")
    descriptor = own[at].value
    assert descriptor["version"] == DESCRIPTOR_VERSION
    assert list(descriptor) == ["version", "mode", "provider", "label"]
    assert descriptor["label"] == json.loads(call.value["arguments"])["description"]
    assert cut == (completed_turn_prefix(parent[: call.seq]) if descriptor["provider"] == "fork" else 0)
    bodies = [(event.type, event.value) for event in events[:cut]]
    assert bodies == [(event.type, event.value) for event in parent[:cut]]


def test_the_corpus_holds_spawned_forked_nested_and_concurrent_children() -> None:
    found = [param.id for param in children()]
    names = (
        "subagent-fork-in-process",
        "subagent-spawn-in-process",
        "subagent-depth-two-rejection",
        "subagent-parallel",
    )
    assert {name: sum(name in found_id for found_id in found) for name in names} == {
        "subagent-fork-in-process": 1,
        "subagent-spawn-in-process": 2,
        "subagent-depth-two-rejection": 2,
        "subagent-parallel": 2,
    }


def test_a_recorded_child_whose_run_broke_says_nothing_and_counts_no_turn() -> None:
    [path] = LOGS.rglob("subagent-published-run-failure/session.1.jsonl")
    _, cut, events = read_log(path)
    own = lineage.own(events, cut)
    assert reason_that_counts(own) is None
    assert select_output(own) == ()
