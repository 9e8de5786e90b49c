"""The provider `spawn`: a child that starts with an empty log (subagents and replay, 1.5)."""

from __future__ import annotations

from seedline.events.vocabulary import SubagentDescriptor
from seedline.subagents.base import SubagentRequest, SubagentRun
from seedline.subagents.in_process import ALL_CAPABILITIES, InProcessDriver


class SpawnProvider:
    """Children that see their task and nothing of the parent's conversation."""

    capabilities = ALL_CAPABILITIES
    inherits_parent_context = False

    def __init__(self, driver: InProcessDriver, name: str = "spawn") -> None:
        self.name = name
        self._driver = driver

    async def start(self, request: SubagentRequest, descriptor: SubagentDescriptor) -> SubagentRun:
        return await self._driver.start(request, descriptor)
