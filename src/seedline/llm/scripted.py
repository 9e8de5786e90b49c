"""A model that answers from a script: deterministic, offline, behind the same seam as a live one.

An answer is built with `text`, `tool_calls`, `failure`, `chunks` or `hang`, and streamed in pieces of about a
token. `load_scripted` reads answers from a JSON file:

    {
      "answers": ["a text", {"text": "...", "reasoning": "..."}],
      "sessions": {"0": [...], "0/t1.s1.c0.n0": [...]},
      "auxiliary": {"session-title": [...]},
      "contextWindow": 128000
    }

`answers` go to any session in the order of the calls; one whose lineage key is in `sessions` draws on its own
list alone; `auxiliary` answers calls of another purpose than `turn`. Every part is optional. An answer is a
text, or an object with

    text, reasoning   what the model says
    calls             [{"name", "arguments": an object or raw text, "id"?}]
    finish            `stop`, `tool-calls` or `max-tokens`; by default what the content asks for
    usage             {"inputTokens", "outputTokens", ...}; null for none; by default an estimate
    replayState       opaque metadata
    failure           {"code", "message", "status"?, "providerRetryAfterMs"?, "requestId"?}, after `text`
    chunks            a list of raw chunks, alone
    hang              true: say `text` and then nothing until the call is cancelled
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from seedline.clock import Clock
from seedline.errors import (
    AnswersExhaustedError,
    AnswersRefusedError,
    JsonSyntaxError,
    ModelError,
    ModelFailureError,
    StreamFault,
)
from seedline.events.messages import Usage
from seedline.events.vocabulary import AdapterDefaults, RequestConfig
from seedline.jsonvalue import decode, encode
from seedline.llm.base import ChunkValue, ModelRequest, PreparedConfig

FinishKind = Literal["stop", "tool-calls", "max-tokens"]
How = Literal["raised", "finish", "fault"]
_PIECE: Final = re.compile(r"\s*\S{1,8}|\s+")


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call that an answer makes. `arguments` is a JSON object, or the raw text as a model made it."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict[str, Any])
    id: str | None = None

    @property
    def raw(self) -> str:
        """The argument text."""
        if isinstance(self.arguments, str):
            return self.arguments
        return encode(self.arguments).decode("utf-8", "surrogatepass")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: its blocks, then how it ends.

    `usage` UNSET stands for an estimate. `raw` chunks are streamed as they are, in place of the rest.
    """

    blocks: tuple[Mapping[str, Any], ...] = ()
    finish: FinishKind | None = None
    usage: Usage | UnsetType | None = UNSET
    replay_state: Any = None
    error: ModelFailureError | None = None
    in_band: bool = False
    hangs: bool = False
    raw: tuple[ChunkValue, ...] | None = None


Answerable = Answer | Callable[[ModelRequest], Answer]
"""An answer, or what makes one of the request."""


def text(
    said: str,
    *,
    reasoning: str = "",
    finish: FinishKind = "stop",
    usage: Usage | UnsetType | None = UNSET,
    replay_state: Any = None,
) -> Answer:
    """Return an answer of text. An empty one fails as a live model's does, with `EMPTY_RESPONSE`."""
    blocks = _said(said, reasoning)
    if not blocks and finish == "stop":
        return failure("EMPTY_RESPONSE", "the model ended its answer without saying anything", how="finish")
    return Answer(blocks=blocks, finish=finish, usage=usage, replay_state=replay_state)


def tool_calls(
    *calls: ScriptedCall,
    said: str = "",
    reasoning: str = "",
    finish: FinishKind = "tool-calls",
    usage: Usage | UnsetType | None = UNSET,
    replay_state: Any = None,
) -> Answer:
    """Return an answer that makes tool calls. A call without an id gets one from its place in the session."""
    blocks = (*_said(said, reasoning), *map(_call_block, calls))
    return Answer(blocks=blocks, finish=finish, usage=usage, replay_state=replay_state)


def failure(
    code: str,
    message: str = "the scripted model fails",
    *,
    said: str = "",
    how: How = "raised",
    status: int | None = None,
    provider_retry_after_ms: float | None = None,
    request_id: str | None = None,
) -> Answer:
    """Return an answer that fails after `said`.

    `raised`: the adapter raises a `ModelError`; `finish`: it says so in its last chunk, which a log cannot
    tell from the first; `fault`: the stream breaks outside the adapter.
    """
    kind = StreamFault if how == "fault" else ModelError
    error = kind(
        message,
        code,
        status=status,
        provider_retry_after_ms=provider_retry_after_ms,
        request_id=request_id,
    )
    return Answer(blocks=_said(said, ""), error=error, in_band=how == "finish")


def chunks(*raw: ChunkValue) -> Answer:
    """Return an answer of exactly these chunks."""
    return Answer(raw=raw)


def hang(said: str = "") -> Answer:
    """Return an answer that says `said` and then nothing until the call is cancelled."""
    return Answer(blocks=_said(said, ""), hangs=True)


def call(name: str, arguments: Any = None, *, id: str | None = None) -> ScriptedCall:
    """Return a tool call for `tool_calls`."""
    return ScriptedCall(name, {} if arguments is None else arguments, id)


def _said(said: str, reasoning: str) -> tuple[Mapping[str, Any], ...]:
    blocks = ({"type": "reasoning", "text": reasoning}, {"type": "text", "text": said})
    return tuple(block for block in blocks if block["text"])


def _call_block(made: ScriptedCall) -> Mapping[str, Any]:
    return {"type": "tool-call", "id": made.id, "name": made.name, "arguments": made.raw}


class Pace:
    """How long the model takes before each chunk: a whole number drawn from `low` to `high`, both included.

    With a clock it is milliseconds of that clock, else so many passes through the event loop.
    """

    def __init__(
        self, source: random.Random, low: int = 0, high: int = 3, clock: Clock | None = None
    ) -> None:
        self._source = source
        self._low = low
        self._high = high
        self._clock = clock

    async def wait(self) -> None:
        """Let that time pass."""
        import anyio.lowlevel  # costs 50 ms: a command that only names a scripted model never waits

        passes = self._source.randint(self._low, self._high)
        if self._clock is not None:
            await self._clock.sleep(passes)
            return
        for _ in range(passes):
            await anyio.lowlevel.checkpoint()


class ScriptedModel:
    """Answers model calls from a script; a plain string is an answer of that text.

    A session whose lineage key is in `sessions` draws on that list alone, any other on `answers`, in the
    order of the calls. Calls of another purpose than `turn` draw on `auxiliary`. A call too many is an
    `AnswersExhaustedError`; `left` tells of answers too many. `requests` keeps every request. The defaults
    are filled in and marked as an adapter does with its own.
    """

    def __init__(
        self,
        *answers: Answerable | str,
        sessions: Mapping[str, Sequence[Answerable | str]] | None = None,
        auxiliary: Mapping[str, Sequence[Answerable | str]] | None = None,
        pace: Pace | None = None,
        context_window: int | None = None,
        default_reasoning_effort: str | None = None,
        default_max_tokens: int | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = _texts(answers)
        self._sessions = {key: _texts(script) for key, script in (sessions or {}).items()}
        self._auxiliary = {purpose: _texts(script) for purpose, script in (auxiliary or {}).items()}
        self._pace = pace
        self._context_window = context_window
        self._effort = default_reasoning_effort
        self._max_tokens = default_max_tokens
        self._calls: Counter[str] = Counter()
        self._made: defaultdict[str, int] = defaultdict(int)

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        """Fill in the defaults that `config` leaves open."""
        marks = AdapterDefaults(
            reasoning_effort=(config.reasoning_effort is None and self._effort is not None) or None,
            max_tokens=(config.max_tokens is None and self._max_tokens is not None) or None,
        )
        filled = msgspec.structs.replace(
            config,
            reasoning_effort=config.reasoning_effort or self._effort,
            max_tokens=config.max_tokens if config.max_tokens is not None else self._max_tokens,
        )
        return PreparedConfig(config=filled, adapter_defaults=marks, context_window=self._context_window)

    def stream(self, request: ModelRequest) -> AsyncIterator[ChunkValue]:
        """Answer with the next entry of the script. The entry is taken by the call, not by reading it."""
        self.requests.append(request)
        answer = self._take(request)
        return self._play(answer(request) if callable(answer) else answer, request)

    def left(self) -> dict[str, int]:
        """Return how many answers each list still holds: by session key, by purpose, and `*` for the rest."""
        lists = {**self._sessions, **self._auxiliary, "*": self._answers}
        return {name: len(script) for name, script in lists.items() if script}

    def _take(self, request: ModelRequest) -> Answerable:
        self._calls[request.session_id] += 1
        script = self._script_of(request)
        if not script:
            ordinal = self._calls[request.session_id]
            raise AnswersExhaustedError(request.session_id, ordinal, ordinal - 1)
        return script.pop(0)

    def _script_of(self, request: ModelRequest) -> list[Answerable]:
        if request.purpose != "turn":
            return self._auxiliary.get(request.purpose, [])
        return self._sessions.get(request.key, self._answers)

    async def _play(self, answer: Answer, request: ModelRequest) -> AsyncIterator[ChunkValue]:
        import anyio  # costs 50 ms: a command that only names a scripted model never waits
        import anyio.lowlevel

        for chunk in self._chunks(answer, request):
            await anyio.lowlevel.checkpoint()
            if self._pace is not None:
                await self._pace.wait()
            yield chunk
        if answer.hangs:
            await anyio.sleep_forever()
        if answer.error is not None and not answer.in_band:
            raise answer.error

    def _chunks(self, answer: Answer, request: ModelRequest) -> Iterator[ChunkValue]:
        if answer.raw is not None:
            yield from answer.raw
            return
        blocks = [self._with_id(block, request) for block in answer.blocks]
        pieces = 0
        for index, block in enumerate(blocks):
            yield {"type": "block-start", "index": index, "blockType": block["type"]}
            for delta in _deltas(index, block):
                pieces += 1
                yield delta
        if answer.hangs or (answer.error is not None and not answer.in_band):
            return
        if answer.error is None:
            for index, block in enumerate(blocks):
                yield {"type": "block-end", "index": index, "block": block}
        usage = _estimate(request, pieces) if answer.usage is UNSET else answer.usage
        if usage is not None:
            yield {"type": "usage", "usage": msgspec.to_builtins(usage)}
        yield _finish(answer)

    def _with_id(self, block: Mapping[str, Any], request: ModelRequest) -> dict[str, Any]:
        if block["type"] != "tool-call" or block["id"] is not None:
            return dict(block)
        self._made[request.session_id] += 1
        return {**block, "id": f"call_{self._made[request.session_id]}"}


def _deltas(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] != "tool-call":
        for piece in _PIECE.findall(block["text"]):
            yield {"type": f"{block['type']}-delta", "index": index, "text": piece}
        return
    for piece in _PIECE.findall(block["arguments"]) or [""]:
        yield {
            "type": "tool-call-delta",
            "index": index,
            "id": block["id"],
            "name": block["name"],
            "argumentsDelta": piece,
        }


def _estimate(request: ModelRequest, pieces: int) -> Usage:
    """Return a usage that grows with the history, at four bytes of JSON to a token."""
    heard = sum(len(message.data) for message in request.messages) + len(request.header.system or "")
    return Usage(input_tokens=math.ceil(heard / 4), output_tokens=pieces)


def _finish(answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        failed = {"message": answer.error.reason, "code": answer.error.code}
        optional = {
            "status": answer.error.status,
            "providerRetryAfterMs": answer.error.provider_retry_after_ms,
            "requestId": answer.error.request_id,
        }
        failed |= {name: value for name, value in optional.items() if value is not None}
        return {"type": "finish", "reason": {"kind": "error", "failure": failed}}
    makes_calls = any(block["type"] == "tool-call" for block in answer.blocks)
    finish: dict[str, Any] = {
        "type": "finish",
        "reason": {"kind": answer.finish or ("tool-calls" if makes_calls else "stop")},
    }
    if answer.replay_state is not None:
        finish["replayState"] = answer.replay_state
    return finish


# --- the file form ---------------------------------------------------------------------------------


class _FailureForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    code: str
    message: str
    status: int | None = None
    provider_retry_after_ms: float | None = None
    request_id: str | None = None


class _AnswerForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: FinishKind | None = None
    usage: Usage | UnsetType | None = UNSET
    replay_state: Any = None
    failure: _FailureForm | None = None
    chunks: tuple[dict[str, Any], ...] | None = None
    hang: bool = False

    def answer(self) -> Answer:
        if self.chunks is not None:
            return chunks(*self.chunks)
        if self.hang:
            return hang(self.text)
        if self.failure is not None:
            failed = self.failure
            return failure(
                failed.code,
                failed.message,
                said=self.text,
                status=failed.status,
                provider_retry_after_ms=failed.provider_retry_after_ms,
                request_id=failed.request_id,
            )
        said = _said(self.text, self.reasoning)
        if not said and not self.calls and self.finish in (None, "stop"):
            return text("")
        return Answer(
            blocks=(*said, *map(_call_block, self.calls)),
            finish=self.finish,
            usage=self.usage,
            replay_state=self.replay_state,
        )


_Entry = str | _AnswerForm


class _FileForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    answers: tuple[_Entry, ...] = ()
    sessions: dict[str, tuple[_Entry, ...]] = {}
    auxiliary: dict[str, tuple[_Entry, ...]] = {}
    context_window: int | None = None


def _texts(answers: Iterable[Answerable | str]) -> list[Answerable]:
    return [text(answer) if isinstance(answer, str) else answer for answer in answers]


def load_scripted(path: str | Path, *, pace: Pace | None = None) -> ScriptedModel:
    """Return the model that a JSON file of answers describes; this module's docstring gives the form.

    Raises `AnswersRefusedError` naming the file and the place in it, or `OSError`.
    """
    try:
        form = msgspec.convert(decode(Path(path).read_bytes()), _FileForm)
    except JsonSyntaxError as error:
        raise AnswersRefusedError(str(path), "", f"unparsable JSON: {error.reason}") from None
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        raise AnswersRefusedError(str(path), where.strip("`"), reason) from None
    return ScriptedModel(
        *_answers(form.answers),
        sessions={key: _answers(entries) for key, entries in form.sessions.items()},
        auxiliary={purpose: _answers(entries) for purpose, entries in form.auxiliary.items()},
        pace=pace,
        context_window=form.context_window,
    )


def _answers(entries: Sequence[_Entry]) -> list[Answerable]:
    return [text(entry) if isinstance(entry, str) else entry.answer() for entry in entries]
