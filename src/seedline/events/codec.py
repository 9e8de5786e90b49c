"""Event and header line to and from their physical rows (dsh format version 0, section 4).

A line is bytes without its line end. Nothing here knows a file: errors carry no path; `RowError` says
what is wrong with one row and the reader of a file adds where.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, cast

import msgspec

from seedline.errors import (
    JsonSyntaxError,
    NotASessionError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.event import Event, ReplaceOp
from seedline.events.packing import PACKED_TYPES, PackedRow, read_packed_row, read_usual_packed_row
from seedline.jsonvalue import (
    MAX_SAFE_INTEGER,
    canonical_text,
    convert,
    decode,
    encode,
    is_count,
    is_safe_integer,
    number_text,
    utf8,
)

SESSION_FORMAT_VERSION: Final = 0

Row = Event | PackedRow
RowFault = Literal["unparsable", "not-a-record", "envelope"]


class RowError(Exception):
    """What is wrong with one row. `seq` is what the row itself claims, None when it claims none."""

    def __init__(self, fault: RowFault, reason: str, seq: int | None = None) -> None:
        self.fault: RowFault = fault
        self.reason = reason
        self.seq = seq
        super().__init__(reason)


_EVENT = msgspec.json.Decoder(Event)
decode_event_line = _EVENT.decode
"""Decode a row that is an ordinary event in the usual spelling; any other raises. The fast path."""


def read_row(line: bytes, next_seq: int | None = None) -> Row:
    """Return the event or packed row of one physical line. Raises `RowError`.

    With `next_seq` the row may be projected: a missing seq becomes `next_seq` and a missing time 0.
    Whether the seq follows the row before it is for the caller to judge.
    """
    try:
        event = _EVENT.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return _read_unusual(line, next_seq)
    if event.type in PACKED_TYPES:
        return _read_unusual(line, next_seq)
    # msgspec passes bytes through `Raw` unread: UTF-8 and the size of numbers are still to be judged.
    if not line.isascii():
        _check_utf8(line)
    if has_large_number(line):
        _read_value(line)
    _check_numbers(event)
    return event


def _check_utf8(line: bytes) -> None:
    try:
        utf8(line)
    except JsonSyntaxError as error:
        raise RowError("unparsable", error.reason) from None


def _read_value(line: bytes) -> Any:
    try:
        return decode(line)
    except JsonSyntaxError as error:
        raise RowError("unparsable", error.reason) from None


def _read_unusual(line: bytes, next_seq: int | None) -> Row:
    row = None if has_large_number(line) else read_usual_packed_row(line)
    if row is not None:
        return row
    value = _read_value(line)
    if not isinstance(value, dict):
        raise RowError("not-a-record", f"a JSON {type(value).__name__} is no record")
    record = cast("dict[str, Any]", value)
    packed = isinstance(record.get("type"), str) and record["type"] in PACKED_TYPES
    if next_seq is not None:
        line = _complete(line, record, packed, next_seq)
    if packed:
        try:
            return read_packed_row(line)
        except JsonSyntaxError as error:
            raise RowError("unparsable", error.reason) from None
    return _event_of(line, record)


def _complete(line: bytes, record: dict[str, Any], packed: bool, next_seq: int) -> bytes:
    """Fill a projected record in place; return its line with the missing keys in the live order."""
    names = ("seq0", "time0") if packed else ("seq", "time")
    if all(name in record for name in names):
        return line
    members = raw_members(line)
    for name, value in zip(names, (next_seq, 0), strict=True):
        record.setdefault(name, value)
        members.setdefault(name, str(value).encode())
    order = ["type", *names, "data"]
    return join_members({name: members[name] for name in [*order, *members] if name in members})


_RAW_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}:,]')


def raw_members(line: bytes) -> dict[str, bytes]:
    """Return the members of the object `line` as name to exact value text, in order."""
    try:
        return {name: bytes(raw) for name, raw in _RAW_MEMBERS.decode(line).items()}
    except (msgspec.DecodeError, RecursionError):
        return _scan_members(line)


def _scan_members(line: bytes) -> dict[str, bytes]:
    """`raw_members` for lone surrogates and deep nesting."""
    members: dict[str, bytes] = {}
    depth, start = 0, 0
    literal = name = b""
    for token in _TOKEN.finditer(line):
        text = token.group()
        if text in b"[{":
            depth += 1
        elif depth == 1 and text == b":":
            name, start = literal, token.end()
        elif depth == 1 and text in b",}" and start:
            members[decode(name)] = line[start : token.start()].strip(b" \t\n\r")
        elif text[:1] == b'"':
            literal = text
        depth -= text in b"]}"
    return members


def join_members(members: dict[str, bytes]) -> bytes:
    """Return the object text of `members`, compact."""
    return b"{" + b",".join(encode(name) + b":" + value for name, value in members.items()) + b"}"


def _event_of(line: bytes, record: dict[str, Any]) -> Event:
    """Build the event of a parsed record, checking the envelope. Raises `RowError`."""
    claimed = record.get("seq")
    shell = dict(record)
    if "data" in record:
        shell["data"] = msgspec.Raw(raw_members(line)["data"])
    try:
        event = convert(shell, Event)
    except msgspec.ValidationError as error:
        seq = claimed if is_safe_integer(claimed) else None
        raise RowError("envelope", f"invalid envelope: {error}", seq) from None
    _check_numbers(event)
    return event


def _check_numbers(event: Event) -> None:
    if not 0 <= event.seq <= MAX_SAFE_INTEGER:
        raise RowError("envelope", "invalid envelope: `seq` is not a safe count", event.seq)
    if not -MAX_SAFE_INTEGER <= event.time <= MAX_SAFE_INTEGER:
        raise RowError("envelope", "invalid envelope: `time` is not a safe integer", event.seq)
    if isinstance(event.surface_op, ReplaceOp) and not (
        is_count(event.surface_op.start) and is_count(event.surface_op.end)
    ):
        raise RowError("envelope", "invalid envelope: `surfaceOp` names no safe seq", event.seq)


_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")


def has_large_number(text: bytes) -> bool:
    """True when `text` may hold a number past the range of a double; false never errs.

    A cheap screen: such a number needs an exponent of three digits, or 210 digits in a row before one of two.
    """
    same = text.translate(_DIGITS, b"+")
    return b"0e000" in same or b"0" * 210 in same


def encode_event(event: Event) -> bytes:
    """Return the row of one event, the payload's bytes verbatim, in the order of a live append."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:  # a lone surrogate in the type, the only text of an envelope
        untyped = msgspec.json.encode(msgspec.structs.replace(event, type=""))
        return untyped.replace(b'""', encode(event.type), 1)


def project_row(line: bytes) -> bytes:
    """Return a row without its top-level `seq`, `time`, `seq0` and `time0`; the rest keeps order and text."""
    members = raw_members(line)
    return join_members({n: v for n, v in members.items() if n not in ("seq", "time", "seq0", "time0")})


def canonical_event(event: Event) -> bytes:
    """Return the line of `event` that digests hash. Raises `JsonSyntaxError` when `data` is not JSON."""
    return canonical_text(encode_event(event))


# --- header line -----------------------------------------------------------------------------------


class HeaderLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The physical members of a header line that this build knows, in writing order; absent ones are None.

    `type` is the literal `session`. `seed_length` is the only physical form of the lineage bit and the cut.
    """

    version: int | None = None
    id: str
    created_at: int
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None
    spawn: Any = None


_RETIRED_HEADER_KEYS: Final = ("sandboxMode", "approvalPolicy")
_HEADER_FIELDS: Final = tuple(HeaderLine.__struct_encode_fields__)


def read_header_line(line: bytes, *, projected: bool = False) -> HeaderLine:
    """Return the members of a header line. A foreign version is refused before anything else is looked at.

    A projected recording may lack `version` and `delegationDepth`. Raises `NotASessionError`,
    `SessionFormatUnsupportedError` or `SessionPersistenceCorruptionError` naming the field.
    """
    try:
        value = decode(line)
    except JsonSyntaxError as error:
        raise NotASessionError(f"the first line is no session header: {error.reason}") from None
    if not isinstance(value, dict):
        raise NotASessionError(f"the first line is a JSON {type(value).__name__}, not a session header")
    record = cast("dict[str, Any]", value)
    _refuse_foreign_version(record)
    if record.get("type") != "session":
        raise NotASessionError("the first line is not of type `session`")
    problem = _header_problem(line, record, projected)
    if problem:
        raise SessionPersistenceCorruptionError(f"session header field {problem}", line=1)
    return HeaderLine(**{_snake(n): record[n] for n in _HEADER_FIELDS if n in record})


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def _refuse_foreign_version(record: dict[str, Any]) -> None:
    version: object = record.get("version")
    if not isinstance(version, int | float) or isinstance(version, bool) or version == SESSION_FORMAT_VERSION:
        return
    newer = version > SESSION_FORMAT_VERSION
    advice = "newer than this build: upgrade seedline" if newer else "older than any this build reads"
    raise SessionFormatUnsupportedError(
        f"session {record.get('id')!s} has format version {number_text(version)}, {advice}", line=1
    )


def _header_problem(line: bytes, record: dict[str, Any], projected: bool) -> str | None:
    """Name the first wrong field and why, None when all are right."""
    for name in _RETIRED_HEADER_KEYS:
        if name in record:
            return f"`{name}` is retired"
    optional = {"version", "delegationDepth"} if projected else set[str]()
    for name in ("version", "id", "createdAt", "delegationDepth"):
        if name not in record and name not in optional:
            return f"`{name}` is missing"
    for name in ("id", "cwd", "parentSession", "agentPreset"):
        if name in record and not isinstance(record[name], str):
            return f"`{name}` is not a string"
    texts = raw_members(line)
    for name in ("version", "createdAt", "delegationDepth", "seedLength"):
        minus_zero = name != "version" and texts.get(name, b"").startswith(b"-")
        if name in record and (minus_zero or not is_count(record[name])):
            return f"`{name}` is not a non-negative safe integer"
    if "origin" in record and record["origin"] != "subagent":
        return "`origin` is not `subagent`"
    if "spawn" in record and not isinstance(record["spawn"], dict):
        return "`spawn` is not an object"
    return None


def write_header_line(header: HeaderLine) -> bytes:
    """Return the header line of `header`, absent members left out."""
    value = {"type": "session"} | cast("dict[str, Any]", msgspec.to_builtins(header))
    return encode(value)
