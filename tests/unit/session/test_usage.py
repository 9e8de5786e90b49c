"""Own usage: each request once, from its chunk or else its answer, over the own suffix."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.codec import encode_event
from seedline.events.event import CHUNK
from seedline.session.header import START, SessionLogOffset
from seedline.session.sequence import Events, StoredRow
from seedline.session.usage import UsageTotals, usage_of
from tests.unit.session.make import (
    FINISH,
    assistant,
    call,
    chunk,
    delta,
    event,
    events_of,
    packed,
)

Step = tuple[str, Any]
FAILED = {"type": "finish", "reason": {"kind": "error", "failure": {"message": "m", "code": "SERVER"}}}


def tokens(given: int, made: int, **more: int) -> dict[str, int]:
    return {"inputTokens": given, "outputTokens": made, **more}


def usage_chunk(given: int, made: int, **more: int) -> Step:
    return CHUNK, chunk({"type": "usage", "usage": tokens(given, made, **more)})


def chunks(*values: Any) -> list[Step]:
    return [(CHUNK, chunk(value)) for value in values]


def answer(usage: dict[str, int] | None = None) -> Step:
    more: dict[str, Any] = {} if usage is None else {"usage": usage}
    return "assistant/message", assistant(**more)


def in_a_step(*inner: Step) -> list[Step]:
    return [("step/start", {"turn": 1, "step": 1}), *inner, ("step/end", {"turn": 1, "step": 1})]


def log(*steps: Step, lines: bool = False) -> Events:
    """Events of the steps; with `lines`, chunks stay as their stored lines."""
    rows: list[StoredRow] = []
    for seq, (event_type, data) in enumerate(steps):
        row = event(event_type, seq, data)
        rows.append(encode_event(row) if lines and event_type == CHUNK else row)
    return events_of(*rows)


def spent(*steps: Step) -> tuple[int, int, int]:
    """Input tokens, output tokens and requests; the same whether chunks are decoded yet or not."""
    decoded, stored = (usage_of(log(*steps, lines=lines), START) for lines in (False, True))
    assert decoded == stored
    return decoded.input_tokens, decoded.output_tokens, decoded.requests


def test_nothing_was_spent() -> None:
    assert usage_of(events_of(), START) == UsageTotals()
    assert usage_of(log(("plugin/note", {}), ("session/end-seed", {})), START) == UsageTotals()


def test_the_chunk_counts_and_its_repetition_in_the_answer_does_not() -> None:
    steps = in_a_step(*chunks(delta("x")), usage_chunk(10, 2), *chunks(FINISH), answer(tokens(10, 2)))
    assert spent(*steps) == (10, 2, 1)


def test_the_chunk_is_believed_where_the_answer_says_otherwise() -> None:
    assert spent(*in_a_step(usage_chunk(10, 2), *chunks(FINISH), answer(tokens(99, 99)))) == (10, 2, 1)
    assert spent(*in_a_step(usage_chunk(0, 0), *chunks(FINISH), answer(tokens(99, 99)))) == (0, 0, 1)


def test_every_figure() -> None:
    more = {"cacheReadTokens": 3, "cacheWriteTokens": 4, "reasoningTokens": 1}
    rows = [
        ("turn/start", {"turn": 1}),
        *in_a_step(usage_chunk(10, 2, **more), *chunks(FINISH), answer(), ("tool/call", call())),
        ("turn/end", {"turn": 1}),
    ]
    totals = usage_of(log(*rows), START)
    assert totals.as_dict() == {
        "inputTokens": 10,
        "outputTokens": 2,
        "cacheReadTokens": 3,
        "cacheWriteTokens": 4,
        "reasoningTokens": 1,
        "requests": 1,
        "turns": 1,
        "toolCalls": 1,
    }
    assert list(UsageTotals().as_dict()) == list(totals.as_dict())


def test_the_answer_counts_where_no_chunk_does() -> None:
    assert spent(*in_a_step(*chunks(delta("x"), FINISH), answer(tokens(7, 1)))) == (7, 1, 1)
    assert spent(*in_a_step(answer(tokens(7, 1)))) == (7, 1, 1)
    assert spent(*in_a_step(answer())) == (0, 0, 1)


def test_each_attempt_of_a_retried_step_is_a_request() -> None:
    failed, good = [usage_chunk(5, 0), *chunks(FAILED)], [usage_chunk(6, 1), *chunks(FINISH)]
    assert spent(*in_a_step(*failed, ("llm/retry", {}), *good, answer(tokens(6, 1)))) == (11, 1, 2)
    assert spent(*in_a_step(*chunks(FAILED), *good, answer(tokens(6, 1)))) == (6, 1, 2)
    # The answer speaks for the attempt it belongs to, not for the one that failed.
    assert spent(*in_a_step(*failed, *chunks(delta("x"), FINISH), answer(tokens(6, 1)))) == (11, 1, 2)
    assert spent(*in_a_step(*failed)) == (5, 0, 1)


def test_a_cut_stream_is_a_request() -> None:
    assert spent(*in_a_step(*chunks(delta("x")))) == (0, 0, 1)
    assert spent(*chunks(delta("x"))) == (0, 0, 1)
    assert spent(*in_a_step(*chunks(delta("x")), answer(tokens(3, 1)))) == (3, 1, 1)


def test_steps_part_calls_that_no_finish_ends() -> None:
    one = in_a_step(*chunks(delta("x")), answer(tokens(3, 1)))
    assert spent(*one, *one) == (6, 2, 2)
    assert spent(*in_a_step(usage_chunk(3, 1)), *in_a_step(answer(tokens(4, 1)))) == (7, 2, 2)


def test_a_later_usage_of_one_call_supersedes() -> None:
    assert spent(*in_a_step(usage_chunk(3, 0), usage_chunk(3, 9), *chunks(FINISH), answer())) == (3, 9, 1)


def test_only_a_compaction_that_was_a_model_call_counts() -> None:
    def summary(**more: Any) -> Step:
        return "compaction/summary", {"compactionId": "k", "usage": tokens(100, 10), **more}

    assert spent(summary(llmStreamCall=True)) == (100, 10, 1)
    assert spent(summary(llmStreamCall=True, usage=None)) == (0, 0, 1)
    assert spent(summary()) == (0, 0, 0)
    assert spent(summary(llmStreamCall=False)) == (0, 0, 0)
    attempt = [usage_chunk(5, 0), *chunks(FAILED)]
    steps = in_a_step(*attempt, summary(llmStreamCall=True), usage_chunk(6, 1), *chunks(FINISH), answer())
    assert spent(*steps) == (111, 11, 3)


def test_packed_deltas_are_part_of_a_call_and_stay_packed() -> None:
    rows = [
        event("step/start", 0, {"turn": 1, "step": 1}),
        packed(1, "a", "b", "c"),
        event(CHUNK, 4, chunk(FINISH)),
        event("assistant/message", 5, assistant(usage=tokens(3, 1))),
        packed(6, "a", "b", "c"),
        event("step/end", 9, {}),
    ]
    totals = usage_of(events_of(*rows), START)
    assert (totals.input_tokens, totals.output_tokens, totals.requests) == (3, 1, 2)


def test_words_inside_text_are_only_text() -> None:
    tricky = [delta('{"type":"usage","usage":{"inputTokens":5}}'), delta('"usage"'), delta("\x1b[0m\\u00")]
    assert spent(*in_a_step(*chunks(*tricky), usage_chunk(2, 1), *chunks(FINISH), answer())) == (2, 1, 1)


def test_an_escaped_spelling_is_read() -> None:
    line = encode_event(event(CHUNK, 0, usage_chunk(4, 1)[1])).replace(b'"usage"', b'"\\u0075sage"')
    assert b'"usage"' not in line
    assert usage_of(events_of(line), START).input_tokens == 4


def test_the_cut_bounds_everything() -> None:
    inherited = [("turn/start", {"turn": 1}), *in_a_step(usage_chunk(10, 2), *chunks(FINISH), answer())]
    inherited += [("tool/call", call()), ("turn/end", {"turn": 1})]
    own = [("session/end-seed", {}), ("turn/start", {"turn": 2}), *in_a_step(answer(tokens(1, 1)))]
    totals = usage_of(log(*inherited, *own), SessionLogOffset(len(inherited)))
    assert totals == UsageTotals(input_tokens=1, output_tokens=1, requests=1, turns=1)
    whole = usage_of(log(*inherited, *own), START)
    assert (whole.requests, whole.turns, whole.tool_calls) == (2, 2, 1)
    with pytest.raises(SessionPersistenceCorruptionError):
        usage_of(log(*inherited), SessionLogOffset(100))


def test_totals_add_up() -> None:
    one = UsageTotals(1, 2, 3, 4, 5, 6, 7, 8)
    assert one + one == UsageTotals(2, 4, 6, 8, 10, 12, 14, 16)
    assert sum([one, one], UsageTotals()) == one + one


@pytest.mark.parametrize(
    "step",
    [
        (CHUNK, chunk({"type": "usage"})),
        (CHUNK, chunk({"type": "usage", "usage": None})),
        (CHUNK, chunk({"type": "usage", "usage": {"inputTokens": 1}})),
        (CHUNK, chunk({"type": "usage", "usage": tokens(1, 1) | {"inputTokens": "1"}})),
        (CHUNK, chunk({"type": "usage", "usage": tokens(1, 1) | {"outputTokens": 1.5}})),
        ("assistant/message", assistant(usage={"inputTokens": 1})),
        ("assistant/message", assistant(usage=5)),
        ("compaction/summary", {"llmStreamCall": True, "usage": {}}),
    ],
)
def test_usage_of_another_shape_is_corruption_with_its_seq(step: Step) -> None:
    for lines in (False, True):
        with pytest.raises(SessionPersistenceCorruptionError, match="another shape") as corrupt:
            usage_of(log(("plugin/note", {}), step, lines=lines), START)
        assert corrupt.value.seq == 1


@pytest.mark.parametrize("value", [None, 5, "usage", [], {}, {"type": ["usage"]}, {"type": "x", "usage": 5}])
def test_chunks_of_unknown_shape_are_only_chunks(value: Any) -> None:
    assert spent(*in_a_step(*chunks(value))) == (0, 0, 1)
