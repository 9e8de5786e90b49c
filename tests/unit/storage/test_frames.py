"""Zstd frames: walked without decompressing, verified, bounded, and recovered where the last is torn."""

from __future__ import annotations

import threading

import pytest
import zstandard

from seedline.errors import ArtifactTooLargeError, SessionPersistenceCorruptionError
from seedline.storage.jsonl import frames
from seedline.storage.jsonl.frames import (
    Frame,
    check_size,
    compress_frame,
    default_limit,
    next_frame,
    read_frames,
    recover,
    scan_frame,
    whole_frames,
)
from tests.unit.storage.logs import frame

TEXTS = [b"a\n", b"", b"x" * 300, b"ab" * 40_000, bytes(range(256)) * 9_000]


def text_of(data: bytes, found: list[Frame]) -> bytes:
    return b"".join(read_frames(data, found))


@pytest.mark.parametrize("text", TEXTS, ids=map(str, map(len, TEXTS)))
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("level", [-5, 3, 19])
def test_a_frame_of_any_form_reads(text: bytes, sized: bool, level: int) -> None:
    data = frame(text, write_content_size=sized, level=level)
    found, end = whole_frames(data)
    assert [(each.start, each.stop) for each in found] == [(0, len(data))]
    assert end == len(data)
    assert found[0].declared is sized
    assert found[0].bound == len(text) if sized else found[0].bound >= len(text)
    assert text_of(data, found) == text


def test_frames_stand_side_by_side_and_pieces_span_none() -> None:
    data = b"".join(map(frame, TEXTS))
    found, end = whole_frames(data)
    assert end == len(data)
    assert [text_of(data, [each]) for each in found] == TEXTS
    assert max(map(len, read_frames(data, found))) <= 1 << 20


def test_a_frame_without_a_checksum_reads() -> None:
    data = frame(b"hello", write_checksum=False)
    assert text_of(data, whole_frames(data)[0]) == b"hello"


def test_many_threads_compress_at_once() -> None:
    """A compressor of the library must not be shared."""
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.append(compress_frame(b"q" * 50_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {text_of(data, whole_frames(data)[0]) for data in made} == {b"q" * 50_000}
    assert len({zstandard.get_frame_parameters(data).has_checksum for data in made}) == 1
    assert zstandard.get_frame_parameters(made[0]).has_checksum


# --- torn ------------------------------------------------------------------------------------------


def test_every_cut_of_the_last_frame_is_torn_at_its_start() -> None:
    first, last = frame(b"one\n"), frame(b"two\n" * 50_000, level=1)
    for size in range(1, len(last)):
        found, end = whole_frames(first + last[:size])
        assert len(found) == 1
        assert end == len(first)


def test_a_torn_frame_gives_the_text_before_the_tear() -> None:
    text = b"".join(b'{"line":%d}\n' % (k * k) for k in range(40_000))
    data = frame(text)
    for size in (0, 1, 4, 5, 9, 1000, len(data) // 2, len(data) - 10):
        got = b"".join(recover(data[:size], 0, 1 << 30))
        assert text.startswith(got)
    assert len(b"".join(recover(data[: len(data) // 2], 0, 1 << 30))) > len(text) // 4


def test_a_frame_that_lacks_only_its_checksum_gives_all() -> None:
    data = frame(b"two\n" * 1000)
    for missing in range(1, 5):
        assert b"".join(recover(data[:-missing], 0, 1 << 20)) == b"two\n" * 1000


def test_a_damaged_torn_frame_gives_nothing() -> None:
    header, block = b"\x20\x05", (10 << 3 | 2 << 1).to_bytes(3, "little") + b"\xff" * 10
    data = frames.MAGIC + header + block
    assert scan_frame(data, 0) is None
    assert b"".join(recover(data, 0, 1 << 30)) == b""


def test_a_torn_frame_whose_text_has_another_checksum_gives_nothing() -> None:
    """Its blocks are whole, a byte is lost: the part of the checksum that is left tells."""
    text = b'{"time":1000}\n'
    data = frame(text)
    lost = data.index(b"1000")
    shorter = data[:lost] + data[lost + 1 :]
    assert scan_frame(shorter, 0) is None
    assert b"".join(recover(shorter, 0, 1 << 20)) == b""
    assert b"".join(recover(data[:-1], 0, 1 << 20)) == text


# --- damage ----------------------------------------------------------------------------------------


def test_a_frame_that_declares_no_text_but_holds_some_is_corruption() -> None:
    """The one-shot call of the library answers with no text and checks nothing."""
    window, single = b"\x04\x00", b"\x24\x00"
    data = frame(b"one\n", write_content_size=False)
    start = data.index(window)
    damaged = data[:start] + single + data[start + 2 :]
    found, end = whole_frames(damaged)
    assert (found, end) == ([Frame(0, len(damaged), 0, declared=True)], len(damaged))
    with pytest.raises(SessionPersistenceCorruptionError):
        text_of(damaged, found)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\0", "no zstd frame"),
        (b"\0", "no zstd frame"),
        (b"\x28\xb5\x2f\xfe\0", "no zstd frame"),
        (b"\x50\x2a\x4d\x18\0\0\0\0", "skippable"),
        (b"\x5f\x2a\x4d\x18\0\0\0\0", "skippable"),
        (frames.MAGIC + b"\x08", "reserved bit"),
        (frames.MAGIC + b"\x10", "reserved bit"),
        (frames.MAGIC + b"\x01\0\0\0\0", "dictionary"),
        (frames.MAGIC + b"\x20\x05\x07\0\0", "reserved type"),
    ],
)
def test_what_is_no_frame_is_corruption(data: bytes, reason: str) -> None:
    start = frame(b"one\n")
    with pytest.raises(SessionPersistenceCorruptionError, match=reason) as caught:
        whole_frames(start + data)
    assert caught.value.offset == len(start)


@pytest.mark.parametrize("data", [frames.MAGIC[:1], frames.MAGIC[:3], frames.MAGIC, frames.MAGIC + b"\x20"])
def test_the_beginning_of_a_frame_is_torn(data: bytes) -> None:
    assert scan_frame(data, 0) is None


def test_a_dictionary_frame_is_refused() -> None:
    dictionary = zstandard.ZstdCompressionDict(b"some words " * 50, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    trained = zstandard.train_dictionary(2000, [b"word %d and word %d" % (k, k * k) for k in range(2000)])
    data = frame(b"words words", dict_data=trained)
    with pytest.raises(SessionPersistenceCorruptionError, match="dictionary"):
        scan_frame(data, 0)
    raw = frame(b"some words some words some words " * 9, dict_data=dictionary)
    with pytest.raises(SessionPersistenceCorruptionError):
        text_of(raw, whole_frames(raw)[0])


def test_a_flipped_bit_in_a_whole_frame_is_corruption() -> None:
    good = frame(b"one\n")
    data = bytearray(good + frame(b"two and three\n"))
    data[-6] ^= 1
    found, _ = whole_frames(bytes(data))
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        text_of(bytes(data), found)
    assert caught.value.offset == len(good)


def test_a_declared_size_beyond_the_blocks_is_corruption_before_anything_is_allocated() -> None:
    data = bytearray(frame(b"x" * 70_000))
    at = 5 if data[4] & 0b100000 else 6
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(SessionPersistenceCorruptionError, match="declares"):
        scan_frame(bytes(data), 0)


def test_whole_frames_behind_a_damaged_one_are_found() -> None:
    one, two, three = frame(b"one\n"), frame(b"two\n"), frame(b"three\n")
    broken = bytearray(two)
    broken[-1] ^= 1
    data = one + bytes(broken) + three
    found = next_frame(data, 1)
    assert found
    assert (found.start, text_of(data, [found])) == (len(one) + len(two), b"three\n")
    assert next_frame(data, found.start + 1) is None


# --- bounds ----------------------------------------------------------------------------------------


def test_the_default_limit_is_32_mib_and_a_hundredfold() -> None:
    assert default_limit(0) == 33_554_432
    assert default_limit(1000) == 33_654_432


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("count", [1, 5])
def test_the_limit_is_for_all_frames_together(sized: bool, count: int) -> None:
    data = frame(b"\0" * (4 << 20), write_content_size=sized) * count
    found, _ = whole_frames(data)
    check_size(data, found, count * (4 << 20))
    with pytest.raises(ArtifactTooLargeError):
        check_size(data, found, count * (4 << 20) - 1)


def test_the_limit_holds_for_a_torn_frame() -> None:
    data = frame(b"\0" * (4 << 20), write_content_size=False)[:-6]
    assert len(b"".join(recover(data, 0, 4 << 20))) > 3 << 20
    with pytest.raises(ArtifactTooLargeError):
        next(recover(data, 0, 1 << 20))
