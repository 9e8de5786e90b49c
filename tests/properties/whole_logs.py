"""Strategies for whole log files in every form. Nothing here goes through the reader under test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

from seedline.jsonvalue import encode
from tests.unit.session.make import chunk, delta, user
from tests.unit.storage.logs import HEADER, TURN, frame, row, rows, values

Encoding = Literal["jsonl", "zstd"]
Told = tuple[str, int, int, Any]
"""What is told of an event: type, seq, time and payload."""

marked = st.sampled_from(
    ["", "a", "漢", "\U0001f600", "\ud83d", "\ude00", '"\\', "\u2028", "x" * 300, "\0\n"]
)
texts = marked | st.text(max_size=8)


class Whole(NamedTuple):
    """A log file without damage.

    `ends` says of each place where something durable ends, the header first, how many events stand before
    it. `seed` is the header's `seedLength`, None for an unseeded log.
    """

    data: bytes
    ends: list[tuple[int, int]]
    events: list[Told]
    seed: int | None

    def before(self, size: int) -> int | None:
        """How many events are durable in the first `size` bytes, None when not even the header is."""
        counts = [count for end, count in self.ends if end <= size]
        return counts[-1] if counts else None


def _other(words: str, ignorable: bool) -> dict[str, Any]:
    if ignorable:
        return row("x/y", {"words": words}, ignorable=True)
    return row("user/message", user(words), surfaceOp="append")


singles = (st.sampled_from(TURN) | st.builds(_other, texts, st.booleans())).map(lambda value: [value])
runs = st.lists(texts, min_size=3, max_size=5).map(
    lambda words: [row("assistant/chunk", chunk(delta(text))) for text in words]
)
groups = st.lists(singles | runs, max_size=8)


def _packed(lines: Sequence[bytes], group: Sequence[dict[str, Any]], first: int) -> bytes:
    """One packed row for a run of deltas; a single row as it is."""
    if len(group) == 1:
        return lines[first]
    words = [value["data"]["chunk"]["text"] for value in group]
    data = {"turn": 1, "step": 1, "index": 0, "dt": [10] * (len(words) - 1), "texts": words}
    return encode({"type": "text-chunks", "seq0": first, "time0": 1000 + 10 * first, "data": data})


def body(
    found: Sequence[Sequence[dict[str, Any]]], packed: bool
) -> tuple[list[tuple[bytes, int]], list[Told]]:
    """The rows of a log, each with the number of events up to it, and what its events are."""
    lines = rows([value for group in found for value in group])
    if not packed:
        return [(line, seq + 1) for seq, line in enumerate(lines)], values(lines)
    counted: list[tuple[bytes, int]] = []
    count = 0
    for group in found:
        counted.append((_packed(lines, group, count), count + len(group)))
        count += len(group)
    return counted, values(lines)


def _plain(head: bytes, counted: Sequence[tuple[bytes, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    data, ends = head, [(len(head), 0)]
    for line, count in counted:
        # A row counts without its line end.
        ends.append((len(data) + len(line), count))
        data += line + b"\n"
    return data, ends


def _zstd(
    head: bytes, counted: Sequence[tuple[bytes, int]], batch: int, options: dict[str, Any]
) -> tuple[bytes, list[tuple[int, int]]]:
    data = frame(head)
    ends = [(len(data), 0)]
    for at in range(0, len(counted), batch):
        part = counted[at : at + batch]
        data += frame(b"".join(line + b"\n" for line, _ in part), **options)
        ends.append((len(data), part[-1][1]))
    return data, ends


@st.composite
def whole_logs(draw: st.DrawFn, encoding: Encoding) -> Whole:
    """A log of either encoding: packed or not, seeded or not, with half characters."""
    counted, events = body(draw(groups), draw(st.booleans()))
    seed = draw(st.none() | st.integers(0, len(events)))
    head = encode(HEADER if seed is None else {**HEADER, "seedLength": seed}) + b"\n"
    if encoding == "jsonl":
        return Whole(*_plain(head, counted), events, seed)
    options = {"write_content_size": draw(st.booleans()), "level": draw(st.sampled_from([-5, 3]))}
    return Whole(*_zstd(head, counted, draw(st.integers(1, 4)), options), events, seed)


def single_row_log() -> Whole:
    """A compressed log of one row. Its frame does not tell its size, and holds the row's text as it is."""
    counted, events = body([[TURN[0]]], packed=False)
    options = {"write_content_size": False, "level": -5}
    return Whole(*_zstd(encode(HEADER) + b"\n", counted, 1, options), events, None)
