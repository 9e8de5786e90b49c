"""`seedline ls`: what a store holds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from seedline.cli.answer import Answer
from seedline.cli.documents import ListDocument, ListedSessionFigures, Missing
from seedline.cli.exits import DONE, UNREADABLE
from seedline.cli.people import Block, Columns, Line
from seedline.errors import ArtifactError
from seedline.session.sequence import Events
from seedline.storage.base import Backend, ListedSession
from seedline.storage.open import open_store


def list_sessions(url: str | None, limit: int) -> Answer:
    """Return the newest `limit` sessions of a store with their titles, all for 0; damaged ones always.

    Only the logs of those shown are read, for their titles. The exit code tells of a damaged one.
    """
    store = open_store(url)
    try:
        sound, damaged = _parted(store)
        shown = sound[:limit] if limit else sound
        sessions = [*(_figures(store, one) for one in shown), *(_figures(store, one) for one in damaged)]
        document: ListDocument = {"sessions": sessions, "more": len(sound) - len(shown)}
    finally:
        store.close()
    is_whole = all(one["error"] is None for one in sessions)
    return Answer(document, _people(document), DONE if is_whole else UNREADABLE)


def _parted(store: Backend) -> tuple[list[ListedSession], list[ListedSession]]:
    """Return the sessions whose headers read, the newest first, and the others."""
    sound: list[ListedSession] = []
    damaged: list[ListedSession] = []
    for one in store.list():
        (damaged if one.error or one.header is None else sound).append(one)
    sound.sort(key=lambda one: (-(one.header.created_at if one.header else 0), one.place))
    return sound, sorted(damaged, key=lambda one: one.place)


def _figures(store: Backend, listed: ListedSession) -> ListedSessionFigures:
    header, error, title = listed.header, listed.error, None
    if error is None and header is not None:
        try:
            title = _title(store.read(header.id).events)
        except ArtifactError as damage:
            error = damage
    return {
        "id": header.id if header else listed.session_id,
        "place": listed.place,
        "title": title,
        "createdAt": header and header.created_at,
        "cwd": header and header.cwd,
        "parentSession": header and header.parent_session,
        "origin": header and header.origin,
        "error": error and _missing(error),
    }


def _title(events: Events) -> str | None:
    for event in events.without_chunks_reversed():
        if event.type == "session/title":
            title = getattr(event.payload, "title", None)
            return title if isinstance(title, str) else None
    return None


def _missing(error: ArtifactError) -> Missing:
    return {"kind": error.kind, "seq": error.seq, "message": str(error)}


def _people(document: ListDocument) -> Iterator[Block]:
    rows = [_row(one) for one in document["sessions"]]
    if rows:
        yield Columns(("created", "id", "title", "folder"), rows)
    else:
        yield Line("no sessions", "quiet")
    if document["more"]:
        yield Line(f"{document['more']} more; -n 0 shows all", "quiet")


def _row(one: ListedSessionFigures) -> tuple[str, str, str, str]:
    created = one["createdAt"]
    when = "" if created is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(created / 1000))
    title = one["error"]["message"] if one["error"] else one["title"] or ""
    return when, one["id"] or one["place"], title, one["cwd"] or ""
