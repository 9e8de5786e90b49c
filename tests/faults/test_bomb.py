"""A small compressed file that expands to half a gigabyte: refused, and never held in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from seedline.jsonvalue import encode
from tests.unit.storage.logs import HEADER, frame

EXPANDED = 512 << 20
PIECE = 1 << 20
HEAD = frame(encode(HEADER) + b"\n")

READING = """
import json, resource, sys
from seedline.errors import ArtifactError
from seedline.storage.jsonl.file import read_log
from seedline.storage.jsonl.verify import list_problems

found = None
if sys.argv[1] == "read_log":
    try:
        read_log(sys.argv[2])
    except ArtifactError as error:
        found = [error.kind, str(error)]
elif sys.argv[1] == "list_problems":
    [problem] = list_problems(sys.argv[2]).problems
    found = [problem.kind, problem.message]
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]))
"""


def child(action: str, path: Path | str = "") -> tuple[Any, int]:
    """What a process of its own finds in a file, and the most memory it held, in bytes.

    The shell between keeps this process's own memory out: a child is charged for what its parent held.
    """
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", READING, action, str(path)]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=120)
    found, peak = json.loads(ran.stdout)
    return found, peak


@cache
def imports_alone() -> int:
    return child("nothing")[1]


@cache
def bomb(sized: bool, piece: bytes) -> bytes:
    """One frame of `EXPANDED` bytes of text, whether its header says so or not."""
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=sized)
    packing = compressor.compressobj(size=EXPANDED if sized else -1)
    parts = [packing.compress(piece * PIECE) for _ in range(EXPANDED // PIECE)]
    return b"".join([*parts, packing.flush()])


PLACES = {
    "second": lambda data: HEAD + data,
    "header": lambda data: data,
    "torn": lambda data: HEAD + data[:-5],
}


@pytest.mark.parametrize("reader", ["read_log", "list_problems"])
@pytest.mark.parametrize("sized", [True, False], ids=["sized", "unsized"])
@pytest.mark.parametrize("piece", [b"\0", b"\n"], ids=["nul", "blank"])
@pytest.mark.parametrize("place", PLACES)
def test_a_bomb_is_refused_without_its_text_in_memory(
    place: str, piece: bytes, sized: bool, reader: str, tmp_path: Path
) -> None:
    data = PLACES[place](bomb(sized, piece))
    assert len(data) < 64 << 10
    path = tmp_path / "session.jsonl.zstd"
    path.write_bytes(data)
    found, peak = child(reader, path)
    assert found, "the file was read"
    kind, message = found
    assert kind == "too-large"
    assert "bytes of text" in message
    assert peak - imports_alone() < (64 << 20) + 4 * len(data)


def test_the_frame_says_its_size_only_if_asked() -> None:
    for sized in (True, False):
        size = zstandard.get_frame_parameters(bomb(sized, b"\0")).content_size
        assert (size == EXPANDED) is sized
