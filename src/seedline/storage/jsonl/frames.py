"""Zstandard frames of a compressed log (dsh format version 0, 4.7).

A file is frames and nothing else: no skippable frames, no dictionaries. Frames are walked here, without
decompressing: the library's one-shot call returns the first frame only, and its reader drops a torn last one
without a word. Plaintext comes in pieces, so that no file takes more memory than its own plaintext.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import zstandard

from seedline.errors import ArtifactTooLargeError, SessionPersistenceCorruptionError

MAGIC: Final = b"\x28\xb5\x2f\xfd"
PIECE: Final = 1 << 18
"""Most bytes of plaintext in one piece."""

_SKIPPABLE: Final = frozenset(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60))
_LARGEST_BLOCK: Final = 1 << 17
_ONE_SHOT: Final = 1 << 20
_CHECKSUM: Final = 4
_RAW, _RUN, _RESERVED = 0, 1, 3


class Frame(NamedTuple):
    """Where one whole frame lies in its file, [start, stop).

    It holds at most `bound` bytes of plaintext; exactly that many if the frame says so itself (`declared`).
    """

    start: int
    stop: int
    bound: int
    declared: bool


def default_limit(size: int) -> int:
    """Return how many bytes of plaintext a compressed file of `size` bytes may hold."""
    return (32 << 20) + 100 * size


class _Header(NamedTuple):
    """A frame's header: where the frame and its blocks begin, and what it says of them."""

    start: int
    blocks: int
    window: int
    declared: int | None
    checksum: bool


def scan_frame(data: bytes, start: int) -> Frame | None:
    """Return the frame that begins at `start`, None when the data ends inside it.

    Raises `SessionPersistenceCorruptionError` where no frame can begin, or a reserved bit is set.
    """
    header = _scan_header(data, start)
    blocks = header and _scan_blocks(data, header)
    if header is None or blocks is None:
        return None
    stop, bound = blocks
    stop += _CHECKSUM if header.checksum else 0
    if stop > len(data):
        return None
    declared = header.declared
    if declared is None:
        return Frame(start, stop, bound, declared=False)
    if declared > bound:
        raise _corrupt(f"the frame declares {declared} bytes, its blocks hold at most {bound}", start)
    return Frame(start, stop, declared, declared=True)


def _scan_header(data: bytes, start: int) -> _Header | None:
    """Return the header of the frame that begins at `start`, None when the data ends inside it."""
    magic = data[start : start + 4]
    if magic in _SKIPPABLE:
        raise _corrupt("a skippable frame is not part of a log", start)
    if not MAGIC.startswith(magic):
        raise _corrupt("these bytes are no zstd frame", start)
    if start + 5 > len(data):
        return None
    descriptor = data[start + 4]
    if descriptor & 0b11000:
        raise _corrupt("the frame sets a reserved bit", start)
    if descriptor & 0b11:
        raise _corrupt("the frame needs a dictionary", start)
    single = bool(descriptor & 0b100000)
    size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    blocks = start + 5 + (0 if single else 1) + size_bytes
    if blocks > len(data):
        return None
    declared = int.from_bytes(data[blocks - size_bytes : blocks], "little") if size_bytes else None
    if size_bytes == 2 and declared is not None:
        declared += 256
    window = declared if single and declared is not None else _window(data[start + 5])
    return _Header(start, blocks, window, declared, bool(descriptor & 0b100))


def _scan_blocks(data: bytes, header: _Header) -> tuple[int, int] | None:
    """Return where the last block ends, inside the data or not, and how much text all of them can hold.

    None when the data ends before the last block's header does.
    """
    at, bound = header.blocks, 0
    while at + 3 <= len(data):
        word = int.from_bytes(data[at : at + 3], "little")
        kind, size = word >> 1 & 3, word >> 3
        if kind == _RESERVED:
            raise _corrupt("a block of the frame has the reserved type", header.start)
        bound += size if kind in (_RAW, _RUN) else min(_LARGEST_BLOCK, header.window)
        at += 3 + (1 if kind == _RUN else size)
        if word & 1:
            return at, bound
    return None


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + (base >> 3) * (descriptor & 7)


def whole_frames(data: bytes, start: int = 0) -> tuple[list[Frame], int]:
    """Return the whole frames from `start` on and where they end: `len(data)`, or where a torn one begins.

    Raises `SessionPersistenceCorruptionError` naming the offset.
    """
    frames: list[Frame] = []
    while start < len(data):
        frame = scan_frame(data, start)
        if frame is None:
            break
        frames.append(frame)
        start = frame.stop
    return frames, start


def check_size(data: bytes, frames: Iterable[Frame], limit: int) -> None:
    """Raise `ArtifactTooLargeError` if the plaintext of all `frames` together exceeds `limit` bytes.

    Decompresses, keeping nothing, only where the frames' headers leave it open.
    """
    frames = list(frames)
    if sum(frame.bound for frame in frames if frame.declared) > limit:
        raise _too_large(limit)
    if sum(frame.bound for frame in frames) <= limit:
        return
    total = 0
    for frame in frames:
        for piece in read_frames(data, [frame]):
            total += len(piece)
            if total > limit:
                raise _too_large(limit)


def read_frames(data: bytes, frames: Iterable[Frame]) -> Iterator[bytes]:
    """Yield the plaintext of `frames` in pieces, checksums verified.

    No piece spans two frames. Raises `SessionPersistenceCorruptionError` naming the frame's offset.
    """
    decompressor = zstandard.ZstdDecompressor()
    view = memoryview(data)
    for frame in frames:
        text = view[frame.start : frame.stop]
        try:
            # The one-shot call takes a declared size of 0 on trust and looks at nothing else.
            if 0 < frame.bound <= _ONE_SHOT:
                yield decompressor.decompress(text, max_output_size=frame.bound)
            else:
                yield from _pieces(decompressor, text)
        except zstandard.ZstdError as error:
            raise _corrupt(f"the frame cannot be decompressed: {error}", frame.start) from error


def _pieces(decompressor: zstandard.ZstdDecompressor, text: memoryview) -> Iterator[bytes]:
    reader = decompressor.stream_reader(text)
    while piece := reader.read(PIECE):
        yield piece


def recover(data: bytes, start: int, limit: int) -> Iterator[bytes]:
    """Yield in pieces what reads of the torn frame that begins at `start`; nothing if it is damaged too.

    Damage shows where the text does not decode, or does not have the checksum of which the file has a part.
    Raises `ArtifactTooLargeError` above `limit` bytes, before the first piece.
    """
    decompressor = zstandard.ZstdDecompressor()
    text = memoryview(data)[start:]
    try:
        checksum = _checksum(_bounded(_pieces(decompressor, text), limit))
    except zstandard.ZstdError:
        return
    if checksum.startswith(_torn_checksum(data, start)):
        yield from _pieces(decompressor, text)


def _bounded(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > limit:
            raise _too_large(limit)
        yield piece


def _checksum(pieces: Iterable[bytes]) -> bytes:
    """Return the checksum with which a frame of this text ends."""
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
    end = b""
    for piece in pieces:
        end = (end + compressor.compress(piece))[-_CHECKSUM:]
    return (end + compressor.flush())[-_CHECKSUM:]


def _torn_checksum(data: bytes, start: int) -> bytes:
    """Return what the file has of the checksum of a torn last frame."""
    header = _scan_header(data, start)
    blocks = header and _scan_blocks(data, header)
    return data[blocks[0] :] if blocks else b""


def next_frame(data: bytes, start: int) -> Frame | None:
    """Return the first whole frame at or after `start` that decompresses, None when there is none.

    Finds what lies behind a damaged frame. Log text is UTF-8, in which no frame can begin.
    """
    while (start := data.find(MAGIC, start)) >= 0:
        try:
            frame = scan_frame(data, start)
            if frame:
                for _ in read_frames(data, [frame]):
                    pass
                return frame
        except SessionPersistenceCorruptionError:
            pass
        start += 1
    return None


_local = threading.local()


def compress_frame(text: bytes) -> bytes:
    """Return one frame that holds `text`, with its checksum."""
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        # One per thread: making it costs four times what a small frame costs, and it is not thread-safe.
        compressor = _local.compressor = zstandard.ZstdCompressor(write_checksum=True)
    return compressor.compress(text)


def _corrupt(reason: str, offset: int) -> SessionPersistenceCorruptionError:
    return SessionPersistenceCorruptionError(reason, offset=offset)


def _too_large(limit: int) -> ArtifactTooLargeError:
    return ArtifactTooLargeError(f"the compressed log holds more than {limit} bytes of text")
