"""A stored log resumed by another process, closed turn or open one: 2.14 of the loop's rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seedline.clock import ManualClock
from seedline.llm.scripted import text
from seedline.session.log import Session
from seedline.session.repair import closers
from seedline.session.sequence import Events
from seedline.storage.jsonl.file import read_log
from tests.project import ROOT
from tests.unit.agent.crashing_run import answers, prompt, tools
from tests.unit.agent.harness import Rig, assert_sound, outline, rig

pytestmark = pytest.mark.anyio


def stored_until(path: Path, seq: int) -> Session:
    """Let another process run and die after event `seq`; return the session that its file resumes to."""
    command = [sys.executable, "-m", "tests.unit.agent.crashing_run", str(path), str(seq)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 9
    log = read_log(path)
    return Session.restore(
        log.header,
        clock=ManualClock(step=1),
        inherited_event_count=log.inherited_event_count,
        events=Events.of([*log.events, *closers(log.events)]),
    )


async def uncrashed() -> Rig:
    async with rig(*answers(), tools=tools()) as run:
        prompt(run)
    return run


async def test_a_process_that_dies_in_a_turn_leaves_a_log_another_resumes(tmp_path: Path) -> None:
    undisturbed = await uncrashed()
    whole = undisturbed.outline()
    call_seq = next(event.seq for event in undisturbed.session.events if event.type == "tool/call")
    session = stored_until(tmp_path / "session.jsonl", call_seq)
    before = outline(session.events)
    assert before[:-6] == whole[: len(before) - 6]
    assert before[-6:] == [
        "call call_1 p",
        "result call_1 !TOOL_OUTCOME_UNKNOWN",
        "result call_2 !TOOL_NOT_STARTED",
        "step 1 ends",
        "end 1: interrupted",
        "session/end-seed",
    ]
    async with rig(text("a"), text("b"), session=session, tools=tools()) as run:
        assert [m["id"] for m in run.agent.inbox.waiting("next-turn")] == ["two"]
        assert [m["id"] for m in run.agent.inbox.waiting("next-step")] == ["note"]
        lines = (await run.ask("three"))[len(before) :]
    assert [line for line in lines if not line.startswith("chunks")] == [
        "next-turn @1 insert three",
        "turn 2",
        "next-step @0 claim 1",
        "next-turn @0 claim 1",
        "step 1",
        "user: note",
        "user: two",
        "header resume",
        "answer: a",
        "step 1 ends",
        "end 2: completed",
        "turn 3",
        "next-turn @0 claim 1",
        "step 1",
        "user: three",
        "answer: b",
        "step 1 ends",
        "end 3: completed",
    ]


async def test_a_log_cut_after_any_event_resumes_and_goes_on() -> None:
    whole = (await uncrashed()).session
    for stop in range(1, whole.seq + 1):
        stored = whole.events[:stop]
        session = session_of(whole, Events.of([*stored, *closers(stored)]))
        async with rig(*[text("ok")] * 3, session=session, tools=tools()) as run:
            turns = len(run.agent.inbox.waiting("next-turn")) + 1
            lines = await run.ask("again")
            assert lines[-1].endswith(": completed")
            assert run.model.left().get("*", 0) == 3 - turns
        assert_sound(session)


def session_of(stored: Session, events: Events) -> Session:
    return Session.restore(
        stored.header,
        clock=ManualClock(step=1),
        inherited_event_count=stored.inherited_event_count,
        events=events,
    )


async def test_a_resumed_log_that_nobody_wakes_does_not_grow() -> None:
    whole = (await uncrashed()).session
    again = session_of(whole, whole.events)
    async with rig(session=again) as run:
        run.agent.cancel({"kind": "user"})
    assert again.seq == whole.seq + 1
    assert again.events[-1].type == "session/end-seed"


async def test_a_wake_alone_takes_up_a_resumed_queue() -> None:
    whole = (await uncrashed()).session
    stop = next(event.seq for event in whole.events if event.type == "turn/end") + 1
    async with rig(text("ok"), session=session_of(whole, whole.events[:stop])) as run:
        assert [message["id"] for message in run.agent.inbox.waiting("next-turn")] == ["two"]
        run.agent.wake()
        await run.agent.wait_idle()
        assert run.outline()[-1] == "end 2: completed"
