"""The header: each wrong field is named, and the line translates both ways."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from seedline.errors import HeaderRefusedError, SessionPersistenceCorruptionError
from seedline.session.header import (
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
    check_absolute_cwd,
    check_header,
    from_header_line,
    to_header_line,
)

HEADER = SessionHeader(id="s", created_at=1)
SPAWN = CallSpawn(turn=2, step=1, call=0, n=3, call_id="c", tool="subagent")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 1}, "version"),
        ({"version": -1}, "version"),
        ({"version": True}, "version"),
        ({"version": False}, "version"),
        ({"version": "0"}, "version"),
        ({"version": 0.0}, "version"),
        ({"id": ""}, "id"),
        ({"id": 5}, "id"),
        ({"created_at": -1}, "createdAt"),
        ({"created_at": 1.5}, "createdAt"),
        ({"created_at": -0.0}, "createdAt"),
        ({"created_at": 2**53}, "createdAt"),
        ({"created_at": True}, "createdAt"),
        ({"created_at": None}, "createdAt"),
        ({"is_seeded": 1}, "isSeeded"),
        ({"is_seeded": None}, "isSeeded"),
        ({"cwd": 5}, "cwd"),
        ({"parent_session": b"p"}, "parentSession"),
        ({"origin": "human"}, "origin"),
        ({"origin": []}, "origin"),
        ({"delegation_depth": -1}, "delegationDepth"),
        ({"delegation_depth": True}, "delegationDepth"),
        ({"delegation_depth": 1.0}, "delegationDepth"),
        ({"agent_preset": {}}, "agentPreset"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(HeaderRefusedError, match=field) as refused:
        check_header(replace(HEADER, **changes), 0)
    assert refused.value.field == field


@pytest.mark.parametrize("header", [None, {}, [], "s", 5, {"id": "s", "created_at": 1}])
def test_what_is_no_header_is_refused(header: Any) -> None:
    with pytest.raises(HeaderRefusedError) as refused:
        check_header(header, 0)
    assert refused.value.field == "header"


@pytest.mark.parametrize("cut", [-1, 1.0, True, None, 2**53, -0.0])
def test_a_wrong_cut_is_named(cut: Any) -> None:
    with pytest.raises(HeaderRefusedError) as refused:
        check_header(replace(HEADER, is_seeded=True), cut)
    assert refused.value.field == "inheritedEventCount"


def test_seeded_and_cut_agree() -> None:
    check_header(HEADER, 0)
    check_header(replace(HEADER, is_seeded=True), 0)
    check_header(replace(HEADER, is_seeded=True), 5)
    with pytest.raises(HeaderRefusedError):
        check_header(HEADER, 5)


@pytest.mark.parametrize("cwd", ["", "relative", "./x", "{{cwd}}", "~"])
def test_a_working_directory_must_be_absolute(cwd: str) -> None:
    with pytest.raises(HeaderRefusedError) as refused:
        check_absolute_cwd(replace(HEADER, cwd=cwd))
    assert refused.value.field == "cwd"
    check_absolute_cwd(replace(HEADER, cwd="/w"))
    check_absolute_cwd(HEADER)


def test_a_header_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        HEADER.id = "other"  # type: ignore[misc]  # the point of the test


def test_depth_and_kinship() -> None:
    assert HEADER.depth == 0
    assert replace(HEADER, delegation_depth=2).depth == 2
    fork = replace(HEADER, parent_session="p")
    assert not fork.is_tree_child
    assert replace(fork, origin="subagent").is_tree_child
    assert replace(fork, spawn=SPAWN).is_tree_child
    assert not replace(HEADER, origin="subagent").is_tree_child


def test_spawn_segments() -> None:
    assert SPAWN.segment == "t2.s1.c0.n3"
    assert HostSpawn(HostPlace(turn=2, n=0)).segment == "h2.0"


@pytest.mark.parametrize(
    ("header", "cut", "line"),
    [
        (HEADER, 0, b'{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}'),
        (
            replace(HEADER, is_seeded=True),
            0,
            b'{"type":"session","version":0,"id":"s","createdAt":1,"seedLength":0,"delegationDepth":0}',
        ),
        (
            SessionHeader(
                id="s",
                created_at=1,
                is_seeded=True,
                cwd="/w",
                parent_session="p",
                origin="subagent",
                delegation_depth=2,
                agent_preset="x",
                spawn=SPAWN,
            ),
            42,
            b'{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/w","parentSession":"p",'
            b'"seedLength":42,"origin":"subagent","delegationDepth":2,"agentPreset":"x",'
            b'"spawn":{"turn":2,"step":1,"call":0,"n":3,"callId":"c","tool":"subagent"}}',
        ),
        (
            replace(HEADER, spawn=HostSpawn(HostPlace(turn=1, n=2))),
            0,
            b'{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0,'
            b'"spawn":{"host":{"turn":1,"n":2}}}',
        ),
    ],
)
def test_the_line_both_ways(header: SessionHeader, cut: int, line: bytes) -> None:
    assert to_header_line(header, SessionLogOffset(cut)) == line
    back, back_cut = from_header_line(line)
    assert (replace(back, delegation_depth=header.delegation_depth), back_cut) == (header, cut)
    assert back.depth == header.depth


@pytest.mark.parametrize(
    "spawn",
    [
        b"{}",
        b'{"turn":1}',
        b'{"host":1}',
        b'{"host":{"turn":1}}',
        b'{"turn":"2","step":1,"call":0,"n":0,"callId":"c","tool":"t"}',
    ],
)
def test_a_spawn_fact_of_another_shape_is_corruption(spawn: bytes) -> None:
    line = b'{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0,"spawn":' + spawn + b"}"
    with pytest.raises(SessionPersistenceCorruptionError, match="spawn") as refused:
        from_header_line(line)
    assert refused.value.line == 1
