"""The surface: the ordered seqs of the messages that the model sees (dsh format version 0, 3.4 and 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET

from seedline.errors import (
    JsonSyntaxError,
    SessionPersistenceCorruptionError,
    SurfaceRefusalCode,
    SurfaceRefusedError,
    reason_of,
)
from seedline.events.codec import raw_members
from seedline.events.event import Event, ReplaceOp, SurfaceOp
from seedline.events.messages import Message, read_hook
from seedline.events.vocabulary import is_surface_eligible_type
from seedline.jsonvalue import canonical, decode, decode_as, is_count

Lookup = Callable[[int], Event]


class Replacement(NamedTuple):
    """A committed replace: event `seq` took the place of `shadowed`, from `start` through `end`."""

    seq: int
    start: int
    end: int
    shadowed: tuple[int, ...]


class Transition(NamedTuple):
    """What an admitted event will do: take `nodes[first:last]` away and stand there."""

    first: int
    last: int
    replacement: Replacement | None


class Surface:
    """The surface as events build it. `replace_generation` counts committed replaces."""

    def __init__(self, nodes: Iterable[int] = (), replacements: Iterable[Replacement] = ()) -> None:
        self._nodes = list(nodes)
        self._replacements = list(replacements)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The seqs on the surface, in order."""
        return tuple(self._nodes)

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """Every committed replace, in log order."""
        return tuple(self._replacements)

    @property
    def replace_generation(self) -> int:
        return len(self._replacements)

    def before(self, stop: int) -> Surface:
        """Return the surface as it was when the log had `stop` events."""
        nodes, kept = list(self._nodes), list(self._replacements)
        while kept and kept[-1].seq >= stop:
            undone = kept.pop()
            place = nodes.index(undone.seq)
            nodes[place : place + 1] = undone.shadowed
        return Surface((seq for seq in nodes if seq < stop), kept)

    def added_since(self, count: int) -> list[int]:
        """Return the nodes from position `count` on."""
        return self._nodes[count:]

    def admit(self, event: Event, lookup: Lookup) -> Transition | None:
        """Return what `event` would do, None for a log-only event; change nothing.

        `lookup` gives the event of an earlier seq. Raises `SurfaceRefusedError`.
        """
        if not is_surface_eligible_type(event.type):
            _refuse_markers(event)
            return None
        if event.surface_op is UNSET:
            raise _refusal(event, "marker-missing", "a message event must say how it joins the surface")
        _check_sources(event)
        if isinstance(event.surface_op, ReplaceOp):
            return self._admit_replace(event, event.surface_op, lookup)
        return Transition(len(self._nodes), len(self._nodes), None)

    def commit(self, event: Event, transition: Transition | None) -> None:
        """Apply what `admit` returned for `event`."""
        if transition is None:
            return
        self._nodes[transition.first : transition.last] = [event.seq]
        if transition.replacement:
            self._replacements.append(transition.replacement)

    def _admit_replace(self, event: Event, op: ReplaceOp, lookup: Lookup) -> Transition:
        first = self._position(event, op.start, "start-missing")
        last = self._position(event, op.end, "end-missing")
        if first > last:
            raise _refusal(
                event, "start-after-end", f"seq {op.start} stands after seq {op.end} on the surface"
            )
        shadowed = tuple(self._nodes[first : last + 1])
        cited = event.source_event_seqs or ()
        missing = sorted(set(shadowed).difference(cited))
        if missing:
            raise SurfaceRefusedError(
                "shadowed-not-cited", event.type, f"sources leave out {missing}", event.seq, missing
            )
        if event.type == "tool/result":
            _check_tool_rewrite(event, shadowed, lookup)
        return Transition(first, last + 1, Replacement(event.seq, op.start, op.end, shadowed))

    def _position(self, event: Event, seq: int, code: SurfaceRefusalCode) -> int:
        try:
            return self._nodes.index(seq)
        except ValueError:
            raise _refusal(event, code, f"seq {seq} is not found on the surface") from None


def fold_surface(events: Iterable[Event], lookup: Lookup) -> Surface:
    """Fold the surface of `events`. Raises `SurfaceRefusedError` naming the seq.

    A run that starts late may be folded; a replace that reaches before it is refused as not found.
    """
    surface = Surface()
    for event in events:
        surface.commit(event, surface.admit(event, lookup))
    return surface


def read_surface_op(value: Any, event_type: str) -> SurfaceOp:
    """Return the surface marker of a plain value. Raises `SurfaceRefusedError`."""
    if isinstance(value, ReplaceOp):
        value = {"op": value.op, "start": value.start, "end": value.end}
    if value == "append" and type(value) is str:
        return "append"
    if not isinstance(value, dict):
        raise SurfaceRefusedError("marker-malformed", event_type, f"{value!r} is no surface marker")
    marker = cast("dict[str, Any]", value)
    if set(marker) != {"op", "start", "end"} or marker["op"] != "replace":
        raise SurfaceRefusedError(
            "replace-shape", event_type, "a replace has exactly `op`, `start` and `end`"
        )
    if not is_count(marker["start"]) or not is_count(marker["end"]):
        raise SurfaceRefusedError("replace-shape", event_type, "`start` and `end` must be seqs")
    return ReplaceOp("replace", marker["start"], marker["end"])


def _refusal(event: Event, code: SurfaceRefusalCode, reason: str) -> SurfaceRefusedError:
    return SurfaceRefusedError(code, event.type, reason, event.seq)


def _refuse_markers(event: Event) -> None:
    for name, present in (("surfaceOp", event.surface_op), ("sourceEventSeqs", event.source_event_seqs)):
        if present is not UNSET:
            raise _refusal(event, "not-eligible", f"a log-only event must not carry `{name}`")


def _check_sources(event: Event) -> None:
    sources = event.source_event_seqs
    if sources is UNSET:
        return
    if sources and not (is_count(min(sources)) and is_count(max(sources))):
        raise _refusal(event, "sources-malformed", "sources must be seqs")
    if not sources and event.type != "assistant/message":
        raise _refusal(event, "sources-empty", "a present list of sources must name at least one")
    if len(set(sources)) != len(sources):
        raise _refusal(event, "sources-duplicate", "a source is named twice")
    if sources and max(sources) >= event.seq:
        raise _refusal(event, "sources-not-earlier", f"seq {max(sources)} is not earlier")


def _check_tool_rewrite(event: Event, shadowed: tuple[int, ...], lookup: Lookup) -> None:
    if len(shadowed) != 1:
        raise _refusal(event, "tool-rewrite-several", f"it would replace {len(shadowed)} nodes")
    old = lookup(shadowed[0])
    if old.type != "tool/result":
        raise _refusal(event, "tool-rewrite-other-type", f"seq {old.seq} is a {old.type!r}")
    if _beside_content(event) != _beside_content(old):
        raise _refusal(event, "tool-rewrite-beyond-content", "only the result block's content may change")


def _beside_content(event: Event) -> bytes:
    """Return the canonical data of a tool result with its block's content set aside."""
    data = event.value
    # The message checks refuse a result without this place; the comparison then covers all of it.
    with suppress(TypeError, KeyError, IndexError):
        data["message"]["content"][0]["content"] = None
    return canonical(data)


# --- derived messages ------------------------------------------------------------------------------


class LogMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as the log holds it: the `seq` of its event and its exact JSON bytes."""

    seq: int
    data: bytes

    @property
    def message(self) -> Message:
        """The typed view. Raises `SessionPersistenceCorruptionError` when the message has another shape."""
        try:
            return decode_as(self.data, _MESSAGE)
        except (msgspec.ValidationError, JsonSyntaxError) as error:
            raise _misshapen(self.seq, error) from error

    @property
    def value(self) -> Any:
        """A fresh plain JSON value."""
        return decode(self.data)


_MESSAGE: Final = msgspec.json.Decoder(Message, dec_hook=read_hook)


class _Carrier(msgspec.Struct, frozen=True):
    message: msgspec.Raw


class _Body(msgspec.Struct, frozen=True):
    content: list[Any]


_CARRIER: Final = msgspec.json.Decoder(_Carrier)
_BODY: Final = msgspec.json.Decoder(_Body)


def message_of(event: Event) -> LogMessage | None:
    """Return the message that a surface event shows the model.

    None for a log-only event, and for an assistant message without content, which only records usage.
    Raises `SessionPersistenceCorruptionError` for an event that holds no message.
    """
    if event.type == "user/message":
        return LogMessage(event.seq, bytes(event.data))
    if not is_surface_eligible_type(event.type):
        return None
    try:
        data = _member(bytes(event.data))
        if not decode_as(data, _BODY).content and event.type == "assistant/message":
            return None
    except (msgspec.ValidationError, JsonSyntaxError, KeyError) as error:
        raise _misshapen(event.seq, error) from error
    return LogMessage(event.seq, data)


def _misshapen(seq: int, error: Exception) -> SessionPersistenceCorruptionError:
    return SessionPersistenceCorruptionError(f"the message has another shape: {reason_of(error)}", seq=seq)


def _member(data: bytes) -> bytes:
    try:
        return bytes(_CARRIER.decode(data).message)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        return raw_members(data)["message"] if isinstance(decode(data), dict) else b"null"  # no message


def derive_messages(nodes: Iterable[int], lookup: Lookup) -> list[LogMessage]:
    """Return the messages of `nodes` in order. Nothing is framed, dropped or scanned beyond them."""
    found = (message_of(lookup(seq)) for seq in nodes)
    return [message for message in found if message is not None]
