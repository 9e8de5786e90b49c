"""Live runs with scripted answers, as recordings; altered copies of them; and their replay."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from seedline.agent.loop import user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.events.event import Event
from seedline.ids import SeededIds
from seedline.llm.scripted import Answerable, ScriptedModel, call, text, tool_calls
from seedline.replay.compare import event_value
from seedline.replay.script import recorded_tree
from seedline.runtime import Parts, Runtime
from seedline.session.header import SessionHeader, SessionLogOffset, to_header_line
from seedline.session.sequence import Events
from seedline.session.tree import RecordedSession
from seedline.snapshot.report import SessionReport
from seedline.snapshot.runner import ReplayOptions, replay_tree
from seedline.storage.jsonl.file import write_log
from seedline.tools.base import Tool

Value = dict[str, Any]
SECONDS = 30


def record(
    sessions: Mapping[str, Sequence[Answerable]], prompts: Sequence[str] = ("go",), tools: Sequence[Tool] = ()
) -> list[RecordedSession]:
    """Run a root live, with answers by lineage key; return its sessions in the order of creation."""

    async def run() -> list[RecordedSession]:
        parts = Parts(
            model=ScriptedModel(sessions=sessions),
            declared=Declared("scripted", "scripted-1"),
            system="You are a test.",
            tools=tools,
            clock=ManualClock(1_700_000_000_000, 7),
            ids=SeededIds(5),
        )
        async with Runtime(parts) as runtime:
            root = runtime.start(cwd="/project")
            for prompt in prompts:
                root.followup(user_message(prompt, parts.ids))
                await root.wait_idle()
            made = list(runtime.made)
        return [RecordedSession(s.header, s.inherited_event_count, s.events, s.id) for s in made]

    return anyio.run(run)


def delegate(*tasks: tuple[str, str], tool: str = "subagent") -> Answerable:
    """An answer that hands out tasks, each a (description, prompt)."""
    return tool_calls(
        *(
            call(tool, {"description": description, "prompt": prompt}, id=f"call-{number}")
            for number, (description, prompt) in enumerate(tasks)
        )
    )


def family() -> list[RecordedSession]:
    """A root that asks two children at once the same, and a forked one after its first turn."""
    return record(
        {
            "0": [
                text("Hello."),
                delegate(("a part", "Do it."), ("a part", "Do it.")),
                delegate(("a look", "Review it."), tool="subagent_fork"),
                text("All done."),
            ],
            "0/t2.s1.c0.n0": [text("One.")],
            "0/t2.s1.c1.n0": [text("Two.")],
            "0/t2.s2.c0.n0": [text("Fine.")],
        },
        ["hi", "work"],
    )


def alone(
    *answers: Answerable, prompts: Sequence[str] = ("go",), tools: Sequence[Tool] = ()
) -> RecordedSession:
    """A session without children."""
    (session,) = record({"0": answers}, prompts, tools)
    return session


# --- altered copies --------------------------------------------------------------------------------------


def values_of(session: RecordedSession) -> list[Value]:
    """The events of a session as fresh JSON values."""
    return [event_value(event) for event in session.events]


def events_of(values: Iterable[Value]) -> Events:
    """The events of JSON values, numbered from 0."""
    return Events.of(_event(value, seq) for seq, value in enumerate(values))


def _event(value: Value, seq: int) -> Event:
    parts = {name: part for name, part in value.items() if name != "data"}
    data = msgspec.Raw(json.dumps(value["data"], separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return msgspec.convert(parts | {"seq": seq, "data": data}, Event)


def altered(session: RecordedSession, alter: Callable[[list[Value]], object]) -> RecordedSession:
    """A copy of a session whose events `alter` has changed in place."""
    values = copy.deepcopy(values_of(session))
    alter(values)
    return RecordedSession(session.header, session.inherited_event_count, events_of(values), session.name)


def with_header(session: RecordedSession, cut: int | None = None, **facts: Any) -> RecordedSession:
    """A copy of a session with other facts in its header."""
    offset = session.inherited_event_count if cut is None else SessionLogOffset(cut)
    header: SessionHeader = msgspec.structs.replace(session.header, **facts)
    return RecordedSession(header, offset, session.events, session.name)


def first(values: Iterable[Value], event_type: str, **data: Any) -> Value:
    """The first event of a type with these members in its payload."""
    return next(v for v in values if v["type"] == event_type and data.items() <= v["data"].items())


def last(values: Sequence[Value], event_type: str) -> Value:
    return next(v for v in reversed(values) if v["type"] == event_type)


# --- replay ----------------------------------------------------------------------------------------------


def replay(sessions: Sequence[RecordedSession], **options: Any) -> list[SessionReport]:
    """The verdicts on a tree whose root comes first. Fails when that takes longer than it ever may."""

    async def run() -> list[SessionReport]:
        with anyio.fail_after(SECONDS):
            return await replay_tree(recorded_tree(sessions, sessions[0]), ReplayOptions(**options))

    return anyio.run(run)


def replay_one(session: RecordedSession, **options: Any) -> SessionReport:
    (report,) = replay([session], **options)
    return report


def by_key(reports: Iterable[SessionReport]) -> dict[str, SessionReport]:
    return {report.key: report for report in reports}


def statuses(reports: Iterable[SessionReport]) -> dict[str, str]:
    return {report.key: report.status for report in reports}


# --- files -----------------------------------------------------------------------------------------------


def write(session: RecordedSession, path: Path) -> Path:
    """Write a session as a complete log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = to_header_line(session.header, session.inherited_event_count)
    write_log(path, header, session.events, layout="complete", packed=False, encoding="jsonl")
    return path


def write_folder(sessions: Sequence[RecordedSession], folder: Path) -> Path:
    """Write sessions as a scenario folder, the root first."""
    for number, session in enumerate(sessions):
        write(session, folder / (f"session.{number}.jsonl" if number else "session.jsonl"))
    return folder
