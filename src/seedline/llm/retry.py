"""When to try a failed model call again, as pure functions (2.12 of the loop's rules).

A policy says what may be tried again and how long to wait; how often that has been done is read back from
the log, so a resumed session and a replay count alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from seedline.errors import SettingRefusedError
from seedline.events.event import Event
from seedline.events.messages import Failure
from seedline.jsonvalue import encode, is_count

RETRYABLE_CODES: Final = frozenset({"EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT"})


def _require(setting: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or math.isinf(value):
        limits = f"a finite number from {low}" + ("" if math.isinf(high) else f" to {high}")
        raise SettingRefusedError(setting, value, limits)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits in milliseconds: doubling from `initial_delay_ms`, never over `max_delay_ms`.

    Each is stretched or shrunk by up to the share `jitter_ratio`. Raises `SettingRefusedError`.
    """

    initial_delay_ms: float = 500
    max_delay_ms: float = 10_000
    jitter_ratio: float = 0.1

    def __post_init__(self) -> None:
        _require("initial_delay_ms", self.initial_delay_ms, 0, math.inf)
        _require("max_delay_ms", self.max_delay_ms, 0, math.inf)
        _require("jitter_ratio", self.jitter_ratio, 0, 1)

    def delay(self, retry: int, chance: float) -> float:
        """Return the wait before retry number `retry`, from 1; `chance` is random in [0, 1)."""
        # Past this many doublings the maximum is reached, and a double would overflow.
        doubled = self.initial_delay_ms * 2.0 ** min(retry - 1, 1000)
        jitter = 1 - self.jitter_ratio + 2 * self.jitter_ratio * chance
        return min(min(doubled, self.max_delay_ms) * jitter, self.max_delay_ms)


class NormalRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Try again up to `max_retries` times after a failure with one of `retryable_codes`."""

    max_retries: int = 5
    retryable_codes: frozenset[str] = RETRYABLE_CODES
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        if not is_count(self.max_retries):
            raise SettingRefusedError("max_retries", self.max_retries, "a whole number from 0")

    @property
    def mode(self) -> str:
        return "normal"


class AlwaysRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Try again after every failure, for ever; other recovery is asked first."""

    backoff: Backoff = Backoff()

    @property
    def mode(self) -> str:
        return "always"


RetryPolicy = NormalRetry | AlwaysRetry


def policy_key(policy: RetryPolicy) -> str:
    """Return the text that tells policies apart: a JSON list of the mode and every setting."""
    backoff = policy.backoff
    waits = [backoff.initial_delay_ms, backoff.max_delay_ms, backoff.jitter_ratio]
    if isinstance(policy, AlwaysRetry):
        return _json_text([policy.mode, *waits])
    return _json_text([policy.mode, policy.max_retries, sorted(policy.retryable_codes), *waits])


def _json_text(value: Any) -> str:
    return encode(value).decode("utf-8")


class Chain(NamedTuple):
    """The retries of one call so far: the id they share, None before the first, and how many."""

    retry_id: str | None
    retries: int


def chain_in(newest_first: Iterable[Event], *, turn: int, step: int, provider: str, key: str) -> Chain:
    """Return the retries that a log records for one (turn, step, provider, policy key) of the open step.

    Reads events from the last one backwards, to the start of the step.
    """
    found = Chain(None, 0)
    for event in newest_first:
        if event.type == "step/start":
            break
        if event.type != "llm/retry":
            continue
        data = event.payload
        if (data.turn, data.step, data.provider, data.policy_key) == (turn, step, provider, key):
            found = Chain(data.retry_id, found.retries + 1)
    return found


def wait_before(policy: RetryPolicy, failure: Failure, retry: int, chance: float) -> float | None:
    """Return how many milliseconds to wait before retry number `retry`, None to give up.

    A wait that the provider asked for is taken as it is, up to the maximum; beyond, `normal` gives up and
    `always` keeps to its own.
    """
    asked, longest = failure.provider_retry_after_ms, policy.backoff.max_delay_ms
    if isinstance(policy, NormalRetry):
        too_long = asked is not None and asked > longest
        if retry > policy.max_retries or failure.code not in policy.retryable_codes or too_long:
            return None
    if asked is not None and asked <= longest:
        return asked
    return policy.backoff.delay(retry, chance)
