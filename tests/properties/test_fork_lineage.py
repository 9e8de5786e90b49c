"""What a child inherited is what its parent had completed, and everything else is its own.

For whatever a tree of agents does, and in whatever order its children come to be.
"""

from __future__ import annotations

import json
import random
from typing import Any

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from seedline.llm.base import ModelRequest
from seedline.session import lineage
from seedline.session.header import CallSpawn
from seedline.session.log import Session
from seedline.session.tree import RecordedSession, build_tree
from seedline.session.usage import usage_of
from tests.unit.subagents.factory import (
    App,
    call,
    finish,
    of_type,
    open_app,
    prompt_of,
    results,
    say,
    task,
    types,
)

TOOLS = {"spawn": "subagent", "fork": "subagent_fork"}
Plan = list[Any] | None
"""What an agent does in a turn: the children it delegates to in one step, each a provider and a plan.

Then it speaks. None: it says nothing at all.
"""

provider = st.sampled_from(["spawn", "fork"])
plans = st.recursive(
    st.sampled_from([[], None]),
    lambda inner: st.lists(st.tuples(provider, inner), min_size=1, max_size=3),
    max_leaves=4,
)
operations = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["turn", "spawn", "fork"]), plans), min_size=1, max_size=5
)


def brain(request: ModelRequest) -> list[Any]:
    """Delegate as the prompt says, then speak; no two answers are alike."""
    plan: Plan = json.loads(prompt_of(request))
    if plan is None:
        return [finish("stop")]
    if plan and request.step == 1:
        return call(*((TOOLS[name], task(json.dumps(inner))) for name, inner in plan))
    return say(f"{request.session_id} {request.turn}.{request.step}")


async def run(app: App, program: list[tuple[int, str, Plan]], schedule: random.Random) -> None:
    """Let each operation be done by one of the agents that live: a turn, or a child that stays."""

    async def dawdle(plan: Any) -> None:
        for _ in range(schedule.randrange(8)):
            await anyio.lowlevel.checkpoint()

    app.before_publication = dawdle
    agents = [await app.root()]
    for pick, operation, plan in program:
        agent = agents[pick % len(agents)]
        if operation == "turn":
            await app.turn(agent, json.dumps(plan))
            continue
        child = await app.host(agent, json.dumps(plan), operation)
        await child.result()
        assert child.local_agent is not None
        agents.append(child.local_agent)


def completed_before(parent: Session, child: Session) -> int:
    """How many events the parent's completed turns came to when the child was made, by turn numbers alone."""
    place = child.header.spawn
    assert place is not None
    under_way = place.turn if isinstance(place, CallSpawn) else place.host.turn + 1
    ends = [
        event.seq for event in parent.events if event.type == "turn/end" and event.value["turn"] < under_way
    ]
    return ends[-1] + 1 if ends else 0


def provider_of(child: Session) -> str:
    [descriptor] = of_type(child, "subagent/descriptor")
    return descriptor["provider"]


def check_child(child: Session, parent: Session) -> None:
    cut = child.inherited_event_count
    assert cut == (completed_before(parent, child) if provider_of(child) == "fork" else 0)
    assert child.header.is_seeded == (cut > 0)
    assert list(lineage.inherited(child.events, cut)) == list(parent.events[:cut])
    assert types(child.own_events).count("session/end-seed") == (cut > 0)
    if cut:
        assert child.own_events[0].type == "session/end-seed"
    assert child.header.depth == parent.header.depth + 1


def check_turns(session: Session) -> None:
    turns = [event.value["turn"] for event in session.events if event.type == "turn/start"]
    assert turns == list(range(1, len(turns) + 1))


def check_results(parent: Session, children: dict[Any, Session]) -> None:
    """The result of each delegating call is the last word of the child at its place, or a refusal."""
    calls = of_type(parent, "tool/call")
    positions: dict[tuple[int, int], int] = {}
    for made, (text, is_error) in zip(calls, results(parent), strict=True):
        step = (made["turn"], made["step"])
        position = positions[step] = positions.get(step, -1) + 1
        child = children.get((parent.id, f"t{step[0]}.s{step[1]}.c{position}.n0"))
        if child is None:
            assert is_error
            assert "over the limit" in text
        else:
            [last] = of_type(child, "assistant/message")[-1:]
            said = last["message"]["content"]
            assert (text, is_error) == (said[0]["text"] if said else "", False)


def check_tree(sessions: list[Session]) -> None:
    recorded = [RecordedSession(s.header, s.inherited_event_count, s.events, s.id) for s in sessions]
    tree = build_tree(list(reversed(recorded)), fingerprint=id)
    nodes = list(tree.primary.walk())
    assert len(nodes) == len(sessions)
    assert {node.grade for node in nodes} == {"exact"}
    assert len({node.key for node in nodes}) == len(nodes)


@given(operations, st.integers(0, 2**16))
def test_what_is_inherited_and_what_is_own(program: list[tuple[int, str, Plan]], seed: int) -> None:
    async def scenario() -> None:
        async with open_app(brain) as app:
            await run(app, program, random.Random(seed))
            by_id = {session.id: session for session in app.sessions}
            children = {
                (session.header.parent_session, session.header.spawn.segment): session
                for session in app.sessions
                if session.header.spawn
            }
            for session in app.sessions:
                check_turns(session)
                check_results(session, children)
                if session.header.parent_session:
                    check_child(session, by_id[session.header.parent_session])
                asked = [request for request in app.model.requests if request.session_id == session.id]
                assert usage_of(session.events, session.inherited_event_count).requests == len(asked)
            check_tree(app.sessions)

    anyio.run(scenario)
