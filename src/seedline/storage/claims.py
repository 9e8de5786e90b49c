"""How a writer of a session is come by. Everything here blocks and runs in worker threads."""

from __future__ import annotations

import msgspec

from seedline.errors import SessionExistsError, SessionNotFoundError
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage.base import Backend, Prefix, StoredSession, TornTail, Writer
from seedline.storage.prepared import SessionInspection, view_of


class Kept(msgspec.Struct, frozen=True):
    """A session that is written without a live one: its durable header and cut, and its writer."""

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    writer: Writer


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A live session that wants to be stored: what it is, and its events so far.

    `prefix` says that another stored session begins alike; `kept` is the session where it is written
    already.
    """

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events
    prefix: Prefix | None = None
    kept: Kept | None = None


class Claim(msgspec.Struct, frozen=True):
    """The writer of a session, which continues the live one at `writer.next_seq`; `torn` was cut off."""

    writer: Writer
    torn: TornTail | None = None


def claim(backend: Backend, wanted: Wanted) -> Claim:
    """Return the writer for a live session: of a new stored one, or of the one it continues.

    A stored session is continued when it has the same header but for `created_at`, which stays as stored,
    the same cut, and the live log begins with all its events. A torn tail is cut; an open turn stays open,
    since the live session ends it. Raises `SessionExistsError` for any other stored session of this id,
    `SessionBusyError`, and what `Backend.create` and `Backend.open` raise.
    """
    if wanted.kept is not None:
        return _take_over(backend, wanted, wanted.kept)
    try:
        return Claim(_create(backend, wanted))
    except SessionExistsError:
        stored, writer = backend.open(wanted.header.id)
    try:
        _refuse_other(backend, wanted, stored)
        return Claim(writer, writer.repair(()) if stored.torn else None)
    except BaseException:
        writer.close()
        raise


def _create(backend: Backend, wanted: Wanted) -> Writer:
    """Create the stored session over its prefix; without one where its owner was deleted meanwhile."""
    header, cut = wanted.header, wanted.inherited_event_count
    if wanted.prefix is None:
        return backend.create(header, cut)
    try:
        return backend.create(header, cut, wanted.prefix)
    except SessionNotFoundError:
        return backend.create(header, cut)


def _take_over(backend: Backend, wanted: Wanted, kept: Kept) -> Claim:
    _refuse_other_header(backend, wanted, kept.header, kept.inherited_event_count)
    if kept.writer.next_seq:
        _refuse_other(backend, wanted, backend.read(kept.header.id))
    return Claim(kept.writer)


def _refuse_other(backend: Backend, wanted: Wanted, stored: StoredSession) -> None:
    _refuse_other_header(backend, wanted, stored.header, stored.inherited_event_count)
    live = wanted.events[: len(stored.events)]
    if live != stored.events:
        pairs = zip(live, stored.events, strict=False)
        seq = next((one.seq for one, other in pairs if one != other), len(live))
        raise _collision(backend, wanted, f"its log is another one from seq {seq} on")


def _refuse_other_header(
    backend: Backend, wanted: Wanted, stored: SessionHeader, cut: SessionLogOffset
) -> None:
    ours, theirs = _identity(wanted.header, wanted.inherited_event_count), _identity(stored, cut)
    for field, value in ours.items():
        if value != theirs[field]:
            raise _collision(backend, wanted, f"its {field} is {theirs[field]!r}, not {value!r}")


def _identity(header: SessionHeader, cut: SessionLogOffset) -> dict[str, object]:
    return {
        "working directory": header.cwd,
        "fork seed": header.is_seeded,
        "cut": cut,
        "parent": header.parent_session,
        "origin": header.origin,
        "depth": header.depth,
        "agent preset": header.agent_preset,
        "place in its parent": header.spawn,
    }


def _collision(backend: Backend, wanted: Wanted, reason: str) -> SessionExistsError:
    return SessionExistsError(
        f"a session of this id is stored already, and {reason}",
        place=backend.name,
        session_id=wanted.header.id,
    )


class Opened(msgspec.Struct, frozen=True):
    """A stored session under its lease, repaired: nothing is torn, no turn is open."""

    inspection: SessionInspection
    writer: Writer


def open_repaired(backend: Backend, session_id: str, kept: Kept | None) -> Opened:
    """Open a cold session, cut its torn tail and append the closers of its interrupted turn.

    A log that could not be continued afterwards is refused before anything is written. Raises what
    `Backend.open`, `view_of` and `Writer.repair` raise; the lease is then given back unless it was kept.
    """
    if kept is not None:
        return _repaired(backend, backend.read(session_id), kept.writer)
    stored, writer = backend.open(session_id)
    try:
        return _repaired(backend, stored, writer)
    except BaseException:
        writer.close()
        raise


def _repaired(backend: Backend, stored: StoredSession, writer: Writer) -> Opened:
    inspection = view_of(backend, stored).inspection
    if inspection.torn is None and not inspection.closers:
        return Opened(inspection, writer)
    torn = writer.repair(tuple(inspection.closing_events))
    return Opened(msgspec.structs.replace(inspection, torn=torn or inspection.torn), writer)
