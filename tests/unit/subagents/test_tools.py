"""The delegation tools, called by a model through the loop."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from seedline.clock import ManualClock
from seedline.errors import SubagentError
from seedline.events.vocabulary import ToolFilter
from seedline.ids import SeededIds
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.subagents.base import Capabilities, SubagentResult, Subagents
from seedline.subagents.tools import DelegationOptions, DelegationTool, render
from seedline.tools.base import Call, CallContext, Signal
from tests.unit.subagents.factory import (
    FOREVER,
    Script,
    call,
    delegate,
    failing,
    of_type,
    open_app,
    prompt_of,
    results,
    say,
    task,
    types,
)
from tests.unit.subagents.test_service import DONE, Remote

pytestmark = pytest.mark.anyio


# --- definition --------------------------------------------------------------------------------------


def test_the_tools_differ_in_what_they_say_of_the_parents_conversation() -> None:
    subagents = Subagents(SeededIds())
    fresh, forked = Remote(DONE, "fresh"), Remote(DONE, "forked")
    forked.inherits_parent_context = True
    subagents.register(fresh)
    subagents.register(forked)
    uncapped = DelegationOptions(max_depth="provider-managed")
    tools = [DelegationTool(subagents, name, uncapped) for name in ("fresh", "forked")]
    assert tools[0].description != tools[1].description
    for tool in tools:
        assert tool.parameters["required"] == ["description", "prompt"]
        assert list(tool.parameters["properties"]) == ["description", "prompt"]
        assert tool.concurrency({}) == "parallel"
    assert tools[0].name == "subagent"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (DelegationOptions(), "UNSUPPORTED_CAPABILITY"),  # the default cap is a number
        (DelegationOptions(max_depth="provider-managed", persona="p"), "UNSUPPORTED_CAPABILITY"),
        (DelegationOptions(max_depth=-1), "INVALID_REQUEST"),
        (DelegationOptions(max_depth="provider-managed", tool_filter=ToolFilter()), "INVALID_REQUEST"),
    ],
)
def test_options_that_cannot_hold_fail_when_the_tool_is_mounted(
    options: DelegationOptions, code: str
) -> None:
    subagents = Subagents(SeededIds())
    subagents.register(Remote(DONE))
    with pytest.raises(SubagentError) as caught:
        DelegationTool(subagents, "remote", options)
    assert caught.value.code == code


def test_a_tool_needs_its_provider() -> None:
    with pytest.raises(SubagentError) as caught:
        DelegationTool(Subagents(SeededIds()), "spawn")
    assert caught.value.code == "NO_PROVIDER"


async def test_a_call_without_a_calling_agent_fails() -> None:
    subagents = Subagents(SeededIds())
    subagents.register(Remote(DONE, capabilities=Capabilities(depth_limit=True)))
    session = Session.create(
        SessionHeader(id="s", created_at=1), clock=ManualClock(), inherited_event_count=START
    )
    context = CallContext(session, None, 1, 1, Call(0, "c", "subagent", ""), Signal())
    outcome = await DelegationTool(subagents, "remote").execute(task("A"), context)
    assert outcome.is_error


@pytest.mark.parametrize("arguments", [{"prompt": "A"}, {"description": "d", "prompt": 7}, "no json"])
async def test_arguments_that_do_not_fit(arguments: Any) -> None:
    async with open_app({"go": [call(("subagent", arguments)), say("done")]}) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        assert [is_error for _, is_error in results(parent.session)] == [True]
        assert of_type(parent.session, "tool/result")[0]["error"]["code"] == "INVALID_ARGS"
        assert len(app.sessions) == 1


@pytest.mark.parametrize("arguments", [{"prompt": "A"}, {"description": "d", "prompt": 7}, "no json"])
async def test_the_tool_checks_its_arguments_itself_too(arguments: Any) -> None:
    async with open_app({}) as app:
        parent = await app.root()
        context = CallContext(parent.session, parent, 1, 1, Call(0, "c", "subagent", ""), Signal())
        outcome = await DelegationTool(app.subagents, "spawn").execute(arguments, context)
        assert outcome.error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}


async def test_arguments_that_nobody_declared_change_nothing() -> None:
    arguments = {**task("A"), "run_in_background": False}
    async with open_app({"go": [call(("subagent", arguments)), say("done")], "A": [say("a")]}) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        assert results(parent.session) == [("a", False)]


# --- rendering ---------------------------------------------------------------------------------------

PARTIAL = ({"type": "reasoning", "text": "no"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"})


def rendered(stop_reason: str, **more: Any) -> tuple[str, bool]:
    outcome = render(SubagentResult(stop_reason=stop_reason, **more))
    [block] = outcome.content
    return block["text"], outcome.is_error


def test_a_completed_run_is_its_text_blocks_joined() -> None:
    assert rendered("completed", output=PARTIAL) == ("ab", False)
    assert rendered("completed") == ("", False)


@pytest.mark.parametrize("reason", ["aborted", "error", "max-tokens", "refusal", "new-reason"])
def test_any_other_end_is_an_error_with_headline_diagnostic_and_partial_text(reason: str) -> None:
    text, is_error = rendered(reason, output=PARTIAL, diagnostic="why")
    headline, *rest = text.split("\n")
    assert is_error
    assert headline.startswith("Error: the subagent ")
    assert rest == ["Diagnostic: why", "Its text up to then:", "ab"]
    assert rendered(reason)[0] == headline


def test_headlines_tell_the_reasons_apart() -> None:
    reasons = ["aborted", "error", "max-tokens", "refusal", "other-1", "other-2"]
    assert len({rendered(reason)[0] for reason in reasons}) == len(reasons)


# --- through the loop --------------------------------------------------------------------------------


async def test_partial_text_at_the_token_limit() -> None:
    script: Script = {"go": [delegate("A"), say("done")], "A": [say("a half", kind="max-tokens")]}
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        [(text, is_error)] = results(parent.session)
        assert is_error
        assert text.endswith("\na half")


async def test_a_failed_run_and_a_failed_release_are_both_told() -> None:
    async with open_app({"go": [delegate("A"), say("done")], "A": [say("a")]}) as app:
        parent = await app.root()

        def veto(event: Any) -> None:
            raise OSError("no room")

        app.after_publication = lambda agent: agent.session.guard(veto) and None
        app.release_failure = OSError("no flush")
        await app.turn(parent, "go")
        [(text, is_error)] = results(parent.session)
        assert is_error
        assert "no room" in text
        assert "no flush" in text


async def test_a_failed_release_alone_is_an_error() -> None:
    async with open_app({"go": [delegate("A"), say("done")], "A": [say("a")]}) as app:
        parent = await app.root()
        app.release_failure = OSError("no flush")
        await app.turn(parent, "go")
        assert results(parent.session) == [("Error: releasing the subagent failed: no flush", True)]


async def test_the_attempt_beyond_the_cap_is_an_error_and_leaves_no_child() -> None:
    """Cap 2: root, depth 1 and depth 2 run; the call at depth 2 is refused, as in the recorded scenario."""
    script: Script = {
        "go": [delegate("one"), say("done")],
        "one": [delegate("two"), say("one done")],
        "two": [delegate("three"), say("refused")],
    }
    async with open_app(script, options=DelegationOptions(max_depth=2)) as app:
        root = await app.root()
        await app.turn(root, "go")
        assert [session.header.depth for session in app.sessions] == [0, 1, 2]
        [(text, is_error)] = results(app.sessions[2])
        assert is_error
        assert "depth 3 is over the limit of 2" in text
        assert results(root.session) == [("one done", False)]
        assert [schema["name"] for schema in app.model.requests[2].header.tools] == [
            "echo",
            "subagent",
            "subagent_fork",
        ]


async def test_a_resumed_child_is_not_at_the_top_again() -> None:
    async with open_app(
        {"go": [delegate("A"), say("refused")]}, options=DelegationOptions(max_depth=2)
    ) as app:
        resumed = await app.root(depth=2)
        await app.turn(resumed, "go")
        assert results(resumed.session)[0][1]
        assert len(app.sessions) == 1


async def test_depth_zero_forbids_delegation() -> None:
    script: Script = {"go": [delegate("A"), say("done")]}
    async with open_app(script, options=DelegationOptions(max_depth=0)) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        assert results(parent.session)[0][1]
        assert of_type(parent.session, "tool/result")[0]["error"] == {
            "name": "SubagentError",
            "code": "DEPTH_EXCEEDED",
        }


async def test_siblings_run_at_the_same_time_and_commit_in_model_order() -> None:
    second_done = anyio.Event()

    def brain(request: Any) -> Any:
        prompt = prompt_of(request)
        if prompt == "go":
            return [delegate("A", "B"), say("done")][request.step - 1]
        if prompt == "A":
            return [second_done, *say("a")]
        second_done.set()
        return say("b")

    async with open_app(brain) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        rows = [kind for kind in types(parent.session.events) if kind.startswith("tool/")]
        assert rows == ["tool/call", "tool/call", "tool/result", "tool/result"]
        assert results(parent.session) == [("a", False), ("b", False)]
        places = {session.header.spawn.segment for session in app.sessions[1:] if session.header.spawn}
        assert places == {"t1.s1.c0.n0", "t1.s1.c1.n0"}


async def test_places_do_not_depend_on_which_child_is_made_first() -> None:
    async with open_app({"go": [delegate("A", "B"), say("done")], "A": [say("a")], "B": [say("b")]}) as app:
        parent = await app.root()
        second_made = anyio.Event()

        async def second_first(plan: Any) -> None:
            if plan.spawn.call == 0:
                await second_made.wait()
            else:
                second_made.set()

        app.before_publication = second_first
        await app.turn(parent, "go")
        made = {session.header.spawn.call: session for session in app.sessions[1:]}  # type: ignore[union-attr]  # call children
        assert [session.header.spawn.call for session in app.sessions[1:]] == [1, 0]  # type: ignore[union-attr]  # call children
        assert [of_type(made[at], "subagent/descriptor")[0]["label"] for at in (0, 1)] == ["do A", "do B"]
        assert results(parent.session) == [("a", False), ("b", False)]


async def test_a_cancel_while_children_run_keeps_their_partial_text() -> None:
    script: Script = {
        "go": [delegate("A", "B"), say("done")],
        "A": [[*say("half a")[:2], FOREVER]],
        "B": [say("b")],
    }
    async with open_app(script) as app:
        parent = await app.root()
        app.prompt(parent, "go")
        await anyio.wait_all_tasks_blocked()
        parent.cancel({"kind": "user"})
        await parent.wait_idle()
        (first, first_error), (second, second_error) = results(parent.session)
        assert first_error
        assert first.endswith("\nhalf a")
        assert (second, second_error) == ("b", False)
        assert app.store.list() == [parent.session]


async def test_a_failing_child_is_no_failure_of_the_parents_turn() -> None:
    script: Script = {"go": [delegate("A"), say("I see")], "A": [failing("SERVER")]}
    async with open_app(script) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        [(text, is_error)] = results(parent.session)
        assert is_error
        assert "SERVER" in text
        assert of_type(parent.session, "turn/end") == [{"turn": 1, "reason": {"kind": "completed"}}]


async def test_two_children_of_one_call_have_two_ordinals() -> None:
    """A tool that starts several children takes a number for each before its first await."""
    from seedline.subagents.tools import place_of
    from seedline.tools.base import text_outcome

    async with open_app({"go": [call(("pair", {})), say("done")], "A": [say("a")], "B": [say("b")]}) as app:

        class Pair:
            name = "pair"
            description = "Starts two."
            parameters: dict[str, Any] = {}  # noqa: RUF012  # the shape of `Tool`, and never changed

            def concurrency(self, arguments: Any) -> Any:
                return "exclusive"

            async def execute(self, arguments: Any, context: CallContext) -> Any:
                places = [place_of(context), place_of(context)]
                texts = []
                for prompt, place in zip("BA", reversed(places), strict=True):
                    run = await app.host(context.owner, prompt, spawn=place, signal=context.signal)
                    texts.append((await run.result()).output[0]["text"])
                    await run.dispose()
                return text_outcome("".join(texts))

        usual = app.tools()
        app.tools = lambda: [*usual, Pair()]
        parent = await app.root()
        await app.turn(parent, "go")
        assert results(parent.session) == [("ba", False)]
        segments = [session.header.spawn.segment for session in app.sessions[1:] if session.header.spawn]
        assert segments == ["t1.s1.c0.n1", "t1.s1.c0.n0"]


# --- the tool filter ---------------------------------------------------------------------------------


async def test_a_filtered_tool_is_hidden_and_refused() -> None:
    script: Script = {
        "go": [delegate("A"), say("done")],
        "A": [call(("echo", {"x": 1})), say("a")],
    }
    options = DelegationOptions(tool_filter=ToolFilter(deny=("echo",)))
    async with open_app(script, options=options) as app:
        parent = await app.root()
        await app.turn(parent, "go")
        [asked, _] = [request for request in app.model.requests if prompt_of(request) == "A"]
        assert [schema["name"] for schema in asked.header.tools] == ["subagent", "subagent_fork"]
        assert of_type(app.child(), "tool/result")[0]["error"]["code"] == "UNKNOWN_TOOL"
        assert app.heard == []


async def test_an_allow_list_hides_the_rest_and_an_empty_one_everything() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        for allow, names in ((("echo",), ["echo"]), ((), None)):
            await (await app.host(parent, "A", tool_filter=ToolFilter(allow=allow))).result()
            tools = app.model.requests[-1].header.tools
            assert (tools and [schema["name"] for schema in tools]) == names


async def test_a_filter_that_names_no_tool_fails_the_start() -> None:
    async with open_app({"A": [say("a")]}) as app:
        with pytest.raises(SubagentError, match="'ehco'") as caught:
            await app.host(await app.root(), "A", tool_filter=ToolFilter(deny=("ehco",)))
        assert caught.value.code == "INVALID_REQUEST"
        assert len(app.sessions) == 1
