"""Everything that is wrong with a log file, and a mended copy of what can be kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from seedline.errors import (
    ArtifactError,
    EventRefusedError,
    HeaderRefusedError,
    LayoutMismatchError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.events.packing import PackedRow
from seedline.events.upgrade import Upgrader
from seedline.session import lineage
from seedline.session.guards import check_shape
from seedline.session.header import check_header
from seedline.session.repair import closers
from seedline.session.sequence import Events, Segment
from seedline.session.surface import Surface
from seedline.storage import reading
from seedline.storage.jsonl.examine import Examination, Record, examine
from seedline.storage.jsonl.file import Path, check_identity, write_rows
from seedline.storage.jsonl.scan import sequence_problem

TORN: Final = "torn"

# --- verify ----------------------------------------------------------------------------------------


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `kind` is that of the error reading would raise, or `torn`.

    `line` counts physical lines from 1, `offset` bytes of the file. A field that does not apply is None.
    """

    kind: str
    line: int | None
    offset: int | None
    seq: int | None
    message: str


class FileReport(msgspec.Struct, frozen=True):
    """What is wrong with one file, in file order. `events` counts those that read."""

    path: str
    ok: bool
    events: int
    problems: tuple[Problem, ...]


def list_problems(path: Path) -> FileReport:
    """Return everything that is wrong with a file, not only the first; nothing on disk changes.

    A torn tail counts, also a last record that lacks only its line end: `ok` means nothing is to be repaired.
    What cannot be judged behind damage, such as the surface, is judged up to it.
    """
    name = os.fspath(path)
    try:
        found = examine(name)
    except ArtifactError as error:
        return FileReport(name, False, 0, (_problem(error),))
    problems = [*_header_problems(found), *_record_problems(found), *_torn(found)]
    problems += _meaning_problems(found, problems)
    events = sum(record.events for record in found.records)
    return FileReport(name, not problems, events, tuple(problems))


def _problem(error: ArtifactError) -> Problem:
    return Problem(error.kind, error.line, error.offset, error.seq, error.reason)


def _at(record: Record, kind: str, message: str) -> Problem:
    return Problem(kind, record.line.number, record.line.offset, record.seq, message)


def _header_problems(found: Examination) -> Iterator[Problem]:
    if found.header_problem:
        yield _problem(found.header_problem)
    if found.header is None:
        return
    try:
        check_header(found.header, found.inherited_event_count)
    except HeaderRefusedError as error:
        yield Problem(error.kind, 1, None, None, str(error))
    try:
        check_identity(found.path, found.header)
    except ArtifactError as error:
        yield Problem(error.kind, 1, None, None, error.reason)


def _record_problems(found: Examination) -> Iterator[Problem]:
    expected = 0
    damaged = False
    for record in found.records[: len(found.records) - found.tail]:
        row = record.row
        if row is None:
            yield _at(record, SessionPersistenceCorruptionError.kind, _fault_text(record))
            damaged = True
            continue
        # The records that damage took leave a gap of their own: it is no second problem.
        if row.seq != expected and not (damaged and row.seq > expected):
            yield _at(record, SessionPersistenceCorruptionError.kind, sequence_problem(row.seq, expected))
        expected, damaged = row.seq + record.events, False
        problem = reading.type_problem(row) if isinstance(row, Event) else None
        if problem:
            yield _at(record, problem.kind, problem.reason)


def _fault_text(record: Record) -> str:
    return f"the line does not read: {record.reason}" if record.fault == "unparsable" else record.reason


def _torn(found: Examination) -> Iterator[Problem]:
    if found.torn_at is not None:
        size = found.size - found.torn_at
        line = found.records[-found.tail].line.number if found.tail else None
        yield Problem(TORN, line, found.torn_at, None, f"the last {size} bytes are a torn tail")
    elif found.records and not found.records[-1].line.ended:
        last = found.records[-1]
        yield _at(last, TORN, "the last record lacks its line end; it is kept")


def _meaning_problems(found: Examination, known: list[Problem]) -> Iterator[Problem]:
    """Yield what building a session from the events would refuse, each event judged by itself."""
    if found.header is None:
        return
    prefix = _contiguous(found.records)
    admission = _Admission(found.header.id, _events_of(prefix))
    refused = {problem.seq for problem in known if problem.kind != TORN}
    for record in prefix:
        if isinstance(record.row, Event) and record.row.seq not in refused:
            yield from _refusals(admission, record, record.row)
    if len(prefix) == len(found.records) - found.tail:
        try:
            lineage.check_cut(len(admission.events), found.inherited_event_count)
        except SessionPersistenceCorruptionError as error:
            yield Problem(error.kind, 1, None, None, error.reason)


def _refusals(admission: _Admission, record: Record, event: Event) -> Iterator[Problem]:
    try:
        admission.admit(event)
    except EventRefusedError as error:
        yield _at(record, error.kind, error.reason)
    except ArtifactError as error:
        yield _at(record, error.kind, error.reason)


class _Admission:
    """What upgrading and then building a session does with stored events, one by one."""

    def __init__(self, session_id: str, events: Events) -> None:
        self.events = events
        self._current: dict[int, Event] = {}
        self._upgrader = Upgrader(session_id, events.at_seq)
        self._surface = Surface()

    def admit(self, event: Event) -> None:
        """Take the next event that is no chunk. Raises `EventRefusedError` or an `ArtifactError`."""
        current = self._upgrader.upgrade(event)
        if current is not event:
            self._current[event.seq] = current
        check_shape(current)
        self._surface.commit(current, self._surface.admit(current, self._at))

    def _at(self, seq: int) -> Event:
        return self._current.get(seq) or self.events.at_seq(seq)


def _contiguous(records: list[Record]) -> list[Record]:
    """Return the leading records whose events are numbered from 0 without a gap."""
    kept: list[Record] = []
    expected = 0
    for record in records:
        if record.row is None or record.row.seq != expected:
            break
        kept.append(record)
        expected += record.events
    return kept


def _events_of(records: list[Record]) -> Events:
    segment = Segment()
    for record in records:
        if record.row is not None:
            segment.append(record.row)
    return Events((segment,), 0, segment.length)


# --- repair ----------------------------------------------------------------------------------------


class Dropped(msgspec.Struct, frozen=True):
    """Bytes of the original that the copy lacks: `bytes` of them at byte `offset`, from line `line` on."""

    line: int | None
    offset: int
    bytes: int
    reason: str


class RepairReport(msgspec.Struct, frozen=True):
    """What a mended copy holds and lacks.

    `events` counts what it keeps of the original, `appended` are the types of the closing events after them.
    `lost` is the first and the last seq that the original shows and the copy lacks, None when none is.
    `good_records_after` counts whole records behind the damage; they are not in the copy, since events are
    never renumbered.
    """

    path: str
    copy: str
    events: int
    appended: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    lost: tuple[int, int] | None
    good_records_after: int


def repair_copy(path: Path, copy: Path) -> RepairReport:
    """Write a mended copy of a complete log to a file that does not exist yet; the original stays as it is.

    The copy holds the events before the first damage, in the original's encoding and packing, and the events
    that close an open turn. One kind of damage is undone: an empty `session/end-seed` whose seq a second
    writer gave out again is left out, and the log goes on.
    Raises the `ArtifactError` of a header that cannot be read, of an event type this build does not know, of
    a damaged inherited prefix, `HeaderRefusedError` for a header that no session has, `LayoutMismatchError`
    for a projected log, and `OutputRefusedError`.
    """
    name = os.fspath(path)
    try:
        return _repair(examine(name), os.fspath(copy))
    except ArtifactError as error:
        raise error.located(path=name) from error.__cause__


def _repair(found: Examination, copy: str) -> RepairReport:
    if found.layout == "projected":
        raise LayoutMismatchError("a projected log is a recording and holds no seqs to mend it by")
    if found.header is None:
        raise found.header_problem or SessionPersistenceCorruptionError("the header is not readable")
    check_header(found.header, found.inherited_event_count)
    plan = _admitted(found.header.id, _plan(found.records))
    kept = [record for record in plan.kept if record.row]
    events = _events_of(kept)
    lineage.check_cut(len(events), found.inherited_event_count)
    added = closers(reading.upgrade(events, found.header.id))
    rows = [*(record.line.text for record in kept), *map(encode_event, added)]
    write_rows(copy, found.header_line, rows, found.encoding)
    return RepairReport(
        found.path,
        copy,
        len(events),
        tuple(event.type for event in added),
        tuple(_dropped(found, plan)),
        _lost(plan.rest, len(events)),
        sum(record.row is not None for record in plan.rest[1:]),
    )


class _Plan(NamedTuple):
    """Which records a copy keeps. `rest` begins with the damaged one, which `reason` is about."""

    kept: list[Record]
    markers: list[Record]
    rest: list[Record]
    reason: str


def _plan(records: list[Record]) -> _Plan:
    """Keep the records up to the first whose text or seq is wrong, leaving out markers given out twice."""
    kept: list[Record] = []
    markers: list[Record] = []
    expected = 0
    for at, record in enumerate(records):
        if record.row is None:
            return _Plan(kept, markers, records[at:], _fault_text(record))
        if _is_marker(record) and record.row.seq < expected:
            markers.append(record)
            continue
        if kept and _is_marker(kept[-1]) and record.row.seq == expected - 1:
            markers.append(kept.pop())
            expected -= 1
        reason = _row_damage(record.row, expected)
        if reason:
            return _Plan(kept, markers, records[at:], reason)
        kept.append(record)
        expected += record.events
    return _Plan(kept, markers, [], "")


def _is_marker(record: Record) -> bool:
    """True for an empty `session/end-seed`, which changes nothing a session derives."""
    row = record.row
    return isinstance(row, Event) and row.type == "session/end-seed" and row.value == {}


def _row_damage(row: Event | PackedRow, expected: int) -> str | None:
    """Say why the log cannot go on with `row`; raise `SessionFormatUnsupportedError` for a foreign type."""
    if row.seq != expected:
        return sequence_problem(row.seq, expected)
    problem = reading.type_problem(row) if isinstance(row, Event) else None
    if isinstance(problem, SessionFormatUnsupportedError):
        assert isinstance(row, Event)
        if not reading.looks_damaged(row.type):
            raise problem
    return problem.reason if problem else None


def _admitted(session_id: str, plan: _Plan) -> _Plan:
    """Return the plan cut before the first event that no session is built with."""
    admission = _Admission(session_id, _events_of(plan.kept))
    for at, record in enumerate(plan.kept):
        if not isinstance(record.row, Event):
            continue
        try:
            admission.admit(record.row)
        except (EventRefusedError, ArtifactError) as error:
            return plan._replace(kept=plan.kept[:at], rest=plan.kept[at:] + plan.rest, reason=error.reason)
    return plan


def _dropped(found: Examination, plan: _Plan) -> Iterator[Dropped]:
    for marker in plan.markers:
        yield _drop([marker], "an empty `session/end-seed` whose seq another writer gave out again")
    whole = plan.rest[: len(plan.rest) - found.tail]
    torn = plan.rest[len(whole) :]
    if whole:
        yield _drop(whole[:1], plan.reason)
    if whole[1:]:
        yield _drop(whole[1:], "behind the damage")
    if found.torn_at is not None:
        line = torn[0].line.number if torn else None
        yield Dropped(line, found.torn_at, found.size - found.torn_at, "torn tail")


def _drop(records: list[Record], reason: str) -> Dropped:
    first = records[0].line
    return Dropped(first.number, first.offset, sum(record.line.size for record in records), reason)


def _lost(rest: list[Record], kept: int) -> tuple[int, int] | None:
    last = max((record.row.seq + record.events - 1 for record in rest if record.row), default=-1)
    return (kept, last) if last >= kept else None
