"""What the stand-in model answers: one entry per model call of a recorded session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from seedline.events.event import Event
from seedline.events.vocabulary import TurnEnd, TurnEndReason
from seedline.jsonvalue import canonical, canonical_text

Purpose = Literal["turn", "compaction"]
Chunks = Sequence[bytes]
"""The JSON texts of a call's chunks, in order."""


@dataclass(frozen=True, slots=True)
class ChunksEntry:
    """A call that ran to its `finish` chunk; also one that a sidecar lists, which may end without.

    `purpose` is `compaction` for a summariser's call, which the agent's own calls never take.
    """

    chunks: Chunks
    purpose: Purpose = "turn"


@dataclass(frozen=True, slots=True)
class ThrowEntry:
    """A call that yields `chunks` and then fails with `message` and `code`."""

    chunks: Chunks
    message: str
    code: str


@dataclass(frozen=True, slots=True)
class HangEntry:
    """A call that yields `chunks`, touches `ready_file`, if any, and then waits to be cancelled.

    It yields its two chunks even when it is cancelled before. `ready_file` is relative to the working
    directory of the run.
    """

    ready_file: str | None = None

    @property
    def chunks(self) -> Chunks:
        """The start of a text block, and `partial`."""
        return _PARTIAL


_PARTIAL: Final = (
    b'{"type":"block-start","index":0,"blockType":"text"}',
    b'{"type":"text-delta","index":0,"text":"partial"}',
)


@dataclass(frozen=True, slots=True)
class CutEntry:
    """A recorded call without a `finish` chunk: a stream that was cut after `chunks`.

    `turn_end` is the recorded end of the turn it was in, None where the log stops before.
    """

    chunks: Chunks
    turn: int | float
    step: int | float
    turn_end: Event | None

    @property
    def reason(self) -> TurnEndReason | None:
        """Why the stream was cut: `aborted` by a cancel, `error` with its failure, `interrupted` by a crash.

        Raises `SessionPersistenceCorruptionError` when the recorded `turn/end` has another shape.
        """
        if self.turn_end is None:
            return None
        payload = self.turn_end.payload
        assert isinstance(payload, TurnEnd)
        return payload.reason


ScriptEntry = ChunksEntry | ThrowEntry | HangEntry | CutEntry


def kind_of(entry: ScriptEntry) -> str:
    """Return the word for the kind of an entry: `chunks`, `throw`, `hang` or `cut`."""
    match entry:
        case ChunksEntry():
            return "chunks"
        case ThrowEntry():
            return "throw"
        case HangEntry():
            return "hang"
        case CutEntry():
            return "cut"


def chunk_counts(entries: Iterable[ScriptEntry]) -> list[int]:
    """Return how many chunks each entry yields."""
    return [len(entry.chunks) for entry in entries]


def script_digest(entries: Iterable[ScriptEntry]) -> str:
    """Return the lower-case hex SHA-256 of the script as one canonical JSON array."""
    digest = hashlib.sha256(b"[")
    for number, entry in enumerate(entries):
        if number:
            digest.update(b",")
        for piece in _canonical_pieces(entry):
            digest.update(piece)
    digest.update(b"]")
    return digest.hexdigest()


def _canonical_pieces(entry: ScriptEntry) -> Iterator[bytes]:
    """Yield the canonical text of one entry: its members in the order of their names."""
    if isinstance(entry, HangEntry):
        ready = {} if entry.ready_file is None else {"readyFile": entry.ready_file}
        yield canonical({"kind": "hang", **ready})
        return
    yield b'{"chunks":['
    for number, chunk in enumerate(entry.chunks):
        yield b"," + canonical_text(chunk) if number else canonical_text(chunk)
    yield b"],"
    tail = {"kind": kind_of(entry)}
    if isinstance(entry, ThrowEntry):
        tail |= {"code": entry.code, "message": entry.message}
    yield canonical(tail)[1:]
