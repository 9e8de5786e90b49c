"""Loading a large log, holding it, and turning it into a replay script, beside a bare envelope decode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.measure import Row, alternating, milliseconds, resident_growth, table
from seedline.clock import ManualClock
from seedline.events.codec import RowError, read_row
from seedline.events.event import Event
from seedline.replay.script import derive_replay_script
from seedline.session.log import Session
from seedline.storage.jsonl.file import collector_off, read_log, upgraded, write_log

DECODE = msgspec.json.Decoder(Event).decode


def envelope_decode(path: Path) -> Callable[[], object]:
    """Return the limit: read the file, split it, decode every row's envelope, keep the payload raw."""

    def work() -> object:
        with collector_off():
            lines = path.read_bytes().split(b"\n")[1:-1]
            return list(_events(lines))

    return work


def _events(lines: list[bytes]) -> Iterator[object]:
    for line in lines:
        try:
            yield DECODE(line)
        except (msgspec.DecodeError, RecursionError):
            try:
                yield read_row(line)
            except RowError:  # the limit takes what it gets
                yield line


def load(path: Path) -> Callable[[], Session]:
    """Return what is measured: read, scan, check every row, fold, and build the session."""

    def work() -> Session:
        log = read_log(path)
        with collector_off():
            return Session.restore(
                log.header,
                clock=ManualClock(),
                inherited_event_count=log.inherited_event_count,
                events=upgraded(log),
            )

    return work


def to_script(path: Path) -> Callable[[], object]:
    return lambda: derive_replay_script(read_log(path).events, unfinished="cut")


def report(big: Path) -> str:
    """Measure the log `big` in three forms."""
    with tempfile.TemporaryDirectory() as scratch:
        forms = _forms(big, Path(scratch))
        limit = envelope_decode(forms["plain"])
        rows: list[Row] = []
        for name, path in forms.items():
            ours, beside = alternating(load(path), limit)
            rows.append(_row(f"load and validate, {name}", ours, beside))
        for name in ("plain", "packed"):
            ours, beside = alternating(to_script(forms[name]), limit)
            rows.append(_row(f"log to script, {name}", ours, beside))
        for name in ("plain", "packed"):
            grown = resident_growth(
                "from seedline.storage.jsonl.file import read_log",
                f"log = read_log({str(forms[name])!r})",
            )
            rows.append(
                Row(f"memory to hold the log, {name}", f"{grown / 1e6:.0f} MB", "aim 100 MB", grown / 1e8)
            )
        count = len(read_log(forms["packed"]).events)
    return table(f"A log of {count:,} events", rows)


def _row(what: str, ours: float, beside: float) -> Row:
    return Row(what, milliseconds(ours), f"{milliseconds(beside)} (envelope decode, plain)", ours / beside)


def _forms(big: Path, scratch: Path) -> dict[str, Path]:
    log = read_log(big)
    forms = {
        "plain": scratch / "plain.jsonl",
        "packed": scratch / "packed.jsonl",
        "zstd": scratch / "big.zstd",
    }
    for name, path in forms.items():
        write_log(
            path,
            log.header_line,
            log.events,
            layout="complete",
            packed=name != "plain",
            encoding="zstd" if name == "zstd" else "jsonl",
            row_text=log.row_text,
        )
    return forms
