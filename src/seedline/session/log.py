"""A session: append-only, guarded, contiguous (dsh format version 0, 3.2, 3.3 and 3.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seedline.clock import Clock
from seedline.errors import (
    EventRefusedError,
    JsonSyntaxError,
    JsonValueError,
    ReentrantAppendError,
    SurfaceRefusedError,
)
from seedline.events.event import CHUNK, Event
from seedline.events.messages import OtherBlock
from seedline.events.packing import PackedRow
from seedline.events.vocabulary import RequestContext, RequestHeaderBody
from seedline.jsonvalue import decode, encode_lossless, is_count, is_safe_integer
from seedline.session import lineage
from seedline.session.guards import check_shape, refuse_retired
from seedline.session.header import SessionHeader, SessionLogOffset, check_header
from seedline.session.listeners import Undo, add_listener, tell_all
from seedline.session.request import RequestFolds
from seedline.session.sequence import Events, Segment
from seedline.session.surface import LogMessage, Surface, Transition, derive_messages, read_surface_op

Listener = Callable[[Event], None]


class Session:
    """One session in memory.

    Build one with `create` or `restore`; a store makes it live. `events` is the truth, everything else a
    fold over it. Not thread-safe: one task appends.
    """

    def __init__(
        self,
        header: SessionHeader,
        inherited_event_count: SessionLogOffset,
        clock: Clock,
        *,
        prefix: Events,
        surface: Surface,
        folds: RequestFolds,
    ) -> None:
        self.header = header
        self.inherited_event_count = inherited_event_count
        self._clock = clock
        self._parts = (*prefix.segments, Segment(len(prefix)))
        self._own = self._parts[-1]
        self._first_live_seq = len(prefix)
        self._snapshot: Events | None = None
        self._surface = surface
        self._folds = folds
        self._messages: list[LogMessage] = []
        self._projected = (0, 0)  # surface nodes and replace generation that `_messages` covers
        self._listeners: list[Listener] = []
        self._vetoes: list[Listener] = []
        self.publishing = False
        """True while guards and listeners are told of an append."""
        self.after_publishing: list[Callable[[], None]] = []
        """Work that waits for the current publication to end."""
        self.attached = False
        """True while a store holds this session."""

    # --- construction ------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        header: SessionHeader,
        *,
        clock: Clock,
        inherited_event_count: SessionLogOffset,
        seed: Iterable[Event] | None = None,
    ) -> Session:
        """Build a session from borrowed seed events, checking every one and the header last.

        With a seed, even an empty one, the log ends in `session/end-seed` afterwards. The cut is what the
        caller says, never the seed's length. Raises `EventRefusedError`, `SurfaceRefusedError` or
        `HeaderRefusedError`; nothing becomes visible then.
        """
        if seed is not None:
            seed = Events.of(_borrowed(event) for event in seed)
        prefix = Events((), 0, 0) if seed is None else seed
        surface, folds = _admit_all(prefix)
        check_header(header, inherited_event_count)
        session = cls(header, inherited_event_count, clock, prefix=prefix, surface=surface, folds=folds)
        if seed is not None:
            session.mark_end_of_seed()
        return session

    @classmethod
    def restore(
        cls,
        header: SessionHeader,
        *,
        clock: Clock,
        inherited_event_count: SessionLogOffset,
        events: Events,
    ) -> Session:
        """Build a session from a whole stored log, whose rows it shares, and end the seed.

        The same checks as `create`, the header first; raises what `create` raises, and
        `SessionPersistenceCorruptionError` for a cut beyond the log.
        """
        check_header(header, inherited_event_count)
        lineage.check_cut(len(events), inherited_event_count)
        surface, folds = _admit_all(events)
        session = cls(header, inherited_event_count, clock, prefix=events, surface=surface, folds=folds)
        session.mark_end_of_seed()
        return session

    def fork(self, header: SessionHeader, stop: int, clock: Clock) -> Session:
        """Build a child that inherits the first `stop` events and shares their rows.

        They are not validated again. The child's log ends in `session/end-seed`.
        """
        cut = SessionLogOffset(stop)
        check_header(header, cut)
        surface, folds = self._surface.before(stop), self._folds.before(stop)
        child = Session(header, cut, clock, prefix=self.events[:stop], surface=surface, folds=folds)
        child.mark_end_of_seed()
        return child

    def mark_end_of_seed(self) -> None:
        """Append `session/end-seed` unless the log already ends in one."""
        if not self.seq or self.events[-1].type != "session/end-seed":
            self.append("session/end-seed", {})

    # --- reading -----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def seq(self) -> int:
        """The number of events, which is the seq of the next one."""
        return self._own.base + self._own.length

    @property
    def first_live_seq(self) -> int:
        """How many events the constructor received: where this process's own writes begin. Not the cut."""
        return self._first_live_seq

    @property
    def events(self) -> Events:
        """An immutable snapshot of the log; it does not grow with later appends."""
        if self._snapshot is None:
            self._snapshot = Events(self._parts, 0, self.seq)
        return self._snapshot

    @property
    def own_events(self) -> Events:
        """The events from the cut on: what this session wrote itself."""
        return lineage.own(self.events, self.inherited_event_count)

    @property
    def surface(self) -> tuple[int, ...]:
        """The seqs of the messages the model sees, in order."""
        return self._surface.nodes

    def derive_messages(self) -> list[LogMessage]:
        """Return the messages the model sees, in order: a fresh list over shared values."""
        covered, generation = self._projected
        if generation != self._surface.replace_generation:
            covered, self._messages = 0, []
        nodes = self._surface.added_since(covered)
        self._messages.extend(derive_messages(nodes, self._at))
        self._projected = (covered + len(nodes), self._surface.replace_generation)
        return list(self._messages)

    def request_header(self) -> RequestHeaderBody | None:
        """Return the request header in force, in canonical form."""
        return self._folds.header

    def request_context(self) -> RequestContext | None:
        """Return the last request context."""
        return self._folds.context

    def _at(self, seq: int) -> Event:
        return self.events.at_seq(seq)

    # --- writing -----------------------------------------------------------------------------------

    def append(
        self,
        event_type: str,
        data: Any,
        *,
        surface_op: Any = UNSET,
        source_event_seqs: Any = UNSET,
        ignorable: bool = False,
    ) -> Event:
        """Append one event and tell the listeners; return it as stored.

        `data` is a lossless JSON value, a payload of `events.vocabulary`, or `msgspec.Raw` JSON. The event
        is stamped with the next seq and the clock's time. It is in memory when this returns; durable only
        after a flush. A listener's failure is logged and changes nothing.
        Raises `EventRefusedError`, `SurfaceRefusedError`, `ReentrantAppendError`, or what a guard raises;
        the log is then unchanged.
        """
        payload = _snapshot_data(event_type, data)
        refuse_retired(event_type, payload, None)
        op = UNSET if surface_op is UNSET else read_surface_op(surface_op, event_type)
        sources = _snapshot_sources(event_type, source_event_seqs)
        if self.publishing:
            raise ReentrantAppendError(self.id, event_type)
        mark: Any = True if ignorable else UNSET
        event = Event(event_type, self.seq, self._clock.now(), Raw(payload), sources, op, mark)
        check_shape(event)  # a load checks it, so what is accepted here can be read again
        transition = self._surface.admit(event, self._at)
        self.publishing = True
        try:
            self._commit(event, transition)
        finally:
            self.publishing = False
            waiting, self.after_publishing = self.after_publishing, []
            for work in waiting:
                work()
        return event

    def _commit(self, event: Event, transition: Transition | None) -> None:
        for veto in tuple(self._vetoes):
            veto(event)
        listeners = tuple(self._listeners)
        self._own.append(event)
        self._snapshot = None
        self._surface.commit(event, transition)
        self._folds.take(event)
        tell_all(listeners, f"session {self.id!r}, seq {event.seq}", event)

    def subscribe(self, listener: Listener) -> Undo:
        """Tell `listener` of every later event, after it is in the log. Returns the undo."""
        return add_listener(self._listeners, listener)

    def guard(self, veto: Listener) -> Undo:
        """Let `veto` raise to refuse a candidate before it is in the log. Returns the undo."""
        return add_listener(self._vetoes, veto)


def _snapshot_data(event_type: str, data: Any) -> bytes:
    try:
        if isinstance(data, Raw):
            # JSON has line ends between its tokens only; a row of a log must have none.
            payload = bytes(data).translate(None, b"\r\n")
            decode(payload)
            return payload
        return encode_lossless(_plain(data) if isinstance(data, msgspec.Struct) else data)
    except JsonSyntaxError as error:
        raise EventRefusedError("data", event_type, f"unparsable JSON: {error.reason}") from error
    except JsonValueError as error:
        reason = f"not lossless JSON at {error.where or 'the root'}: {error.reason}"
        raise EventRefusedError("data", event_type, reason) from error


def _plain(value: Any) -> Any:
    """Return a typed payload as dicts and lists; plain values in its open fields stay, to be judged."""
    if isinstance(value, OtherBlock):
        return value.value
    if isinstance(value, tuple | list):
        members = cast("tuple[Any, ...] | list[Any]", value)
        return [*map(_plain, members)] if _is_typed_run(members) else members
    if not isinstance(value, msgspec.Struct):
        return value
    config = value.__struct_config__
    plain: dict[str, Any] = {} if config.tag is None else {cast("str", config.tag_field): config.tag}
    for field in _fields(type(value)):
        member = getattr(value, field.name)
        if not (config.omit_defaults and member is field.default):
            plain[field.encode_name] = _plain(member)
    return plain


_fields = cache(msgspec.structs.fields)


def _is_typed_run(members: tuple[Any, ...] | list[Any]) -> bool:
    return type(members) is tuple or any(
        isinstance(member, msgspec.Struct | OtherBlock) for member in members
    )


def _snapshot_sources(event_type: str, sources: Any) -> tuple[int, ...] | UnsetType:
    if sources is UNSET:
        return UNSET
    if not isinstance(sources, list | tuple) or not all(map(is_count, cast("list[Any]", sources))):
        raise SurfaceRefusedError("sources-malformed", event_type, "sources must be a list of seqs")
    return tuple(cast("list[int]", sources))


def _borrowed(event: Any) -> Event:
    """Check the parts of a seed event that its type alone does not promise."""
    if not isinstance(event, Event):
        raise EventRefusedError("envelope", type(event).__name__, "a seed holds `Event` values")
    if type(event.type) is not str:
        raise EventRefusedError("envelope", repr(event.type), "`type` is not a string")
    if not is_count(event.seq) or not is_safe_integer(event.time):
        raise EventRefusedError("envelope", event.type, "`seq` or `time` is not a safe integer")
    if event.ignorable is not UNSET and event.ignorable is not True:
        raise EventRefusedError("envelope", event.type, "`ignorable` may only be true", event.seq)
    if event.surface_op is not UNSET:
        read_surface_op(event.surface_op, event.type)
    _snapshot_sources(event.type, event.source_event_seqs)
    return msgspec.structs.replace(event, data=Raw(_snapshot_data(event.type, event.data)))


def _admit_all(events: Events) -> tuple[Surface, RequestFolds]:
    """Check every event of a seed in order and fold it. Raises on the first that must not be there."""
    surface, folds = Surface(), RequestFolds()
    expected = 0
    for row in events.rows():
        if isinstance(row, bytes):  # the line of a chunk, judged by who read it
            expected += 1
            continue
        if row.seq != expected:
            event_type = row.type if isinstance(row, Event) else CHUNK
            raise EventRefusedError("sequence", event_type, f"{expected} is the seq that follows", row.seq)
        if isinstance(row, Event):
            refuse_retired(row.type, bytes(row.data), row.seq)
            check_shape(row)
            surface.commit(row, surface.admit(row, events.at_seq))
            folds.take(row)
        expected += row.count if isinstance(row, PackedRow) else 1
    return surface, folds
