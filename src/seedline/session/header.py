"""The header: what a session is, apart from its events.

`is_seeded` says that the session inherited a prefix by fork; it carries no number. The exact count of
inherited events is a `SessionLogOffset` that travels beside the header wherever the events travel.
"""

from __future__ import annotations

import os.path
from typing import Annotated, Any, Literal, NewType, cast

import msgspec

from seedline.errors import HeaderRefusedError, SessionPersistenceCorruptionError
from seedline.events.codec import SESSION_FORMAT_VERSION, HeaderLine, read_header_line, write_header_line
from seedline.jsonvalue import convert, is_count

SessionLogOffset = NewType("SessionLogOffset", int)
"""A gap between events: the length of a prefix. Distinct from a seq, which names an existing event."""

START = SessionLogOffset(0)


Ordinal = Annotated[int, msgspec.Meta(ge=0)]


class CallSpawn(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A child made by a tool call of its parent.

    `turn` and `step` are the parent's; `call` is the 0-based place of the call among the tool calls of that
    assistant message; `n` the 0-based ordinal of the child within the call. `call_id` and `tool` are for
    people, never a key.
    """

    turn: Ordinal
    step: Ordinal
    call: Ordinal
    n: Ordinal
    call_id: str
    tool: str

    @property
    def segment(self) -> str:
        """The child's step of a lineage key, such as `t2.s1.c0.n0`."""
        return f"t{self.turn}.s{self.step}.c{self.call}.n{self.n}"


class HostPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many turns the parent had started, and the child's number among the children of that turn."""

    turn: Ordinal
    n: Ordinal


class HostSpawn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A child made by host code."""

    host: HostPlace

    @property
    def segment(self) -> str:
        """The child's step of a lineage key, such as `h2.0`."""
        return f"h{self.host.turn}.{self.host.n}"


SpawnFact = CallSpawn | HostSpawn


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable facts about one session.

    `created_at` is in milliseconds since the Unix epoch. `delegation_depth` None means 0, top level.
    `origin` is a hint for people and proves nothing. `spawn` says where in the parent a child came from.
    """

    id: str
    created_at: int
    is_seeded: bool = False
    version: int = SESSION_FORMAT_VERSION
    cwd: str | None = None
    parent_session: str | None = None
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None
    spawn: SpawnFact | None = None

    @property
    def depth(self) -> int:
        """The delegation depth, 0 when absent."""
        return self.delegation_depth or 0

    @property
    def is_tree_child(self) -> bool:
        """True for a child that belongs to its parent's run; any other parent is only a fork edge."""
        return self.parent_session is not None and (self.origin == "subagent" or self.spawn is not None)


def check_header(header: Any, cut: int) -> None:
    """Raise `HeaderRefusedError` naming the first wrong field."""
    if not isinstance(header, SessionHeader):
        raise HeaderRefusedError("header", f"a {type(header).__name__} is no session header")
    problem = _header_problem(header)
    if problem:
        raise HeaderRefusedError(*problem)
    if not is_count(cut):
        raise HeaderRefusedError("inheritedEventCount", "not a non-negative safe integer")
    if cut and not header.is_seeded:
        raise HeaderRefusedError("isSeeded", f"an unseeded session cannot inherit {cut} events")


def _header_problem(header: SessionHeader) -> tuple[str, str] | None:
    if type(header.version) is not int or header.version != SESSION_FORMAT_VERSION:
        return "version", f"must be {SESSION_FORMAT_VERSION}"
    if type(header.id) is not str or not header.id:
        return "id", "not a non-empty string"
    if not is_count(header.created_at):
        return "createdAt", "not a non-negative safe integer"
    if type(header.is_seeded) is not bool:
        return "isSeeded", "not a boolean"
    for field, value in (
        ("cwd", header.cwd),
        ("parentSession", header.parent_session),
        ("agentPreset", header.agent_preset),
    ):
        if value is not None and type(value) is not str:
            return field, "not a string"
    if header.origin not in (None, "subagent"):
        return "origin", "not `subagent`"
    if header.delegation_depth is not None and not is_count(header.delegation_depth):
        return "delegationDepth", "not a non-negative safe integer"
    return None


def check_absolute_cwd(header: SessionHeader) -> None:
    """Raise `HeaderRefusedError` unless the working directory is absent or absolute."""
    if header.cwd is not None and not os.path.isabs(header.cwd):
        raise HeaderRefusedError("cwd", f"{header.cwd!r} is not an absolute path")


def to_header_line(header: SessionHeader, cut: SessionLogOffset) -> bytes:
    """Return the version-0 header line, without line end. `seedLength` stands for the bit and the cut.

    Raises `HeaderRefusedError` for what `check_header` refuses: the line could not say it.
    """
    check_header(header, cut)
    return write_header_line(
        HeaderLine(
            version=header.version,
            id=header.id,
            created_at=header.created_at,
            cwd=header.cwd,
            parent_session=header.parent_session,
            seed_length=cut if header.is_seeded else None,
            origin=header.origin,
            delegation_depth=header.depth,
            agent_preset=header.agent_preset,
            spawn=None if header.spawn is None else msgspec.to_builtins(header.spawn),
        )
    )


def from_header_line(line: bytes, *, projected: bool = False) -> tuple[SessionHeader, SessionLogOffset]:
    """Return the logical header and the cut of a version-0 header line (absent `seedLength`: unseeded, 0).

    Raises what `read_header_line` raises.
    """
    physical = read_header_line(line, projected=projected)
    header = SessionHeader(
        id=physical.id,
        created_at=physical.created_at,
        is_seeded=physical.seed_length is not None,
        cwd=physical.cwd,
        parent_session=physical.parent_session,
        origin=physical.origin,
        delegation_depth=physical.delegation_depth,
        agent_preset=physical.agent_preset,
        spawn=_read_spawn(physical.spawn),
    )
    return header, SessionLogOffset(physical.seed_length or 0)


def _read_spawn(value: Any) -> SpawnFact | None:
    if value is None:
        return None
    kind = HostSpawn if "host" in cast("dict[str, Any]", value) else CallSpawn
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise SessionPersistenceCorruptionError(f"session header field `spawn`: {error}", line=1) from None
