"""The model seam. Whoever writes an adapter reads this file.

An adapter turns a `ModelRequest` into chunks. The loop cannot tell a live model from a recorded one: both
sit behind `Model`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from seedline.errors import JsonValueError, ModelError, ModelFailureError, SeedlineError
from seedline.events.chunks import CHUNKS, BlockEnd, Chunk, Finish, OtherChunk, read_chunk
from seedline.events.messages import BLOCKS, Failure, OtherBlock
from seedline.events.vocabulary import AdapterDefaults, RequestConfig, RequestHeaderBody
from seedline.jsonvalue import decode, encode_lossless
from seedline.session.surface import LogMessage

Purpose = Literal["turn", "compaction", "session-title"]
ChunkValue = Chunk | dict[str, Any] | msgspec.Raw
"""A chunk as an adapter may yield it: typed, as a JSON object, or as exact JSON bytes."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as the log derives it.

    `header` is the canonical request header, `messages` the derived history in order. `session_id`, `key`
    (the session's lineage key, `0` for a root), `turn` and `step` say who asks; none of them is sent to a
    provider. `purpose` is `turn` for the loop's own calls; any other is an auxiliary call,
    answered on its own channel in replay.
    """

    header: RequestHeaderBody
    messages: tuple[LogMessage, ...]
    session_id: str
    turn: int
    step: int
    key: str = "0"
    purpose: Purpose = "turn"


class PreparedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter makes of a config before the call.

    `config` has the adapter's defaults filled in, `adapter_defaults` marks which. `context_window` is in
    tokens, None when unknown.
    """

    config: RequestConfig
    adapter_defaults: AdapterDefaults | None = None
    context_window: int | None = None


class Model(Protocol):
    """A source of answers."""

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        """Return the effective config for a request to come; called once per attempt, before `stream`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ChunkValue]:
        """Yield the chunks of one answer, `usage` before `finish`, nothing after `finish`.

        Reading stops at `finish`; an async generator is then closed. Cancelling the surrounding scope must
        close whatever the stream holds open. An exception becomes a `finish` chunk in the log: `ModelError`
        gives its failure, any other error of the tree its code, the rest `UNKNOWN`. Only `StreamFault`
        passes through as it is and ends the turn.
        """
        ...


def failure_of(error: BaseException) -> Failure:
    """Return the failure record of an exception.

    A model failure gives its own fields, or only message and code when another field is out of its range.
    Any other exception gives its text and those of its causes, with code `UNKNOWN`.
    """
    if not isinstance(error, ModelFailureError):
        return Failure(message=": ".join(_texts(error)), code="UNKNOWN")
    message, code = error.reason or "the model call failed", error.code or "UNKNOWN"
    if not _in_range(error):
        return Failure(message=message, code=code)
    return Failure(
        message=message,
        code=code,
        status=error.status,
        provider_retry_after_ms=error.provider_retry_after_ms,
        request_id=error.request_id,
    )


def _in_range(error: ModelFailureError) -> bool:
    wait = error.provider_retry_after_ms
    return (error.status is None or 100 <= error.status <= 599) and (wait is None or 0 < wait < math.inf)


def _texts(error: BaseException) -> list[str]:
    """Return the text of an error and of each of its causes once."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__
    return [str(link) or type(link).__name__ for link in seen]


def finish_of(error: BaseException, *, aborted: bool) -> dict[str, Any]:
    """Return the `finish` chunk that stands for an adapter's exception."""
    failure = failure_of(error)
    code = getattr(error, "code", None)
    if isinstance(error, SeedlineError) and isinstance(code, str) and code:
        failure = msgspec.structs.replace(failure, code=code)
    kind = "aborted" if aborted or failure.code == "ABORTED" else "error"
    return {"type": "finish", "reason": {"kind": kind, "failure": msgspec.to_builtins(failure)}}


def chunk_bytes(chunk: ChunkValue) -> bytes:
    """Return the JSON bytes of a chunk. Raises `JsonValueError`."""
    if isinstance(chunk, msgspec.Raw):
        return bytes(chunk)
    if isinstance(chunk, OtherChunk):
        return encode_lossless(chunk.value)
    if isinstance(chunk, msgspec.Struct):
        return encode_lossless(_with_lists(msgspec.to_builtins(chunk, enc_hook=_plain_block)))
    return encode_lossless(chunk)


def _plain_block(block: Any) -> Any:
    if isinstance(block, OtherBlock):
        return block.value
    raise NotImplementedError(f"{block!r} is no block")


def _with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_lists(member) for name, member in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_with_lists(member) for member in cast("list[Any]", value)]
    return value


class TakenChunk(NamedTuple):
    """A chunk as it came: its exact JSON bytes and their value."""

    data: bytes
    value: dict[str, Any]

    @property
    def is_finish(self) -> bool:
        return self.value["type"] == "finish"


def take_chunk(chunk: ChunkValue) -> TakenChunk:
    """Return a chunk that the assembler can fold; one of an unknown type passes.

    Raises `ModelError` with code `MALFORMED_RESPONSE` for what is no JSON object, has no type, or has a
    known type and another shape.
    """
    try:
        data = chunk_bytes(chunk)
        value = decode(data)
    except JsonValueError as error:
        raise _malformed(str(error)) from error
    if not isinstance(value, dict) or not isinstance(cast("dict[str, Any]", value).get("type"), str):
        raise _malformed("a chunk is a JSON object with a `type`")
    problem = _shape_problem(cast("dict[str, Any]", value))
    if problem:
        raise _malformed(problem)
    return TakenChunk(data, cast("dict[str, Any]", value))


def _shape_problem(value: dict[str, Any]) -> str | None:
    chunk = read_chunk(value)
    if isinstance(chunk, OtherChunk):
        return f"a {value['type']!r} chunk of another shape" if value["type"] in CHUNKS else None
    if isinstance(chunk, BlockEnd) and isinstance(chunk.block, OtherBlock):
        block: Any = chunk.block.value
        kind: Any = cast("dict[str, Any]", block).get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind in BLOCKS:
            return f"a block-end whose block, of type {kind!r}, has another shape"
    if isinstance(chunk, Finish) and chunk.reason.kind in ("error", "aborted") and not chunk.reason.failure:
        return f"a finish {chunk.reason.kind!r} without its failure"
    return None


def _malformed(reason: str) -> ModelError:
    return ModelError(f"the adapter sent what is no chunk: {reason}", "MALFORMED_RESPONSE")
