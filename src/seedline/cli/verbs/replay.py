"""`seedline replay`: drive the real loop with recordings, and say whether it does the same again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Final, NamedTuple, cast, get_args

import anyio
import typer

from seedline.cli.answer import Answer
from seedline.cli.documents import ReplayDocument
from seedline.cli.exits import DIVERGED, DONE, REPLAY, worst
from seedline.cli.failure import Failure, failure_of, failures_document
from seedline.cli.people import Block, Columns, Line
from seedline.cli.stores import store_folder
from seedline.cli.verbs.script import sidecar_places
from seedline.snapshot import words
from seedline.snapshot.api import replay_options, replay_scenario
from seedline.snapshot.load import Scenario, load_scenario, load_stored
from seedline.snapshot.report import ScenarioReport, Status, failed_scenario, report_json
from seedline.snapshot.runner import ToolMode

_CODES: Final[Mapping[Status, int]] = {
    "identical": DONE,
    "diverged": DIVERGED,
    "not-replayable": REPLAY,
    "error": REPLAY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """How paths are replayed.

    `sidecars` maps lineage keys to files. `store` is the folder of a JSONL store whose session ids the paths
    are, None for paths of files and folders.
    """

    sidecars: Mapping[str, str]
    strict: bool = False
    store: str | None = None


class Replayed(NamedTuple):
    """What became of one path."""

    report: ScenarioReport
    failure: Failure | None = None
    notices: tuple[str, ...] = ()


def replay_paths(
    paths: Sequence[str], request: ReplayRequest, *, jobs: int, allow_not_replayable: bool
) -> Answer:
    """Return the verdict on each path, in order. Every path is tried, at most `jobs` at a time.

    A path that cannot be read is an `error` with no sessions; the document then has the failure as well.
    Raises `typer.BadParameter` for a sidecar with several paths.
    """
    if request.sidecars and len(paths) > 1:
        raise typer.BadParameter("a sidecar is for one recording; name one PATH", param_hint="'--override'")
    done = list(_run_all(paths, partial(replay_path, request=request), jobs))
    failures = [each.failure for each in done if each.failure is not None]
    document = report_json([each.report for each in done])
    if failures:
        document |= failures_document(failures)
    code = worst(_code(each, allow_not_replayable) for each in done)
    notices = [notice for each in done for notice in each.notices]
    return Answer(cast("ReplayDocument", document), _people([each.report for each in done]), code, notices)


def _code(replayed: Replayed, allow_not_replayable: bool) -> int:
    if replayed.failure is not None:
        return replayed.failure.code
    if replayed.report.status == "not-replayable" and allow_not_replayable:
        return DONE
    return _CODES[replayed.report.status]


def replay_path(path: str, *, request: ReplayRequest) -> Replayed:
    """Return the verdict on one path, in this process."""
    try:
        scenario = _load(path, request.store)
        options = replay_options(scenario, request.sidecars)
        report = anyio.run(partial(replay_scenario, scenario, options, strict=request.strict))
        return Replayed(report, None, scenario.notices)
    except Exception as error:
        failure = failure_of(error, path)
        if failure is None:
            raise
        return Replayed(failed_scenario(path, failure.message), failure)


def _load(path: str, store: str | None) -> Scenario:
    return load_scenario(path) if store is None else load_stored(store, path)


# --- several processes -----------------------------------------------------------------------------------


def _run_all(paths: Sequence[str], work: Callable[[str], Replayed], jobs: int) -> Iterator[Replayed]:
    """Yield what `work` makes of each path, in order."""
    workers = min(jobs, len(paths))
    if workers < 2:
        yield from map(work, paths)
        return
    # A fresh interpreter for each worker: a forked one would share threads and locks half way through.
    with ProcessPoolExecutor(workers, get_context("spawn"), _die_at_interrupt) as pool:
        for path, future in [(path, pool.submit(work, path)) for path in paths]:
            try:
                yield future.result()
            except BrokenProcessPool:
                yield _lost(path)


def _die_at_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _lost(path: str) -> Replayed:
    message = f"{path}: the process that replayed it ended without an answer. Replay it alone, without -j."
    return Replayed(failed_scenario(path, message), Failure("replay", message, path, None, None, REPLAY, {}))


# --- options ---------------------------------------------------------------------------------------------


def request_of(
    overrides: Sequence[str], tools: Sequence[str], store: str | None, *, strict: bool
) -> ReplayRequest:
    """Return the request that the options make. Raises `typer.BadParameter`."""
    for option in tools:
        check_tool_mode(option)
    return ReplayRequest(
        sidecars=sidecar_places(overrides),
        strict=strict,
        store=store_folder(store),
    )


def check_tool_mode(option: str) -> None:
    """Raise `typer.BadParameter` unless `[NAME=]MODE` is a mode that the command line has: `serve`."""
    name, equals, mode = option.rpartition("=")
    if (equals and not name) or mode not in get_args(ToolMode):
        raise typer.BadParameter(f"{option!r} is not [NAME=]serve, execute or verify", param_hint="'--tools'")
    if mode != "serve":
        raise typer.BadParameter(
            f"{mode!r} runs tools, and the command line has none. Serve their recorded results, or call "
            "seedline.replay_tree(..., live_tools=...) from Python",
            param_hint="'--tools'",
        )


# --- for people ------------------------------------------------------------------------------------------


def _people(reports: Sequence[ScenarioReport]) -> Iterator[Block]:
    for number, report in enumerate(reports):
        if number:
            yield Line("")
        yield _line(words.headline(report))
        if report.sessions:
            yield Columns(words.HEADS, list(words.rows(report)))
        yield from map(_line, words.explanations(report))
    if len(reports) > 1:
        yield Line("")
        yield _line(words.summary(reports))


def _line(told: words.Told) -> Line:
    return Line(told.text, told.tone)
