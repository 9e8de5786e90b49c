"""Request headers, contexts, runtime context and the model-visible check: 2.7 and 2.8 of the loop's rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from seedline.agent.extension import Assembly, Extension, Section
from seedline.agent.loop import Agent
from seedline.agent.request import Declared, first_config, header_for, next_config
from seedline.clock import ManualClock
from seedline.errors import MissingRouteError
from seedline.events.vocabulary import AdapterDefaults, RequestConfig, RequestHeaderBody
from seedline.llm.base import ModelRequest, PreparedConfig
from seedline.llm.scripted import ScriptedModel, call, text, tool_calls
from seedline.session.header import SessionHeader
from seedline.session.log import Session
from seedline.session.turns import completed_turn_prefix
from tests.unit.agent.harness import ROUTE, Rig, new_session, reopened, rig, say, tool

pytestmark = pytest.mark.anyio


def headers(session: Session) -> list[tuple[str, dict[str, Any]]]:
    return [
        (event.value["reason"], event.value["header"])
        for event in session.own_events
        if event.type == "request/header"
    ]


def contexts(session: Session) -> list[dict[str, Any]]:
    return [event.value for event in session.own_events if event.type == "request/context"]


# --- when a header or a context is logged ------------------------------------------------------------


async def test_a_header_is_logged_first_and_then_only_when_it_changes() -> None:
    systems = iter(["one", "one", "two"])
    async with rig(text("a"), text("b"), text("c"), assembly=lambda: Assembly(system=next(systems))) as run:
        await run.ask("1", "2", "3")
    assert [(reason, header["system"]) for reason, header in headers(run.session)] == [
        ("initial", "one"),
        ("change", "two"),
    ]
    assert contexts(run.session) == [{"provider": "acme", "model": "acme-1"}]


async def test_a_resumed_agent_logs_its_header_even_when_nothing_changed() -> None:
    async with rig(text("a")) as first:
        await first.ask("1")
    async with rig(text("b"), text("c"), session=reopened(first.session)) as second:
        await second.ask("2", "3")
    assert [reason for reason, _ in headers(second.session)] == ["initial", "resume"]
    assert len(contexts(second.session)) == 1


async def test_a_fork_child_resumes_the_header_and_inherits_the_context() -> None:
    async with rig(text("a")) as parent:
        await parent.ask("1")
    stop = completed_turn_prefix(parent.session.events)
    header = SessionHeader(id="child", created_at=0, is_seeded=True, parent_session="s-1")
    child = parent.session.fork(header, stop, ManualClock(step=1))
    async with rig(text("b"), session=child) as run:
        lines = await run.ask("2")
    assert [reason for reason, _ in headers(child)] == ["resume"]
    assert contexts(child) == []
    assert "turn 2" in lines
    assert [message["role"] for message in _sent(run)] == ["user", "assistant", "user"]


async def test_a_fork_child_does_not_inherit_the_queue_and_a_resumed_session_does() -> None:
    async with rig(text("a"), text("b")) as parent:
        parent.agent.inject(say("note"))
        stop = parent.session.seq
        await parent.ask("1")
    header = SessionHeader(id="child", created_at=0, is_seeded=True, parent_session="s-1")
    child = parent.session.fork(header, stop, ManualClock(step=1))
    async with rig(session=child) as run:
        assert len(run.agent.inbox) == 0
    resumed = Session.restore(
        parent.session.header,
        clock=ManualClock(step=1),
        inherited_event_count=parent.session.inherited_event_count,
        events=parent.session.events[:stop],
    )
    async with rig(session=resumed) as run:
        assert [message["id"] for message in run.agent.inbox.waiting("next-step")] == ["note"]


async def test_the_context_window_is_part_of_the_context() -> None:
    session = new_session()
    for window, expected in ((1000, 1), (1000, 1), (None, 2)):
        model = ScriptedModel(text("a"), context_window=window)
        async with rig(model=model, session=session) as run:
            await run.ask(f"turn with {expected} {session.seq}")
        assert len(contexts(session)) == expected
    assert contexts(session) == [
        {"provider": "acme", "model": "acme-1", "contextWindow": 1000},
        {"provider": "acme", "model": "acme-1"},
    ]


async def test_a_header_holds_tools_sorted_and_leaves_out_what_is_empty() -> None:
    async with rig(text("a"), tools=[tool("b"), tool("a"), tool("B")]) as run:
        await run.ask("1")
    [(_, header)] = headers(run.session)
    assert [schema["name"] for schema in header["tools"]] == ["B", "a", "b"]
    assert list(header["tools"][0]) == ["name", "description", "parameters"]
    assert list(header) == ["config", "tools"]


async def test_retries_and_later_steps_repeat_neither_header_nor_context() -> None:
    async with rig(tool_calls(call("t")), text("b"), tools=[tool("t")]) as run:
        lines = await run.ask("1")
    assert [line for line in lines if line.startswith(("header", "context"))] == ["header initial", "context"]


# --- the config ----------------------------------------------------------------------------------------

LOGGED = RequestHeaderBody(
    RequestConfig("acme", "acme-1", reasoning_effort="high", temperature=0.5, max_tokens=7)
)


@pytest.mark.parametrize(
    ("declared", "logged", "effort"),
    [
        (ROUTE, None, None),
        (ROUTE, LOGGED, "high"),
        (Declared("acme", "acme-2"), LOGGED, None),
        (Declared("other", "acme-1"), LOGGED, None),
        (ROUTE, structs.replace(LOGGED, adapter_defaults=AdapterDefaults(reasoning_effort=True)), None),
        (ROUTE, structs.replace(LOGGED, adapter_defaults=AdapterDefaults(max_tokens=True)), "high"),
    ],
)
def test_the_first_config_keeps_an_effort_that_was_asked_for(
    declared: Declared, logged: RequestHeaderBody | None, effort: str | None
) -> None:
    expected = RequestConfig(declared.provider, declared.model, reasoning_effort=effort, max_tokens=9)
    assert first_config(structs.replace(declared, max_tokens=9), logged) == expected


@pytest.mark.parametrize(
    ("marks", "effort", "max_tokens"),
    [
        (None, "high", 7),
        (AdapterDefaults(reasoning_effort=True), None, 7),
        (AdapterDefaults(max_tokens=True), "high", None),
        (AdapterDefaults(reasoning_effort=True, max_tokens=True), None, None),
    ],
)
def test_a_later_config_drops_what_the_adapter_supplied(marks: Any, effort: Any, max_tokens: Any) -> None:
    config = next_config(structs.replace(LOGGED, adapter_defaults=marks))
    assert config == RequestConfig(
        "acme", "acme-1", reasoning_effort=effort, temperature=0.5, max_tokens=max_tokens
    )


async def test_adapter_defaults_are_marked_and_do_not_count_as_a_change() -> None:
    model = ScriptedModel(text("a"), text("b"), default_reasoning_effort="low", default_max_tokens=64)
    async with rig(model=model) as run:
        await run.ask("1", "2")
    [(_, header)] = headers(run.session)
    assert header == {
        "config": {"provider": "acme", "model": "acme-1", "reasoningEffort": "low", "maxTokens": 64},
        "adapterDefaults": {"reasoningEffort": True, "maxTokens": True},
    }


def test_an_adapter_mark_without_a_value_is_not_written() -> None:
    marks = AdapterDefaults(reasoning_effort=True, max_tokens=False)
    prepared = PreparedConfig(config=RequestConfig("p", "m", max_tokens=3), adapter_defaults=marks)
    assert header_for(prepared, "", None) == RequestHeaderBody(RequestConfig("p", "m", max_tokens=3))


class Configures(Extension):
    """Replaces the config with the next one given; None keeps it."""

    def __init__(self, *configs: RequestConfig | None) -> None:
        self._configs = iter(configs)

    async def configure(self, agent: Agent, config: RequestConfig) -> RequestConfig:
        return next(self._configs) or config


async def test_an_extension_replaces_the_config_for_this_and_later_requests() -> None:
    tuned = RequestConfig("acme", "acme-2", temperature=0.0, stop=("END", "\n"))
    async with rig(text("a"), text("b"), extensions=[Configures(tuned, None)]) as run:
        await run.ask("1", "2")
    assert [header["config"] for _, header in headers(run.session)] == [
        {"provider": "acme", "model": "acme-2", "temperature": 0, "stop": ["END", "\n"]}
    ]
    assert contexts(run.session) == [{"provider": "acme", "model": "acme-2"}]


@pytest.mark.parametrize("field", ["provider", "model"])
async def test_a_request_without_a_route_ends_the_turn(field: str) -> None:
    config = structs.replace(RequestConfig("acme", "acme-1"), **{field: ""})
    async with rig(text("a"), extensions=[Configures(config)]) as run:
        lines = await run.ask("1")
    assert lines[-2:] == ["step 1 ends", "end 1: error:UNKNOWN"]
    assert "header initial" not in lines
    [(_, _, error)] = run.failures
    assert isinstance(error, MissingRouteError)
    assert error.field == field


# --- what the model sees -------------------------------------------------------------------------------


def _sent(run: Rig) -> list[dict[str, Any]]:
    request: ModelRequest = run.model.requests[-1]
    return [message.value for message in request.messages]


async def test_a_request_holds_the_derived_history_without_empty_answers() -> None:
    cut = tool_calls(call("t"), finish="max-tokens")
    async with rig(cut, tool_calls(call("t")), text("ok"), tools=[tool("t")]) as run:
        await run.ask("1", "2")
    assert [(m["role"], m["source"]["kind"]) for m in _sent(run)] == [
        ("user", "user"),
        ("user", "user"),
        ("assistant", "model"),
        ("user", "tool"),
    ]


class Tampers(Extension):
    """Changes the session's cached messages right before a request is built."""

    async def configure(self, agent: Agent, config: RequestConfig) -> RequestConfig:
        agent.session.derive_messages()
        cache: list[Any] = agent.session._messages
        cache[0] = structs.replace(cache[0], data=cache[0].data.replace(b"hello", b"HELLO"))
        return config


async def test_a_message_that_is_not_in_the_log_is_never_sent() -> None:
    async with rig(text("a"), extensions=[Tampers()], sound=False) as run:
        lines = await run.ask("hello")
    assert run.model.requests == []
    assert lines[-1] == "end 1: error:UNKNOWN"
    [(_, _, error)] = run.failures
    assert type(error).__name__ == "UnloggedContextError"
    assert "message list" in str(error)


class Refuses(Extension):
    async def before_request(self, agent: Agent, request: ModelRequest) -> None:
        raise OSError("no space left on device")


async def test_a_failing_checkpoint_keeps_the_request_from_being_sent() -> None:
    async with rig(text("a"), extensions=[Refuses()]) as run:
        lines = await run.ask("hello")
    assert run.model.requests == []
    assert lines[-3:] == ["context", "step 1 ends", "end 1: error:UNKNOWN"]
    assert run.session.events[-1].value["reason"]["error"]["message"] == "no space left on device"


# --- runtime context -------------------------------------------------------------------------------------

SUNNY, WINDY = Section("weather", "Sunny."), Section("weather", "Windy.")
PLACE = Section("place", "At sea.")


def _assemblies(*contexts: tuple[Section, ...] | None) -> Any:
    following: Iterator[Any] = iter(contexts)
    return lambda: Assembly(contexts=next(following))


def _snapshots(session: Session) -> list[dict[str, Any]]:
    messages = [event.value for event in session.events if event.type == "user/message"]
    return [message for message in messages if message["source"]["kind"] == "plugin"]


async def _asked(*contexts: tuple[Section, ...] | None) -> Rig:
    answers = [text("ok")] * len(contexts)
    async with rig(*answers, assembly=_assemblies(*contexts)) as run:
        await run.ask(*(f"prompt {number}" for number in range(len(contexts))))
    return run


async def test_runtime_context_enters_last_and_names_its_sections() -> None:
    run = await _asked((PLACE, SUNNY))
    [snapshot] = _snapshots(run.session)
    text_block = snapshot["content"][0]["text"]
    assert text_block.split("\n\n")[1:] == ["At sea.", "Sunny."]
    assert snapshot["source"]["form"] == "snapshot"
    assert snapshot["source"]["sections"] == [
        {"name": "place", "text": "At sea."},
        {"name": "weather", "text": "Sunny."},
    ]
    assert [message["source"]["kind"] for message in _sent(run)] == ["user", "plugin"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (((SUNNY,), (SUNNY,), (WINDY,)), [["Sunny."], ["Windy."]]),
        (((SUNNY,), (WINDY,), (SUNNY,)), [["Sunny."], ["Windy."], ["Sunny."]]),
        (((), ()), []),
        ((None, (SUNNY,), None), [["Sunny."]]),
        (((SUNNY,), (), ()), [["Sunny."], []]),
        (((SUNNY,), (), (SUNNY,)), [["Sunny."], [], ["Sunny."]]),
        (((PLACE, Section("weather", "")),), [["At sea."]]),
        (((Section("weather", ""),),), []),
    ],
)
async def test_runtime_context_is_repeated_only_when_its_text_changes(
    given: Any, shown: list[list[str]]
) -> None:
    run = await _asked(*given)
    snapshots = _snapshots(run.session)
    assert [[s["text"] for s in m["source"].get("sections", [])] for m in snapshots] == shown
    assert [m["source"].get("form") for m in snapshots] == ["snapshot" if texts else None for texts in shown]


async def test_a_shadowed_runtime_context_is_said_again() -> None:
    async with rig(text("ok"), text("ok"), assembly=_assemblies((SUNNY,), (SUNNY,))) as run:
        await run.ask("first")
        nodes = run.session.surface
        run.session.append(
            "user/message",
            say("summary"),
            surface_op={"op": "replace", "start": nodes[0], "end": nodes[-1]},
            source_event_seqs=list(nodes),
        )
        await run.ask("second")
    assert len(_snapshots(run.session)) == 2
    assert [m["id"] for m in _sent(run)][:2] == ["summary", "second"]
