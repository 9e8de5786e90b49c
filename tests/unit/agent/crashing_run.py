"""A program that runs an agent, stores its log at one event and dies: `python -m ... FILE SEQ`."""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio

from seedline.llm.scripted import call, text, tool_calls
from seedline.session.header import to_header_line
from seedline.session.log import Session
from seedline.storage.jsonl.file import write_log
from tests.unit.agent.harness import Rig, rig, say, tool


def answers() -> list[Any]:
    return [tool_calls(call("p"), call("p"), said="Looking."), text("Found."), text("Second.")]


def prompt(run: Rig) -> None:
    run.agent.followup(say("one"))
    run.agent.followup(say("two"))
    run.agent.inject(say("note"))


def tools() -> list[Any]:
    return [tool("p", parallel=True)]


def store(session: Session, path: str) -> None:
    header_line = to_header_line(session.header, session.inherited_event_count)
    write_log(path, header_line, session.events, layout="complete", packed=True, encoding="jsonl")


async def run_and_die(path: str, seq: int) -> None:
    async with rig(*answers(), tools=tools()) as run:

        def die() -> None:
            store(run.session, path)
            os._exit(9)

        run.on_event(lambda event: event.seq == seq, die)
        prompt(run)
        await run.agent.wait_idle()


if __name__ == "__main__":
    anyio.run(run_and_die, sys.argv[1], int(sys.argv[2]))
