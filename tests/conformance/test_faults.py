"""The listed faults, as far as they concern reading one file.

What the commands print of them stands in `tests/cli`, folds and scripts beside this file; what a store with
writers does belongs to the tests of the stores.
"""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from seedline.errors import (
    IdentityMismatchError,
    SessionIdRefusedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import CHUNK, Event
from seedline.ids import encode_segment, project_key
from seedline.jsonvalue import encode
from seedline.session.repair import closers
from seedline.storage.jsonl.file import LogFile, check_identity, read_log, write_log
from seedline.storage.jsonl.verify import list_problems, repair_copy
from tests.cli.commands import Commands
from tests.conformance.corpus import CORPUS, read_json, read_lines

LOOKING = ("inspect", "verify", "script", "stats")
TORN, WRITERS, FORKS = "01-torn-last-line", "03-two-writers-same-seq", "05-fork-usage-counted-once"
HALVES, CALL_IDS, PATHS = "13-lone-surrogates", "15-reused-tool-call-ids", "17-session-ids-as-paths"


@pytest.fixture
def seedline(capfdbinary: pytest.CaptureFixture[bytes]) -> Commands:
    return Commands(capfdbinary)


def fault(name: str, *parts: str) -> Path:
    return CORPUS.joinpath("faults", name, *parts)


def right(name: str) -> Any:
    return read_json("faults", name, "expect.json")


def copied(path: Path, folder: Path) -> Path:
    """The file in a folder of its own, so that another file beside it would show."""
    return Path(shutil.copyfile(path, folder / path.name))


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def row_texts(log: LogFile) -> list[bytes]:
    return [log.row_text(event) for event in log.events]


# --- 01: killed in the middle of the last append -----------------------------------------------------


@pytest.mark.parametrize("letter", ["a", "b"])
def test_01_every_whole_record_is_kept_and_the_open_turn_closed(letter: str) -> None:
    path, expected = fault(TORN, f"session-{letter}.jsonl"), right(TORN)[letter]
    log = read_log(path)
    whole = path.read_bytes().split(b"\n")[1 : expected["complete_events"] + 1]
    assert row_texts(log) == whole
    added = closers(log.events)
    assert [event.type for event in added] == expected["closers"]
    assert [event.seq for event in added] == list(range(len(whole), expected["next_seq_after_repair"]))
    assert {event.time for event in added} == {log.events[-1].time}
    assert added[-1].value["reason"] == {"kind": right(TORN)["a"]["turn_end_reason"]}


@pytest.mark.parametrize("letter", ["a", "b"])
def test_01_the_recorded_call_gets_an_unknown_outcome(letter: str) -> None:
    log = read_log(fault(TORN, f"session-{letter}.jsonl"))
    result = closers(log.events)[0]
    [block] = result.value["message"]["content"]
    assert (block["toolCallId"], block["isError"]) == ("call_a1", True)
    assert result.value["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert result.source_event_seqs == (26,)
    [text] = [part["text"] for part in block["content"]]
    assert "retry only if the operation is read-only or idempotent" in text
    assert "if it may have side effects, first verify external state or ask the user" in text


@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.parametrize("verb", LOOKING)
def test_01_looking_changes_nothing(verb: str, letter: str, seedline: Commands, tmp_path: Path) -> None:
    path = copied(fault(TORN, f"session-{letter}.jsonl"), tmp_path)
    before = files(tmp_path)
    ran = seedline(verb, path, "--json")
    assert "Traceback" not in ran.err
    assert json.loads(ran.out)
    assert files(tmp_path) == before


@pytest.mark.parametrize("letter", ["a", "b"])
def test_01_every_line_of_a_mended_copy_parses_alone_and_mending_again_adds_nothing(
    letter: str, tmp_path: Path
) -> None:
    mended, again = tmp_path / "mended", tmp_path / "again"
    repair_copy(fault(TORN, f"session-{letter}.jsonl"), mended)
    _, *rows = mended.read_bytes().splitlines()
    assert [json.loads(row)["seq"] for row in rows] == list(
        range(right(TORN)[letter]["next_seq_after_repair"])
    )
    report = repair_copy(mended, again)
    assert (report.appended, report.dropped, report.lost) == ((), (), None)
    assert again.read_bytes() == mended.read_bytes()


# --- 03: two processes wrote the same session --------------------------------------------------------


def test_03_the_error_names_file_line_and_seq_and_is_the_only_one() -> None:
    path, expected = fault(WRITERS, "session.jsonl"), right(WRITERS)
    with pytest.raises(SessionPersistenceCorruptionError) as corrupt:
        read_log(path)
    error = corrupt.value
    assert (error.path, error.line, error.seq) == (str(path), expected["error_line"], expected["got_seq"])
    assert error.offset == sum(len(line) + 1 for line in read_lines(path)[: expected["error_line"] - 1])
    [problem] = list_problems(path).problems
    assert (problem.line, problem.offset, problem.seq) == (error.line, error.offset, error.seq)


@pytest.mark.parametrize("verb", LOOKING)
def test_03_no_way_to_look_takes_one_of_the_two(verb: str, seedline: Commands, tmp_path: Path) -> None:
    path = copied(fault(WRITERS, "session.jsonl"), tmp_path)
    before = files(tmp_path)
    assert seedline(verb, path, "--json").code == 5
    assert seedline("convert", path, tmp_path / "copy", "--json").code == 5
    assert files(tmp_path) == before


# --- 05: a forked child holds its parent's history ---------------------------------------------------


def test_05_a_childs_seed_is_its_parents_first_records() -> None:
    for parent, child in (("parent", "child-fork"), ("child-fork", "grandchild-fork")):
        source, fork = (read_log(fault(FORKS, f"{name}.jsonl")) for name in (parent, child))
        cut = fork.inherited_event_count
        assert row_texts(fork)[:cut] == row_texts(source)[:cut]
        assert (cut > 0, fork.header.is_seeded) == (True, True)
        assert fork.header.parent_session == source.header.id
        assert source.header.id.encode() not in b"".join(row_texts(fork))


def test_05_stats_bill_each_session_for_its_own_part(seedline: Commands) -> None:
    expected = right(FORKS)
    paths = {str(fault(FORKS, f"{name}.jsonl")): name for name in expected["own"]}
    document = seedline.json("stats", *paths)
    for session in document["sessions"]:
        name = paths[session["path"]]
        assert session["own"].items() >= expected["own"][name].items()
        assert session["own"]["turns"] == expected["own_turns"][name]
    assert document["tree"].items() >= expected["tree_total"].items()
    assert document["tree"]["requests"] == expected["requests_in_tree"]


@pytest.mark.parametrize("name", ["child-fork", "grandchild-fork", "child-spawn"])
def test_05_a_child_has_its_figures_without_its_parent(name: str, seedline: Commands, tmp_path: Path) -> None:
    document = seedline.json("stats", copied(fault(FORKS, f"{name}.jsonl"), tmp_path))
    [session] = document["sessions"]
    assert session["own"].items() >= right(FORKS)["own"][name].items()
    assert document["tree"] == session["own"]


# --- 13: half characters -----------------------------------------------------------------------------


def test_13_the_deltas_stay_halves_and_the_answer_is_whole() -> None:
    log = read_log(fault(HALVES, "session.jsonl"))
    chunks = [event.value["chunk"] for event in log.events if event.type == CHUNK]
    texts = [chunk["text"] for chunk in chunks if chunk["type"] == "text-delta"]
    assert texts[:2] == ["Yay \ud83d", "\ude00!"]
    [answer, _] = [event.value["message"] for event in log.events if event.type == "assistant/message"]
    assert answer["content"][0]["text"] == right(HALVES)["assembled_text"]
    [result] = [event.value["message"] for event in log.events if event.type == "tool/result"]
    assert result["content"][0]["content"][0]["text"] == "start \udcab end \ud83d"


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("encoding", ["jsonl", "zstd"])
def test_13_a_copy_holds_the_same_halves(packed: bool, encoding: Any, tmp_path: Path) -> None:
    log, path = read_log(fault(HALVES, "session.jsonl")), tmp_path / "copy"
    write_log(path, log.header_line, log.events, layout="complete", packed=packed, encoding=encoding)
    copy = read_log(path)
    assert list(map(whole_value, copy.events)) == list(map(whole_value, log.events))


def whole_value(event: Event) -> tuple[Any, ...]:
    return (event.type, event.seq, event.time, event.value, event.source_event_seqs, event.surface_op)


# --- 15: a server that uses the same call id again ---------------------------------------------------


def test_15_a_mended_copy_answers_the_last_call_only(tmp_path: Path) -> None:
    path, mended = fault(CALL_IDS, "b-open-turn.jsonl"), tmp_path / "mended"
    repair_copy(path, mended)
    before, after = read_log(path).events, read_log(mended).events
    assert list(after[: len(before)]) == list(before)
    added = [event for event in after[len(before) :] if event.type == "tool/result"]
    assert len(added) == right(CALL_IDS)["b_unanswered_calls"]
    last_call = [event.seq for event in before if event.type == "tool/call"][-1]
    assert [event.source_event_seqs for event in added] == [(last_call,)]


def test_15_stats_count_every_call(seedline: Commands) -> None:
    document = seedline.json("stats", fault(CALL_IDS, "a-across-steps.jsonl"))
    assert document["tree"]["toolCalls"] == len(right(CALL_IDS)["a_pairs"])


# --- 17: session ids are text, not paths -------------------------------------------------------------


def stored(root: Path, folder_of: str, session_id: str) -> Path:
    """A log of one id in the folder of an id, beneath a store's root."""
    path = root / project_key("/w") / encode_segment(folder_of) / "session.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"type": "session", "version": 0, "id": session_id, "createdAt": 1, "cwd": "/w"}
    path.write_bytes(encode({**header, "delegationDepth": 0}) + b"\n")
    return path


def session_ids() -> list[str]:
    return read_json("faults", PATHS, "ids.json")


def storable(session_id: str) -> bool:
    try:
        encode_segment(session_id)
    except SessionIdRefusedError:
        return False
    return True


def test_17_the_empty_and_the_over_long_id_are_refused() -> None:
    refused = [session_id for session_id in session_ids() if not storable(session_id)]
    assert refused == ["", "n" * 300]


def test_17_every_other_id_comes_back_from_a_folder_of_its_own(tmp_path: Path) -> None:
    ids = list(filter(storable, session_ids()))
    paths = {session_id: stored(tmp_path, session_id, session_id) for session_id in ids}
    assert len(set(paths.values())) == len(ids) == len(session_ids()) - 2
    for session_id, path in paths.items():
        log = read_log(path)
        check_identity(path, log.header)
        assert log.header.id == session_id
        assert path.resolve().parent.parent == (tmp_path / "--w--").resolve()


def test_17_an_id_in_the_folder_of_another_is_refused(tmp_path: Path) -> None:
    for folder_of, session_id in pairwise(filter(storable, session_ids())):
        path = stored(tmp_path, folder_of, session_id)
        with pytest.raises(IdentityMismatchError) as refused:
            check_identity(path, read_log(path).header)
        assert refused.value.path == str(path)


@pytest.mark.parametrize("verb", [*LOOKING, "convert"])
def test_17_a_file_in_a_strange_folder_stays_as_it_is(verb: str, seedline: Commands, tmp_path: Path) -> None:
    source = fault(PATHS, "header-mismatch", "wanted-id", "session.jsonl")
    folder = tmp_path / "root" / project_key(read_log(source).header.cwd) / "wanted-id"
    folder.mkdir(parents=True)
    path, more = copied(source, folder), ([tmp_path / "copy"] if verb == "convert" else [])
    before = files(tmp_path)
    ran = seedline(verb, path, *more, "--json")
    assert ran.code == 5
    assert "identity-mismatch" in ran.out
    assert files(tmp_path) == before


def test_17_a_store_is_the_same_through_a_link(tmp_path: Path) -> None:
    path = stored(tmp_path / "real", "ok-1", "ok-1")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    (path.parent.parent / "alias").symlink_to(path.parent)
    through_root = tmp_path / "root" / path.relative_to(tmp_path / "real")
    through_folder = path.parent.parent / "alias" / path.name
    for name in (path, through_root, through_folder):
        check_identity(name, read_log(name).header)
