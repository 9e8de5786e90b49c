"""Where code outside the loop takes part in it: the chains and notices of one agent.

An extension overrides what it needs. Chains run in the order in which the extensions were given; each
link decides whether and with what to go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from seedline.agent.inbox import MessageValue
from seedline.events.messages import Failure
from seedline.events.vocabulary import RequestConfig
from seedline.llm.base import ModelRequest
from seedline.tools.base import CallContext

if TYPE_CHECKING:
    from seedline.agent.loop import Agent


class Section(msgspec.Struct, frozen=True):
    """One named fact of the runtime context."""

    name: str
    text: str


class Assembly(msgspec.Struct, frozen=True):
    """What a step's requests say beside their messages.

    `contexts` become a runtime-context message when they changed; None leaves runtime context alone.
    """

    system: str = ""
    contexts: tuple[Section, ...] | None = None


class Proposal(msgspec.Struct, frozen=True):
    """The messages about to enter step `step` (a step that may not come to be) of turn `turn`."""

    turn: int
    step: int
    messages: tuple[MessageValue, ...]


class Reject(msgspec.Struct, frozen=True):
    """A pre-step decision: the turn ends `blocked` and the claimed messages are gone."""


Decision = tuple[MessageValue, ...] | Reject


class FailedAttempt(msgspec.Struct, frozen=True):
    """A model call that ended in failure. `failure_value` is its JSON as the finish chunk has it."""

    turn: int
    step: int
    config: RequestConfig
    failure: Failure
    failure_value: Any


class Extension:
    """No-op base of all extensions.

    A cancel does not interrupt a hook that waits: one that may wait long must watch `agent.signal`. Only
    `before_tool` is cancelled with the policy of its call.
    """

    async def assemble(self, agent: Agent, assembly: Assembly) -> Assembly:
        """Replace the prompt assembly of a step."""
        return assembly

    async def pre_step(
        self, agent: Agent, proposal: Proposal, proceed: Callable[[Proposal], Awaitable[Decision]]
    ) -> Decision:
        """Reject a step, or say which messages enter it. The outermost answer is final."""
        return await proceed(proposal)

    async def step_entered(self, agent: Agent, turn: int, step: int) -> None:
        """The step's messages are in the log and its first request is not built yet."""

    async def configure(self, agent: Agent, config: RequestConfig) -> RequestConfig:
        """Replace the config of one attempt."""
        return config

    async def before_request(self, agent: Agent, request: ModelRequest) -> None:
        """The request is final. Raising keeps it from being sent and ends the turn."""

    async def before_tool(self, agent: Agent, context: CallContext) -> None:
        """`tool/call` is logged and the body is about to run. Raising ends the turn."""

    async def recover(
        self, agent: Agent, attempt: FailedAttempt, proceed: Callable[[FailedAttempt], Awaitable[bool]]
    ) -> bool:
        """Say whether to try a failed model call again, within the same step."""
        return await proceed(attempt)

    async def turn_stopping(self, agent: Agent, turn: int) -> None:
        """The turn is about to end; input added to `next-step` keeps it going."""

    def turn_failed(self, agent: Agent, turn: int, step: int, error: Exception) -> None:
        """Something failed and ends the turn; for reports only, a failure in here is logged and ignored.

        `step` is 0 before the first step. A failed model call is a `ModelError`.
        """

    def status_changed(self, agent: Agent, *, running: bool) -> None:
        """The agent began to run turns, or came to rest; for reports only, like `turn_failed`."""
