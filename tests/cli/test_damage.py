"""Any damage to a log: every verb answers with a documented code and one document; the file stays."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seedline.cli.answer import Answer, FailedError, json_line
from seedline.cli.exits import worst
from seedline.cli.failure import failure_of, failures_document
from seedline.cli.people import render
from seedline.cli.verbs.convert import Form, convert_file
from seedline.cli.verbs.inspect import inspect_file
from seedline.cli.verbs.repair import repair_file
from seedline.cli.verbs.script import script_of_files
from seedline.cli.verbs.verify import verify_files
from tests.cli.commands import one_turn, write_log

KINDS = {
    "not-found",
    "not-a-session",
    "format-unsupported",
    "corrupt",
    "identity-mismatch",
    "layout-mismatch",
    "too-large",
    "unfinished-call",
    "header-refused",
}
VALUES = [
    b"null",
    b"{}",
    b"[]",
    b"-0",
    b"1.5",
    b"-1",
    b"true",
    b'"\\ud800"',
    b'""',
    b"1e999",
    b"9" * 20,
    b"\xff",
]


def whole_log(folder: Path, projected: bool) -> bytes:
    log = write_log(folder / "whole", one_turn(), seedLength=2)
    if projected:
        convert_file(str(log), str(folder / "projected"), Form("projected", "packed", "jsonl"))
    return (folder / ("projected" if projected else "whole")).read_bytes()


def with_value(text: bytes, at: int, value: bytes) -> bytes:
    """The text with the JSON value after some colon replaced."""
    colon = text.find(b":", at)
    ends = [end for mark in b",}]\n" if (end := text.find(bytes([mark]), colon)) >= 0]
    return text if colon < 0 or not ends else text[: colon + 1] + value + text[min(ends) :]


@st.composite
def edits(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A cut, a flipped bit, a lost stretch, a repeated one, or another value in some field."""
    place = draw(st.floats(0, 1, exclude_max=True))
    size = draw(st.integers(1, 60))
    kind = draw(st.sampled_from(["cut", "flip", "lose", "repeat", "value"]))
    value = draw(st.sampled_from(VALUES))

    def edit(text: bytes) -> bytes:
        at = int(place * len(text))
        match kind:
            case "cut":
                return text[:at]
            case "flip":
                return text[:at] + bytes([text[at] ^ (1 << size % 8)]) + text[at + 1 :]
            case "lose":
                return text[:at] + text[at + size :]
            case "repeat":
                return text[: at + size] + text[at:]
            case _:
                return with_value(text, at, value)

    return edit


def outcome(make: Callable[[], Answer]) -> tuple[int, dict[str, Any]]:
    """The exit code and the document, as the command prints it."""
    try:
        answer = make()
    except FailedError as error:
        failures = error.failures
    except Exception as error:
        failure = failure_of(error, None)
        if failure is None:
            raise
        failures = (failure,)
    else:
        render(answer.people, io.StringIO())
        return answer.code, json.loads(json_line(answer.document))
    assert {failure.kind for failure in failures} <= KINDS
    return worst(failure.code for failure in failures), json.loads(json_line(failures_document(failures)))


@given(st.booleans(), st.lists(edits(), min_size=1, max_size=2))
def test_every_verb_answers(projected: bool, changes: list[Callable[[bytes], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = whole_log(folder, projected)
        for change in changes:
            text = change(text) if text else text
        path = folder / "damaged"
        path.write_bytes(text)
        check(str(path), folder)
        assert path.read_bytes() == text


def check(path: str, folder: Path) -> None:
    code, document = outcome(lambda: inspect_file(path, with_digest=True))
    assert code in (0, 5)
    script_code, _ = outcome(lambda: script_of_files([path], []))
    assert script_code in (0, 3, 5)
    verify_code, checked = outcome(lambda: verify_files([path]))
    assert verify_code in (0, 5)
    if code == 5:
        assert (verify_code, script_code) == (5, 5)
    if verify_code == 0:
        assert code == 0
        assert document["torn"] is None
        assert document["events"] == checked["files"][0]["events"]
        assert "error" not in document["messages"]
    target = folder / "converted"
    assert outcome(lambda: convert_file(path, str(target), Form()))[0] in (code, 0)
    if code == 0:
        again = outcome(lambda: inspect_file(str(target), with_digest=True))[1]
        assert (again["digest"], again["messages"]) == (document["digest"], document["messages"])
    mended = folder / "mended"
    repair_code, _ = outcome(lambda: repair_file(path, str(mended)))
    assert repair_code in (0, 5)
    if repair_code == 0:
        assert outcome(lambda: inspect_file(str(mended), with_digest=False))[1]["closers"] == []
