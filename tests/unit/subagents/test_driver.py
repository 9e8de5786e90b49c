"""The in-process driver: what a child is, when it exists, and how it ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec import UNSET

from seedline.agent.extension import Decision, Extension, Proposal, Reject
from seedline.agent.loop import Agent
from seedline.errors import StreamFault, SubagentError
from seedline.session.header import CallSpawn, HostPlace, HostSpawn
from seedline.session.log import Session
from seedline.subagents.base import AgentOptions
from seedline.subagents.child import ChildHandle, ChildPlan, PolicyEvent
from seedline.subagents.in_process import InProcessRun, delegated_policies
from seedline.tools.base import Signal
from tests.unit.subagents.factory import (
    FOREVER,
    App,
    call,
    delegate,
    failing,
    finish,
    of_type,
    open_app,
    results,
    say,
    types,
)

pytestmark = pytest.mark.anyio
PLACE = CallSpawn(turn=1, step=1, call=0, n=0, call_id="call-0", tool="subagent")


# --- what a child is ---------------------------------------------------------------------------------


async def test_the_header_of_a_child() -> None:
    async with open_app({"go": [delegate("A"), say("done")], "A": [say("a")]}) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        header = app.child().header
        assert header.id == app.plans[0].session_id != parent.session.id
        assert header.cwd == "/w"
        assert header.parent_session == parent.session.id
        assert header.origin == "subagent"
        assert header.depth == 1
        assert not header.is_seeded
        assert app.child().inherited_event_count == 0
        assert header.agent_preset is None
        assert header.spawn == PLACE
        assert header.is_tree_child


async def test_the_order_of_a_childs_first_events() -> None:
    policy = PolicyEvent("approval/policy", {"policy": "never", "source": "delegation"})
    script = {"go": [delegate("A"), say("done")], "A": [say("a")]}
    async with open_app(script, policies=lambda parent: [policy]) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        # The order that every recorded one-shot child has (subagents and replay, 1.7 and 1.9).
        assert types(app.child().events) == [
            "approval/policy",
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "subagent/descriptor",
            "step/start",
            "user/message",
            "user/message",
            "request/header",
            "request/context",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert of_type(app.child(), "subagent/descriptor") == [
            {"version": 2, "mode": "one-shot", "provider": "spawn", "label": "do A"}
        ]
        prompt, context = of_type(app.child(), "user/message")
        assert prompt["source"] == {"kind": "user"}
        assert [section["name"] for section in context["source"]["sections"]] == ["delegation"]


async def test_a_child_asks_the_system_prompt_of_its_parent() -> None:
    async with open_app({"go": [delegate("A"), say("done")], "A": [say("a")]}) as app:
        await app.turn(await app.root(), "go")
        systems = {request.header.system for request in app.model.requests}
        assert len(systems) == 1


async def test_nothing_of_the_delegation_itself_is_in_the_parents_log() -> None:
    async with open_app({"go": [delegate("A"), say("done")], "A": [say("a")]}) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        assert not [kind for kind in types(parent.session.events) if kind.startswith("subagent")]
        assert results(parent.session) == [("a", False)]
        assert app.child().id not in str([event.value for event in parent.session.events])


async def test_a_descriptor_without_label() -> None:
    async with open_app({"A": [say("a")]}) as app:
        run = await app.host(await app.root(), "A", label=None)
        await run.result()
        assert of_type(app.child(), "subagent/descriptor") == [
            {"version": 2, "mode": "one-shot", "provider": "spawn"}
        ]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (AgentOptions(), ("p", "m", 100)),
        (AgentOptions(model="other"), ("p", "other", 100)),
        (AgentOptions(provider="q", model="n", max_tokens=7), ("q", "n", 7)),
    ],
)
async def test_the_route_comes_from_the_parent_unless_asked(asked: AgentOptions, expected: Any) -> None:
    async with open_app({"A": [say("a")]}) as app:
        run = await app.host(await app.root(), "A", agent_options=asked)
        await run.result()
        config = app.model.requests[0].header.config
        assert (config.provider, config.model, config.max_tokens) == expected


# --- places ------------------------------------------------------------------------------------------


async def test_children_of_host_code_are_numbered_within_the_turns_started() -> None:
    async with open_app({"A": [say("a")], "go": [say("hm")]}) as app:
        parent = await app.root()
        for _ in range(2):
            await (await app.host(parent, "A")).dispose()
        await app.turn(parent, "go")
        await (await app.host(parent, "A")).dispose()
        places = [session.header.spawn for session in app.sessions[1:]]
        assert places == [HostSpawn(HostPlace(0, 0)), HostSpawn(HostPlace(0, 1)), HostSpawn(HostPlace(1, 0))]


async def test_a_number_that_a_stored_child_has_is_not_given_again() -> None:
    stored = [HostSpawn(HostPlace(0, 0)), HostSpawn(HostPlace(0, 2))]
    async with open_app({"A": [say("a")]}, stored_children=lambda parent: stored) as app:
        parent = await app.root()
        for _ in range(2):
            await (await app.host(parent, "A")).dispose()
        places = [session.header.spawn for session in app.sessions[1:]]
        assert places == [HostSpawn(HostPlace(0, 1)), HostSpawn(HostPlace(0, 3))]


async def test_two_children_of_one_parent_have_two_places() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        await (await app.host(parent, "A", spawn=PLACE)).dispose()
        with pytest.raises(SubagentError, match=r"t1\.s1\.c0\.n0 already") as caught:
            await app.host(parent, "A", spawn=PLACE)
        assert caught.value.code == "DUPLICATE_CHILD"
        assert len(app.sessions) == 2


async def test_the_place_of_a_start_that_failed_is_free_again() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()

        async def refuse(plan: ChildPlan) -> None:
            raise OSError("disk full")

        app.before_publication, usual = refuse, app.before_publication
        with pytest.raises(OSError, match="disk full"):
            await app.host(parent, "A")
        app.before_publication = usual
        await (await app.host(parent, "A")).dispose()
        assert app.child().header.spawn == HostSpawn(HostPlace(0, 0))


async def test_concurrent_starts_of_host_code_are_numbered_in_the_order_of_the_calls() -> None:
    async with open_app({"A": [say("a")], "B": [say("b")]}) as app:
        parent = await app.root()
        first_may_go = anyio.Event()

        async def hold_the_first(plan: ChildPlan) -> None:
            if len(app.plans) == 1:
                await first_may_go.wait()

        app.before_publication = hold_the_first
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.host, parent, "A")
            await anyio.wait_all_tasks_blocked()
            await app.host(parent, "B")
            first_may_go.set()
        assert [plan.spawn.segment for plan in app.plans] == ["h0.0", "h0.1"]
        assert [session.header.spawn for session in app.sessions[1:]] == [
            HostSpawn(HostPlace(0, 1)),
            HostSpawn(HostPlace(0, 0)),
        ]


# --- depth -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("persisted", "runtime", "depth"), [(None, 0, 1), (2, 0, 3), (2, 1, 3), (1, 4, 5)])
async def test_the_depth_in_the_header_is_a_floor(persisted: int | None, runtime: int, depth: int) -> None:
    async with open_app({"A": [say("a")]}) as app:
        await app.host(await app.root(depth=persisted), "A", parent_depth=runtime)
        assert app.child().header.depth == depth


@pytest.mark.parametrize(
    ("persisted", "cap", "allowed"), [(0, 0, False), (0, 1, True), (2, 2, False), (2, 3, True)]
)
async def test_the_cap_counts_from_the_root(persisted: int, cap: int, allowed: bool) -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root(depth=persisted)
        if allowed:
            await app.host(parent, "A", max_depth=cap)
            return
        with pytest.raises(
            SubagentError, match=f"depth {persisted + 1} is over the limit of {cap}"
        ) as caught:
            await app.host(parent, "A", max_depth=cap)
        assert caught.value.code == "DEPTH_EXCEEDED"
        assert app.plans == []


async def test_a_depth_that_is_no_safe_integer_is_refused() -> None:
    async with open_app({"A": [say("a")]}) as app:
        with pytest.raises(SubagentError, match="no safe integer"):
            await app.host(await app.root(depth=2**53 - 1), "A")


# --- policies ----------------------------------------------------------------------------------------


async def test_policies_are_those_of_the_moment_of_the_call() -> None:
    def policies(parent: Agent) -> tuple[PolicyEvent, ...]:
        return delegated_policies(parent.session, approvals=True)

    async with open_app({"A": [say("a")]}, policies=policies) as app:
        parent = await app.root()
        parent.session.append("sandbox/mode", {"mode": "read-only"})

        async def switch(plan: ChildPlan) -> None:
            parent.session.append("sandbox/mode", {"mode": "danger-full-access"})

        app.before_publication = switch
        await app.host(parent, "A")
        assert of_type(app.child(), "sandbox/mode") == [{"mode": "read-only", "source": "delegation"}]
        assert of_type(app.child(), "approval/policy") == [{"policy": "never", "source": "delegation"}]
        assert types(app.child().events)[:2] == ["sandbox/mode", "approval/policy"]


async def test_a_sandbox_mode_nobody_chose_is_not_handed_down() -> None:
    async with open_app({}) as app:
        parent = await app.root()
        assert delegated_policies(parent.session, approvals=False) == ()


# --- before publication ------------------------------------------------------------------------------


async def test_an_aborted_signal_starts_nothing() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        signal = Signal()
        signal.abort({"kind": "user"})
        with pytest.raises(SubagentError) as caught:
            await app.host(parent, "A", signal=signal)
        assert caught.value.code == "ABORTED_BEFORE_PUBLICATION"
        assert app.plans == []


async def test_an_abort_during_setup_leaves_no_child() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        signal = Signal()

        async def abort(plan: ChildPlan) -> None:
            signal.abort({"kind": "user"})

        app.before_publication = abort
        with pytest.raises(SubagentError) as caught:
            await app.host(parent, "A", signal=signal)
        assert caught.value.code == "ABORTED_BEFORE_PUBLICATION"
        assert app.store.list() == [parent.session]


async def test_a_parent_disposed_during_setup_prevents_publication() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        in_setup, may_go = anyio.Event(), anyio.Event()

        async def hold(plan: ChildPlan) -> None:
            in_setup.set()
            await may_go.wait()

        app.before_publication = hold
        errors: list[SubagentError] = []

        async def start() -> None:
            with pytest.raises(SubagentError) as caught:
                await app.host(parent, "A")
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await in_setup.wait()
            tasks.start_soon(app.dispose, parent)
            await anyio.wait_all_tasks_blocked()
            may_go.set()
        assert [error.code for error in errors] == ["ABORTED_BEFORE_PUBLICATION"]
        assert app.store.list() == []
        with pytest.raises(SubagentError) as caught:
            await app.host(parent, "A")
        assert caught.value.code == "DRAINING"


async def test_an_abort_between_publication_and_the_prompt_gives_an_aborted_child_without_turns() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        signal = Signal()
        app.after_publication = lambda agent: signal.abort({"kind": "user"})
        run = await app.host(parent, "A", signal=signal)
        assert (await run.result()).stop_reason == "aborted"
        assert types(app.child().events) == []


# --- after publication -------------------------------------------------------------------------------


async def test_a_cancelled_run_resolves_aborted_with_its_partial_output() -> None:
    script = {"A": [[*say("half a")[:2], FOREVER]]}
    async with open_app(script) as app:
        signal = Signal()
        run = await app.host(await app.root(), "A", signal=signal)
        await anyio.wait_all_tasks_blocked()
        signal.abort({"kind": "user"})
        result = await run.result()
        assert result.stop_reason == "aborted"
        assert result.output == ({"type": "text", "text": "half a"},)
        # The child's log names its parent as the cause, whoever aborted the parent (1.14).
        assert of_type(app.child(), "turn/end") == [
            {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "parent"}}}
        ]


async def test_an_abort_after_the_end_does_not_change_a_completed_result() -> None:
    async with open_app({"A": [say("a")]}) as app:
        signal = Signal()
        run = await app.host(await app.root(), "A", signal=signal)
        assert run.local_agent is not None
        await run.local_agent.wait_idle()
        signal.abort({"kind": "user"})
        assert (await run.result()).stop_reason == "completed"


async def test_dispose_cancels_and_settles_and_may_be_called_again() -> None:
    async with open_app({"A": [[FOREVER]]}) as app:
        run = await app.host(await app.root(), "A")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.dispose)
            tasks.start_soon(run.dispose)
        await run.dispose()
        assert (await run.result()).stop_reason == "aborted"
        assert app.store.get(run.id) is None


async def test_a_handle_that_cannot_be_released_is_asked_once_and_its_child_comes_to_rest() -> None:
    async with open_app({"A": [[FOREVER]]}) as app:
        agent = await app.root()
        asked: list[str] = []

        async def refuse() -> None:
            asked.append("release")
            raise OSError("flush failed")

        run = InProcessRun(ChildHandle(agent, refuse), Signal(), None)
        run.begin([{"type": "text", "text": "A"}])
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            with pytest.raises(OSError, match="flush failed"):
                await run.dispose()
        assert asked == ["release"]
        assert (await run.result()).stop_reason == "aborted"
        assert not agent.running


async def test_a_child_that_failed_before_its_release_has_failed() -> None:
    async with open_app({"A": [failing("SERVER")]}) as app:
        run = await app.host(await app.root(), "A")
        assert run.local_agent is not None
        await run.local_agent.wait_idle()
        await run.dispose()
        assert (await run.result()).stop_reason == "error"


async def test_a_child_that_its_release_breaks_was_cancelled() -> None:
    broken = anyio.Event()
    async with open_app({"A": [[broken, OSError("connection closed")]]}) as app:
        agent = await app.root()

        async def close_the_connection() -> None:
            broken.set()
            await agent.wait_idle()

        run = InProcessRun(ChildHandle(agent, close_the_connection), Signal(), None)
        run.begin([{"type": "text", "text": "A"}])
        await anyio.wait_all_tasks_blocked()
        await run.dispose()
        assert of_type(agent.session, "turn/end")[0]["reason"]["kind"] == "error"
        assert (await run.result()).stop_reason == "aborted"


async def test_the_id_of_a_run_is_the_childs_session_id() -> None:
    async with open_app({"A": [say("a")]}) as app:
        run = await app.host(await app.root(), "A")
        assert run.id == app.child().id
        assert run.local_agent is app.agents[run.id]


async def test_a_fault_of_the_childs_task_rejects_the_result_and_spares_the_parent() -> None:
    async with open_app({"A": [say("a")], "go": [say("alive")]}) as app:
        parent = await app.root()

        def break_turn_end(agent: Agent) -> None:
            def veto(event: Any) -> None:
                if event.type == "turn/end":
                    raise OSError("disk full")

            agent.session.guard(veto)

        app.after_publication = break_turn_end
        run = await app.host(parent, "A")
        with pytest.raises(OSError, match="disk full"):
            await run.result()
        await run.dispose()
        app.after_publication = lambda agent: None
        await app.turn(parent, "go")
        assert of_type(parent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]


async def test_a_child_that_cannot_take_its_prompt_is_published_and_rejects() -> None:
    policy = PolicyEvent("approval/policy", {"policy": "never", "source": "delegation"})
    async with open_app({"A": [say("a")]}, policies=lambda parent: [policy]) as app:

        def refuse(agent: Agent) -> None:
            def veto(event: Any) -> None:
                raise OSError("read-only store")

            agent.session.guard(veto)

        parent = await app.root()
        app.after_publication = refuse
        run = await app.host(parent, "A")
        with pytest.raises(OSError, match="read-only store"):
            await run.result()
        # Only what the setup wrote, like the recorded child of a failed run.
        assert types(app.child().events) == ["approval/policy"]
        await run.dispose()


# --- how a child ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "stop_reason", "text"),
    [
        ([say("a")], "completed", "a"),
        ([say("a", kind="max-tokens")], "max-tokens", "a"),
        ([failing("RATE_LIMIT")], "error", ""),
        ([[*say("half")[:2], StreamFault("wire", "TRANSPORT")]], "error", "half"),
        ([call(("echo", {})), failing("SERVER")], "error", ""),
        ([[finish("stop")]], "completed", ""),
    ],
)
async def test_stop_reasons(answers: list[Any], stop_reason: str, text: str) -> None:
    async with open_app({"A": answers}) as app:
        run = await app.host(await app.root(), "A")
        result = await run.result()
        assert result.stop_reason == stop_reason
        assert "".join(block.get("text", "") for block in result.output) == text
        assert result.structured is UNSET


async def test_text_of_an_earlier_step_is_the_output_when_the_last_message_is_empty() -> None:
    said = [*say("I will look")[:3], *call(("echo", {}))]
    said[-2]["index"] = 1
    usage = {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}}
    async with open_app({"A": [said, [usage, finish("max-tokens")]]}) as app:
        run = await app.host(await app.root(), "A")
        result = await run.result()
        assert result.stop_reason == "max-tokens"
        assert result.output[0] == {"type": "text", "text": "I will look"}


async def test_a_diagnostic_says_code_and_status_and_nothing_else_of_a_failure() -> None:
    async with open_app({"A": [failing("RATE_LIMIT", "the key is k-123, see /srv/x", status=429)]}) as app:
        run = await app.host(await app.root(), "A")
        result = await run.result()
        assert result.diagnostic == "The subagent's last turn failed with code RATE_LIMIT, HTTP status 429."


class _Refuse(Extension):
    async def pre_step(self, agent: Agent, proposal: Proposal, proceed: Any) -> Decision:
        return Reject()


async def test_a_prompt_rejected_before_its_step_is_a_refusal_without_descriptor() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        app.extensions = lambda session_id: (_Refuse(),)
        run = await app.host(parent, "A")
        assert (await run.result()).stop_reason == "refusal"
        assert of_type(app.child(), "subagent/descriptor") == []
        assert types(app.child().events)[-1] == "turn/end"


async def test_a_later_admitted_step_of_the_child_gets_the_descriptor() -> None:
    class RefuseFirst(Extension):
        async def pre_step(self, agent: Agent, proposal: Proposal, proceed: Any) -> Decision:
            return Reject() if proposal.turn == 1 else await proceed(proposal)

    async with open_app({"A": [say("a")], "B": [say("b")]}) as app:
        parent = await app.root()
        app.extensions = lambda session_id: (RefuseFirst(),)
        run = await app.host(parent, "A")
        assert run.local_agent is not None
        await run.local_agent.wait_idle()
        for prompt in ("B", "B"):
            await app.turn(run.local_agent, prompt)
        assert types(app.child().events).count("subagent/descriptor") == 1
        kinds = types(app.child().events)
        assert kinds[kinds.index("subagent/descriptor") + 1] == "step/start"


# --- cancelling down a chain -------------------------------------------------------------------------


async def test_cancelling_the_root_cancels_the_whole_chain() -> None:
    script = {
        "go": [delegate("B"), say("done")],
        "B": [delegate("C"), say("b")],
        "C": [[*say("deep")[:2], FOREVER]],
    }
    async with open_app(script) as app:
        root = await app.root()
        app.prompt(root, "go")
        await anyio.wait_all_tasks_blocked()
        assert len(app.sessions) == 3
        root.cancel({"kind": "user"})
        await root.wait_idle()
        ends = [of_type(session, "turn/end")[-1]["reason"] for session in app.sessions]
        assert ends == [
            {"kind": "aborted", "reason": {"kind": "user"}},
            {"kind": "aborted", "reason": {"kind": "parent"}},
            {"kind": "aborted", "reason": {"kind": "parent"}},
        ]
        assert [flag for _, flag in results(root.session)] == [True]
        assert app.store.list() == [root.session]


async def test_a_parent_disposed_takes_its_children_with_it() -> None:
    script = {"go": [delegate("A", "A"), say("done")], "A": [[FOREVER]], "H": [[FOREVER]]}
    async with open_app(script) as app:
        root = await app.root()
        run = await app.host(root, "H")
        app.prompt(root, "go")
        await anyio.wait_all_tasks_blocked()
        assert len(app.store.list()) == 4
        await app.dispose(root)
        assert app.store.list() == []
        assert (await run.result()).stop_reason == "aborted"


async def test_the_end_of_the_parents_task_group_ends_its_children() -> None:
    script = {"go": [delegate("A"), say("done")], "A": [[FOREVER]]}
    sessions: list[Session] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            app = App(tasks, script)
            sessions = app.sessions
            app.prompt(await app.root(), "go")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert [of_type(session, "turn/end")[-1]["reason"]["kind"] for session in sessions] == ["aborted"] * 2
