"""`seedline convert`: the same log in another layout, packing or encoding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, NamedTuple

from seedline.cli.answer import Answer
from seedline.cli.documents import ConvertDocument
from seedline.cli.people import Block, Facts
from seedline.cli.verbs.inspect import torn_value
from seedline.storage.jsonl.file import LogFile, check_identity, read_log, write_log

Layout = Literal["complete", "projected"]
Packing = Literal["packed", "unpacked"]
Encoding = Literal["jsonl", "zstd"]


class Form(NamedTuple):
    """How a log is to be written; None leaves the choice to `settled`."""

    layout: Layout | None = None
    packing: Packing | None = None
    encoding: Encoding | None = None

    def settled(self, log: LogFile, target: str) -> tuple[Layout, Packing, Encoding]:
        """Return the form with nothing left open: the log's layout, packed, encoded as `target` ends."""
        # A header alone is in no layout; written as projected it keeps its line as it stands.
        layout: Layout = "complete" if log.layout == "complete" else "projected"
        encoding: Encoding = "zstd" if target.endswith(".zstd") else "jsonl"
        return self.layout or layout, self.packing or "packed", self.encoding or encoding


def convert_file(source: str, target: str, form: Form) -> Answer:
    """Write the log of `source` to the new file `target` and return what was written.

    Every good event is kept as it is; a torn tail is left behind and reported. Raises `ArtifactError` for
    the source and `OutputRefusedError` for the target.
    """
    log = read_log(source)
    check_identity(source, log.header)
    layout, packing, encoding = form.settled(log, target)
    write_log(
        target,
        log.header_line,
        log.events,
        layout=layout,
        packed=packing == "packed",
        encoding=encoding,
        row_text=log.row_text,
    )
    document: ConvertDocument = {
        "path": source,
        "out": target,
        "layout": layout,
        "packing": packing,
        "encoding": encoding,
        "events": len(log.events),
        "bytes": os.stat(target).st_size,
        "torn": torn_value(log),
    }
    return Answer(document, _people(document), notices=list(_notices(log, target)))


def _notices(log: LogFile, target: str) -> Iterator[str]:
    if log.torn and log.torn.bytes:
        yield (
            f"{log.path}: {log.torn.bytes} torn bytes from byte {log.torn.offset} on ({log.torn.reason}) "
            f"are not in {target}; the file itself still holds them."
        )


def _people(document: ConvertDocument) -> Iterator[Block]:
    form = f"{document['layout']}, {document['packing']}, {document['encoding']}"
    yield Facts(
        [
            ("wrote", f"{document['out']} ({form})"),
            ("events", str(document["events"])),
            ("bytes", str(document["bytes"])),
        ]
    )
