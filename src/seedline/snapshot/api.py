"""Replaying a recording in one call, for tests and for the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio

from seedline.replay.entries import ScriptEntry
from seedline.replay.overrides import Override, read_override
from seedline.replay.script import load_session_scripts
from seedline.session.tree import RecordedSession
from seedline.snapshot import runner
from seedline.snapshot.load import Scenario, load_scenario
from seedline.snapshot.report import ScenarioReport, scenario_report
from seedline.snapshot.runner import ReplayOptions, ToolMode
from seedline.tools.base import Tools

StrPath = str | os.PathLike[str]
_NO_PATHS: Final[Mapping[str, StrPath]] = MappingProxyType({})
_NO_MODES: Final[Mapping[str, ToolMode]] = MappingProxyType({})


def replay_tree(
    path: StrPath,
    *,
    overrides: Mapping[str, StrPath] = _NO_PATHS,
    tool_modes: Mapping[str, ToolMode] = _NO_MODES,
    live_tools: Tools | None = None,
    strict: bool = False,
) -> ScenarioReport:
    """Replay a recording and return the verdict; see `load_scenario` for what `path` may be.

    `overrides` maps lineage keys (`0` is the root) to sidecar files. `tool_modes` maps tool names (`*` for
    any other) to `serve`, `execute` or `verify`; the latter two need `live_tools`. With `strict` a child that
    is bound by less than its `spawn` fact or an unambiguous trace is an error. No model is called.

    For use outside an event loop; inside one, `await replay_scenario(...)`. Raises `ArtifactError`,
    `LineageError`, `OverrideRefusedError`, `SettingRefusedError`, and `OSError` for a sidecar that cannot be
    read. A record that does not replay is a verdict: see `ScenarioReport.assert_identical`.
    """
    scenario = load_scenario(os.fspath(path))
    options = replay_options(scenario, overrides, tool_modes=tool_modes, live_tools=live_tools)
    return anyio.run(partial(replay_scenario, scenario, options, strict=strict))


def replay_options(
    scenario: Scenario,
    overrides: Mapping[str, StrPath] = _NO_PATHS,
    *,
    tool_modes: Mapping[str, ToolMode] = _NO_MODES,
    live_tools: Tools | None = None,
) -> ReplayOptions:
    """Return the options of a scenario's replay; see `replay_tree`."""
    sidecars = {key: _sidecar(os.fspath(file)) for key, file in overrides.items()}
    return ReplayOptions(
        scripts=overridden_scripts(scenario, sidecars),
        reasons=scenario.reasons,
        tool_modes=tool_modes,
        live_tools=live_tools,
    )


def _sidecar(path: str) -> Override:
    return read_override(Path(path).read_bytes(), path)


def overridden_scripts(
    scenario: Scenario, sidecars: Mapping[str, Override]
) -> dict[RecordedSession, list[ScriptEntry]]:
    """Return the scripts of the sessions that a sidecar is for.

    Raises `OverrideRefusedError`, and `LineageError` for a key that no session has.
    """
    if not sidecars:
        return {}
    inside = [node.session for node in scenario.tree.primary.walk()]
    scripts = load_session_scripts(inside, sidecars, primary=inside[0], unfinished="cut")
    return {script.session: script.entries for script in scripts if script.key in sidecars}


async def replay_scenario(
    scenario: Scenario, options: ReplayOptions, *, strict: bool = False
) -> ScenarioReport:
    """Replay a loaded scenario; `seconds` of the report is what that took, without loading."""
    began = time.perf_counter()
    sessions = await runner.replay_tree(scenario.tree, options)
    return scenario_report(scenario.path, sessions, strict=strict, seconds=time.perf_counter() - began)
