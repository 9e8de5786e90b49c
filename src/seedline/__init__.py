"""Seedline: an agent harness whose sessions are append-only event logs.

Importing this package loads nothing but its version; a public name is loaded from its home on first use.
A public name stands in three lists here, which a test keeps equal: `_PUBLIC`, `__all__` and the imports that
only type checkers read.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from seedline.version import __version__

if TYPE_CHECKING:
    from seedline.agent.extension import Extension
    from seedline.agent.loop import Agent, user_message
    from seedline.agent.request import Declared
    from seedline.errors import SeedlineError
    from seedline.events.event import Event
    from seedline.llm.scripted import ScriptedModel, load_scripted
    from seedline.replay.script import derive_replay_script
    from seedline.runtime import Parts, Runtime
    from seedline.session.header import SessionHeader, SessionLogOffset
    from seedline.session.log import Session
    from seedline.session.repair import closers
    from seedline.session.sequence import Events
    from seedline.session.store import RestoredSession, SessionStore
    from seedline.session.tree import RecordedSession
    from seedline.session.usage import usage_of
    from seedline.snapshot.api import replay_tree
    from seedline.snapshot.report import ScenarioReport
    from seedline.snapshot.write import write_scenario
    from seedline.storage.jsonl.file import LogFile, read_log, upgraded, write_log
    from seedline.tools.registry import function_tool

_PUBLIC: dict[str, str] = {
    "Agent": "seedline.agent.loop",
    "Declared": "seedline.agent.request",
    "Event": "seedline.events.event",
    "Events": "seedline.session.sequence",
    "Extension": "seedline.agent.extension",
    "LogFile": "seedline.storage.jsonl.file",
    "Parts": "seedline.runtime",
    "RecordedSession": "seedline.session.tree",
    "RestoredSession": "seedline.session.store",
    "Runtime": "seedline.runtime",
    "ScenarioReport": "seedline.snapshot.report",
    "ScriptedModel": "seedline.llm.scripted",
    "SeedlineError": "seedline.errors",
    "Session": "seedline.session.log",
    "SessionHeader": "seedline.session.header",
    "SessionLogOffset": "seedline.session.header",
    "SessionStore": "seedline.session.store",
    "closers": "seedline.session.repair",
    "derive_replay_script": "seedline.replay.script",
    "function_tool": "seedline.tools.registry",
    "load_scripted": "seedline.llm.scripted",
    "read_log": "seedline.storage.jsonl.file",
    "replay_tree": "seedline.snapshot.api",
    "upgraded": "seedline.storage.jsonl.file",
    "usage_of": "seedline.session.usage",
    "user_message": "seedline.agent.loop",
    "write_log": "seedline.storage.jsonl.file",
    "write_scenario": "seedline.snapshot.write",
}
"""Public name -> module that holds it."""

__all__ = [
    "Agent",
    "Declared",
    "Event",
    "Events",
    "Extension",
    "LogFile",
    "Parts",
    "RecordedSession",
    "RestoredSession",
    "Runtime",
    "ScenarioReport",
    "ScriptedModel",
    "SeedlineError",
    "Session",
    "SessionHeader",
    "SessionLogOffset",
    "SessionStore",
    "__version__",
    "closers",
    "derive_replay_script",
    "function_tool",
    "load_scripted",
    "read_log",
    "replay_tree",
    "upgraded",
    "usage_of",
    "user_message",
    "write_log",
    "write_scenario",
]


def __getattr__(name: str) -> Any:
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
