"""What a replay says: per session, per scenario, and over all of them; as values and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from seedline.errors import ReplayDivergedError
from seedline.replay.divergence import Divergence
from seedline.session.tree import ROOT_KEY, Grade
from seedline.snapshot.words import report_text

Status = Literal["identical", "diverged", "not-replayable", "error"]
_SEVERITY: Final[tuple[Status, ...]] = ("not-replayable", "identical", "diverged", "error")
SURE_GRADES: Final = frozenset[Grade]({"exact", "recovered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """The verdict on one session. `reason` says why it is an error, or not replayable.

    When it is identical, `events` = `inherited` + `compared` + `fed`: inherited events stand before the last
    end-seed mark and seed the run, fed ones are handed in whole, all others come out of the loop and are
    compared, with the content of chunks and tool results given.
    """

    path: str
    key: str
    grade: Grade
    status: Status
    reason: str | None
    events: int
    inherited: int
    compared: int
    fed: int
    divergence: Divergence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioReport:
    """The verdict on one tree: the worst of its replayable sessions, `not-replayable` when none is.

    `sessions` come depth-first by lineage key, forks and strangers last. `seconds` is how long it took.
    """

    path: str
    status: Status
    reason: str | None
    sessions: tuple[SessionReport, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def diverged(self) -> SessionReport | None:
        """The first session that diverged."""
        return next((session for session in self.sessions if session.status == "diverged"), None)

    def assert_identical(self) -> None:
        """Raise `ReplayDivergedError`, an `AssertionError` with the report for people, unless identical."""
        if self.status != "identical":
            raise ReplayDivergedError(report_text(self))


def scenario_report(
    path: str, sessions: Sequence[SessionReport], *, strict: bool = False, seconds: float = 0.0
) -> ScenarioReport:
    """Return the verdict on a tree. With `strict` a grade below `recovered` is an error."""
    if strict:
        sessions = [_strictly(session) for session in sessions]
    worst = max(sessions, key=lambda session: _SEVERITY.index(session.status))
    return ScenarioReport(
        path=path, status=worst.status, reason=worst.reason, sessions=tuple(sessions), seconds=seconds
    )


def failed_scenario(path: str, reason: str) -> ScenarioReport:
    """Return the report of a tree that could not even be started."""
    return ScenarioReport(path=path, status="error", reason=reason, sessions=())


def _strictly(session: SessionReport) -> SessionReport:
    """Return the verdict under `strict`. The root of a run is bound to nothing: its grade does not count."""
    bound = session.key != ROOT_KEY and session.status != "not-replayable"
    if not bound or session.grade in SURE_GRADES:
        return session
    reason = f"the grade {session.grade!r} of session {session.key} is below strict. Record it again."
    return replace(session, status="error", reason=reason, divergence=None)


# --- JSON --------------------------------------------------------------------------------------------


def report_json(scenarios: Sequence[ScenarioReport]) -> dict[str, Any]:
    """Return the `--json` document of `seedline replay`."""
    sessions = [session for scenario in scenarios for session in scenario.sessions]
    names: dict[Status, str] = {
        "identical": "identical",
        "diverged": "diverged",
        "not-replayable": "notReplayable",
        "error": "error",
    }
    counts = {name: sum(s.status == status for s in scenarios) for status, name in names.items()}
    return {
        "scenarios": [_scenario_json(scenario) for scenario in scenarios],
        "summary": {
            **counts,
            "compared": sum(session.compared for session in sessions),
            "fed": sum(session.fed for session in sessions),
        },
    }


def _scenario_json(scenario: ScenarioReport) -> dict[str, Any]:
    return {
        "path": scenario.path,
        "status": scenario.status,
        "reason": scenario.reason,
        "sessions": [_session_json(session) for session in scenario.sessions],
    }


def _session_json(session: SessionReport) -> dict[str, Any]:
    return {
        "path": session.path,
        "key": session.key,
        "grade": session.grade,
        "status": session.status,
        "events": session.events,
        "inherited": session.inherited,
        "compared": session.compared,
        "fed": session.fed,
        "divergence": None if session.divergence is None else _divergence_json(session.divergence),
    }


def _divergence_json(divergence: Divergence) -> dict[str, Any]:
    cause = divergence.cause
    return {
        "seq": divergence.seq,
        "turn": divergence.turn,
        "step": divergence.step,
        "type": divergence.type,
        "path": divergence.path,
        "expected": divergence.expected,
        "actual": divergence.actual,
        "cause": cause and {"key": cause.key, "seq": cause.seq, "type": cause.type, "kind": cause.kind},
    }
