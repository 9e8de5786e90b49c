"""`seedline inspect`: what a session log holds, of its events as stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import msgspec

from seedline.cli.answer import Answer
from seedline.cli.digest import events_digest, list_digest
from seedline.cli.documents import InspectDocument, Messages, NoFigure, SurfaceFigures, TornTail
from seedline.cli.people import Block, Columns, Facts, Line
from seedline.clock import SystemClock
from seedline.errors import SeedlineError
from seedline.events.codec import read_header_line
from seedline.events.event import CHUNK, Event
from seedline.session import lineage
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.session.sequence import Events
from seedline.session.surface import LogMessage, fold_surface
from seedline.storage.jsonl.file import LogFile, check_identity, read_log

T = TypeVar("T")


def inspect_file(path: str, *, with_digest: bool) -> Answer:
    """Return what the file holds. Raises `ArtifactError`; writes nothing.

    What a log's events do not allow to compute stands in the document as an error of its own.
    """
    log = read_log(path)
    check_identity(path, log.header)
    document = _document(path, log, with_digest)
    return Answer(document, _people(document))


def _document(path: str, log: LogFile, with_digest: bool) -> InspectDocument:
    return {
        "path": path,
        "layout": log.layout,
        "encoding": log.encoding,
        "header": header_value(log.header_line),
        "inheritedEventCount": log.inherited_event_count,
        "events": len(log.events),
        "ownEvents": len(lineage.own(log.events, log.inherited_event_count)),
        "typeCounts": type_counts(log.events),
        "digest": events_digest(log.events) if with_digest else None,
        "messages": _or_error(lambda: _messages(log, with_digest)),
        "surface": _or_error(lambda: _surface(log.events)),
        "closers": _or_error(lambda: [event.type for event in closers(log.events)]),
        "torn": torn_value(log),
    }


def header_value(line: bytes) -> dict[str, Any]:
    """Return the header's members as logical facts: those the line has, and `isSeeded` for `seedLength`."""
    physical = read_header_line(line, projected=True)
    value = cast("dict[str, Any]", msgspec.to_builtins(physical))
    return value | {"isSeeded": value.pop("seedLength", None) is not None}


def torn_value(log: LogFile) -> TornTail | None:
    """Return what is torn off at the end of the file, None when the file ends cleanly."""
    torn = log.torn
    return torn and {"offset": torn.offset, "bytes": torn.bytes, "reason": torn.reason}


def type_counts(events: Events) -> dict[str, int]:
    """Return how many events there are of each type, by name. Chunks are counted unread."""
    counts = Counter[str]()
    for row in events.rows():
        if isinstance(row, Event):
            counts[row.type] += 1
        else:
            counts[CHUNK] += 1 if isinstance(row, bytes) else row.count
    return dict(sorted(counts.items()))


def _messages(log: LogFile, with_digest: bool) -> Messages:
    """The messages the model would see, after every check that building the session makes."""
    session = Session.restore(
        log.header,
        clock=SystemClock(),
        inherited_event_count=log.inherited_event_count,
        events=log.events,
    )
    messages = session.derive_messages()
    digest = list_digest(message.data for message in messages) if with_digest else None
    return {"count": len(messages), "roles": list(map(_role, messages)), "digest": digest}


def _role(message: LogMessage) -> str:
    return message.value["role"]


def _surface(events: Events) -> SurfaceFigures:
    surface = fold_surface((row for row in events.rows() if isinstance(row, Event)), events.at_seq)
    return {"nodes": len(surface.nodes), "replacements": len(surface.replacements)}


def _or_error(compute: Callable[[], T]) -> T | NoFigure:
    try:
        return compute()
    except SeedlineError as error:
        seq = getattr(error, "seq", None)
        return {"error": {"kind": error.kind, "seq": seq, "message": str(error)}}


# --- for people ----------------------------------------------------------------------------------


def _people(document: InspectDocument) -> Iterator[Block]:
    header, counts = document["header"], document["typeCounts"]
    yield Facts([*_header_facts(header), *_body_facts(document)])
    if counts:
        yield Line("")
        yield Columns(("type", "events"), [(name, str(count)) for name, count in counts.items()])


def _header_facts(header: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "session", header["id"]
    yield "created", moment(header["createdAt"])
    for name, label in (("cwd", "folder"), ("parentSession", "parent"), ("origin", "origin")):
        if name in header:
            yield label, header[name]
    if "agentPreset" in header:
        yield "preset", header["agentPreset"]


def _body_facts(document: InspectDocument) -> Iterator[tuple[str, str]]:
    yield "file", f"{document['path']} ({document['layout']}, {document['encoding']})"
    inherited = document["inheritedEventCount"]
    own = f", {inherited} inherited and {document['ownEvents']} own" if document["header"]["isSeeded"] else ""
    yield "events", f"{document['events']}{own}"
    yield "messages", _shown(document["messages"], lambda found: _counted(found["count"], found["roles"]))
    yield "surface", _shown(document["surface"], _surface_text)
    yield "repair", _shown(document["closers"], _closers_text)
    yield "torn", _torn_text(document["torn"])
    if document["digest"]:
        yield "digest", document["digest"]


def moment(milliseconds: int) -> str:
    """Return a time of the log in UTC, or the number where the calendar ends."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def _shown(figure: T | NoFigure, show: Callable[[T], str]) -> str:
    if isinstance(figure, dict) and "error" in figure:
        return f"cannot be computed: {cast('NoFigure', figure)['error']['message']}"
    return show(cast("T", figure))


def _counted(count: int, names: Iterable[str]) -> str:
    kinds = ", ".join(f"{number} {name}" for name, number in Counter(names).items())
    return f"{count} ({kinds})" if count else "0"


def _surface_text(surface: SurfaceFigures) -> str:
    return f"{surface['nodes']} nodes, {surface['replacements']} replacements"


def _closers_text(types: list[str]) -> str:
    return f"would append {', '.join(types)}" if types else "nothing to append"


def _torn_text(torn: TornTail | None) -> str:
    if torn is None:
        return "nothing"
    if not torn["bytes"]:
        return "only the last line end; that record is kept"
    return f"{torn['bytes']} bytes from byte {torn['offset']} on ({torn['reason']})"
