"""Damaged log files of every structure: only errors of the tree escape, and all ways to read agree.

Seconds long; ten minutes with SEEDLINE_SWEEP=1. SEEDLINE_SEED is the first seed; a failure prints its own.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import zstandard
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from seedline.errors import SeedlineError
from seedline.events.codec import canonical_event
from seedline.session.repair import closers
from seedline.storage.jsonl.file import LogFile, check_identity, read_log, upgraded, write_log
from seedline.storage.jsonl.verify import TORN, list_problems, repair_copy
from tests.conftest import SWEEP
from tests.properties.whole_logs import whole_logs
from tests.unit.storage.logs import frame

SECONDS = 600 if SWEEP else 6
FIRST_SEED = int(os.environ.get("SEEDLINE_SEED", "0"))
ROUND = 1000
"""Examples for one seed."""
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# --- lines -------------------------------------------------------------------------------------------

Lines = list[bytes]
VALUES: Final = [
    b"9" * 400,
    b"-" + b"9" * 30,
    b"1e999",
    b"-1e-999",
    b"1e400000000000",
    b"9007199254740993",
    b"-0",
    b"-0.0",
    b"-1",
    b"1.5",
    b"007",
    b"NaN",
    b"-Infinity",
    b"true",
    b"null",
    b"{}",
    b"[]",
    b'""',
    b'"\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"\0" * 50,
    b'{"a":1,"a":2}',
    b'"turn/end"',
    b'"text-chunks"',
    b'"session"',
    b'"mode/set"',
    b'"steering/message"',
    b'"tool/result"',
]
DEEP_VALUES: Final = [
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 3000 + b"0" + b"}" * 3000,
    b"[" * 100_000,
    b"[" * 700 + b"]" * 700,
    b"9" * 5000,
]
LINES: Final = [
    b"",
    b" \t\r",
    b"\0" * 64,
    b"\xef\xbb\xbf{}",
    b"\xfe\xff\0{",
    b"{",
    b"}",
    b"null",
    b"17",
    b'"text"',
    b"[]",
    b"{}",
    b"garbage",
    b"\x28\xb5\x2f\xfd",
    b"\xe2\x80\xa8",
    b"x" * 300_000,
    b'{"type":"session","version":0,"id":"t","createdAt":1,"delegationDepth":0}',
    b'{"type":"session","version":7}',
    b'{"type":"turn/end","seq":0,"time":0,"data":{}}',
    b'{"type":"turn/start","data":{"turn":1}}',
    b'{"type":"text-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}}',
    b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[9007199254740991,1],"texts":["","",""]}}',
]
_VALUE = re.compile(rb'(?<=[:\[,])(?:"(?:[^"\\]|\\.)*"|-?\d+|true)(?!:)')


def swapped(lines: Lines, at: int, other: int) -> Lines:
    lines[at], lines[other] = lines[other], lines[at]
    return lines


def moved(lines: Lines, at: int, other: int) -> Lines:
    lines.insert(other, lines.pop(at))
    return lines


def repeated(lines: Lines, at: int, other: int) -> Lines:
    return [*lines[:at], lines[other], *lines[at:]]


def lost(lines: Lines, at: int, other: int) -> Lines:
    return lines[:at] + lines[max(at + 1, other) :]


def truncated(lines: Lines, at: int, other: int) -> Lines:
    return [*lines[:at], lines[at][: len(lines[at]) * other // len(lines)], *lines[at + 1 :]]


def glued(lines: Lines, at: int, other: int) -> Lines:
    return [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]]


def foreign(line: bytes) -> Callable[[Lines, int, int], Lines]:
    return lambda lines, at, other: [*lines[:at], line, *lines[at:]]


def with_value(value: bytes) -> Callable[[Lines, int, int], Lines]:
    """Another value in some field of a line."""

    def edit(lines: Lines, at: int, other: int) -> Lines:
        places = list(_VALUE.finditer(lines[at]))
        if places:
            place = places[other % len(places)]
            lines[at] = lines[at][: place.start()] + value + lines[at][place.end() :]
        return lines

    return edit


line_edits = st.one_of(
    st.sampled_from([swapped, moved, repeated, lost, truncated, glued]),
    st.sampled_from(LINES).map(foreign),
    st.sampled_from(VALUES).map(with_value),
    st.sampled_from(DEEP_VALUES).map(with_value),
)


def edited(
    draw: st.DrawFn, parts: list[bytes], edits: st.SearchStrategy[Callable[..., list[bytes]]]
) -> Lines:
    for edit in draw(st.lists(edits, max_size=3)):
        if parts:
            # The first part is the header, behind which the rest is seldom looked at.
            place = st.integers(len(parts) > 1, len(parts) - 1) | st.integers(0, len(parts) - 1)
            parts = edit(list(parts), draw(place), draw(place))
    return parts


# --- frames ------------------------------------------------------------------------------------------


def with_byte(offset: int, mask: int) -> Callable[[Lines, int, int], Lines]:
    """A frame with bits of one byte changed: its magic, its descriptor, its sizes, a block's header."""

    def edit(frames: Lines, at: int, other: int) -> Lines:
        data = bytearray(frames[at])
        if data:
            data[offset % len(data)] ^= mask
        return [*frames[:at], bytes(data), *frames[at + 1 :]]

    return edit


SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
FRAMES: Final = [
    b"",
    b"\x28",
    b"\x28\xb5\x2f\xfd",
    b"\x28\xb5\x2f\xfd\x20\x05\x07\0\0",
    b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\0\0",
    b"\x28\xb5\x2f\xfd\x00\xff\x03\0\x02x",
    b"\x28\xb5\x2f\xfd\x24\x00\x01\0\0\x99\xe9\xd8\x51",
    SKIPPABLE,
    frame(b""),
    frame(b"\n\n"),
    frame(b"no end"),
    frame(b"\0" * 100_000),
    frame(b'{"type":"turn/start","seq":0,"time":0,"data":{}}\n', write_checksum=False),
    b"\0" * 16,
    b"\n",
]
frame_edits = st.one_of(
    st.sampled_from([swapped, moved, repeated, lost, truncated, glued]),
    st.sampled_from(FRAMES).map(foreign),
    st.builds(with_byte, st.integers(0, 12) | st.integers(-8, -1), st.integers(1, 255)),
)


def compressed(draw: st.DrawFn, lines: Sequence[bytes], end: bytes) -> bytes:
    size = draw(st.integers(1, 4))
    first = draw(st.sampled_from([1, 1, 1, 1, 1, 1, 2, 0]))
    texts = [lines[:first], *(lines[at : at + size] for at in range(first, len(lines), size))]
    compressor = zstandard.ZstdCompressor(
        write_checksum=draw(st.booleans()), write_content_size=draw(st.booleans()), level=-1
    )
    frames = [compressor.compress(b"".join(line + end for line in text)) for text in texts]
    return b"".join(edited(draw, frames, frame_edits))


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A log in either encoding, its lines changed, then its frames or its end."""
    lines = draw(whole_logs("jsonl")).data.split(b"\n")[:-1]
    lines = edited(draw, lines, line_edits)
    end = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]))
    if draw(st.booleans()):
        return compressed(draw, lines, end)
    head = draw(st.sampled_from([*[b""] * 9, b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b"\0"]))
    tail = draw(st.sampled_from([b"", b"", *LINES]))
    return head + b"".join(line + end for line in lines) + tail


# --- what must hold ----------------------------------------------------------------------------------


def check(folder: Path, data: bytes) -> None:
    path, copy, mended = (folder / name for name in ("log", "copy", "mended"))
    for made in (copy, mended):
        made.unlink(missing_ok=True)
    path.write_bytes(data)
    log = None
    with suppress(SeedlineError):
        log = read_log(path)
    report = list_problems(path)
    if log:
        check_log(log, copy)
        assert report.events == len(log.events)
        assert (TORN in [problem.kind for problem in report.problems]) is (log.torn is not None)
    assert not report.ok or (log is not None and log.torn is None)
    check_mending(path, mended)
    assert path.read_bytes() == data


def check_log(log: LogFile, copy: Path) -> None:
    events = list(map(canonical_event, log.events))
    assert [event.seq for event in log.events] == list(range(len(events)))
    assert all(log.row_text(event) for event in log.events)
    with suppress(SeedlineError):
        check_identity(log.path, log.header)
    with suppress(SeedlineError):
        closers(upgraded(log))
    write_log(copy, log.header_line, log.events, layout="complete", packed=True, encoding="zstd")
    assert list(map(canonical_event, read_log(copy).events)) == events


def check_mending(path: Path, mended: Path) -> None:
    try:
        report = repair_copy(path, mended)
    except SeedlineError:
        assert not mended.exists()
        return
    found = list_problems(mended)
    note(str(found))
    assert found.ok
    assert found.events == report.events + len(report.appended)


def test_only_errors_of_the_tree_escape(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    number = FIRST_SEED
    while time.monotonic() < end:
        run_round(tmp_path, number)
        number += 1


def run_round(folder: Path, number: int) -> None:
    """One round of damaged files, all decided by one number."""

    @seed(number)
    @settings(max_examples=ROUND, database=None, suppress_health_check=SLOW)
    @given(damaged_files())
    def every_file_holds(data: bytes) -> None:
        check(folder, data)

    try:
        every_file_holds()
    except BaseException:
        print(f"SEEDLINE_SEED={number} runs this round first")
        raise
