"""One event: an envelope around the exact JSON bytes of its payload."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from seedline.errors import JsonSyntaxError, SessionPersistenceCorruptionError, reason_of
from seedline.events.messages import Record, read_hook
from seedline.events.vocabulary import PAYLOADS
from seedline.jsonvalue import decode, decode_as

CHUNK: Literal["assistant/chunk"] = "assistant/chunk"


class ReplaceOp(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Take the surface nodes from seq `start` through seq `end` away and stand in their place."""

    op: Literal["replace"]
    start: int
    end: int


SurfaceOp = Literal["append"] | ReplaceOp


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """One immutable record of a session log. `log[n].seq == n`.

    `time` is in milliseconds since the Unix epoch and need not grow. `data` holds the payload's JSON
    bytes exactly as written. `surface_op` and `source_event_seqs` are UNSET (false) where the event
    does not carry them; an empty tuple of sources is present and states "known to have none".
    """

    type: str
    seq: int
    time: int
    data: msgspec.Raw
    source_event_seqs: tuple[int, ...] | UnsetType = UNSET
    surface_op: SurfaceOp | UnsetType = UNSET
    ignorable: Literal[True] | UnsetType = UNSET

    @property
    def payload(self) -> Any:
        """Decode `data`: a frozen typed value for a known type, a fresh plain value for an unknown one.

        Raises `SessionPersistenceCorruptionError` naming the seq when a known payload has another shape.
        """
        return read_payload(self)

    @property
    def value(self) -> Any:
        """Decode `data` as a fresh plain JSON value, every field included."""
        return decode(bytes(self.data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and _parts(self) == _parts(other)

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))


def _parts(event: Event) -> tuple[object, ...]:
    return (
        event.seq,
        event.type,
        event.time,
        bytes(event.data),
        event.source_event_seqs,
        event.surface_op,
        event.ignorable,
    )


@cache
def _decoder(kind: type[Record]) -> msgspec.json.Decoder[Record]:
    return msgspec.json.Decoder(kind, dec_hook=read_hook)


def read_payload(event: Event) -> Any:
    """See `Event.payload`."""
    kind = PAYLOADS.get(event.type)
    if kind is None:
        return event.value
    return read_data(event, kind)


def read_data(event: Event, kind: type[Record]) -> Any:
    """Decode `event.data` as `kind`. Raises `SessionPersistenceCorruptionError` naming the seq."""
    try:
        return decode_as(bytes(event.data), cast("msgspec.json.Decoder[Any]", _decoder(kind)))
    except (msgspec.ValidationError, JsonSyntaxError) as error:
        raise SessionPersistenceCorruptionError(
            f"payload of {event.type!r} has another shape: {reason_of(error)}", seq=event.seq
        ) from error
