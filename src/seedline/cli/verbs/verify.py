"""`seedline verify`: everything that is wrong with log files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seedline.cli.answer import Answer
from seedline.cli.documents import CheckedFile, FoundProblem, VerifyDocument
from seedline.cli.exits import DONE, UNREADABLE
from seedline.cli.failure import kind_shown
from seedline.cli.people import Block, Line
from seedline.storage.jsonl.verify import FileReport, Problem, list_problems


def verify_files(paths: Sequence[str]) -> Answer:
    """Return what is wrong with each file. A path that cannot be opened is listed as its own problem."""
    document: VerifyDocument = {"files": [_checked(list_problems(path)) for path in paths]}
    whole = all(file["ok"] for file in document["files"])
    return Answer(document, _people(document["files"]), DONE if whole else UNREADABLE)


def _checked(report: FileReport) -> CheckedFile:
    problems = [_found(problem) for problem in report.problems]
    return {"path": report.path, "ok": report.ok, "events": report.events, "problems": problems}


def _found(problem: Problem) -> FoundProblem:
    return {
        "kind": kind_shown(problem.kind),
        "line": problem.line,
        "offset": problem.offset,
        "seq": problem.seq,
        "message": problem.message,
    }


def _people(files: Sequence[CheckedFile]) -> Iterator[Block]:
    for file in files:
        if file["ok"]:
            yield Line(f"{file['path']}: ok, {file['events']} events", "good")
            continue
        count = len(file["problems"])
        found = "1 problem" if count == 1 else f"{count} problems"
        yield Line(f"{file['path']}: {found}, {file['events']} events read", "bad")
        for problem in file["problems"]:
            yield Line(f"  {_place(problem)}{problem['kind']}: {problem['message']}")


def _place(problem: FoundProblem) -> str:
    names = (("line", problem["line"]), ("byte", problem["offset"]), ("seq", problem["seq"]))
    places = ", ".join(f"{name} {number}" for name, number in names if number is not None)
    return f"{places}: " if places else ""
