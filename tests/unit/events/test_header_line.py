"""The header line, both ways: field order, every wrong field, retired keys, foreign versions, spawn facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seedline.errors import (
    ArtifactError,
    HeaderRefusedError,
    NotASessionError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import SESSION_FORMAT_VERSION, HeaderLine, read_header_line, write_header_line
from seedline.session.header import (
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
    from_header_line,
    to_header_line,
)

SAFE = 2**53 - 1
NO_CUT = SessionLogOffset(0)
CALL = {"turn": 2, "step": 1, "call": 0, "n": 0, "callId": "call_00_x", "tool": "subagent_fork"}


def line(**members: str) -> bytes:
    """A header line; `id='"x"'` replaces a text, `id=""` leaves the member out."""
    texts = {
        "type": '"session"',
        "version": "0",
        "id": '"k1"',
        "createdAt": "1700000000000",
        "delegationDepth": "0",
    } | members
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items() if text) + "}").encode()


# --- writing -------------------------------------------------------------------------------------


def test_the_example_of_the_format() -> None:
    header = SessionHeader(id="k1", created_at=1700000000000, cwd="/w")
    assert to_header_line(header, NO_CUT) == (
        b'{"type":"session","version":0,"id":"k1","createdAt":1700000000000,"cwd":"/w","delegationDepth":0}'
    )


def test_every_field_in_its_order() -> None:
    header = SessionHeader(
        id="é\ud83d",
        created_at=5,
        is_seeded=True,
        cwd="/w",
        parent_session="p",
        origin="subagent",
        delegation_depth=2,
        agent_preset="fast",
        spawn=CallSpawn(2, 1, 0, 0, "call_00_x", "subagent_fork"),
    )
    expected = (
        '{"type":"session","version":0,"id":"é\\ud83d","createdAt":5,"cwd":"/w","parentSession":"p","seedLength":42,'
        '"origin":"subagent","delegationDepth":2,"agentPreset":"fast",'
        '"spawn":{"turn":2,"step":1,"call":0,"n":0,"callId":"call_00_x","tool":"subagent_fork"}}'
    )
    assert to_header_line(header, SessionLogOffset(42)) == expected.encode()
    assert from_header_line(expected.encode()) == (header, SessionLogOffset(42))


def test_a_seed_of_nothing_is_still_a_seed() -> None:
    header = SessionHeader(id="k", created_at=0, is_seeded=True)
    assert b'"seedLength":0' in to_header_line(header, NO_CUT)
    assert from_header_line(line(seedLength="0")) == (
        SessionHeader(id="k1", created_at=1700000000000, is_seeded=True, delegation_depth=0),
        0,
    )
    assert b"seedLength" not in to_header_line(SessionHeader(id="k", created_at=0), NO_CUT)
    assert from_header_line(line())[0].is_seeded is False


def test_an_unseeded_header_with_a_cut_has_no_line() -> None:
    with pytest.raises(HeaderRefusedError, match="isSeeded"):
        to_header_line(SessionHeader(id="k", created_at=0), SessionLogOffset(3))


def test_absent_fields_are_left_out_never_null() -> None:
    assert b"null" not in to_header_line(SessionHeader(id="k", created_at=0), NO_CUT)
    assert write_header_line(HeaderLine(id="k", created_at=0)) == b'{"type":"session","id":"k","createdAt":0}'


def test_host_children_say_their_place() -> None:
    header = SessionHeader(id="k", created_at=0, spawn=HostSpawn(HostPlace(2, 0)), delegation_depth=0)
    written = to_header_line(header, NO_CUT)
    assert written.endswith(b'"spawn":{"host":{"turn":2,"n":0}}}')
    assert from_header_line(written) == (header, 0)


def test_the_segments_of_a_lineage_key() -> None:
    assert CallSpawn(2, 1, 0, 3, "", "").segment == "t2.s1.c0.n3"
    assert HostSpawn(HostPlace(2, 0)).segment == "h2.0"


# --- reading -------------------------------------------------------------------------------------


def test_a_missing_depth_reads_back_as_zero() -> None:
    header = SessionHeader(id="k1", created_at=1700000000000)
    found, _ = from_header_line(to_header_line(header, NO_CUT))
    assert (header.delegation_depth, found.delegation_depth, found.depth) == (None, 0, 0)


@pytest.mark.parametrize(
    ("members", "field", "value"),
    [
        ({"createdAt": "1.76e12"}, "created_at", 1760000000000),
        ({"createdAt": "0.0"}, "created_at", 0),
        ({"createdAt": "9007199254740991"}, "created_at", SAFE),
        ({"delegationDepth": "1.0"}, "delegation_depth", 1),
        ({"version": "0.0"}, "version", 0),
        ({"version": "-0"}, "version", 0),
        ({"version": "0e5"}, "version", 0),
        ({"id": '""'}, "id", ""),
        ({"id": '"\\ud83d"'}, "id", "\ud83d"),
        ({"cwd": '"{{cwd}}"'}, "cwd", "{{cwd}}"),
        ({"cwd": '""'}, "cwd", ""),
        ({"parentSession": '"p"'}, "parent_session", "p"),
        ({"agentPreset": '"a"'}, "agent_preset", "a"),
        ({"origin": '"subagent"'}, "origin", "subagent"),
        ({"foreign": "[1e3]"}, "id", "k1"),
        ({"\\ud83d": "1"}, "id", "k1"),
        ({"spawn": json.dumps(CALL)}, "spawn", CallSpawn(2, 1, 0, 0, "call_00_x", "subagent_fork")),
        ({"spawn": '{"host":{"turn":0.0,"n":1e0}}'}, "spawn", HostSpawn(HostPlace(0, 1))),
    ],
)
def test_a_right_field(members: dict[str, str], field: str, value: Any) -> None:
    for data in (line(**members), b" " + line(**members) + b"\t\r"):
        header, cut = from_header_line(data)
        assert getattr(header, field) == value
        assert cut == 0


@pytest.mark.parametrize(("text", "cut"), [("3", 3), ("3.0", 3), ("1e2", 100), ("9007199254740991", SAFE)])
def test_the_cut(text: str, cut: int) -> None:
    header, found = from_header_line(line(seedLength=text))
    assert (header.is_seeded, found, type(found)) == (True, cut, int)


NULL_LIKE = ["null", "true", "1.5", "[]", "{}", '"1"']
WRONG = [
    *(("id", text) for text in ("", "null", "1", "true", "[]", "{}")),
    *(
        (name, text)
        for name in ("cwd", "parentSession", "agentPreset")
        for text in ("null", "1", "false", "[]", "{}")
    ),
    *(("createdAt", text) for text in ("", "-1", "-0", "-0.0", "9007199254740992", "1e300", *NULL_LIKE)),
    *(("delegationDepth", text) for text in ("", "-1", "-0", "-0e0", "9007199254740992", *NULL_LIKE)),
    *(("seedLength", text) for text in ("-1", "-0", "9007199254740992", "1e17", *NULL_LIKE)),
    *(("version", text) for text in ("", "null", "true", "false", '"0"', "[0]", "{}")),
    *(("origin", text) for text in ("null", '"user"', '"Subagent"', '""', "1", '["subagent"]')),
    *(("spawn", text) for text in ("null", "1", '"t1"', "[]", "true")),
    ("sandboxMode", "null"),
    ("sandboxMode", '"read-only"'),
    ("approvalPolicy", '"ask"'),
    ("approvalPolicy", "false"),
]


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_a_wrong_field_is_named(name: str, text: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError) as refused:
        from_header_line(line(**{name: text}))
    assert f"`{name}`" in refused.value.reason
    assert (refused.value.line, refused.value.seq) == (1, None)


BAD_SPAWNS: list[tuple[dict[str, Any], str]] = [
    ({}, "turn"),
    (CALL | {"turn": None}, "turn"),
    (CALL | {"step": "1"}, "step"),
    (CALL | {"call": 0.5}, "call"),
    (CALL | {"n": True}, "n"),
    (CALL | {"n": -1}, "n"),
    (CALL | {"callId": 1}, "callId"),
    ({name: value for name, value in CALL.items() if name != "tool"}, "tool"),
    (CALL | {"extra": 1}, "extra"),
    (CALL | {"tool": ["\ud83d"]}, "tool"),
    ({"host": None}, "host"),
    ({"host": 0}, "host"),
    ({"host": {"turn": 1}}, "n"),
    ({"host": {"turn": -1, "n": 0}}, "turn"),
    ({"host": {"turn": 1, "n": 0, "x": 1}}, "x"),
    ({"host": {"turn": 1, "n": 0}, "turn": 1}, "turn"),
    ({"host": {"turn": 1, "n": 0}, "\ud83d": 1}, "spawn"),
]


@pytest.mark.parametrize(("spawn", "named"), BAD_SPAWNS, ids=range(len(BAD_SPAWNS)))
def test_a_wrong_spawn_fact_is_named(spawn: dict[str, Any], named: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match="`spawn`") as refused:
        from_header_line(line(spawn=json.dumps(spawn)))
    assert named in refused.value.reason


# --- no session at all ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        line()[:-1],
        line() + b"x",
        b"\xef\xbb\xbf" + line(),
        line(cwd='"/\xff"').decode().encode("latin-1"),
        line(createdAt="1e999"),
        b"\0" * 30,
        b"[]",
        b"null",
        b"0",
        b'"session"',
        b"{}",
        line(type=""),
        line(type='"Session"'),
        line(type="null"),
        line(type='"turn/start"'),
        b'{"jsonrpc":"2.0","id":1}',
        b"[" * 5000 + b"]" * 5000,
        b"[" * 20000 + b"]" * 20000,
    ],
    ids=range(21),
)
def test_what_is_no_header_is_no_session(data: bytes) -> None:
    with pytest.raises(NotASessionError):
        from_header_line(data)


def test_a_deep_foreign_member_does_no_harm() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert from_header_line(line(foreign=deep))[0].id == "k1"
    with pytest.raises(SessionPersistenceCorruptionError, match="cwd"):
        from_header_line(line(cwd=deep))


# --- foreign versions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown", "advice"),
    [
        ("1", "1", "newer"),
        ("99", "99", "newer"),
        ("1.0", "1", "newer"),
        ("0.5", "0.5", "newer"),
        ("1e300", "1e+300", "newer"),
        ("18446744073709551616", "18446744073709552000", "newer"),
        ("-1", "-1", "older"),
        ("-0.5", "-0.5", "older"),
    ],
)
def test_a_foreign_version_is_refused_before_anything_else(text: str, shown: str, advice: str) -> None:
    for data in (
        line(version=text),
        line(version=text, id="", createdAt="", delegationDepth=""),
        line(version=text, sandboxMode="1"),
        line(version=text, type='"other"'),
        f'{{"version":{text}}}'.encode(),
    ):
        with pytest.raises(SessionFormatUnsupportedError) as refused:
            from_header_line(data)
        assert f"version {shown}, {advice}" in refused.value.reason
        assert refused.value.line == 1


@pytest.mark.parametrize(
    ("text", "shown"), [('"k9"', "k9"), ("7", "7"), ("null", "None"), ('["a"]', "['a']"), ("", "None")]
)
def test_the_refusal_says_whose_version_it_is(text: str, shown: str) -> None:
    with pytest.raises(SessionFormatUnsupportedError, match="session"):
        from_header_line(line(version="7", id=text))
    with pytest.raises(ArtifactError) as refused:
        from_header_line(line(version="7", id=text))
    assert f"session {shown} has format version 7" in str(refused.value)


# --- projected recordings ------------------------------------------------------------------------


def test_a_projected_header_may_lack_version_and_depth() -> None:
    header, cut = from_header_line(line(version="", delegationDepth=""), projected=True)
    assert (header.version, header.delegation_depth, header.depth, cut) == (
        SESSION_FORMAT_VERSION,
        None,
        0,
        0,
    )
    assert read_header_line(line(version="", delegationDepth=""), projected=True).version is None


@pytest.mark.parametrize("name", ["id", "createdAt"])
def test_a_projected_header_lacks_nothing_else(name: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match=name):
        from_header_line(line(**{name: ""}), projected=True)


@pytest.mark.parametrize(("name", "text"), [pair for pair in WRONG if pair[1]])
def test_a_projected_header_is_judged_like_any_other(name: str, text: str) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match=name):
        from_header_line(line(**{name: text}), projected=True)


def test_a_projected_header_of_a_foreign_version_is_refused() -> None:
    with pytest.raises(SessionFormatUnsupportedError):
        from_header_line(line(version="99"), projected=True)
