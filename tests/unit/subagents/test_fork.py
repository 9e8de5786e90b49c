"""The provider `fork`: which prefix a child inherits, and that nothing of it becomes the child's own."""

from __future__ import annotations

import pytest

from seedline.agent.loop import Agent
from seedline.session import lineage
from seedline.session.header import SessionLogOffset
from seedline.session.log import Session
from seedline.session.store import RestoredSession
from seedline.session.usage import usage_of
from tests.unit.subagents.factory import (
    Script,
    call,
    delegate,
    finish,
    of_type,
    open_app,
    prompt_of,
    results,
    say,
    task,
    types,
)

pytestmark = pytest.mark.anyio
FORK = "subagent_fork"


def turn_end_before(session: Session, turn: int) -> int:
    """How many events of a session stand through the end of the turn before `turn`."""
    ends = [event.seq for event in session.events if event.type == "turn/end"]
    starts = [
        event.seq for event in session.events if event.type == "turn/start" and event.value["turn"] == turn
    ]
    return max(seq for seq in ends if seq < starts[0]) + 1


def check_inherits(child: Session, parent: Session, cut: int) -> None:
    """The child's log is the parent's first `cut` events, the marker, and then its own."""
    assert child.inherited_event_count == cut
    assert child.header.is_seeded
    assert list(lineage.inherited(child.events, SessionLogOffset(cut))) == list(parent.events[:cut])
    assert child.events[cut - 1].type == "turn/end"
    assert child.events[cut].type == "session/end-seed"
    assert types(child.own_events).count("session/end-seed") == 1


async def test_a_fork_in_the_first_turn_is_an_unseeded_child() -> None:
    async with open_app({"go": [delegate("A", tool=FORK), say("done")], "A": [say("a")]}) as app:
        await app.turn(await app.root(), "go")
        child = app.child()
        assert not child.header.is_seeded
        assert child.inherited_event_count == 0
        assert "session/end-seed" not in types(child.events)
        assert of_type(child, "turn/start") == [{"turn": 1}]
        assert of_type(child, "subagent/descriptor")[0]["provider"] == "fork"


REMEMBER: Script = {"one": [say("first")], "go": [delegate("A", tool=FORK), say("done")], "A": [say("a")]}


async def test_a_fork_inherits_the_completed_turns_and_not_the_open_one() -> None:
    async with open_app(REMEMBER) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        parent.session.append("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "user"}})
        await app.turn(parent, "go")
        child = app.child()
        check_inherits(child, parent.session, turn_end_before(parent.session, 2))
        assert "session/title" not in types(child.events)
        # Turn numbers go on, and the child re-anchors its request header without a new context row (7.12).
        assert of_type(child, "turn/start") == [{"turn": 2}]
        assert [header["reason"] for header in of_type(child, "request/header")] == ["resume"]
        assert of_type(child, "request/context") == []
        assert results(parent.session) == [("a", False)]
        [asked] = [request for request in app.model.requests if prompt_of(request) == "A"]
        assert "first" in str([message.value for message in asked.messages])


async def test_the_order_of_a_fork_childs_own_events_and_whose_rows_the_rest_are() -> None:
    async with open_app(REMEMBER) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        await app.turn(parent, "go")
        own = types(app.child().own_events)
        assert own[:6] == [
            "session/end-seed",
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "subagent/descriptor",
            "step/start",
        ]
        assert app.child().events.segments[0] is parent.session.events.segments[0]


async def test_later_turns_of_the_parent_are_never_shared() -> None:
    async with open_app(REMEMBER) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        run = await app.host(parent, "A", "fork")
        await run.result()
        before = list(app.child().events)
        await app.turn(parent, "one")
        assert list(app.child().events) == before


async def test_a_fork_while_the_parents_turn_is_open_by_host_code() -> None:
    import anyio

    may_go = anyio.Event()
    script: Script = {"one": [say("first")], "wait": [[may_go, *say("late")]], "A": [say("a")]}
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        app.prompt(parent, "wait")
        await anyio.wait_all_tasks_blocked()
        run = await app.host(parent, "A", "fork")
        await run.result()
        check_inherits(app.child(), parent.session, turn_end_before(parent.session, 2))
        may_go.set()
        await parent.wait_idle()


async def test_a_fork_by_a_fork_child_in_its_first_own_turn_inherits_only_the_grandparents_prefix() -> None:
    script: Script = {
        "one": [say("first")],
        "go": [delegate("B", tool=FORK), say("done")],
        "B": [delegate("C", tool=FORK), say("b")],
        "C": [say("c")],
    }
    async with open_app(script) as app:
        root = await app.root()
        await app.turn(root, "one")
        await app.turn(root, "go")
        child, grandchild = app.child(0), app.child(1)
        assert grandchild.header.parent_session == child.id
        assert grandchild.inherited_event_count == child.inherited_event_count
        check_inherits(grandchild, root.session, child.inherited_event_count)
        assert grandchild.header.depth == 2
        # The child's own marker and descriptor are not inherited.
        assert (
            types(lineage.inherited(grandchild.events, child.inherited_event_count)).count("session/end-seed")
            == 0
        )


async def test_a_fork_by_a_fork_child_in_a_later_own_turn_inherits_one_flat_prefix() -> None:
    script: Script = {"one": [say("first")], "two": [say("second")], "B": [say("b")], "C": [say("c")]}
    async with open_app(script) as app:
        root = await app.root()
        await app.turn(root, "one")
        run = await app.host(root, "B", "fork")
        await run.result()
        child = run.local_agent
        assert child is not None
        await app.turn(child, "two")
        await (await app.host(child, "C", "fork")).result()
        grandchild = app.child(1)
        check_inherits(grandchild, child.session, len(child.session.events))
        # The prefix carries an ancestor's descriptor and marker; own facts come from the own suffix.
        assert types(grandchild.events).count("subagent/descriptor") == 2
        assert types(grandchild.own_events).count("subagent/descriptor") == 1
        assert types(grandchild.events).count("session/end-seed") == 2
        assert of_type(grandchild, "turn/start") == [{"turn": 4}]


async def test_a_fork_of_a_resumed_session() -> None:
    async with open_app(REMEMBER) as app:
        first = await app.root()
        await app.turn(first, "one")
        await app.dispose(first)
        stored = RestoredSession(
            header=first.session.header,
            inherited_event_count=SessionLogOffset(0),
            events=first.session.events,
        )
        resumed = await app.root(stored)
        await app.turn(resumed, "go")
        check_inherits(app.child(), resumed.session, turn_end_before(resumed.session, 2))
        assert app.child().inherited_event_count == len(first.session.events)


async def test_spawn_next_to_fork_in_one_step() -> None:
    both = call(("subagent", task("A")), (FORK, task("B")))
    script: Script = {"one": [say("first")], "go": [both, say("done")], "A": [say("a")], "B": [say("b")]}
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        await app.turn(parent, "go")
        spawned, forked = sorted((app.child(0), app.child(1)), key=lambda session: session.header.is_seeded)
        assert spawned.inherited_event_count == 0
        check_inherits(forked, parent.session, turn_end_before(parent.session, 2))
        assert results(parent.session) == [("a", False), ("b", False)]
        places = [session.header.spawn.segment for session in (spawned, forked) if session.header.spawn]
        assert places == ["t2.s1.c0.n0", "t2.s1.c1.n0"]


async def test_a_fork_child_that_says_nothing_does_not_return_its_parents_text() -> None:
    script: Script = {
        "one": [say("first")],
        "go": [delegate("A", tool=FORK), say("done")],
        "A": [[finish("stop")]],
    }
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        await app.turn(parent, "go")
        assert results(parent.session) == [("", False)]


async def test_inherited_usage_is_not_billed_to_the_child() -> None:
    script: Script = {
        "one": [say("first", tokens=1000)],
        "go": [delegate("A", tool=FORK), say("done", tokens=10)],
        "A": [say("a", tokens=7)],
    }
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "one")
        await app.turn(parent, "go")
        child = usage_of(app.child().events, app.child().inherited_event_count)
        assert (child.input_tokens, child.requests, child.turns) == (7, 1, 1)
        total = child + usage_of(parent.session.events, parent.session.inherited_event_count)
        assert total.input_tokens == 1000 + 10 + 7
        assert total.requests == len(app.model.requests)


async def test_a_fork_childs_inbox_starts_empty() -> None:
    async with open_app(REMEMBER) as app:
        parent: Agent = await app.root()
        await app.turn(parent, "one")
        parent.inject({"id": "later", "role": "user", "source": {"kind": "user"}, "content": []})
        run = await app.host(parent, "A", "fork")
        await run.result()
        assert run.local_agent is not None
        assert len(run.local_agent.inbox) == 0
        assert len(parent.inbox) == 1
