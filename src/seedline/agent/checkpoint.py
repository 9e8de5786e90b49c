"""Nothing irreversible before its cause is durable: a flush before each model request and each tool body."""

from __future__ import annotations

from seedline.agent.extension import Extension
from seedline.agent.loop import Agent
from seedline.llm.base import ModelRequest
from seedline.session.store import SessionStore
from seedline.tools.base import CallContext


class Checkpoints(Extension):
    """Flushes an agent's session through the store that holds it; give it to the agent last.

    A failed flush keeps the request from being sent, or the body from running, and ends the turn in its
    error. Whatever the crash then loses had no effect outside. Does nothing where nobody keeps sessions.
    """

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions

    async def before_request(self, agent: Agent, request: ModelRequest) -> None:
        await self._sessions.flush(agent.session)

    async def before_tool(self, agent: Agent, context: CallContext) -> None:
        await self._sessions.flush(agent.session)
