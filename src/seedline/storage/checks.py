"""What every backend demands of its arguments before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence

from seedline.errors import BatchRefusedError
from seedline.events.event import Event
from seedline.ids import encode_segment
from seedline.jsonvalue import is_count, is_safe_integer
from seedline.session.header import SessionHeader, SessionLogOffset, check_absolute_cwd, check_header


def check_new(header: SessionHeader, inherited_event_count: SessionLogOffset) -> None:
    """Raise `HeaderRefusedError` or `SessionIdRefusedError` for a header that cannot be stored."""
    check_header(header, inherited_event_count)
    check_absolute_cwd(header)
    encode_segment(header.id)


def check_seq(seq: object) -> None:
    """Raise `ValueError` unless `seq` can be one."""
    if not is_count(seq):
        raise ValueError(f"seq {seq!r} is not a non-negative safe integer")


def check_batch(events: Sequence[Event], next_seq: int, session_id: str) -> None:
    """Raise `BatchRefusedError` unless the batch goes on at `next_seq`, contiguous, its times whole."""
    for expected, event in enumerate(events, next_seq):
        if event.seq != expected:
            reason = f"seq {event.seq} where {expected} follows"
        elif not is_safe_integer(event.time):
            reason = f"the time of seq {event.seq} is not a safe integer"
        else:
            continue
        raise BatchRefusedError(reason, session_id=session_id)


def check_prefix(count: int, stored: int, owner: str) -> None:
    """Raise `BatchRefusedError` when a prefix is longer than the log it is taken from."""
    if not is_count(count) or count > stored:
        reason = f"a prefix of {count} events was asked for, {stored} are stored"
        raise BatchRefusedError(reason, session_id=owner)
