"""The commands over the recorded logs and the listed faults, against figures that dsh's own code computed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seedline.ids import project_key
from tests.cli.commands import Commands

CORPUS = Path(os.environ.get("SEEDLINE_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
RECORDED = CORPUS / "recorded"
LOGS = RECORDED / "logs"
FAULTS = CORPUS / "faults"

pytestmark = pytest.mark.skipif(
    not LOGS.is_dir(), reason="the corpus of recorded logs is not on this machine"
)


def read_index(name: str) -> list[dict[str, Any]]:
    index = RECORDED / "index.json"
    return json.loads(index.read_bytes())[name] if index.is_file() else []


INDEX = read_index("logs")
SCENARIOS = read_index("scenarios")


def expected_of(entry: dict[str, Any]) -> dict[str, Any]:
    return json.loads((RECORDED / "expected" / entry["expected"]).read_bytes())


def log_id(entry: dict[str, Any]) -> str:
    return entry["path"].removesuffix(".jsonl")


every_log = pytest.mark.parametrize("entry", INDEX, ids=log_id)


def test_the_corpus_is_whole() -> None:
    assert len(INDEX) == 106
    assert len(SCENARIOS) == 79


@every_log
def test_inspect_gives_the_expected_figures(entry: dict[str, Any], seedline: Commands) -> None:
    expected, path = expected_of(entry), LOGS / entry["path"]
    document = seedline.json("inspect", path)
    assert document["path"] == str(path)
    assert (document["layout"], document["encoding"]) == (expected["layout"], "jsonl")
    assert document["header"] == header_of(expected["header"]["raw"])
    assert document["inheritedEventCount"] == entry["seedLength"]
    assert document["events"] == expected["events"]["count"]
    assert document["ownEvents"] == expected["events"]["count"] - entry["seedLength"]
    assert document["typeCounts"] == expected["events"]["typeCounts"]
    assert list(document["typeCounts"]) == sorted(document["typeCounts"])
    assert document["digest"] == expected["events"]["canonicalSha256"]
    assert document["torn"] is None
    assert figure(document["messages"], "count", "roles", "digest") == figure(
        expected["messages"], "count", "roles", "canonicalSha256"
    )
    assert figure(document["surface"], "nodes", "replacements") == figure(
        expected["surface"], "nodes", "replacements"
    )
    closers = document["closers"]
    assert ("error" if "error" in closers else closers) == figure(expected["closers"], "types")


def header_of(raw: dict[str, Any]) -> dict[str, Any]:
    """The members of a recorded header that a logical header shows."""
    known = {"version", "id", "createdAt", "cwd", "parentSession", "origin", "delegationDepth", "agentPreset"}
    return {name: raw[name] for name in raw if name in known} | {"isSeeded": "seedLength" in raw}


def figure(value: dict[str, Any], *names: str) -> Any:
    """The named members of a figure, the only one bare, or `error`."""
    if "error" in value:
        return "error"
    found = [value[name] for name in names]
    return found if found[1:] else found[0]


@every_log
def test_an_error_in_place_of_a_figure_names_kind_and_seq(entry: dict[str, Any], seedline: Commands) -> None:
    document = seedline.json("inspect", LOGS / entry["path"], "--no-digest")
    assert document["digest"] is None
    assert document["messages"].get("digest") is None
    for figure in (document["messages"], document["surface"], document["closers"]):
        if "error" in figure:
            assert set(figure["error"]) == {"kind", "seq", "message"}
            assert isinstance(figure["error"]["seq"], int)


@every_log
def test_script_gives_the_expected_entries_of_the_own_part(entry: dict[str, Any], seedline: Commands) -> None:
    replay, path = expected_of(entry)["replay"], LOGS / entry["path"]
    own = replay["asPrimary"] if replay["ownOnly"] == "same-as-primary" else replay["ownOnly"]
    ran = seedline("script", path, "--json")
    if "error" in own:
        assert own["error"]["kind"] == "no-finish-chunk"
        assert ran.code == 3
        error = ran.document["error"]
        assert (error["kind"], error["path"]) == ("unfinished-call", str(path))
        assert {"turn", "step"} <= set(error)
        return
    assert ran.code == 0
    [session] = ran.document["sessions"]
    found = session["entries"], session["chunkCounts"], session["digest"]
    assert found == (own["entries"], own["chunkCounts"], own["canonicalSha256"])
    assert (session["path"], session["key"], session["grade"]) == (str(path), "0", "exact")


# Three scenarios are a sidecar alone: there is no log to name.
@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in SCENARIOS if (LOGS / scenario["dir"] / "session.jsonl").is_file()],
    ids=lambda scenario: scenario["dir"],
)
def test_script_of_a_whole_scenario(scenario: dict[str, Any], seedline: Commands) -> None:
    folder = LOGS / scenario["dir"]
    files = [folder / name for name in ("session.jsonl", *scenario["children"])]
    sidecar = ["--override", folder / "replay.override.json"] if scenario["override"] else []
    ran = seedline("script", *files, *sidecar, "--json")
    if "error" in scenario:
        assert ran.code == 3
        return
    assert ran.code == 0, ran
    found = [(s["recordedId"], s["entries"], s["digest"]) for s in ran.document["sessions"]]
    assert found == [(s["recordedId"], s["entries"], s["canonicalSha256"]) for s in scenario["scripts"]]
    assert ran.document["sessions"][0]["key"] == "0"


@every_log
def test_the_projected_packed_form_of_a_recording_is_its_bytes(
    entry: dict[str, Any], seedline: Commands, tmp_path: Path
) -> None:
    path, target = LOGS / entry["path"], tmp_path / "out.jsonl"
    assert expected_of(entry)["reencode"]["projectedPackedEqualsFile"]
    seedline.json("convert", path, target, "--layout", "projected", "--packing", "packed")
    assert target.read_bytes() == path.read_bytes()


@every_log
def test_a_recording_survives_every_other_form(
    entry: dict[str, Any], seedline: Commands, tmp_path: Path
) -> None:
    path = source = LOGS / entry["path"]
    forms = [
        ("complete", "unpacked", "jsonl"),
        ("complete", "packed", "zstd"),
        ("projected", "packed", "jsonl"),
    ]
    for number, (layout, packing, encoding) in enumerate(forms):
        target = tmp_path / f"{number}.log"
        options = ("--layout", layout, "--packing", packing, "--encoding", encoding)
        written = seedline.json("convert", source, target, *options)
        assert (written["layout"], written["packing"], written["encoding"]) == (layout, packing, encoding)
        source = target
    header, *rows = path.read_bytes().splitlines()
    found_header, *found_rows = source.read_bytes().splitlines()
    assert found_rows == rows
    # A complete log states what a recording may leave out.
    assert json.loads(found_header) == {"version": 0, "delegationDepth": 0} | json.loads(header)


# --- the faults ----------------------------------------------------------------------------------


def fault(name: str) -> Path:
    [folder] = FAULTS.glob(f"{name}-*")
    return folder


def expectation(name: str) -> dict[str, Any]:
    return json.loads((fault(name) / "expect.json").read_bytes())


@pytest.mark.parametrize(("letter", "reason"), [("a", "unparsable"), ("b", "missing-newline")])
def test_01_a_torn_last_line_is_reported_and_nothing_changes(
    letter: str, reason: str, seedline: Commands, tmp_path: Path
) -> None:
    path, expected = fault("01") / f"session-{letter}.jsonl", expectation("01")[letter]
    before = path.read_bytes()
    document = seedline.json("inspect", path)
    assert document["events"] == expected["complete_events"]
    assert document["closers"] == expected["closers"]
    torn = expected.get("torn_bytes", 0)
    assert document["torn"] == {"offset": len(before) - torn, "bytes": torn, "reason": reason}
    checked = seedline("verify", path, "--json")
    assert checked.code == 5
    assert [problem["kind"] for problem in checked.document["files"][0]["problems"]] == ["torn"]

    converted = seedline("convert", path, tmp_path / "good.jsonl", "--packing", "unpacked", "--json")
    assert converted.code == 0
    assert converted.document["events"] == expected["complete_events"]
    assert ("228 torn bytes" in converted.err) is (torn > 0)
    whole_rows = before[: len(before) - torn].splitlines()
    assert (tmp_path / "good.jsonl").read_bytes().splitlines() == whole_rows

    repaired = seedline.json("repair", path, tmp_path / "mended.jsonl")
    assert repaired["appended"] == expected["closers"]
    assert [each["bytes"] for each in repaired["dropped"]] == ([torn] if torn else [])
    mended = seedline.json("inspect", tmp_path / "mended.jsonl")
    assert mended["events"] == expected["next_seq_after_repair"]
    assert (mended["closers"], mended["torn"]) == ([], None)
    assert path.read_bytes() == before


@pytest.mark.parametrize("verb", ["inspect", "script"])
def test_03_two_writers_are_an_error_naming_the_line(verb: str, seedline: Commands) -> None:
    path, expected = fault("03") / "session.jsonl", expectation("03")
    ran = seedline(verb, path, "--json")
    assert ran.code == 5
    error = ran.document["error"]
    assert (error["kind"], error["path"], error["line"]) == ("corrupt", str(path), expected["error_line"])
    assert f"seq {expected['got_seq']} where {expected['expected_seq']} follows" in error["message"]
    assert "two writers" in error["message"]
    assert seedline(verb, path).err == f"seedline: {error['message']}\n"


def test_03_repair_leaves_the_empty_marker_out_and_renumbers_nothing(
    seedline: Commands, tmp_path: Path
) -> None:
    path = fault("03") / "session.jsonl"
    document = seedline.json("repair", path, tmp_path / "mended.jsonl")
    assert document["events"] == expectation("03")["events_without_marker"]
    assert [each["line"] for each in document["dropped"]] == [15]
    lines = path.read_bytes().splitlines(keepends=True)
    assert (tmp_path / "mended.jsonl").read_bytes() == b"".join(lines[:14] + lines[15:])
    assert seedline("verify", tmp_path / "mended.jsonl").code == 0


def test_05_a_forked_childs_own_events_and_calls_are_counted_alone(seedline: Commands) -> None:
    folder = fault("05")
    cuts = {"parent": 0, "child-fork": 13, "grandchild-fork": 25, "child-spawn": 0}
    for name, cut in cuts.items():
        document = seedline.json("inspect", folder / f"{name}.jsonl")
        assert document["inheritedEventCount"] == cut
        assert document["ownEvents"] == document["events"] - cut
        assert document["header"]["isSeeded"] is (cut > 0)
    document = seedline.json("script", *(folder / f"{name}.jsonl" for name in cuts))
    assert (
        sum(session["entries"] for session in document["sessions"]) == expectation("05")["requests_in_tree"]
    )


def test_13_lone_surrogates_come_through_every_verb(seedline: Commands, tmp_path: Path) -> None:
    path = fault("13") / "session.jsonl"
    assert seedline("verify", path).code == 0
    figures = seedline.json("inspect", path)
    for form in (("projected", "packed", "zstd"), ("complete", "unpacked", "jsonl")):
        target = tmp_path / form[2]
        seedline.json(
            "convert", path, target, "--layout", form[0], "--packing", form[1], "--encoding", form[2]
        )
    assert json_lines(tmp_path / "jsonl") == json_lines(path)
    again = seedline.json("inspect", tmp_path / "jsonl")
    assert again | {"path": figures["path"]} == figures


def json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_15_a_reused_call_id_is_closed_once_and_for_its_own_step(seedline: Commands, tmp_path: Path) -> None:
    folder = fault("15")
    assert seedline.json("inspect", folder / "a-across-steps.jsonl")["closers"] == []
    assert len(seedline.json("script", folder / "a-across-steps.jsonl")["sessions"][0]["chunkCounts"]) == 4
    closers = seedline.json("inspect", folder / "b-open-turn.jsonl")["closers"]
    assert closers.count("tool/result") == expectation("15")["b_unanswered_calls"]
    assert seedline.json("repair", folder / "b-open-turn.jsonl", tmp_path / "b")["appended"] == closers


def test_17_a_file_in_the_folder_of_another_session_is_refused(seedline: Commands, tmp_path: Path) -> None:
    outside = fault("17") / "header-mismatch" / "wanted-id" / "session.jsonl"
    assert seedline("inspect", outside).code == 0
    log = outside.read_bytes()
    project = project_key(json.loads(log.splitlines()[0])["cwd"])
    for folder, code in {"wanted-id": 5, "other-id": 0}.items():
        path = tmp_path / project / folder / "session.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(log)
        for verb in ("inspect", "script", "verify"):
            assert seedline(verb, path).code == code, (folder, verb)
    path = tmp_path / project / "wanted-id" / "session.jsonl"
    error = seedline("inspect", path, "--json").document["error"]
    assert (error["kind"], error["path"]) == ("identity-mismatch", str(path))


def test_17_two_files_of_one_session_are_no_tree(seedline: Commands) -> None:
    twins = sorted((fault("17") / "twins").glob("*/twin/session.jsonl"))
    ran = seedline("script", *twins, "--json")
    assert ran.code == 3
    error = ran.document["error"]
    assert error["kind"] == "lineage"
    assert all(str(path) in error["message"] for path in twins)


# --- files that dsh itself wrote -----------------------------------------------------------------

WRITTEN = CORPUS / "written"


def written_files() -> list[dict[str, Any]]:
    """Each undamaged file with what dsh read from it."""
    manifest = WRITTEN / "manifest.json"
    cases = json.loads(manifest.read_bytes()) if manifest.is_file() else []
    groups = [
        group | {"closers": case.get("closers", [])}
        for case in cases
        for group in (case.get("variants") or case.get("sessions") or {}).values()
    ]
    return [group for group in groups if "file" in group]


@pytest.mark.parametrize("written", written_files(), ids=lambda written: written["file"]["path"])
def test_a_file_that_dsh_wrote_gives_the_figures_that_dsh_read(
    written: dict[str, Any], seedline: Commands, tmp_path: Path
) -> None:
    path = WRITTEN / written["file"]["path"]
    document = seedline.json("inspect", path)
    stored = written["probe"]["readFrom0"]
    assert (document["events"], document["digest"]) == (stored["events"], stored["canonicalSha256"])
    assert document["encoding"] == ("zstd" if path.suffix == ".zstd" else "jsonl")
    assert document["closers"] == [closer["type"] for closer in written["closers"]]
    if "messages" in written:
        messages = document["messages"]
        assert (messages["count"], messages["digest"]) == (written["messages"], written["messagesSha256"])
    if "replayOwn" in written:
        [script] = seedline.json("script", path)["sessions"]
        own = written["replayOwn"]
        assert (script["entries"], script["digest"]) == (own["entries"], own["canonicalSha256"])
        assert document["inheritedEventCount"] == own["seedLength"]
    for form in ("complete", "projected"):
        target = tmp_path / form
        seedline.json("convert", path, target, "--layout", form, "--packing", "unpacked")
        again = seedline.json("inspect", target)
        assert again["typeCounts"] == document["typeCounts"]
        assert again["messages"] == document["messages"]
    assert seedline.json("inspect", tmp_path / "complete")["digest"] == document["digest"]


DAMAGED = sorted(
    path for name in ("jsonl", "jsonl.zstd") for path in WRITTEN.glob(f"torn/*/*/*/*/session.{name}")
)


@pytest.mark.parametrize("path", DAMAGED, ids=lambda path: path.relative_to(WRITTEN).as_posix())
def test_every_verb_answers_for_every_damaged_file(path: Path, seedline: Commands, tmp_path: Path) -> None:
    before = path.read_bytes()
    read = seedline("inspect", path, "--json")
    assert read.code in (0, 5)
    assert ("error" in read.document) is (read.code == 5)
    checked = seedline("verify", path, "--json").document["files"][0]
    torn = read.code == 0 and read.document["torn"] is not None
    assert checked["ok"] is (read.code == 0 and not torn)
    # Most of these logs end inside a model call, which is a refusal of its own.
    assert (seedline("script", path, "--json").code == 5) is (read.code == 5)
    converted = seedline("convert", path, tmp_path / "converted", "--json")
    assert converted.code == read.code
    assert (tmp_path / "converted").exists() is (read.code == 0)
    mended = seedline("repair", path, tmp_path / "mended", "--json")
    assert mended.code in (0, 5)
    if mended.code == 0:
        assert seedline("verify", tmp_path / "mended").code == 0
        after = seedline.json("inspect", tmp_path / "mended")
        assert after["closers"] == []
        assert after["events"] == mended.document["events"] + len(mended.document["appended"])
    assert path.read_bytes() == before
