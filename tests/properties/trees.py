"""Random trees of agents whose answers say who gave them, and their recordings."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anyio.lowlevel import checkpoint

from seedline.agent.loop import user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.events.vocabulary import RequestConfig
from seedline.ids import SeededIds
from seedline.llm.base import ModelRequest, PreparedConfig
from seedline.replay.script import recorded_tree
from seedline.runtime import Parts, Runtime
from seedline.session.log import Session
from seedline.session.tree import RecordedSession, SessionTree

PROMPT = "Do your part and say who you are."


@dataclass
class Plan:
    """What one session does: per turn, per step, the children it delegates to; then it answers."""

    turns: list[list[list[Child]]] = field(default_factory=lambda: [[]])

    def sessions(self) -> int:
        return 1 + sum(c.plan.sessions() for turn in self.turns for step in turn for c in step)


@dataclass
class Child:
    tool: str
    plan: Plan


def random_plan(rng: random.Random, budget: int, depth: int = 0) -> Plan:
    """Return a plan of about `budget` sessions, at most 4 levels below the root."""
    plan = Plan([[] for _ in range(rng.choice([1, 1, 2, 3]) if depth == 0 else 1)])
    left = budget - 1
    while left > 0 and depth < 4:
        width = min(left, rng.choice([1, 2, 2, 3, 3, left]))
        share = (left - width) // width if rng.random() < 0.6 else 0
        step = [
            Child(rng.choice(["subagent", "subagent_fork"]), random_plan(rng, 1 + share, depth + 1))
            for _ in range(width)
        ]
        rng.choice(plan.turns).append(step)
        left -= sum(child.plan.sessions() for child in step)
    return plan


def wide_plan(siblings: int) -> Plan:
    """Return a root that hands one task to many children in one step."""
    return Plan([[[Child("subagent", Plan()) for _ in range(siblings)]]])


def plans_by_key(plan: Plan, key: str = "0", first_turn: int = 1) -> Iterator[tuple[str, Plan, int]]:
    """Yield (lineage key, plan, number of the first own turn) of every session.

    A forked child goes on with the numbers of its parent's completed turns.
    """
    yield key, plan, first_turn
    for number, turn in enumerate(plan.turns, start=first_turn):
        for step, children in enumerate(turn, start=1):
            for position, child in enumerate(children):
                own = number if child.tool == "subagent_fork" else 1
                yield from plans_by_key(child.plan, f"{key}/t{number}.s{step}.c{position}.n0", own)


class TreeModel:
    """Answers each session by its lineage key and place; every answer is unique."""

    def __init__(self, plan: Plan, give_way: Callable[[], Awaitable[None]]) -> None:
        self._plans = {key: (found, first) for key, found, first in plans_by_key(plan)}
        self._give_way = give_way

    def prepare(self, config: RequestConfig) -> PreparedConfig:
        return PreparedConfig(config=config, context_window=1000)

    async def stream(self, request: ModelRequest) -> AsyncIterator[dict[str, Any]]:
        plan, first = self._plans[request.key]
        steps = plan.turns[request.turn - first]
        delegating = request.step <= len(steps)
        chunks = calls(steps[request.step - 1]) if delegating else text(f"{request.key} t{request.turn}")
        for chunk in chunks:
            await self._give_way()
            yield chunk


def text(answer: str) -> Iterator[dict[str, Any]]:
    yield {"type": "block-start", "index": 0, "blockType": "text"}
    for at in range(0, len(answer), 4):
        yield {"type": "text-delta", "index": 0, "text": answer[at : at + 4]}
    yield {"type": "block-end", "index": 0, "block": {"type": "text", "text": answer}}
    yield {"type": "usage", "usage": {"inputTokens": 7, "outputTokens": len(answer)}}
    yield {"type": "finish", "reason": {"kind": "stop"}}


def calls(children: list[Child]) -> Iterator[dict[str, Any]]:
    arguments = json.dumps({"description": "a part", "prompt": PROMPT})
    for index, child in enumerate(children):
        block = {"type": "tool-call", "id": f"call_{index}", "name": child.tool, "arguments": arguments}
        yield {"type": "block-start", "index": index, "blockType": "tool-call"}
        yield {"type": "block-end", "index": index, "block": block}
    yield {"type": "finish", "reason": {"kind": "tool-calls"}}


def jitter(rng: random.Random, most: int) -> Callable[[], Awaitable[None]]:
    """Return what lets others go on a random number of times."""

    async def give_way() -> None:
        for _ in range(rng.randrange(most + 1)):
            await checkpoint()

    return give_way


async def record(plan: Plan, rng: random.Random) -> tuple[list[Session], SessionTree]:
    """Run a plan live, with random latencies; return its sessions and their tree."""
    parts = Parts(
        model=TreeModel(plan, jitter(rng, 4)),
        declared=Declared("tree", "tree-1"),
        clock=ManualClock(1_700_000_000_000, 1),
        ids=SeededIds(rng.getrandbits(32)),
        max_depth=8,
    )
    async with Runtime(parts) as runtime:
        root = runtime.start(cwd="/project")
        for _ in plan.turns:
            root.followup(user_message(PROMPT, parts.ids))
            await root.wait_idle()
        made = list(runtime.made)
    recorded = [RecordedSession(s.header, s.inherited_event_count, s.events, s.id) for s in made]
    return made, recorded_tree(recorded, recorded[0])
