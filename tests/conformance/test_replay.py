"""The recorded logs drive the real loop and come out as they were; what cannot drive it says why."""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from seedline.events.event import Event
from seedline.snapshot.api import replay_tree
from seedline.snapshot.load import load_scenario
from seedline.snapshot.record import Record
from seedline.snapshot.report import ScenarioReport
from tests.conformance.corpus import CORPUS, expected, read_json, recorded

LOGS = CORPUS / "recorded" / "logs"
CURRENT = recorded("current")

# --- what the record hands in ------------------------------------------------------------------------------
#
# The table of replay derivability, section 5, as far as an event is fed whole. The loop makes all others.

ALWAYS_FED = {
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "command/done",
    "command/run",
    "compaction/end",
    "compaction/start",
    "compaction/summary",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "llm/retry",
    "llm/retry-started",
    "permission/preset",
    "sandbox/mode",
    "session/title",
    "session/title-llm-request",
    "subagent/descriptor",
    "todo/write",
    "tool-workflow/agent-end",
    "tool-workflow/agent-start",
    "tool-workflow/run-end",
    "tool-workflow/run-start",
    "tool/code-dispatch",
    "tool/code-dispatch-start",
}


def may_be_fed(event: Event) -> bool:
    """True for an event that the table lets the record hand in whole."""
    if event.type == "agent/inbox/spliced":  # an insertion or a cancel; a claim is derived
        return bool(event.value["inserted"]) or "outcome" in event.value
    if event.type == "user/message":  # one that replaces; none is outside a step
        return event.surface_op != "append"
    return event.type in ALWAYS_FED


def replay(path: Path) -> ScenarioReport:
    return replay_tree(path)


@pytest.mark.parametrize("entry", CURRENT)
def test_a_current_log_replays_identical(entry: Any) -> None:
    report = replay(LOGS / entry["path"])
    report.assert_identical()
    (session,) = report.sessions
    events = list(load_scenario(str(LOGS / entry["path"])).tree.primary.session.events)
    marks = [event.seq for event in events if event.type == "session/end-seed"]
    inherited = marks[-1] if marks else entry["seedLength"]
    fed = sum(may_be_fed(event) for event in events[inherited:])
    assert session.events == expected(entry)["events"]["count"] == entry["events"]
    assert (session.inherited, session.fed) == (inherited, fed)
    assert session.compared == session.events - inherited - fed
    assert (session.key, session.grade, session.reason) == ("0", "exact", None)


def test_all_of_them_are_seventy_five() -> None:
    assert len(CURRENT) == 75
    names = Counter(
        Path(parameter.values[0]["path"]).name.startswith("session.jsonl") for parameter in CURRENT
    )
    assert names.total() == 75


@pytest.mark.parametrize("entry", CURRENT)
def test_only_what_the_table_lists_is_fed(entry: Any) -> None:
    session = load_scenario(str(LOGS / entry["path"])).tree.primary.session
    record = Record(session.header, session.inherited_event_count, session.events)
    fed = {event.seq for event in session.events if event.seq >= record.start and record.is_fed(event.seq)}
    assert fed == {event.seq for event in session.events if event.seq >= record.start and may_be_fed(event)}


# --- what cannot be replayed -------------------------------------------------------------------------------
#
# Replay derivability, section 2: stubs are header lines without a version; legacy logs hold old message
# shapes or turns with a trigger; of script-only logs there are chunks or a header, no turn. Two of them also
# hold a message without id and role, an old shape, and of two reasons the first counts.

NOT_REPLAYABLE = {
    "stub": {"header-without-version": 12},
    "legacy": {"old-shapes": 8},
    "script-only": {"no-turns": 9, "old-shapes": 2},
}


def lacks_id_and_role(event: Event) -> bool:
    return event.type == "user/message" and not {"id", "role"} & event.value.keys()


@pytest.mark.parametrize("group", NOT_REPLAYABLE)
def test_the_other_groups_say_why_they_cannot_be_replayed(group: str) -> None:
    reasons: Counter[str | None] = Counter()
    for entry in (parameter.values[0] for parameter in recorded(group)):
        report = replay(LOGS / entry["path"])
        (session,) = report.sessions
        assert (report.status, session.status) == ("not-replayable", "not-replayable"), entry["path"]
        assert session.reason == report.reason
        assert session.events == entry["events"]
        assert (session.inherited, session.compared, session.fed, session.divergence) == (0, 0, 0, None)
        reasons[report.reason] += 1
        if group == "script-only":
            events = load_scenario(str(LOGS / entry["path"])).tree.primary.session.events
            assert (report.reason == "old-shapes") == any(map(lacks_id_and_role, events))
    assert reasons == NOT_REPLAYABLE[group]


def test_every_recorded_log_is_in_one_of_these_groups() -> None:
    groups = Counter(parameter.values[0]["group"] for parameter in recorded())
    assert groups == {"current": 75} | {
        group: sum(reasons.values()) for group, reasons in NOT_REPLAYABLE.items()
    }


# --- scenarios ---------------------------------------------------------------------------------------------

GRADES = {
    "prompt-unique": "recovered",
    "id-in-result": "recovered",
    "id-in-event": "recovered",
    "elimination": "recovered",
    "twins": "twins",
    "order-only": "ordered",
    "parent-not-in-folder": "ordered",
}
"""How the creating call of a child was found (`links.tsv`), and what that is worth."""


@cache
def links() -> dict[tuple[str, str], dict[str, str]]:
    with (CORPUS / "links.tsv").open(encoding="utf-8", newline="") as file:
        return {(row["folder"], row["child_log"]): row for row in csv.DictReader(file, delimiter="\t")}


def scenarios(*, with_children: bool) -> list[Any]:
    entries = read_json("recorded", "index.json")["scenarios"]
    folders = {
        entry["dir"]: entry
        for entry in entries
        if (LOGS / entry["dir"] / "session.jsonl").is_file()
        and (not with_children or any((LOGS / entry["dir"]).glob("session.[0-9]*.jsonl")))
    }
    return [pytest.param(entry, id=folder) for folder, entry in folders.items()]


@pytest.mark.parametrize("scenario", scenarios(with_children=True))
def test_a_folder_with_children_replays_as_one_tree(scenario: dict[str, Any]) -> None:
    folder = LOGS / scenario["dir"]
    report = replay(folder)
    groups = {entry["path"]: entry["group"] for entry in read_json("recorded", "index.json")["logs"]}
    assert len(report.sessions) == len(list(folder.glob("session*.jsonl")))
    for session in report.sessions:
        name = Path(session.path).name
        group = groups[f"{scenario['dir']}/{name}"]
        assert session.path == f"{folder}/{name}"
        assert session.status == ("identical" if group == "current" else "not-replayable")
        if name != "session.jsonl":
            link = links()[scenario["dir"], name]
            assert session.grade == GRADES[link["method"]]
    replayable = any(session.status == "identical" for session in report.sessions)
    assert report.status == ("identical" if replayable else "not-replayable")


def test_there_are_as_many_such_folders_as_children_were_studied() -> None:
    found = [entry.values[0]["dir"] for entry in scenarios(with_children=True)]
    children = [log for folder, log in links() if folder in found]
    assert len(children) == 17


CHUNKED_OTHERWISE = {"goal-multi-turn-actions"}
"""Folders whose sidecar streams the recorded answer in other pieces than the log has."""


@pytest.mark.parametrize("scenario", [s for s in scenarios(with_children=False) if s.values[0]["override"]])
def test_a_scenarios_own_sidecar_answers_like_its_log(scenario: dict[str, Any]) -> None:
    folder = LOGS / scenario["dir"]
    report = replay_tree(folder, overrides={"0": folder / "replay.override.json"})
    if report.status == "not-replayable":
        return
    if folder.name not in CHUNKED_OTHERWISE:
        report.assert_identical()
        return
    assert report.diverged is not None
    assert report.diverged.divergence is not None
    assert report.diverged.divergence.cause is not None
    assert report.diverged.divergence.cause.kind == "fed-input"
