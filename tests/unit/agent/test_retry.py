"""Failed calls tried again within their step, as the log shows it: 2.12 of the loop's rules."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.agent.extension import Extension, FailedAttempt
from seedline.agent.loop import Agent
from seedline.agent.retry import Retry
from seedline.clock import ManualClock
from seedline.events.vocabulary import RequestConfig
from seedline.llm.retry import AlwaysRetry, Backoff, NormalRetry
from seedline.llm.scripted import failure, text
from tests.unit.agent.harness import Rig, rig

pytestmark = pytest.mark.anyio


class Middle:
    """No luck either way: the middle of the jitter."""

    def random(self) -> float:
        return 0.5


def retries(run: Rig) -> list[dict[str, Any]]:
    return [event.value for event in run.session.events if event.type == "llm/retry"]


async def test_an_empty_answer_is_tried_again_in_the_same_step() -> None:
    clock = ManualClock()
    async with rig(text(""), text("Recovered."), extensions=[Retry(clock, chance=Middle())]) as run:
        lines = await run.ask("go")
    assert lines[lines.index("header initial") :] == [
        "header initial",
        "context",
        "chunks..error:EMPTY_RESPONSE",
        "llm/retry",
        "llm/retry-started",
        "chunks..stop",
        "answer: Recovered.",
        "step 1 ends",
        "end 1: completed",
    ]
    assert clock.now() == 500
    [retry] = retries(run)
    [started] = [event.value for event in run.session.events if event.type == "llm/retry-started"]
    assert list(retry) == [
        "retryId",
        "turn",
        "step",
        "provider",
        "mode",
        "policyKey",
        "retry",
        "maxRetries",
        "delayMs",
        "failure",
    ]
    assert (retry["mode"], retry["retry"], retry["maxRetries"], retry["delayMs"]) == ("normal", 1, 5, 500)
    assert retry["failure"]["code"] == "EMPTY_RESPONSE"
    assert started == {"retryId": retry["retryId"], "turn": 1, "step": 1, "retry": 1}


async def test_the_answer_cites_the_chunks_of_its_own_attempt_only() -> None:
    async with rig(failure("SERVER", said="Half"), text("All."), extensions=[Retry(ManualClock())]) as run:
        await run.ask("go")
    [answer] = [event for event in run.session.events if event.type == "assistant/message"]
    [started] = [event for event in run.session.events if event.type == "llm/retry-started"]
    assert answer.source_event_seqs == tuple(range(started.seq + 1, answer.seq))


async def test_retries_run_out_and_share_one_id() -> None:
    failures = [failure("SERVER")] * 6
    async with rig(*failures, extensions=[Retry(ManualClock(), chance=Middle())]) as run:
        lines = await run.ask("go")
    assert lines[-1] == "end 1: error:SERVER"
    assert [retry["delayMs"] for retry in retries(run)] == [500, 1000, 2000, 4000, 8000]
    assert len({retry["retryId"] for retry in retries(run)}) == 1
    assert run.model.left() == {}


async def test_each_step_counts_anew() -> None:
    policy = NormalRetry(max_retries=1)
    answers = failure("SERVER"), text("one"), failure("SERVER"), text("two")
    async with rig(*answers, extensions=[Retry(ManualClock(), default=policy)]) as run:
        await run.ask("a", "b")
    assert [(retry["turn"], retry["retry"]) for retry in retries(run)] == [(1, 1), (2, 1)]
    assert len({retry["retryId"] for retry in retries(run)}) == 2


async def test_what_is_not_retryable_is_not_tried_again() -> None:
    async with rig(failure("AUTH"), extensions=[Retry(ManualClock())]) as run:
        lines = await run.ask("go")
    assert lines[-1] == "end 1: error:AUTH"
    assert retries(run) == []


async def test_always_tries_every_failure_again_without_a_limit() -> None:
    failures = [failure("AUTH"), failure("CONTENT_FILTER", how="finish")] * 10
    policy = AlwaysRetry(backoff=Backoff(jitter_ratio=0))
    async with rig(*failures, text("At last."), extensions=[Retry(ManualClock(), default=policy)]) as run:
        lines = await run.ask("go")
    assert lines[-1] == "end 1: completed"
    assert len(retries(run)) == 20
    assert all("maxRetries" not in retry and retry["mode"] == "always" for retry in retries(run))


class Repairs(Extension):
    """Answers `retry` as long as it has any left, and counts how often it was asked."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.asked = 0

    async def recover(self, agent: Agent, attempt: FailedAttempt, proceed: Any) -> bool:
        self.asked += 1
        self.left -= 1
        return self.left >= 0 or await proceed(attempt)


@pytest.mark.parametrize(
    ("policy", "failures", "asked", "retried"),
    [
        pytest.param(NormalRetry(), [failure("SERVER")], 0, 1, id="normal decides first"),
        pytest.param(
            NormalRetry(), [failure("CONTEXT_WINDOW_EXCEEDED")], 1, 0, id="and leaves the rest to others"
        ),
        pytest.param(AlwaysRetry(), [failure("SERVER")], 1, 0, id="always asks others first"),
        pytest.param(
            AlwaysRetry(), [failure("SERVER"), failure("SERVER")], 2, 1, id="and retries what they leave"
        ),
    ],
)
async def test_who_recovers_first(policy: Any, failures: Any, asked: int, retried: int) -> None:
    repairs = Repairs(1)
    extensions = [Retry(ManualClock(), default=policy), repairs]
    async with rig(*failures, text("ok"), extensions=extensions) as run:
        lines = await run.ask("go")
    assert lines[-1] == "end 1: completed"
    assert (repairs.asked, len(retries(run))) == (asked, retried)


async def test_a_provider_has_its_own_policy_and_count() -> None:
    class Moves(Extension):
        """Sends the third attempt to another provider."""

        def __init__(self) -> None:
            self.attempts = 0

        async def configure(self, agent: Agent, config: RequestConfig) -> RequestConfig:
            self.attempts += 1
            return RequestConfig("other", "o-1") if self.attempts > 2 else config

    retry = Retry(ManualClock(), policies={"other": AlwaysRetry()}, default=NormalRetry(max_retries=5))
    answers = failure("SERVER"), failure("SERVER"), failure("AUTH"), text("ok")
    async with rig(*answers, extensions=[Moves(), retry]) as run:
        lines = await run.ask("go")
    assert [(r["provider"], r["mode"], r["retry"]) for r in retries(run)] == [
        ("acme", "normal", 1),
        ("acme", "normal", 2),
        ("other", "always", 1),
    ]
    assert len({r["retryId"] for r in retries(run)}) == 2
    assert lines.count("header change") == 1
    assert lines.count("context") == 2


async def test_a_wait_the_provider_asked_for_is_kept() -> None:
    clock = ManualClock()
    answers = failure("RATE_LIMIT", provider_retry_after_ms=1234.5), text("ok")
    async with rig(*answers, extensions=[Retry(clock)]) as run:
        await run.ask("go")
    [retry] = retries(run)
    assert retry["delayMs"] == 1234.5
    assert clock.now() == 1235
