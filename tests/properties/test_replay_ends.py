"""Whatever a record holds, its replay ends with a verdict."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedline.llm.scripted import Answer, call, failure, text, tool_calls
from seedline.session.tree import RecordedSession
from seedline.session.turns import has_open_turn
from seedline.tools.base import CallContext
from seedline.tools.registry import function_tool
from tests.unit.snapshot.recording import (
    Value,
    alone,
    by_key,
    events_of,
    family,
    replay,
    replay_one,
    values_of,
)

SWEEP = os.environ.get("SEEDLINE_SWEEP") == "1"
VERDICTS = {"identical", "diverged", "error", "not-replayable"}
PLAIN: list[Any] = [None, True, False, 0, 1, -1, 2.5, 2**53 - 1, "", "x", [], {}, [{}], [1]]
TELLING: list[Any] = ["user", "aborted", "error", "completed", "blocked", "next-step", "append", "canceled"]
ENDINGS: list[Any] = [{"kind": kind} for kind in ("aborted", "error", "blocked", "max-tokens", "interrupted")]
TYPES = [
    *(
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
    ),
    *("tool/result", "user/message", "agent/inbox/spliced", "request/header", "request/context"),
    *("session/end-seed", "session/title", "subagent/descriptor", "compaction/start", "compaction/summary"),
    *("compaction/end", "llm/retry", "llm/retry-started", "todo/write"),
]


async def wait_a_little(arguments: Any, context: CallContext) -> str:
    for _ in range(len(str(arguments))):
        await anyio.lowlevel.checkpoint()
    return "done"


@cache
def recordings() -> tuple[RecordedSession, ...]:
    """Sessions with turns, steps, tools that overlap, failures, and children."""
    tool = function_tool("wait", "Wait.", {"type": "object"}, wait_a_little, parallel=True)
    asked: list[Answer] = [
        tool_calls(*(call("wait", {"for": "x" * n}, id=f"c{n}") for n in (3, 1, 2)), said="Let me see."),
        tool_calls(call("none", id="d")),
        text("That is all.", reasoning="Well."),
        failure("SERVER", said="Hm"),
        text("Much of it", finish="max-tokens"),
    ]
    return (alone(*asked, prompts=["a", "b", "c"], tools=[tool]), alone(text("Hi.")), *family())


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, member in members:
        yield (*path, name)
        yield from places(member, (*path, name))


Damage = Callable[[list[Value], random.Random], None]


def drop(values: list[Value], rng: random.Random) -> None:
    del values[rng.randrange(len(values))]


def cut_off(values: list[Value], rng: random.Random) -> None:
    del values[rng.randrange(len(values)) :]


def double(values: list[Value], rng: random.Random) -> None:
    values.insert(rng.randrange(len(values)), copy.deepcopy(rng.choice(values)))


def move(values: list[Value], rng: random.Random) -> None:
    values.insert(rng.randrange(len(values)), values.pop(rng.randrange(len(values))))


def retype(values: list[Value], rng: random.Random) -> None:
    rng.choice(values)["type"] = rng.choice(TYPES)


def rewrite(values: list[Value], rng: random.Random) -> None:
    value = rng.choice(values)
    inside = list(places(value["data"]))
    if not inside:
        return
    *path, name = rng.choice(inside)
    holder: Any = value["data"]
    for step in path:
        holder = holder[step]
    if isinstance(holder, dict) and rng.random() < 0.25:
        del holder[name]
    elif type(holder[name]) is int and rng.random() < 0.5:
        holder[name] += rng.choice([-1, 1])
    else:
        new = rng.choice([*PLAIN, *TELLING, *ENDINGS, rng.choice(values)["data"]])
        holder[name] = copy.deepcopy(new)


def reseal(values: list[Value], rng: random.Random) -> None:
    """Change the envelope."""
    value = rng.choice(values)
    value["time"] += 1
    value["sourceEventSeqs"] = [rng.randrange(len(values))]


DAMAGES: list[Damage] = [drop, cut_off, double, move, retype, rewrite, rewrite, rewrite, reseal]


def damaged(session: RecordedSession, seed: int) -> RecordedSession | None:
    """A copy with one to six random damages, None when that is no log any more."""
    rng = random.Random(seed)
    values = copy.deepcopy(values_of(session))
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        if values:
            rng.choice(DAMAGES)(values, rng)
    try:
        events = events_of(values)
    except ValueError:
        return None
    return RecordedSession(session.header, session.inherited_event_count, events, session.name)


@pytest.mark.filterwarnings("error")
@settings(max_examples=3000 if SWEEP else 150)
@given(st.integers(0, 2**32), st.integers(0, len(recordings()) - 1))
def test_a_damaged_record_has_a_verdict(seed: int, which: int) -> None:
    session = damaged(recordings()[which], seed)
    if session is None:
        return
    report = replay_one(session)
    assert report.status in VERDICTS
    if report.status == "identical":
        assert report.events == report.inherited + report.compared + report.fed


@settings(max_examples=1000 if SWEEP else 40)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_tree_with_a_damaged_session_has_a_verdict_for_each(seed: int, which: int) -> None:
    sessions = family()
    broken = damaged(sessions[which], seed)
    if broken is None:
        return
    reports = by_key(replay([*sessions[:which], broken, *sessions[which + 1 :]]))
    assert len(reports) == len(sessions)
    assert {report.status for report in reports.values()} <= VERDICTS
    wrong = [report for report in reports.values() if report.status in ("diverged", "error")]
    assert len(wrong) <= 2, "the damaged session, and one that disagrees with it"


@pytest.mark.parametrize("which", range(len(recordings())))
def test_a_record_that_stops_within_a_turn_does_not_pass(which: int) -> None:
    session = recordings()[which]
    seeded = session.header.is_seeded  # the mark after the seed is part of it
    for end in range(session.inherited_event_count + seeded, len(session.events)):
        events = session.events[:end]
        short = RecordedSession(session.header, session.inherited_event_count, events, session.name)
        report = replay_one(short)
        if has_open_turn(events):
            assert report.status in ("diverged", "error"), end
        else:
            assert report.status == "identical", (end, report)
