"""`seedline repair`: a mended copy of a damaged log, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from seedline.cli.answer import Answer
from seedline.cli.documents import RepairDocument
from seedline.cli.people import Block, Facts, Line
from seedline.storage.jsonl.verify import RepairReport, repair_copy


def repair_file(source: str, target: str) -> Answer:
    """Write a mended copy of `source` to the new file `target` and return what was kept and what was not.

    Raises `ArtifactError` for what cannot be mended and `OutputRefusedError` for the target.
    """
    document = _document(repair_copy(source, target))
    return Answer(document, _people(document))


def _document(report: RepairReport) -> RepairDocument:
    return {
        "path": report.path,
        "out": report.copy,
        "events": report.events,
        "appended": list(report.appended),
        "dropped": [
            {"line": each.line, "offset": each.offset, "bytes": each.bytes, "reason": each.reason}
            for each in report.dropped
        ],
        "lostSeqs": report.lost and {"first": report.lost[0], "last": report.lost[1]},
        "goodRecordsAfter": report.good_records_after,
    }


def _people(document: RepairDocument) -> Iterator[Block]:
    appended = ", ".join(document["appended"])
    lost = document["lostSeqs"]
    yield Facts(
        [
            ("wrote", document["out"]),
            ("kept", f"{document['events']} events"),
            ("appended", appended or "nothing"),
            ("lost seqs", f"{lost['first']} to {lost['last']}" if lost else "none"),
            ("not kept", f"{document['goodRecordsAfter']} good records behind the damage"),
        ]
    )
    for each in document["dropped"]:
        line = "" if each["line"] is None else f"line {each['line']}, "
        yield Line(f"dropped {each['bytes']} bytes at {line}byte {each['offset']}: {each['reason']}", "bad")
