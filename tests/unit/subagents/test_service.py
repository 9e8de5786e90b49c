"""The registry of providers, its checks and its events."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from seedline.agent.loop import Agent
from seedline.errors import SubagentError
from seedline.events.vocabulary import SubagentDescriptor, ToolFilter
from seedline.ids import SeededIds
from seedline.subagents.base import (
    Capabilities,
    ProviderAdded,
    ProviderRemoved,
    RunEnded,
    RunStarted,
    SubagentRequest,
    SubagentResult,
    Subagents,
)
from tests.unit.subagents.factory import FOREVER, failing, open_app, say

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {}}


class RemoteRun:
    """A run elsewhere that ends at once."""

    id = "remote-1"
    local_agent = None

    def __init__(self, result: SubagentResult | Exception) -> None:
        self._result = result

    async def result(self) -> SubagentResult:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    async def dispose(self) -> None: ...


class Remote:
    """A provider without capabilities."""

    inherits_parent_context = False

    def __init__(
        self, result: SubagentResult | Exception, name: str = "remote", capabilities: Any = None
    ) -> None:
        self.name = name
        self.capabilities = capabilities or Capabilities()
        self.asked: list[tuple[SubagentRequest, SubagentDescriptor]] = []
        self._result = result

    async def start(self, request: SubagentRequest, descriptor: SubagentDescriptor) -> RemoteRun:
        self.asked.append((request, descriptor))
        return RemoteRun(self._result)


DONE = SubagentResult(stop_reason="completed", output=({"type": "text", "text": "x"},))


# --- registry ----------------------------------------------------------------------------------------


def test_a_name_is_given_once_and_free_after_the_undo() -> None:
    subagents = Subagents(SeededIds())
    first = Remote(DONE)
    undo = subagents.register(first)
    assert subagents.get("remote") is first
    with pytest.raises(SubagentError, match="'remote' is registered already") as caught:
        subagents.register(Remote(DONE))
    assert caught.value.code == "DUPLICATE_PROVIDER"
    undo()
    second = Remote(DONE)
    subagents.register(second)
    undo()  # a late undo of the first does not touch its successor
    assert subagents.get("remote") is second
    assert subagents.names() == ("remote",)
    assert subagents.get("other") is None


def test_a_listener_that_refuses_a_provider_undoes_its_registration() -> None:
    subagents = Subagents(SeededIds())

    def refuse(event: Any) -> None:
        raise RuntimeError("not here")

    undo = subagents.listen(refuse)
    with pytest.raises(RuntimeError, match="not here"):
        subagents.register(Remote(DONE))
    assert subagents.names() == ()
    undo()
    subagents.register(Remote(DONE))


def test_providers_added_and_removed_are_told() -> None:
    subagents = Subagents(SeededIds())
    told: list[Any] = []
    subagents.listen(told.append)
    undo = subagents.register(Remote(DONE))
    undo()
    undo()
    assert told == [ProviderAdded("remote"), ProviderRemoved("remote")]


async def test_an_unknown_provider() -> None:
    async with open_app({}) as app:
        with pytest.raises(
            SubagentError, match=r"'nobody' is registered \(there is 'spawn', 'fork'\)"
        ) as caught:
            await app.host(await app.root(), "A", "nobody")
        assert caught.value.code == "NO_PROVIDER"
        assert app.events == []


async def test_removing_a_provider_blocks_new_starts_only() -> None:
    async with open_app({"A": [say("a")]}) as app:
        parent = await app.root()
        run = await app.host(parent, "A")
        app.undo_spawn()
        assert (await run.result()).stop_reason == "completed"
        with pytest.raises(SubagentError) as caught:
            await app.host(parent, "A")
        assert caught.value.code == "NO_PROVIDER"


# --- checks ------------------------------------------------------------------------------------------

FIELDS: list[tuple[str, Any]] = [
    ("output_schema", SCHEMA),
    ("max_depth", 3),
    ("tool_filter", ToolFilter(deny=("echo",))),
    ("persona", "a pirate"),
]
"""The order in which a request is checked (1.2)."""


@pytest.mark.parametrize("first", range(4))
async def test_the_first_field_that_lacks_its_capability_is_named_before_the_provider_is_asked(
    first: int,
) -> None:
    provider = Remote(DONE)
    async with open_app({}) as app:
        app.subagents.register(provider)
        with pytest.raises(SubagentError, match=FIELDS[first][0]) as caught:
            await app.host(await app.root(), "A", "remote", **dict(FIELDS[first:]))
        assert caught.value.code == "UNSUPPORTED_CAPABILITY"
        assert provider.asked == []


async def test_a_field_with_its_capability_reaches_the_provider() -> None:
    able = Capabilities(output_schema=True, depth_limit=True, tool_filter=True, persona=True)
    provider = Remote(DONE, capabilities=able)
    async with open_app({}) as app:
        app.subagents.register(provider)
        await app.host(await app.root(), "A", "remote", **dict(FIELDS))
        [(request, descriptor)] = provider.asked
        assert {name: getattr(request, name) for name, _ in FIELDS} == dict(FIELDS)
        assert descriptor == SubagentDescriptor(2, "one-shot", "remote", "do A")


@pytest.mark.parametrize("cap", [-1, 1.0, -0.0, True, 2**53, "3"])
async def test_a_depth_cap_is_a_non_negative_integer(cap: Any) -> None:
    async with open_app({}) as app:
        with pytest.raises(SubagentError, match="not a non-negative integer") as caught:
            await app.host(await app.root(), "A", max_depth=cap)
        assert caught.value.code == "INVALID_REQUEST"


async def test_a_tool_filter_names_a_list() -> None:
    async with open_app({}) as app:
        with pytest.raises(SubagentError, match="neither `allow` nor `deny`"):
            await app.host(await app.root(), "A", tool_filter=ToolFilter())


async def test_an_output_schema_outside_the_subset_fails_before_a_child_exists() -> None:
    async with open_app({}) as app:
        with pytest.raises(SubagentError, match="the root must be of type `object`") as caught:
            await app.host(await app.root(), "A", output_schema={"type": "string"})
        assert caught.value.code == "INVALID_OUTPUT_SCHEMA"
        assert app.plans == []


# --- events ------------------------------------------------------------------------------------------


async def test_a_start_and_its_end_share_a_fresh_run_id() -> None:
    async with open_app({"A": [say("a")], "B": [failing("SERVER")]}) as app:
        parent = await app.root()
        for prompt in ("A", "B"):
            run = await app.host(parent, prompt)
            await run.result()
            await run.result()
            await run.dispose()
        first, first_end, second, second_end = app.events
        assert isinstance(first, RunStarted)
        assert isinstance(second, RunStarted)
        assert first.run_id != second.run_id
        assert first.run_id != first.child_id == app.child(0).id
        said = ({"type": "text", "text": "a"},)
        assert first_end == RunEnded(first.run_id, "spawn", first.child_id, True, "completed", said)
        assert second_end == RunEnded(second.run_id, "spawn", second.child_id, True, "error", None)


async def test_a_run_that_nobody_asked_ends_with_its_disposal() -> None:
    async with open_app({"A": [[FOREVER]]}) as app:
        run = await app.host(await app.root(), "A")
        await run.dispose()
        started, ended = app.events
        assert isinstance(started, RunStarted)
        assert isinstance(ended, RunEnded)
        assert ended.stop_reason == "aborted"


async def test_a_published_run_that_rejects_ends_with_an_error() -> None:
    async with open_app({}) as app:
        app.subagents.register(Remote(OSError("lost")))
        app.events.clear()
        run = await app.host(await app.root(), "A", "remote")
        for _ in range(2):
            with pytest.raises(OSError, match="lost"):
                await run.result()
        await run.dispose()
        started, ended = app.events
        assert isinstance(ended, RunEnded)
        assert started == RunStarted(ended.run_id, "remote", "remote-1", False)
        assert (ended.stop_reason, ended.output) == ("error", None)


async def test_a_start_that_rejects_tells_nothing() -> None:
    async with open_app({}) as app:
        with pytest.raises(SubagentError):
            await app.host(await app.root(depth=5), "A", max_depth=1)
        assert app.events == []


async def test_a_failing_listener_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with open_app({"A": [say("a")]}) as app:

        def fail(event: Any) -> None:
            raise RuntimeError("no")

        app.subagents.listen(fail)
        run = await app.host(await app.root(), "A")
        assert (await run.result()).stop_reason == "completed"
        assert len(app.events) == 2
        assert "a listener failed on RunStarted" in caplog.text


async def test_a_listener_of_one_parent_hears_of_its_children_only() -> None:
    async with open_app({"A": [say("a")]}) as app:
        ours, other = await app.root(), await app.root()
        told: list[Any] = []
        undo = app.subagents.listen(told.append, parent=ours)
        for parent in (other, ours, other):
            await (await app.host(parent, "A")).result()
        assert [type(event) for event in told] == [RunStarted, RunEnded]
        undo()
        await (await app.host(ours, "A")).result()
        assert len(told) == 2


async def test_a_diagnostic_is_capped_for_every_provider() -> None:
    async with open_app({}) as app:
        app.subagents.register(Remote(SubagentResult(stop_reason="error", diagnostic="é" * 5000)))
        run = await app.host(await app.root(), "A", "remote")
        diagnostic = (await run.result()).diagnostic
        assert diagnostic is not None
        assert len(diagnostic.encode()) <= 4096


# --- closing a parent --------------------------------------------------------------------------------


async def test_closing_releases_every_child_and_gathers_the_failures() -> None:
    async with open_app({"A": [[FOREVER]]}) as app:
        parent = await app.root()
        runs = [await app.host(parent, "A") for _ in range(3)]
        app.release_failure = OSError("flush failed")
        with pytest.raises(SubagentError, match="3 children") as caught:
            await app.subagents.close(parent)
        assert caught.value.code == "TEARDOWN_FAILED"
        assert isinstance(caught.value.__cause__, ExceptionGroup)
        assert [(await run.result()).stop_reason for run in runs] == ["aborted"] * 3
        assert app.store.list() == [parent.session]


async def test_a_release_failure_stays_with_dispose_and_is_told_to_each_caller() -> None:
    async with open_app({"A": [say("a")]}) as app:
        app.release_failure = OSError("flush failed")
        run = await app.host(await app.root(), "A")
        assert (await run.result()).stop_reason == "completed"
        for _ in range(2):
            with pytest.raises(OSError, match="flush failed"):
                await run.dispose()


async def test_cancelling_the_task_that_disposes_does_not_leave_the_child() -> None:
    async with open_app({"A": [[FOREVER]]}) as app:
        parent: Agent = await app.root()
        run = await app.host(parent, "A")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run.dispose()
        assert app.store.list() == [parent.session]
