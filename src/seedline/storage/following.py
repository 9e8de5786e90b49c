"""Following a log by asking again and again, for backends that nobody tells of a change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from seedline.session.sequence import Events


def poll(
    seq: int,
    *,
    version: Callable[[], object],
    read_from: Callable[[int], Events],
    stopped: Callable[[], bool],
    wait_seconds: float,
    poll_seconds: float,
) -> Iterator[Events]:
    """Yield as `Backend.follow` promises, reading only after `version()` gave another value than before."""
    seen: object = None
    due = time.monotonic() + wait_seconds
    while not stopped():
        found = version()
        events = Events((), seq, seq) if found == seen else read_from(seq)
        seen = found
        if len(events) or time.monotonic() >= due:
            due = time.monotonic() + wait_seconds
            seq += len(events)
            yield events
        else:
            time.sleep(min(poll_seconds, wait_seconds))
