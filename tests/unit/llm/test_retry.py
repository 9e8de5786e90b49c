"""Retry policies as pure functions: 2.12 of the loop's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from seedline.errors import SettingRefusedError
from seedline.events.event import Event
from seedline.events.messages import Failure
from seedline.jsonvalue import encode
from seedline.llm.retry import (
    AlwaysRetry,
    Backoff,
    Chain,
    NormalRetry,
    RetryPolicy,
    chain_in,
    policy_key,
    wait_before,
)

SERVER = Failure("no", "SERVER")


@pytest.mark.parametrize(
    ("retry", "chance", "delay"),
    [
        (1, 0.5, 500),
        (2, 0.5, 1000),
        (5, 0.5, 8000),
        (6, 0.5, 10_000),
        (4000, 0.5, 10_000),
        (1, 0.0, 450),
        (1, 0.75, 525),
        (6, 0.0, 9000),
        (6, 0.999, 10_000),
    ],
)
def test_the_default_wait_doubles_up_to_its_maximum(retry: int, chance: float, delay: float) -> None:
    assert Backoff().delay(retry, chance) == pytest.approx(delay)


@given(
    initial=st.floats(0, 1e6),
    longest=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    retry=st.integers(1, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_no_wait_is_negative_or_over_the_maximum(
    initial: float, longest: float, jitter: float, retry: int, chance: float
) -> None:
    backoff = Backoff(initial_delay_ms=initial, max_delay_ms=longest, jitter_ratio=jitter)
    assert 0 <= backoff.delay(retry, chance) <= longest


ONCE = NormalRetry(max_retries=1)


@pytest.mark.parametrize(
    ("policy", "failure", "retry", "wait"),
    [
        (NormalRetry(), SERVER, 1, 500),
        (NormalRetry(), SERVER, 5, 8000),
        (NormalRetry(), SERVER, 6, None),
        (ONCE, SERVER, 2, None),
        (NormalRetry(max_retries=0), SERVER, 1, None),
        (NormalRetry(), Failure("no", "AUTH"), 1, None),
        (NormalRetry(), Failure("no", "CONTENT_FILTER"), 1, None),
        *(
            (NormalRetry(), Failure("no", code), 1, 500)
            for code in ("EMPTY_RESPONSE", "RATE_LIMIT", "TIMEOUT", "TRANSPORT")
        ),
        (NormalRetry(retryable_codes=frozenset({"AUTH"})), Failure("no", "AUTH"), 1, 500),
        (NormalRetry(), Failure("no", "SERVER", provider_retry_after_ms=7), 3, 7),
        (NormalRetry(), Failure("no", "SERVER", provider_retry_after_ms=10_000), 1, 10_000),
        (NormalRetry(), Failure("no", "SERVER", provider_retry_after_ms=10_001), 1, None),
        (AlwaysRetry(), Failure("no", "AUTH"), 1, 500),
        (AlwaysRetry(), SERVER, 1000, 10_000),
        (AlwaysRetry(), Failure("no", "SERVER", provider_retry_after_ms=7), 3, 7),
        (AlwaysRetry(), Failure("no", "SERVER", provider_retry_after_ms=10_001), 1, 500),
    ],
)
def test_when_to_try_again(policy: RetryPolicy, failure: Failure, retry: int, wait: float | None) -> None:
    assert wait_before(policy, failure, retry, 0.5) == wait


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        # The first is the key of a recording whose policy had these settings.
        (
            NormalRetry(max_retries=2, backoff=Backoff(initial_delay_ms=1, max_delay_ms=1, jitter_ratio=0)),
            '["normal",2,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],1,1,0]',
        ),
        (NormalRetry(retryable_codes=frozenset("ba")), '["normal",5,["a","b"],500,10000,0.1]'),
        (AlwaysRetry(backoff=Backoff(initial_delay_ms=0.5)), '["always",0.5,10000,0.1]'),
    ],
)
def test_the_key_names_the_mode_and_every_setting(policy: RetryPolicy, key: str) -> None:
    assert policy_key(policy) == key


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(initial_delay_ms=-1),
        lambda: Backoff(max_delay_ms=float("inf")),
        lambda: Backoff(jitter_ratio=1.5),
        lambda: Backoff(jitter_ratio=float("nan")),
        lambda: NormalRetry(max_retries=-1),
        lambda: NormalRetry(max_retries=True),
    ],
)
def test_a_policy_out_of_range_is_refused(make: Any) -> None:
    with pytest.raises(SettingRefusedError, match="must be"):
        make()


def _retry(seq: int, **changed: Any) -> Event:
    data = {
        "retryId": "r",
        "turn": 1,
        "step": 2,
        "provider": "p",
        "mode": "normal",
        "policyKey": "k",
        "retry": 1,
    }
    data |= {"delayMs": 1, "failure": {"message": "m", "code": "c"}, **changed}
    return Event("llm/retry", seq, 0, Raw(encode(data)))


def test_retries_are_counted_per_place_provider_and_policy() -> None:
    log = [
        _retry(0, retryId="earlier"),
        Event("step/start", 1, 0, Raw(b'{"turn":1,"step":2}')),
        _retry(2, retryId="one"),
        _retry(3, provider="q"),
        _retry(4, policyKey="l"),
        _retry(5, retryId="one"),
    ]
    found = chain_in(reversed(log), turn=1, step=2, provider="p", key="k")
    assert found == Chain("one", 2)
    assert chain_in(reversed(log), turn=1, step=2, provider="x", key="k") == Chain(None, 0)
