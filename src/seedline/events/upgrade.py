"""Old event shapes inside format version 0, brought to the current form on reading (4.9).

Files are never rewritten: a log keeps its old rows, and whoever reads it sees the current form. Digests and
counts are of the rows before this. The shapes that are refused rather than upgraded stand in
`events.vocabulary.RETIRED_TYPES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seedline.errors import JsonValueError, SessionPersistenceCorruptionError
from seedline.events.codec import join_members, raw_members
from seedline.events.event import Event, ReplaceOp
from seedline.jsonvalue import decode, encode, is_count, is_number

STEERING: Final = "steering/message"
"""A type of old logs that every reader upgrades to `user/message`."""

Members = dict[str, bytes]


class _Malformed(Exception):  # noqa: N818  # never leaves this module; the caller raises the corruption
    """An old shape is wrong in itself."""


class _Probe(msgspec.Struct, rename="camel"):
    """Which of the telling keys a payload has. The values stay unread."""

    trigger: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    role: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    content: Raw | UnsetType = UNSET
    source: Raw | UnsetType = UNSET
    provenance: Raw | UnsetType = UNSET
    call_id: Raw | UnsetType = UNSET
    is_error: Raw | UnsetType = UNSET

    def has(self, *names: str) -> bool:
        return all(getattr(self, name) is not UNSET for name in names)

    def lacks(self, *names: str) -> bool:
        return all(getattr(self, name) is UNSET for name in names)


_PROBE: Final = msgspec.json.Decoder(_Probe)
_PROBED: Final = tuple(zip(_Probe.__struct_encode_fields__, _Probe.__struct_fields__, strict=True))


class Upgrader:
    """Upgrades the events of one log, to be asked in log order.

    `at` returns the stored event of an earlier seq. Ids that old messages lack are minted as
    `legacy-message:<session id>:<seq>`, so every read of the same log gives the same ids.
    """

    def __init__(self, session_id: str, at: Callable[[int], Event]) -> None:
        self._session_id = session_id
        self._at = at
        self._minted: dict[int, str] = {}

    def upgrade(self, event: Event) -> Event:
        """Return `event` in the current form, the same object when it has that form already.

        Raises `SessionPersistenceCorruptionError` naming the seq for a malformed old shape.
        """
        rule = _RULES.get(event.type)
        if rule is None:
            return event
        try:
            return rule(self, event)
        except _Malformed as problem:
            reason = f"malformed {event.type!r}: {problem}"
            raise SessionPersistenceCorruptionError(reason, seq=event.seq) from None
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, JsonValueError) as error:
            reason = f"{event.type!r} cannot be brought to the current form: {error}"
            raise SessionPersistenceCorruptionError(reason, seq=event.seq) from error

    def mint(self, event: Event) -> bytes:
        """Return the JSON text of the id that an old message gets."""
        fresh = f"legacy-message:{self._session_id}:{event.seq}"
        taken_over = None
        if event.type == "tool/result" and isinstance(event.surface_op, ReplaceOp):
            taken_over = self._id_at(event.surface_op.start, event.seq)
        self._minted[event.seq] = taken_over or fresh
        return encode(self._minted[event.seq])

    def _id_at(self, seq: int, before: int) -> str | None:
        """Return the message id of an earlier event, None where there is none to take over."""
        if seq in self._minted or not 0 <= seq < before:
            return self._minted.get(seq)
        value = self._at(seq).value
        message: Any = (
            cast("dict[str, Any]", value).get("message", value) if isinstance(value, dict) else None
        )
        found = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
        return found if isinstance(found, str) else None


def _probe(event: Event) -> _Probe | None:
    """Return the telling keys of a payload, None when it is no object."""
    data = bytes(event.data)
    try:
        return _PROBE.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        members = raw_members(data)
        return _Probe(**{field: Raw(members[name]) for name, field in _PROBED if name in members})


def _changed(event: Event, members: Members, event_type: str | None = None) -> Event:
    data = Raw(join_members(members))
    return msgspec.structs.replace(event, type=event_type or event.type, data=data)


def _without(members: Members, *names: str) -> Members:
    return {name: text for name, text in members.items() if name not in names}


def _demand_keys(found: Members, *names: str) -> None:
    if found.keys() != set(names):
        raise _Malformed(f"it has the keys {', '.join(sorted(found))} instead of {', '.join(names)}")


def _demand_turn(text: bytes) -> None:
    turn = decode(text)
    if not is_count(turn) or turn < 1:
        raise _Malformed("`turn` is not a safe integer from 1 on")


def _object(text: bytes, name: str) -> dict[str, Any]:
    value = decode(text)
    if not isinstance(value, dict):
        raise _Malformed(f"`{name}` is not an object")
    return cast("dict[str, Any]", value)


# --- turns -----------------------------------------------------------------------------------------


def _turn_start(_: Upgrader, event: Event) -> Event:
    probe = _probe(event)
    if probe is None or probe.lacks("trigger"):
        return event
    members = raw_members(bytes(event.data))
    _demand_keys(members, "turn", "trigger")
    _demand_turn(members["turn"])
    kind = _object(members["trigger"], "trigger").get("kind")
    if not isinstance(kind, str) or not kind:
        raise _Malformed("`trigger.kind` is not a non-empty string")
    return _changed(event, {"turn": members["turn"]})


def _turn_end(_: Upgrader, event: Event) -> Event:
    if not isinstance(event.value, dict):
        raise _Malformed("its payload is not an object")
    members = raw_members(bytes(event.data))
    _demand_keys(members, "turn", "reason")
    _demand_turn(members["turn"])
    reason = _object(members["reason"], "reason")
    kind = reason.get("kind")
    if not isinstance(kind, str):
        raise _Malformed("`reason.kind` is not a string")
    upgraded = _reason(kind, reason, raw_members(members["reason"]))
    return event if upgraded is None else _changed(event, {**members, "reason": upgraded})


_BARE_REASONS: Final = frozenset({"completed", "blocked", "max-tokens", "interrupted"})


def _reason(kind: str, reason: dict[str, Any], texts: Members) -> bytes | None:
    """Return the current form of a turn's end, None when it has that form. Unknown kinds pass."""
    if kind in _BARE_REASONS:
        _demand_keys(texts, "kind")
    elif kind == "aborted" and "reason" not in reason:
        _demand_keys(texts, "kind")
        return b'{"kind":"aborted","reason":{"kind":"legacy"}}'
    elif kind == "disposed":
        _demand_keys(texts, "kind")
        return b'{"kind":"aborted","reason":{"kind":"disposed"}}'
    elif kind == "error" and "error" not in reason:
        return join_members({"kind": texts["kind"], "error": _failure(reason, texts)})
    return None


def _failure(reason: dict[str, Any], texts: Members) -> bytes:
    """Return the failure record of an old error reason."""
    if not is_count(reason.get("step")):
        raise _Malformed("`reason.step` is not a non-negative integer")
    if "failure" in reason:
        _demand_keys(texts, "kind", "step", "failure")
        _demand_failure(_object(texts["failure"], "reason.failure"))
        return texts["failure"]
    _demand_keys(texts, "kind", "step", "message", *(["code"] if "code" in reason else []))
    if not isinstance(reason["message"], str) or not isinstance(reason.get("code", ""), str):
        raise _Malformed("`message` or `code` of the reason is not a string")
    return join_members({"message": texts["message"], "code": texts.get("code", b'"UNKNOWN"')})


_FAILURE_FIELDS: Final[dict[str, Callable[[Any], bool]]] = {
    "message": lambda value: isinstance(value, str),
    "code": lambda value: isinstance(value, str),
    "status": is_number,
    "providerRetryAfterMs": is_number,
    "requestId": lambda value: isinstance(value, str),
}


def _demand_failure(failure: dict[str, Any]) -> None:
    for name in ("message", "code"):
        if name not in failure:
            raise _Malformed(f"`reason.failure.{name}` is missing")
    for name, value in failure.items():
        if name not in _FAILURE_FIELDS or not _FAILURE_FIELDS[name](value):
            raise _Malformed(f"`reason.failure.{name}` is not part of a failure record, or wrong")


# --- messages --------------------------------------------------------------------------------------


def _steering(upgrader: Upgrader, event: Event) -> Event:
    if not isinstance(event.value, dict):
        raise _Malformed("its payload is not an object")
    members = raw_members(bytes(event.data))
    if "message" in members:
        _demand_keys(members, "turn", "message")
        _object(members["message"], "message")
        return _changed(event, raw_members(members["message"]), "user/message")
    _demand_keys(members, "turn", "content", "source")
    return _changed(event, _identified(upgrader, event, _without(members, "turn")), "user/message")


def _identified(upgrader: Upgrader, event: Event, members: Members) -> Members:
    return {"id": upgrader.mint(event), "role": b'"user"', **members}


def _user(upgrader: Upgrader, event: Event) -> Event:
    probe = _probe(event)
    if probe is None or not probe.lacks("id", "role", "message") or not probe.has("content", "source"):
        return event
    return _changed(event, _identified(upgrader, event, raw_members(bytes(event.data))))


def _assistant(upgrader: Upgrader, event: Event) -> Event:
    probe = _probe(event)
    if probe is None or not probe.lacks("message") or not probe.has("content", "provenance"):
        return event
    members = raw_members(bytes(event.data))
    if not isinstance(decode(members["provenance"]), dict):
        return event
    source = {**raw_members(members["provenance"]), "kind": b'"model"'}
    message = join_members(
        {
            "id": upgrader.mint(event),
            "role": b'"assistant"',
            "content": members["content"],
            "source": join_members(source),
        }
    )
    return _changed(event, {**_without(members, "content", "provenance"), "message": message})


def _result(upgrader: Upgrader, event: Event) -> Event:
    probe = _probe(event)
    if probe is None or not probe.lacks("message") or not probe.has("call_id", "content", "is_error"):
        return event
    members = raw_members(bytes(event.data))
    call_id = members["callId"]
    block = {"type": b'"tool-result"', "toolCallId": call_id, "content": members["content"]}
    message = join_members(
        {
            "id": upgrader.mint(event),
            "role": b'"user"',
            "source": join_members({"kind": b'"tool"', "callId": call_id}),
            "content": b"[%b]" % join_members({**block, "isError": members["isError"]}),
        }
    )
    return _changed(event, {**_without(members, "callId", "content", "isError"), "message": message})


_RULES: Final[dict[str, Callable[[Upgrader, Event], Event]]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    STEERING: _steering,
    "user/message": _user,
    "assistant/message": _assistant,
    "tool/result": _result,
}
