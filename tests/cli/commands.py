"""Runs the command line inside the test's process, and writes small logs for it to read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seedline.cli.main import main

HEADER = {"type": "session", "version": 0, "id": "s-1", "createdAt": 1_700_000_000_000, "delegationDepth": 0}


class Ran(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        [line] = self.out.splitlines()
        return json.loads(line)


class Commands:
    """Runs commands and returns what they printed."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str | Path) -> Ran:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        code = left.value.code
        out, err = self._capture.readouterr()
        return Ran(code if isinstance(code, int) else 0, out.decode(), err.decode())

    def json(self, *arguments: str | Path) -> dict[str, Any]:
        """Run a command that must succeed, and return its document."""
        ran = self(*arguments, "--json")
        assert ran.code == 0, ran
        return ran.document


def event(seq: int, event_type: str, data: Any, **more: Any) -> dict[str, Any]:
    return {"type": event_type, "seq": seq, "time": 1_700_000_000_100 + seq, "data": data, **more}


def chunk(seq: int, turn: int, step: int, **chunk: Any) -> dict[str, Any]:
    return event(seq, "assistant/chunk", {"turn": turn, "step": step, "chunk": chunk})


def user(seq: int, text: str = "hello") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"id": f"m-{seq}", "role": "user", "content": content, "source": {"kind": "user"}}
    return event(seq, "user/message", message, surfaceOp="append")


def answer(seq: int, turn: int, step: int, text: str) -> dict[str, Any]:
    source = {"kind": "model", "provider": "p", "model": "m"}
    content = [{"type": "text", "text": text}]
    message = {"id": f"m-{seq}", "role": "assistant", "content": content, "source": source}
    return event(
        seq, "assistant/message", {"turn": turn, "step": step, "message": message}, surfaceOp="append"
    )


def one_turn(text: str = "hello") -> list[dict[str, Any]]:
    """The events of one whole turn: a question, an answer of four deltas."""
    place = {"turn": 1, "step": 1}
    return [
        event(0, "turn/start", {"turn": 1}),
        user(1, text),
        event(2, "step/start", place),
        chunk(3, 1, 1, type="block-start", index=0, blockType="text"),
        *(chunk(4 + k, 1, 1, type="text-delta", index=0, text=part) for k, part in enumerate("abcd")),
        chunk(8, 1, 1, type="finish", reason={"kind": "stop"}),
        answer(9, 1, 1, "abcd"),
        event(10, "step/end", place),
        event(11, "turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
    ]


def write_log(path: Path, events: Iterable[Any], end: bytes = b"\n", **header: Any) -> Path:
    """Write a complete log; `end` closes the last line, `header` changes header fields."""
    rows = [HEADER | header, *events]
    path.write_bytes(b"\n".join(json.dumps(row, separators=(",", ":")).encode() for row in rows) + end)
    return path
