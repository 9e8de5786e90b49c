"""A log file that lost its end, or one byte of it: never a wrong log, and no error but our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seedline.errors import ArtifactError, NotASessionError, SessionPersistenceCorruptionError
from seedline.storage.jsonl.file import LogFile, read_log
from tests.conftest import SWEEP
from tests.properties.whole_logs import Encoding, Whole, single_row_log, whole_logs
from tests.unit.storage.logs import shown

every_encoding = pytest.mark.parametrize("encoding", ["jsonl", "zstd"])
places = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def read(data: bytes) -> LogFile | ArtifactError:
    """The log of a file with these bytes, or the error that reading it raised."""
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        try:
            return read_log(file.name)
        except ArtifactError as error:
            return error


# --- a lost end --------------------------------------------------------------------------------------


def check_cut(whole: Whole, size: int) -> None:
    found, durable = read(whole.data[:size]), whole.before(size)
    if durable is None:
        assert isinstance(found, NotASessionError)
    elif isinstance(found, ArtifactError):
        # The only thing that a cut can make wrong: less is left than was inherited.
        assert isinstance(found, SessionPersistenceCorruptionError)
        assert whole.seed is not None
        assert durable < whole.seed
    else:
        check_prefix(found, whole, durable)
        check_torn(found, whole, size)


def check_prefix(found: LogFile, whole: Whole, durable: int) -> None:
    """The true first events: all that are durable, and what a torn frame gives beyond them."""
    assert shown(found.events) == whole.events[: len(found.events)]
    assert len(found.events) == durable + found.recovered
    assert found.recovered == 0 or found.encoding == "zstd"


def check_torn(found: LogFile, whole: Whole, size: int) -> None:
    clean = whole.data[:size].endswith(b"\n") if found.encoding == "jsonl" else size in dict(whole.ends)
    assert (found.torn is None) is clean
    if found.torn:
        assert found.torn.offset + found.torn.bytes == size


@every_encoding
@given(data=st.data(), places=places)
def test_a_log_cut_anywhere_is_torn_or_refused(
    encoding: Encoding, data: st.DataObject, places: list[float]
) -> None:
    whole = data.draw(whole_logs(encoding))
    for place in places:
        check_cut(whole, round(place * len(whole.data)))


@every_encoding
@settings(max_examples=100 if SWEEP else 8)
@given(data=st.data())
def test_every_cut_of_a_few_logs(encoding: Encoding, data: st.DataObject) -> None:
    whole = data.draw(whole_logs(encoding))
    for size in range(len(whole.data) + 1):
        check_cut(whole, size)


# --- one byte ----------------------------------------------------------------------------------------

Edit = Callable[[bytes, int], bytes]


def flipped(bit: int) -> Edit:
    return lambda data, at: data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def inserted(byte: int) -> Edit:
    return lambda data, at: data[:at] + bytes([byte]) + data[at:]


def deleted(data: bytes, at: int) -> bytes:
    return data[:at] + data[at + 1 :]


edits = st.integers(0, 7).map(flipped) | st.integers(0, 255).map(inserted) | st.just(deleted)
within = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), edits), min_size=1, max_size=12)


@given(whole_logs("jsonl"), within)
def test_one_wrong_byte_of_a_plain_log_raises_only_our_errors(
    whole: Whole, changes: list[tuple[float, Edit]]
) -> None:
    for place, edit in changes:
        read(edit(whole.data, int(place * len(whole.data))))


def check_checked(whole: Whole, data: bytes) -> None:
    """Frames with checksums: an error, or the true events; a torn tail may cost the last of them."""
    found = read(data)
    if isinstance(found, LogFile):
        assert shown(found.events) == whole.events[: len(found.events)]
        assert found.torn or len(found.events) == len(whole.events)


@given(whole_logs("zstd"), within)
def test_one_wrong_byte_of_a_compressed_log_never_gives_another_log(
    whole: Whole, changes: list[tuple[float, Edit]]
) -> None:
    for place, edit in changes:
        check_checked(whole, edit(whole.data, int(place * len(whole.data))))


@settings(max_examples=100 if SWEEP else 8)
@given(whole_logs("zstd"), st.integers(0, 7), st.integers(0, 255))
@example(single_row_log(), 5, 0)
def test_every_wrong_byte_of_a_few_compressed_logs(whole: Whole, bit: int, byte: int) -> None:
    for at in range(len(whole.data)):
        for edit in (flipped(bit), inserted(byte), deleted):
            check_checked(whole, edit(whole.data, at))
