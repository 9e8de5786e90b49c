"""Record the tree that `make demo` replays: a live run with scripted answers, saved as a scenario folder.

python examples/record_team.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import anyio

from seedline.agent.loop import user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.ids import SeededIds
from seedline.llm.scripted import load_scripted
from seedline.runtime import Parts, Runtime
from seedline.snapshot.write import write_scenario
from seedline.tools.base import CallContext
from seedline.tools.registry import function_tool

ANSWERS = Path(__file__).parent / "team" / "answers.json"
PROMPTS = ("What is in the next release?", "Write its notes. Let others help, and have the result reviewed.")


def list_changes(arguments: Any, context: CallContext) -> str:
    return f"Since {arguments['since']}: export command; faster loader; empty logs fixed."


async def record(folder: Path) -> None:
    parts = Parts(
        model=load_scripted(ANSWERS),
        declared=Declared("scripted", "release-notes"),
        system="You write release notes.",
        tools=[
            function_tool(
                "list_changes",
                "List the changes since a version.",
                {"type": "object", "properties": {"since": {"type": "string"}}, "required": ["since"]},
                list_changes,
            )
        ],
        clock=ManualClock(1_767_225_600_000, 7),
        ids=SeededIds(1),
    )
    async with Runtime(parts) as runtime:
        root = runtime.start(cwd="/project")
        for prompt in PROMPTS:
            root.followup(user_message(prompt, parts.ids))
            await root.wait_idle()
        sessions = list(runtime.made)
    for path in write_scenario(folder, sessions):
        print(path)


if __name__ == "__main__":
    anyio.run(record, Path(sys.argv[1]))
