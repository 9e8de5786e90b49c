"""The scripts and the tree of every recorded log, beside what dsh's own code derived."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from seedline.errors import UnfinishedCallError
from seedline.replay.entries import ScriptEntry, chunk_counts, kind_of, script_digest
from seedline.replay.overrides import Override, apply_override, read_override
from seedline.replay.script import (
    derive_replay_script,
    load_session_scripts,
    parse_recording,
    recorded_tree,
)
from seedline.session.sequence import Events
from seedline.session.tree import Node, RecordedSession
from tests.conformance.corpus import CORPUS, expected, read_json, read_lines, recorded, written

LOGS = CORPUS / "recorded" / "logs"

# The step is read off the files: each holds one call, in its first step.
UNFINISHED = {
    "examples/acp-agent/tests/snapshots/cancel/session.jsonl": (1, 1),
    "packages/test-support/acp-snapshot/tests/fixtures/suite/plain-turn/session.jsonl": (1, 1),
}


@cache
def recording(name: str) -> RecordedSession:
    """One recorded log of the corpus, by its path below `recorded/logs`."""
    return parse_recording(LOGS.joinpath(name).read_bytes(), name)


def answer(events: Events) -> Any:
    """A script as the corpus describes one; of an unfinished call its turn and step."""
    try:
        entries = derive_replay_script(events)
    except UnfinishedCallError as error:
        return error.turn, error.step
    return summary(entries)


def summary(entries: Sequence[ScriptEntry]) -> dict[str, Any]:
    return {
        "entries": len(entries),
        "chunkCounts": chunk_counts(entries),
        "canonicalSha256": script_digest(entries),
    }


# --- every log -------------------------------------------------------------------------------------------


def wanted(entry: Any, script: Any) -> Any:
    return UNFINISHED[entry["path"]] if "error" in script else script


@pytest.mark.parametrize("entry", recorded())
def test_the_script_of_a_log_with_and_without_its_inherited_part(entry: Any) -> None:
    session = recording(entry["path"])
    right = expected(entry)["replay"]
    assert session.inherited_event_count == right["seedLength"]
    whole = wanted(entry, right["asPrimary"])
    own = whole if right["ownOnly"] == "same-as-primary" else wanted(entry, right["ownOnly"])
    assert answer(session.events) == whole
    assert answer(session.own) == own


@pytest.mark.parametrize("entry", recorded())
def test_the_header_is_read_as_dsh_reads_it(entry: Any) -> None:
    session = recording(entry["path"])
    right = expected(entry)["header"]["parseSessionHeader"]
    assert (session.header.id, session.header.created_at) == (right["id"], right["createdAt"])
    assert session.inherited_event_count == right["seedLength"]
    assert len(session.events) == entry["events"]


@pytest.mark.parametrize("name", sorted(UNFINISHED))
def test_an_unfinished_call_is_a_cut_stream_when_asked_for(name: str) -> None:
    [cut] = derive_replay_script(recording(name).own, unfinished="cut")
    assert kind_of(cut) == "cut"


def test_a_cancelled_call_says_that_it_was_cancelled() -> None:
    [cut] = derive_replay_script(
        recording("examples/acp-agent/tests/snapshots/cancel/session.jsonl").own, unfinished="cut"
    )
    assert kind_of(cut) == "cut"
    assert cut.reason is not None  # type: ignore[union-attr]  # the kind is checked above
    assert cut.reason.kind == "aborted"  # type: ignore[union-attr]  # the kind is checked above


@pytest.mark.parametrize("entry", written("direct/"))
def test_plain_packed_and_compressed_files_of_one_log_give_one_script(entry: Any) -> None:
    answers = [
        answer(
            parse_recording(
                b"\n".join(read_lines(CORPUS / "written" / variant["file"]["path"])), variant["id"]
            ).own
        )
        for variant in entry["variants"].values()
    ]
    assert len(answers) > 1
    assert all(one == answers[0] for one in answers)


# --- scenarios -------------------------------------------------------------------------------------------

SCENARIOS = [pytest.param(s, id=s["dir"]) for s in read_json("recorded", "index.json")["scenarios"]]


def sidecar(scenario: Any) -> dict[str, Override]:
    if not scenario["override"]:
        return {}
    path = LOGS / scenario["dir"] / "replay.override.json"
    return {"0": read_override(path.read_bytes(), str(path))}


def sessions_of(scenario: Any) -> list[RecordedSession]:
    names = ["session.jsonl", *scenario["children"]]
    return [
        recording(f"{scenario['dir']}/{name}") for name in names if (LOGS / scenario["dir"] / name).is_file()
    ]


def described(
    entries: Sequence[ScriptEntry], primary: bool, session: RecordedSession | None
) -> dict[str, Any]:
    return {
        "recordedId": session.header.id if session else "",
        "createdAt": session.header.created_at if session else 0,
        "primary": primary,
        "entries": len(entries),
        "kinds": [kind_of(entry) for entry in entries],
        "canonicalSha256": script_digest(entries),
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_scripts_of_a_scenario_in_their_order(scenario: Any) -> None:
    sessions, overrides = sessions_of(scenario), sidecar(scenario)
    if not sessions:  # the sidecar alone is the script
        assert [described(apply_override([], overrides["0"]), True, None)] == scenario["scripts"]
        return
    if "error" in scenario:
        with pytest.raises(UnfinishedCallError, match="turn 1, step 1"):
            load_session_scripts(sessions, overrides)
        return
    scripts = load_session_scripts(sessions, overrides)
    found = [described(s.entries, s.key == "0", s.session) for s in scripts]
    assert found == scenario["scripts"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_depth_first_order_of_keys_is_the_numbering_of_the_files(scenario: Any) -> None:
    sessions = sessions_of(scenario)
    if not sessions:
        return
    # Twins take their calls in the order given, so only theirs is kept.
    given = sessions if scenario["dir"].endswith("/subagent-parallel") else sessions[::-1]
    names = [node.session.name for node in recorded_tree(given, sessions[0]).primary.walk()]
    assert names == [session.name for session in sessions if session.name in names]


# --- links and figures -------------------------------------------------------------------------------------


def table(name: str) -> list[dict[str, str]]:
    with CORPUS.joinpath(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


LINKS = [row for row in table("links.tsv") if (LOGS / row["folder"] / row["child_log"]).is_file()]


@cache
def nodes_of(folder: str) -> dict[str, Node]:
    files = sorted(LOGS.joinpath(folder).glob("session*.jsonl"), key=lambda path: len(path.name))
    tree = recorded_tree([recording(f"{folder}/{path.name}") for path in files])
    return {node.session.name.rpartition("/")[2]: node for node in (*tree.primary.walk(), *tree.outside())}


def test_seventeen_child_logs_are_here() -> None:
    assert len(LINKS) == 17


@pytest.mark.parametrize("link", [pytest.param(r, id=f"{r['folder']}/{r['child_log']}") for r in LINKS])
def test_a_child_is_found_by_the_method_that_the_study_found_it_by(link: dict[str, str]) -> None:
    nodes = nodes_of(link["folder"])
    node = nodes[link["child_log"]]
    assert node.method == link["method"]
    assert node.session.inherited_event_count == int(link["seed"])
    entries = derive_replay_script(node.session.own)
    assert len(entries) == int(link["model_calls"])
    if node.place is None:
        assert (node.grade, link["creating_call"]) == ("ordered", "-")
        return
    place: Any = node.place
    creating = {place.call_id, f"{place.call_id}#{place.n + 1}"}
    assert creating & set(link["creating_call"].split("|"))
    assert node in nodes[link["parent_log"]].children
    assert node.key.count("/") == int(link["depth"])


def test_the_grades_of_the_child_logs_add_up() -> None:
    nodes = [nodes_of(row["folder"])[row["child_log"]] for row in LINKS]
    assert Counter(node.grade for node in nodes) == {"recovered": 12, "twins": 2, "ordered": 3}


def test_twins_take_the_two_calls_of_one_message_in_the_order_of_their_files() -> None:
    nodes = nodes_of("examples/acp-agent/tests/snapshots/subagent-parallel")
    keys = [nodes[f"session.{k}.jsonl"].key for k in (1, 2)]
    assert keys == ["0/t1.s1.c0.n0", "0/t1.s1.c1.n0"]


def figures() -> list[Any]:
    """The rows of the table whose logs are all here: counted from `session.jsonl` and its children."""
    rows: list[Any] = []
    for row in table("scenarios.tsv"):
        files = [*LOGS.joinpath(row["path"]).glob("session*.jsonl")]
        if row["expected_logs"] == "-" and len(files) == int(row["sessions"]):
            rows.append(pytest.param(row, id=row["path"]))
    return rows


@pytest.mark.parametrize("row", figures())
def test_the_calls_and_events_of_a_scenario_add_up_to_the_table(row: dict[str, str]) -> None:
    files = sorted(LOGS.joinpath(row["path"]).glob("session*.jsonl"))
    sessions = [recording(f"{row['path']}/{path.name}") for path in files]
    kinds = Counter(kind_of(e) for s in sessions for e in derive_replay_script(s.own, unfinished="cut"))
    assert kinds["chunks"] == int(row["model_calls"])
    assert kinds["cut"] == int(row["unterminated_groups"])
    assert sum(len(s.own) for s in sessions) == int(row["own_events"])
    assert sum(s.inherited_event_count for s in sessions) == int(row["seeded_events"])


# --- a tree of forks -----------------------------------------------------------------------------------


def test_forks_and_forks_of_forks_answer_with_their_own_calls_only() -> None:
    """Own model calls as `faults/05` counts requests: two, one, one and one."""
    folder = CORPUS / "faults" / "05-fork-usage-counted-once"
    names = ["parent", "child-fork", "grandchild-fork", "child-spawn"]
    sessions = {n: parse_recording((folder / f"{n}.jsonl").read_bytes(), n) for n in names}
    scripts = {s.session.name: s for s in load_session_scripts(list(sessions.values()))}
    assert {name: len(script.entries) for name, script in scripts.items()} == {
        "parent": 2,
        "child-fork": 1,
        "grandchild-fork": 1,
        "child-spawn": 1,
    }
    parent_key, child_key = scripts["child-fork"].key, scripts["grandchild-fork"].key
    assert parent_key is not None
    assert child_key is not None
    assert child_key.startswith(f"{parent_key}/")
    assert {script.grade for name, script in scripts.items() if name != "parent"} == {"ordered"}
