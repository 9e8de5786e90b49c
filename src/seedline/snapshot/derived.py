"""What the rules derive of events that are handed in, so that a record cannot vouch for itself there.

Most of a fed event is given: its moment, its content. Some of it follows from the log so far. That part is
made again here, and a record that says otherwise differs (rules of replay derivability, 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from msgspec import UNSET

from seedline.agent.inbox import Inbox, Target
from seedline.agent.title import fallback_title
from seedline.events.event import CHUNK, Event, ReplaceOp
from seedline.jsonvalue import is_count
from seedline.session.log import Session
from seedline.snapshot.record import value_of

Facts = dict[str, Any]


class HandedIn(NamedTuple):
    """What to append for a fed event. `data` is the recorded payload itself where the rules agree with it."""

    data: Any
    surface_op: Any
    source_event_seqs: Any


def handed_in(event: Event, session: Session, inbox: Inbox) -> HandedIn:
    """Return what to append for a fed event that is next in `session`.

    Raises `SessionPersistenceCorruptionError` for an input splice of another shape.
    """
    derive = _DERIVED.get(event.type)
    facts = derive(event, session, inbox) if derive else {}
    recorded = value_of(event)
    data = recorded | facts
    op, sources = _compaction_marker(event, session) or (event.surface_op, event.source_event_seqs)
    return HandedIn(event.data if data == recorded else data, op, sources)


def _title(event: Event, session: Session, inbox: Inbox) -> Facts:
    """A fallback title is made of the first user message."""
    if value_of(event, "source").get("kind") != "fallback":
        return {}
    return fallback_title(session) or {"title": "", "messageSeqs": [], "source": {"kind": "fallback"}}


def _splice(event: Event, session: Session, inbox: Inbox) -> Facts:
    """A splice fits the queue it changes."""
    splice = event.payload
    waiting = len(inbox.waiting(cast("Target", splice.target)))
    start = min(max(splice.start, 0), waiting)
    if splice.removed_count is None:
        return {"start": start}
    return {"start": start, "removedCount": min(splice.removed_count, waiting - start)}


# --- retries ---------------------------------------------------------------------------------------------


def _retry(event: Event, session: Session, inbox: Inbox) -> Facts:
    """A retry follows from the failure before it and from the retries of its step; the wait is given."""
    header = session.request_header()
    return {
        **_place(session),
        "provider": header.config.provider if header else None,
        "retry": 1 + _retries_so_far(event, session),
        "failure": _last_failure(session),
    }


def _retry_started(event: Event, session: Session, inbox: Inbox) -> Facts:
    retry = _last(session, "llm/retry")
    return {name: retry.get(name) for name in ("retryId", "turn", "step", "retry")}


def _place(session: Session) -> Facts:
    """Return turn and step of the step under way."""
    step = _last(session, "step/start")
    return {name: step.get(name) for name in ("turn", "step")}


def _retries_so_far(event: Event, session: Session) -> int:
    """Count the retries of this step under the same policy; policies count apart."""
    policy = value_of(event).get("policyKey")
    count = 0
    for earlier in session.events.without_chunks_reversed():
        if earlier.type == "step/start":
            break
        count += earlier.type == "llm/retry" and value_of(earlier).get("policyKey") == policy
    return count


def _last_failure(session: Session) -> Any:
    for seq in range(session.seq - 1, -1, -1):
        event = session.events.at_seq(seq)
        if event.type == CHUNK:
            return value_of(event, "chunk", "reason").get("failure")
    return None


# --- compaction ------------------------------------------------------------------------------------------


def _summary(event: Event, session: Session, inbox: Inbox) -> Facts:
    """A summary belongs to the compaction that began last, and shadows what stands between its two ends."""
    return _of_compaction(session, "compactionId") | {"shadowedSeqs": _shadowed(event, session)}


def _prune(event: Event, session: Session, inbox: Inbox) -> Facts:
    return {"shadowedSeqs": _shadowed(event, session)}


def _compaction_end(event: Event, session: Session, inbox: Inbox) -> Facts:
    return _of_compaction(session, "compactionId", "turn")


def _of_compaction(session: Session, *names: str) -> Facts:
    start = _last(session, "compaction/start")
    return {name: start.get(name) for name in names}


def _shadowed(event: Event, session: Session) -> list[int]:
    """Return the surface between the two ends of a shadowed range, nothing when an end is not on it."""
    shadowed = value_of(event, "shadowedRange")
    first, last = shadowed.get("start"), shadowed.get("end")
    surface = session.surface
    if first not in surface or last not in surface:
        return []
    return list(surface[surface.index(first) : surface.index(last) + 1])


def _compaction_marker(event: Event, session: Session) -> tuple[Any, Any] | None:
    """Return surface marker and sources of the message that stands for a summary, None for any other event.

    It follows the summary of a compaction at once and cites start, summary and all that they shadow.
    """
    compaction = value_of(event, "source").get("compactionId") if event.type == "user/message" else None
    start = _last_event(session, "compaction/start")
    if compaction is None or start is None or value_of(start).get("compactionId") != compaction:
        return None
    summary = session.events[-1]
    ends = value_of(summary, "shadowedRange")
    first, last = ends.get("start"), ends.get("end")
    if summary.type != "compaction/summary" or not (is_count(first) and is_count(last)):
        return UNSET, UNSET
    sources = (start.seq, summary.seq, *value_of(summary).get("shadowedSeqs", ()))
    return ReplaceOp("replace", cast("int", first), cast("int", last)), sources


def _last_event(session: Session, event_type: str) -> Event | None:
    found = (event for event in session.events.without_chunks_reversed() if event.type == event_type)
    return next(found, None)


def _last(session: Session, event_type: str) -> Facts:
    """Return the payload of the last event of a type, empty where there is none."""
    event = _last_event(session, event_type)
    return value_of(event) if event else {}


_DERIVED: Final[dict[str, Callable[[Event, Session, Inbox], Facts]]] = {
    "session/title": _title,
    "agent/inbox/spliced": _splice,
    "llm/retry": _retry,
    "llm/retry-started": _retry_started,
    "compaction/summary": _summary,
    "compaction/prune": _prune,
    "compaction/end": _compaction_end,
}
