"""A replay's report in words. Whatever comes from a log is shown so that a terminal only displays it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from seedline.jsonvalue import encode
from seedline.replay.divergence import Cause, CauseKind, Difference, Divergence

if TYPE_CHECKING:
    from seedline.snapshot.load import NotReplayable
    from seedline.snapshot.report import ScenarioReport, SessionReport, Status

Tone = Literal["", "good", "bad", "quiet"]
TONES: Final[dict[Status, Tone]] = {
    "identical": "good",
    "diverged": "bad",
    "error": "bad",
    "not-replayable": "quiet",
}
_DIFFERENCES: Final = 8
_VALUE: Final = 160
_CONTEXT: Final = 24


class Told(NamedTuple):
    """One line of a report."""

    text: str
    tone: Tone = ""


HEADS: Final = ("key", "grade", "verdict", "events", "inherited", "compared", "fed", "file")


def headline(report: ScenarioReport) -> Told:
    """Return what a replay came to, in one line."""
    compared = sum(session.compared for session in report.sessions)
    fed = sum(session.fed for session in report.sessions)
    sessions = f"{len(report.sessions)} session{'' if len(report.sessions) == 1 else 's'}"
    figures = f"{sessions}, {compared} events compared, {fed} handed in, {report.seconds * 1000:.0f} ms"
    return Told(f"{report.path}: {report.status} ({figures})", TONES[report.status])


def rows(report: ScenarioReport) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each session under `HEADS`; keys are indented by depth."""
    for session in report.sessions:
        counts = (session.events, session.inherited, session.compared, session.fed)
        key = "  " * session.key.count("/") + session.key
        yield (key, session.grade, session.status, *map(str, counts), session.path)


def explanations(report: ScenarioReport) -> Iterator[Told]:
    """Yield why each session that is not identical is not, and what to do."""
    if not report.sessions and report.reason is not None:
        yield Told(f"error: {report.reason}", "bad")
    for session in report.sessions:
        if session.divergence is not None:
            yield from _diverged(session, session.divergence)
        elif session.reason is not None:
            yield Told(f"{_name(session)}: {_why(session.reason)}", TONES[session.status])


def report_text(report: ScenarioReport) -> str:
    """Return the whole report as lines of plain text."""
    lines = [headline(report).text, *_aligned([HEADS, *rows(report)])]
    lines += [told.text for told in explanations(report)]
    return "\n".join(map(visible, lines))


def visible(text: str) -> str:
    """Return `text` with escapes for what is not printed: controls, text direction, half characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _name(session: SessionReport) -> str:
    return f"{session.path} (session {session.key})"


_REASONS: Final[dict[NotReplayable, str]] = {
    "header-without-version": "its header names no version",
    "old-shapes": "it holds events in an old shape, which a loop does not write",
    "no-turns": "it holds no turn",
    "no-inbox": "it holds turns but no input",
}


def _why(reason: str) -> str:
    words = next((text for name, text in _REASONS.items() if name == reason), None)
    return reason if words is None else f"not replayable: {words} ({reason})"


# --- a divergence ----------------------------------------------------------------------------------------


def _diverged(session: SessionReport, divergence: Divergence) -> Iterator[Told]:
    places = (("turn", divergence.turn), ("step", divergence.step), ("seq", divergence.seq))
    place = ", ".join(f"{name} {number}" for name, number in places if number is not None)
    yield Told(f"{_name(session)}: diverged at {place}: {divergence.type}", "bad")
    shown = divergence.differences[:_DIFFERENCES]
    for difference in shown:
        yield from _difference(difference)
    more = len(divergence.differences) - len(shown)
    if more:
        yield Told(f"  and {more} more differences in this event", "quiet")
    if divergence.cause is not None:
        yield Told(f"  cause     {_cause(session, divergence, divergence.cause)}")
        yield Told(f"  next      {_NEXT_STEPS[divergence.cause.kind]}")


def _difference(difference: Difference) -> Iterator[Told]:
    expected, actual = _values(difference)
    yield Told(f"  {difference.path or 'the whole event'}", "quiet")
    yield Told(f"    expected  {expected}")
    yield Told(f"    actual    {actual}")


def _values(difference: Difference) -> tuple[str, str]:
    """Return both sides, long texts around the first place where they differ."""
    left, right = difference.expected, difference.actual
    if isinstance(left, str) and isinstance(right, str) and max(len(left), len(right)) > _VALUE:
        skipped = _shared(left, right) - _CONTEXT
        if skipped > 0:
            return f"… {_value(left[skipped:])}", f"… {_value(right[skipped:])}"
    return _value(left), _value(right)


def _shared(left: str, right: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = encode(value).decode()
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}… ({len(text)} characters)"


def _cause(session: SessionReport, divergence: Divergence, cause: Cause) -> str:
    here = (cause.key, cause.seq) == (session.key, divergence.seq)
    where = "" if here else f" (session {cause.key}, seq {cause.seq}, {cause.type})"
    return _CAUSES[cause.kind] + where


_CAUSES: Final[dict[CauseKind, str]] = {
    "record": "the record: nothing before this event differs, and the event does not follow from it",
    "tool-result": "a tool's result",
    "child-answer": "a child's answer",
    "prompt": "the system prompt",
    "schema": "the schemas of the tools",
    "clock": "the clock",
    "fed-input": "input that the replay was handed: it is not what was expected here",
}
_NEXT_STEPS: Final[dict[CauseKind, str]] = {
    "record": "If the agent changed on purpose, record the scenario again; else look at what makes it.",
    "tool-result": "Look at what the tool answers; if that is right, record the scenario again.",
    "child-answer": "Look at the child's session first; if its answer is right, record the scenario again.",
    "prompt": "If the prompt changed on purpose, record the scenario again; else restore it.",
    "schema": "If the tools changed on purpose, record the scenario again; else restore them.",
    "clock": "Pass the clock to whatever stamps this event, or record the scenario again.",
    "fed-input": "Compare the two inputs; the one handed in comes from the record, or from a sidecar.",
}


def summary(reports: Iterable[ScenarioReport]) -> Told:
    """Return the figures over several scenarios in one line."""
    told = list(reports)
    counts = {status: sum(report.status == status for report in told) for status in TONES}
    worst: Tone = "bad" if counts["diverged"] or counts["error"] else "good"
    parts = [f"{count} {status}" for status, count in counts.items() if count]
    return Told(f"{len(told)} scenarios: {', '.join(parts)}", worst)
