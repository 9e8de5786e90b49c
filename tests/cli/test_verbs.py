"""What each verb does with small logs made by hand: good, damaged, hostile, and not there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import HEADER, Commands, Ran, answer, chunk, event, one_turn, user, write_log

HEADER_LINE = json.dumps(HEADER).encode() + b"\n"
READING = ("inspect", "script", "verify")
FIVE = {"kind", "message", "path", "line", "offset"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "session.jsonl", one_turn())


def error_of(ran: Ran) -> dict[str, Any]:
    """The error document of a failed command; nothing else is printed."""
    assert set(ran.document) == {"error"}
    assert ran.err == ""
    assert set(ran.document["error"]) >= FIVE
    return ran.document["error"]


# --- inspect -------------------------------------------------------------------------------------


def test_inspect_says_what_a_log_holds(log: Path, seedline: Commands) -> None:
    document = seedline.json("inspect", log)
    rows = log.read_bytes().splitlines()[1:]
    # Every row here is ordinary, so its canonical line is the row with sorted keys.
    lines = [
        json.dumps(json.loads(row), sort_keys=True, separators=(",", ":"), ensure_ascii=False) for row in rows
    ]
    assert document == {
        "path": str(log),
        "layout": "complete",
        "encoding": "jsonl",
        "header": {name: HEADER[name] for name in HEADER if name != "type"} | {"isSeeded": False},
        "inheritedEventCount": 0,
        "events": 12,
        "ownEvents": 12,
        "typeCounts": {
            "assistant/chunk": 6,
            "assistant/message": 1,
            "step/end": 1,
            "step/start": 1,
            "turn/end": 1,
            "turn/start": 1,
            "user/message": 1,
        },
        "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "messages": {
            "count": 2,
            "roles": ["user", "assistant"],
            "digest": document["messages"]["digest"],
        },
        "surface": {"nodes": 2, "replacements": 0},
        "closers": [],
        "torn": None,
    }


def test_inspect_for_people_says_the_same(log: Path, seedline: Commands) -> None:
    shown = seedline("inspect", log)
    assert (shown.code, shown.err) == (0, "")
    for text in (
        "s-1",
        "2023-11-14 22:13:20",
        "2 (1 user, 1 assistant)",
        "nothing to append",
        "assistant/chunk",
    ):
        assert text in shown.out


def test_the_header_shows_what_the_file_has_and_never_the_physical_cut(
    tmp_path: Path, seedline: Commands
) -> None:
    spawn = {"turn": 1, "step": 1, "call": 0, "n": 0, "callId": "c", "tool": "subagent"}
    path = write_log(
        tmp_path / "child.jsonl",
        one_turn(),
        cwd="/w",
        parentSession="p",
        seedLength=12,
        origin="subagent",
        spawn=spawn,
        foreign=1,
    )
    document = seedline.json("inspect", path)
    header = document["header"]
    assert header["spawn"] == spawn
    assert header["isSeeded"] is True
    assert {"seedLength", "foreign", "type"}.isdisjoint(header)
    assert (document["inheritedEventCount"], document["ownEvents"]) == (12, 0)


def test_a_cut_beyond_the_log_is_corruption(tmp_path: Path, seedline: Commands) -> None:
    path = write_log(tmp_path / "short.jsonl", one_turn(), seedLength=13)
    assert error_of(seedline("inspect", path, "--json"))["kind"] == "corrupt"


def test_a_header_alone_is_a_log(tmp_path: Path, seedline: Commands) -> None:
    document = seedline.json("inspect", write_log(tmp_path / "empty.jsonl", []))
    assert (document["layout"], document["events"]) == ("header-only", 0)
    assert document["digest"] == hashlib.sha256(b"").hexdigest()
    assert document["messages"] == {"count": 0, "roles": [], "digest": hashlib.sha256(b"[]").hexdigest()}
    assert seedline.json("script", tmp_path / "empty.jsonl")["sessions"][0]["chunkCounts"] == []


def test_what_only_the_constructor_refuses_stands_in_place_of_the_figure(
    tmp_path: Path, seedline: Commands
) -> None:
    bare = user(1)
    del bare["surfaceOp"]
    path = write_log(tmp_path / "bare.jsonl", [event(0, "turn/start", {"turn": 1}), bare])
    document = seedline.json("inspect", path)
    assert document["events"] == 2
    for figure in ("messages", "surface"):
        error = document[figure]["error"]
        assert (error["kind"], error["seq"]) == ("surface-refused", 1)
    assert document["closers"] == ["turn/end"]
    assert "cannot be computed" in seedline("inspect", path).out


def test_a_marker_on_a_chunk_is_seen_by_the_surface(tmp_path: Path, seedline: Commands) -> None:
    marked = chunk(0, 1, 1, type="finish", reason={"kind": "stop"}) | {"surfaceOp": "append"}
    document = seedline.json("inspect", write_log(tmp_path / "marked.jsonl", [marked]))
    assert document["surface"]["error"]["seq"] == document["messages"]["error"]["seq"] == 0


@pytest.mark.parametrize(
    ("payload", "figure"), [({"turn": 1, "step": 1, "callId": 5}, "closers"), (None, "closers")]
)
def test_a_payload_of_another_shape_spoils_its_figure_only(
    payload: Any, figure: str, tmp_path: Path, seedline: Commands
) -> None:
    events = [event(0, "turn/start", {"turn": 1}), event(1, "tool/call", payload)]
    document = seedline.json("inspect", write_log(tmp_path / "odd.jsonl", events))
    assert document[figure]["error"]["seq"] == 1
    assert document["messages"]["count"] == 0


def test_an_unknown_type_is_a_refusal_unless_marked_ignorable(tmp_path: Path, seedline: Commands) -> None:
    foreign = event(0, "future/thing", {"x": 1})
    error = error_of(seedline("inspect", write_log(tmp_path / "a", [foreign]), "--json"))
    assert (error["kind"], error["line"]) == ("format-unsupported", 2)
    document = seedline.json("inspect", write_log(tmp_path / "b", [foreign | {"ignorable": True}]))
    assert document["typeCounts"] == {"future/thing": 1}


# --- failures of any verb ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", READING)
@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("gone", None, "not-found"),
        ("empty", b"", "not-a-session"),
        ("text", b"hello\n", "not-a-session"),
        ("array", b"[]\n", "not-a-session"),
        ("no-end", HEADER_LINE[:-1], "not-a-session"),
        ("future", b'{"type":"session","version":7}\n', "format-unsupported"),
        ("no-id", b'{"type":"session","version":0,"createdAt":1,"delegationDepth":0}\n', "corrupt"),
        ("seq", HEADER_LINE + b'{"type":"turn/start","seq":5,"time":1,"data":{"turn":1}}\n', "corrupt"),
        ("deep", HEADER_LINE + b"[" * 200_000 + b"\n{}\n", "corrupt"),
        ("zstd", b"\x28\xb5\x2f\xfd\x00", "not-a-session"),
    ],
)  # fmt: skip  # one case a line
def test_a_file_that_cannot_be_read_is_named_with_its_kind(
    verb: str, name: str, text: bytes | None, kind: str, tmp_path: Path, seedline: Commands
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text)
    ran = seedline(verb, path, "--json")
    assert ran.code == 5
    if verb == "verify":
        assert kind in [problem["kind"] for problem in ran.document["files"][0]["problems"]]
    else:
        error = error_of(ran)
        assert (error["kind"], error["path"]) == (kind, str(path))
    shown = seedline(verb, path)
    assert shown.code == 5
    assert str(path) in shown.out + shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("verb", [*READING, "convert", "repair"])
def test_a_folder_a_pipe_and_an_unreadable_file_are_no_sessions(
    verb: str, tmp_path: Path, seedline: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = [tmp_path / "out"] if verb in ("convert", "repair") else []
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        assert seedline(verb, place, *target).code == 5

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = write_log(tmp_path / "secret.jsonl", one_turn())
    monkeypatch.setattr("seedline.storage.jsonl.file.open_artifact", refuse)
    monkeypatch.setattr("seedline.storage.jsonl.examine.open_artifact", refuse)
    ran = seedline(verb, path, *target, "--json")
    assert ran.code == 5
    assert "Permission denied" in ran.out
    assert '"not-found"' in ran.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("inspect",),
        ("inspect", "a", "b"),
        ("script",),
        ("verify",),
        ("convert", "a"),
        ("convert", "a", "b", "--layout", "sideways"),
        ("repair", "a"),
        ("inspect", "a", "--no-such-option"),
        ("no-such-verb",),
        ("script", "a", "--override", "x.json", "--override", "0=y.json"),
    ],
)
def test_wrong_use_exits_with_2(arguments: tuple[str, ...], seedline: Commands) -> None:
    ran = seedline(*arguments)
    assert ran.code == 2
    assert "Usage: seedline" in ran.out + ran.err


def test_version_and_help(seedline: Commands) -> None:
    assert seedline("--version").out.startswith("seedline ")
    for arguments in (("--help",), ("-h",), ("inspect", "--help")):
        ran = seedline(*arguments)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Usage: seedline")


# --- hostile text --------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egpj.exe\u2028\x7f\n"


def test_hostile_content_is_shown_inert_and_given_back_whole(tmp_path: Path, seedline: Commands) -> None:
    events = [event(0, HOSTILE, {"x": HOSTILE}, ignorable=True)]
    path = write_log(tmp_path / "h.jsonl", events, id=HOSTILE + "\ud83d", cwd=HOSTILE)
    shown = seedline("inspect", path)
    assert shown.code == 0
    assert not any(character in shown.out for character in "\x1b\x07\x9b\u202e\u2028\x7f")
    assert r"\x1b]0;owned\x07\x9b2J\u202egpj.exe\u2028\x7f\n" in shown.out
    assert "\ufffd" in shown.out
    raw = seedline("inspect", path, "--json")
    assert not any(character in raw.out for character in "\x1b\x07\x9b\u202e\u2028\x7f")
    assert raw.document["header"]["id"] == HOSTILE + "\ud83d"
    assert raw.document["typeCounts"] == {HOSTILE: 1}
    assert seedline("script", path).code == 0


@pytest.mark.parametrize("name", ["\x1b[2Jx", "a\nb", "\u202egnp", "sp ace 日本 [red]x", "=", "0=x"])
def test_hostile_file_names(name: str, tmp_path: Path, seedline: Commands) -> None:
    path = write_log(tmp_path / name, one_turn())
    for verb in READING:
        shown = seedline(verb, path)
        assert shown.code == 0
        assert not any(character in shown.out for character in "\x1b\u202e")
    assert seedline.json("inspect", path)["path"] == str(path)
    missing = seedline("inspect", tmp_path / f"{name}-gone")
    assert (missing.code, missing.out) == (5, "")
    assert not any(character in missing.err for character in "\x1b\u202e")
    assert missing.err.count("\n") == 1


def test_a_file_name_that_is_no_text_is_given_back_as_valid_json(tmp_path: Path, seedline: Commands) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.jsonl")
    write_log(Path(path), one_turn())
    ran = seedline("inspect", path, "--json")
    assert ran.document["path"] == path
    assert r"\udcff\udcfe" in ran.out
    assert "\ufffd\ufffd.jsonl" in seedline("inspect", path).out


def test_a_file_name_like_an_option_comes_after_two_dashes(
    tmp_path: Path, seedline: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(Path("--json"), one_turn())
    ran = seedline("inspect", "--json", "--", "--json")
    assert ran.document["path"] == "--json"


# --- script --------------------------------------------------------------------------------------


def call(seq: int, turn: int, step: int, text: str) -> list[dict[str, Any]]:
    return [
        chunk(seq, turn, step, type="text-delta", index=0, text=text),
        chunk(seq + 1, turn, step, type="finish", reason={"kind": "stop"}),
    ]


def tree(folder: Path) -> list[Path]:
    """A root with two children whose headers state their places, the later place first."""
    places = [
        {"turn": 1, "step": 1, "call": n, "n": 0, "callId": f"c{n}", "tool": "subagent"} for n in (0, 1)
    ]
    child = {"parentSession": "root", "origin": "subagent", "delegationDepth": 1}
    return [
        write_log(folder / "root.jsonl", call(0, 1, 1, "root"), id="root"),
        write_log(folder / "b.jsonl", call(0, 1, 1, "b"), id="b", spawn=places[1], **child),
        write_log(folder / "a.jsonl", call(0, 1, 1, "a"), id="a", spawn=places[0], **child),
    ]


def test_script_lists_the_root_and_then_its_children_by_key(tmp_path: Path, seedline: Commands) -> None:
    document = seedline.json("script", *tree(tmp_path))
    found = [(s["recordedId"], s["key"], s["grade"], s["chunkCounts"]) for s in document["sessions"]]
    assert found == [
        ("root", "0", "exact", [2]),
        ("a", "0/t1.s1.c0.n0", "exact", [2]),
        ("b", "0/t1.s1.c1.n0", "exact", [2]),
    ]
    entry = {"kind": "chunks", "chunks": [chunk["data"]["chunk"] for chunk in call(0, 1, 1, "a")]}
    text = json.dumps([entry], sort_keys=True, separators=(",", ":"))
    assert document["sessions"][1]["digest"] == hashlib.sha256(text.encode()).hexdigest()
    shown = seedline("script", *tree(tmp_path))
    assert shown.code == 0
    assert "0/t1.s1.c1.n0" in shown.out


def test_every_file_is_tried_and_the_worst_code_wins(tmp_path: Path, seedline: Commands) -> None:
    root, b, a = tree(tmp_path)
    a.write_bytes(b"damaged\n")
    ran = seedline("script", root, b, a, tmp_path / "gone", "--json")
    assert ran.code == 5
    assert ran.document["error"]["path"] == str(a)
    assert [error["path"] for error in ran.document["errors"]] == [str(a), str(tmp_path / "gone")]
    shown = seedline("script", root, b, a, tmp_path / "gone")
    assert len(shown.err.splitlines()) == 2


def unfinished(path: Path, **header: Any) -> Path:
    return write_log(
        path, [*call(0, 1, 1, "x"), chunk(2, 1, 2, type="text-delta", index=0, text="…")], **header
    )


def test_an_unfinished_call_is_refused_with_turn_and_step(tmp_path: Path, seedline: Commands) -> None:
    path = unfinished(tmp_path / "cut.jsonl")
    ran = seedline("script", path, "--json")
    assert ran.code == 3
    error = error_of(ran)
    assert (error["kind"], error["path"], error["turn"], error["step"]) == (
        "unfinished-call",
        str(path),
        1,
        2,
    )


def test_every_unfinished_call_of_a_tree_is_listed(tmp_path: Path, seedline: Commands) -> None:
    root = unfinished(tmp_path / "root.jsonl", id="root")
    child = unfinished(tmp_path / "child.jsonl", id="child", parentSession="root", origin="subagent")
    ran = seedline("script", root, child, "--json")
    assert ran.code == 3
    assert [error["path"] for error in ran.document["errors"]] == [str(root), str(child)]


def test_a_sidecar_replaces_or_patches_the_session_it_is_for(tmp_path: Path, seedline: Commands) -> None:
    root, b, a = tree(tmp_path)
    hang = tmp_path / "hang.json"
    hang.write_text('[{"kind":"hang"}]')
    patch = tmp_path / "patch.json"
    patch.write_text('{"patches":[{"at":1,"entry":{"kind":"throw","chunks":[],"message":"m","code":"C"}}]}')
    options = ("--override", hang, "--override", f"0/t1.s1.c0.n0={patch}")
    sessions = seedline.json("script", root, a, b, *options)["sessions"]
    assert [session["chunkCounts"] for session in sessions] == [[2], [2, 0], [2]]
    assert sessions[0]["digest"] == hashlib.sha256(b'[{"kind":"hang"}]').hexdigest()
    cut = unfinished(tmp_path / "cut.jsonl")
    patched = seedline.json("script", cut, "--override", patch)["sessions"][0]
    assert patched["chunkCounts"] == [2, 0]


def test_a_sidecar_beside_the_file_is_not_read_by_itself(tmp_path: Path, seedline: Commands) -> None:
    path = write_log(tmp_path / "session.jsonl", call(0, 1, 1, "x"))
    plain = seedline.json("script", path)
    (tmp_path / "replay.override.json").write_text('[{"kind":"hang"}]')
    assert seedline.json("script", path) == plain


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [(None, "not-found", 5), ("{", "override-refused", 3), ('[{"kind":"sing"}]', "override-refused", 3)],
)
def test_a_missing_or_wrong_sidecar_is_an_error(
    text: str | None, kind: str, code: int, log: Path, tmp_path: Path, seedline: Commands
) -> None:
    sidecar = tmp_path / "side.json"
    if text is not None:
        sidecar.write_text(text)
    ran = seedline("script", log, "--override", sidecar, "--json")
    assert ran.code == code
    error = error_of(ran)
    assert (error["kind"], error["path"]) == (kind, str(sidecar))


def test_a_key_that_no_session_has_is_an_error(log: Path, tmp_path: Path, seedline: Commands) -> None:
    (tmp_path / "side.json").write_text("[]")
    ran = seedline("script", log, "--override", f"0/h1.0={tmp_path / 'side.json'}", "--json")
    assert ran.code == 3
    assert "0/h1.0" in error_of(ran)["message"]


# --- convert -------------------------------------------------------------------------------------


def test_convert_keeps_the_layout_and_goes_by_the_ending(
    log: Path, tmp_path: Path, seedline: Commands
) -> None:
    target = tmp_path / "out.jsonl.zstd"
    document = seedline.json("convert", log, target)
    assert document == {
        "path": str(log),
        "out": str(target),
        "layout": "complete",
        "packing": "packed",
        "encoding": "zstd",
        "events": 12,
        "bytes": target.stat().st_size,
        "torn": None,
    }
    assert target.stat().st_mode & 0o777 == 0o600
    back = tmp_path / "back.jsonl"
    shown = seedline("convert", target, back, "--packing", "unpacked")
    assert (shown.code, shown.err) == (0, "")
    assert str(back) in shown.out
    assert back.read_bytes() == log.read_bytes()
    seedline.json("convert", log, tmp_path / "projected", "--layout", "projected")
    assert seedline.json("convert", tmp_path / "projected", tmp_path / "same")["layout"] == "projected"
    assert (tmp_path / "same").read_bytes() == (tmp_path / "projected").read_bytes()


def test_convert_and_repair_never_overwrite(log: Path, tmp_path: Path, seedline: Commands) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    before = log.read_bytes()
    for verb in ("convert", "repair"):
        for target in (other, log, tmp_path, tmp_path / "no" / "folder"):
            ran = seedline(verb, log, target, "--json")
            assert ran.code == 2
            error = error_of(ran)
            assert (error["kind"], error["path"]) == ("output-refused", str(target))
    assert (other.read_text(), log.read_bytes()) == ("precious", before)
    assert not (tmp_path / "no").exists()


def test_convert_of_an_open_log_keeps_exactly_the_good_events(tmp_path: Path, seedline: Commands) -> None:
    events = one_turn()[:9]
    path = write_log(tmp_path / "open.jsonl", events, end=b'\n{"type":"user/mess')
    ran = seedline("convert", path, tmp_path / "out", "--packing", "unpacked", "--json")
    assert ran.code == 0
    assert ran.document["torn"] == {"offset": path.stat().st_size - 18, "bytes": 18, "reason": "unparsable"}
    assert "18 torn bytes" in ran.err
    assert (tmp_path / "out").read_bytes() == write_log(tmp_path / "whole", events).read_bytes()


def test_convert_of_a_damaged_log_writes_nothing(tmp_path: Path, seedline: Commands) -> None:
    events = one_turn()
    path = write_log(tmp_path / "damaged", [*events[:3], "garbage", *events[3:]])
    assert seedline("convert", path, tmp_path / "out").code == 5
    assert not (tmp_path / "out").exists()


# --- verify and repair ---------------------------------------------------------------------------


def test_verify_tries_every_path_and_exits_with_5_if_one_is_not_ok(
    log: Path, tmp_path: Path, seedline: Commands
) -> None:
    damaged = write_log(
        tmp_path / "damaged", [event(0, "turn/start", {"turn": 1}), event(7, "turn/start", {"turn": 2})]
    )
    torn = write_log(tmp_path / "torn", one_turn(), end=b"\n{")
    ran = seedline("verify", damaged, tmp_path / "gone", log, torn, "--json")
    assert ran.code == 5
    files = ran.document["files"]
    assert [(file["path"], file["ok"]) for file in files] == [
        (str(damaged), False),
        (str(tmp_path / "gone"), False),
        (str(log), True),
        (str(torn), False),
    ]
    assert [problem["kind"] for file in files for problem in file["problems"]] == [
        "corrupt",
        "not-found",
        "torn",
    ]
    assert all(set(p) == {"kind", "line", "offset", "seq", "message"} for f in files for p in f["problems"])
    shown = seedline("verify", damaged, tmp_path / "gone", log, torn)
    assert shown.code == 5
    assert f"{log}: ok, 12 events" in shown.out
    assert seedline("verify", log).code == 0


def test_verify_lists_more_than_the_first_problem(tmp_path: Path, seedline: Commands) -> None:
    events = one_turn()
    path = write_log(tmp_path / "bad", [*events[:2], "garbage", *events[3:6], "more", *events[7:]])
    problems = seedline("verify", path, "--json").document["files"][0]["problems"]
    assert [problem["line"] for problem in problems] == [4, 8]


def test_repair_writes_what_stands_before_the_damage_and_closes_it(
    tmp_path: Path, seedline: Commands
) -> None:
    events = one_turn()
    path = write_log(tmp_path / "bad", [*events[:3], "garbage", *events[4:]])
    document = seedline.json("repair", path, tmp_path / "mended")
    assert document["events"] == 3
    assert document["appended"] == ["step/end", "turn/end"]
    assert document["goodRecordsAfter"] == 8
    assert document["lostSeqs"] == {"first": 3, "last": 11}
    assert document["dropped"][0]["line"] == 5
    assert sum(each["bytes"] for each in document["dropped"]) == sum(
        len(line) + 1 for line in path.read_bytes().splitlines()[4:]
    )
    rows = (tmp_path / "mended").read_bytes().splitlines()
    assert rows[:4] == path.read_bytes().splitlines()[:4]
    assert seedline("verify", tmp_path / "mended").code == 0
    shown = seedline("repair", path, tmp_path / "again")
    assert shown.code == 0
    assert "3 to 11" in shown.out


def test_repair_refuses_a_header_that_no_session_has(tmp_path: Path, seedline: Commands) -> None:
    path, mended = write_log(tmp_path / "session.jsonl", one_turn(), id=""), tmp_path / "mended"
    ran = seedline("repair", path, mended, "--json")
    assert (ran.code, ran.document["error"]["kind"]) == (5, "header-refused")
    assert ran.document["error"]["path"] == str(path)
    assert not mended.exists()


def test_repair_refuses_a_projected_log_and_an_unknown_type(tmp_path: Path, seedline: Commands) -> None:
    projected = tmp_path / "projected"
    log = write_log(tmp_path / "log", one_turn())
    seedline.json("convert", log, projected, "--layout", "projected")
    assert error_of(seedline("repair", projected, tmp_path / "o", "--json"))["kind"] == "layout-mismatch"
    foreign = write_log(tmp_path / "foreign", [event(0, "future/thing", {})])
    assert error_of(seedline("repair", foreign, tmp_path / "o", "--json"))["kind"] == "format-unsupported"
    assert not (tmp_path / "o").exists()


def test_reading_verbs_change_no_byte(tmp_path: Path, seedline: Commands) -> None:
    path = write_log(tmp_path / "s.jsonl", [*one_turn()[:9], answer(9, 1, 1, "x")], end=b"")
    before = path.stat(), path.read_bytes()
    for verb in READING:
        seedline(verb, path)
    assert path.read_bytes() == before[1]
    assert path.stat().st_mtime_ns == before[0].st_mtime_ns
    assert sorted(tmp_path.iterdir()) == [path]
