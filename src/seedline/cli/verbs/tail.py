"""`seedline tail`: the last events of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

from seedline.cli.answer import Answer
from seedline.cli.documents import TailDocument
from seedline.cli.people import Block, Columns
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.jsonvalue import decode
from seedline.storage.jsonl.file import read_log
from seedline.storage.open import open_store

_WIDTH = 100


def tail_of_session(name: str, count: int, url: str | None) -> Answer:
    """Return the last `count` events of a log file, or of the session of that id where a store is named.

    Without a store, a name that is no file is an id of the default store.
    """
    if url is None and os.path.exists(name):
        log = read_log(name)
        session_id, events = log.header.id, list(log.events[max(0, len(log.events) - count) :])
    else:
        session_id, events = name, _stored_tail(name, count, url)
    rows = [cast("dict[str, Any]", decode(encode_event(event))) for event in events]
    document: TailDocument = {"path": name, "id": session_id, "events": rows}
    return Answer(document, _people(events))


def _stored_tail(session_id: str, count: int, url: str | None) -> list[Event]:
    store = open_store(url)
    try:
        events = store.read(session_id).events
        return list(events[max(0, len(events) - count) :])
    finally:
        store.close()


def _people(events: list[Event]) -> Iterator[Block]:
    rows = [(str(event.seq), event.type, _short(bytes(event.data))) for event in events]
    yield Columns(("seq", "event", "data"), rows)


def _short(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
