"""Chunks to message: how the pieces of one answer become its content blocks."""

from __future__ import annotations

from typing import Any, Final, cast

from seedline.errors import UnclosedBlockError
from seedline.jsonvalue import join_surrogates

Value = dict[str, Any]
_DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}
_BLANK: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def is_blank(text: str) -> bool:
    """True when `text` holds white space only, as ECMAScript counts it."""
    return not text.strip(_BLANK)


class _Open:
    """A block under construction. `done` is the authoritative block once its end has come."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.done: Value | None = None
        self.text: list[str] = []
        self.id = ""
        self.name = ""


class Assembler:
    """Collects the chunks of one attempt. Blocks keep the order in which their index first appeared."""

    def __init__(self) -> None:
        self._blocks: dict[Any, _Open] = {}
        self.usage: Value | None = None
        self._finish: Value | None = None

    def take(self, chunk: Value) -> None:
        """Fold one chunk value as `take_chunk` checked it; a chunk of unknown type changes nothing."""
        kind = chunk.get("type")
        if kind == "block-start":
            self._open(chunk["index"], chunk["blockType"])
        elif kind in _DELTAS:
            self._delta(chunk, _DELTAS[kind])
        elif kind == "block-end":
            block = self._open(chunk["index"], chunk["block"]["type"])
            block.done = block.done or chunk["block"]
        elif kind == "usage":
            self.usage = chunk["usage"]
        elif kind == "finish":
            self._finish = chunk

    def _open(self, index: Any, kind: str) -> _Open:
        return self._blocks.setdefault(index, _Open(kind))

    def _delta(self, chunk: Value, kind: str) -> None:
        block = self._open(chunk["index"], kind)
        if block.done is not None:
            return
        if kind != "tool-call":
            block.text.append(chunk["text"])
            return
        block.id = chunk["id"]
        block.name = chunk.get("name") or block.name
        block.text.append(chunk["argumentsDelta"])

    @property
    def finish_kind(self) -> str:
        """The finish reason's kind; a missing finish counts as `stop`."""
        return self._finish["reason"]["kind"] if self._finish else "stop"

    @property
    def failure(self) -> Value | None:
        """The failure of an `error` or `aborted` finish."""
        return self._finish["reason"].get("failure") if self._finish else None

    def content(self) -> tuple[list[Value], Value | None]:
        """Return the content blocks and the replay metadata of the finished answer.

        `max-tokens` drops tool calls, and the metadata of the dropped blocks with them. Metadata whose
        block list does not fit the blocks is dropped. Raises `UnclosedBlockError`.
        """
        blocks = [self._build(index, block) for index, block in self._blocks.items()]
        state = cast("Value | None", self._finish.get("replayState") if self._finish else None)
        per_block = _per_block(state)
        if per_block is not None and len(per_block) != len(blocks):
            state = per_block = None
        if self.finish_kind != "max-tokens":
            return blocks, state
        kept = [at for at, block in enumerate(blocks) if block["type"] != "tool-call"]
        if state is not None and per_block is not None:
            state = {**state, "blocks": [per_block[at] for at in kept]}
        return [blocks[at] for at in kept], state

    def visible_prefix(self) -> list[Value]:
        """Return what a cut stream showed: text and reasoning blocks that are not blank."""
        shown = [
            self._build(index, block)
            for index, block in self._blocks.items()
            if (block.done["type"] if block.done else block.kind) in ("text", "reasoning")
        ]
        return [block for block in shown if not is_blank(block["text"])]

    def _build(self, index: Any, block: _Open) -> Value:
        if block.done is not None:
            return block.done
        text = join_surrogates("".join(block.text))
        if block.kind in ("text", "reasoning"):
            return {"type": block.kind, "text": text}
        if block.kind != "tool-call":
            raise UnclosedBlockError(index, block.kind)
        return {"type": "tool-call", "id": block.id or f"call-{index}", "name": block.name, "arguments": text}


def _per_block(state: Value | None) -> list[Any] | None:
    """Return the per-block list of replay metadata, None when it has none; the rest of it is opaque."""
    found: Any = state.get("blocks") if isinstance(state, dict) else None
    return cast("list[Any]", found) if isinstance(found, list) else None
