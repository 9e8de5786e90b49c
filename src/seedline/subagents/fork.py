"""The provider `fork`: a child that begins with its parent's completed turns (subagents and replay, 1.5).

The prefix ends with the last `turn/end` in the parent's log, so the turn that delegates is not in it, and
nothing that came after that end. A parent without a completed turn has an empty prefix: its child is
unseeded, like a spawned one. A prefix is a snapshot: later turns of the parent are never shared.
"""

from __future__ import annotations

from seedline.events.vocabulary import SubagentDescriptor
from seedline.session.header import SessionLogOffset
from seedline.session.turns import completed_turn_prefix
from seedline.subagents.base import SubagentRequest, SubagentRun
from seedline.subagents.in_process import ALL_CAPABILITIES, InProcessDriver


class ForkProvider:
    """Children that see the parent's conversation up to the turn that delegates."""

    capabilities = ALL_CAPABILITIES
    inherits_parent_context = True

    def __init__(self, driver: InProcessDriver, name: str = "fork") -> None:
        self.name = name
        self._driver = driver

    async def start(self, request: SubagentRequest, descriptor: SubagentDescriptor) -> SubagentRun:
        cut = SessionLogOffset(completed_turn_prefix(request.parent.session.events))
        return await self._driver.start(request, descriptor, cut)
