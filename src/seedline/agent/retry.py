"""The extension that tries failed model calls again, within their step."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import anyio

from seedline.agent.extension import Extension, FailedAttempt
from seedline.clock import Clock
from seedline.llm.retry import AlwaysRetry, NormalRetry, RetryPolicy, chain_in, policy_key, wait_before

if TYPE_CHECKING:
    from seedline.agent.loop import Agent

Proceed = Callable[[FailedAttempt], Awaitable[bool]]


class Chance(Protocol):
    """Where jitter comes from."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


class Retry(Extension):
    """Applies the retry policy of the provider that served the call.

    `policies` maps providers to policies; any other has `default`. `normal` decides first and leaves what it
    does not retry to the links behind it; `always` lets them go first. Each wait is logged before it begins
    and its end after; one that is cancelled has no end.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        default: RetryPolicy | None = None,
        policies: dict[str, RetryPolicy] | None = None,
        chance: Chance | None = None,
    ) -> None:
        self._clock = clock
        self._default = default or NormalRetry()
        self._policies = dict(policies or {})
        self._chance = chance or random.Random()

    async def recover(self, agent: Agent, attempt: FailedAttempt, proceed: Proceed) -> bool:
        policy = self._policies.get(attempt.config.provider, self._default)
        if isinstance(policy, AlwaysRetry) and await proceed(attempt):
            return True
        if agent.signal.aborted:
            return False
        if await self._try_again(agent, attempt, policy):
            return True
        return isinstance(policy, NormalRetry) and not agent.signal.aborted and await proceed(attempt)

    async def _try_again(self, agent: Agent, attempt: FailedAttempt, policy: RetryPolicy) -> bool:
        key = policy_key(policy)
        chain = chain_in(
            agent.session.own_events.without_chunks_reversed(),
            turn=attempt.turn,
            step=attempt.step,
            provider=attempt.config.provider,
            key=key,
        )
        retry = chain.retries + 1
        delay = wait_before(policy, attempt.failure, retry, self._chance.random())
        if delay is None:
            return False
        retry_id = chain.retry_id or agent.ids.fresh()
        place = {"turn": attempt.turn, "step": attempt.step}
        agent.session.append(
            "llm/retry",
            {
                "retryId": retry_id,
                **place,
                "provider": attempt.config.provider,
                "mode": policy.mode,
                "policyKey": key,
                "retry": retry,
                **({"maxRetries": policy.max_retries} if isinstance(policy, NormalRetry) else {}),
                "delayMs": delay,
                "failure": attempt.failure_value,
            },
        )
        if not await self._sleep(agent, delay):
            return False
        agent.session.append("llm/retry-started", {"retryId": retry_id, **place, "retry": retry})
        return True

    async def _sleep(self, agent: Agent, delay: float) -> bool:
        """Wait; return False when the turn was aborted meanwhile."""
        with anyio.CancelScope() as scope:
            undo = agent.signal.on_abort(scope.cancel)
            try:
                await self._clock.sleep(math.ceil(delay))
            finally:
                undo()
        return not agent.signal.aborted
