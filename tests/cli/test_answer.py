"""From an answer or an error to what is printed and the exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from seedline.cli.answer import Answer, FailedError, deliver, write
from seedline.cli.failure import Failure, failure_of
from seedline.cli.people import Line
from seedline.errors import (
    HeaderRefusedError,
    IdentityMismatchError,
    NotASessionError,
    OverrideRefusedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    UnfinishedCallError,
)

Capture = pytest.CaptureFixture[str]


def run(make: Callable[[], Answer], **options: Any) -> int:
    with pytest.raises(SystemExit) as left:
        deliver(make, **{"as_json": True, **options})
    assert isinstance(left.value.code, int)
    return left.value.code


def failing(error: BaseException) -> Callable[[], NoReturn]:
    def make() -> NoReturn:
        raise error

    return make


def test_an_answer_is_one_line_of_json_or_text_for_people(capfd: Capture) -> None:
    answer = Answer({"a": [1, "é\x9b"]}, [Line("one"), Line("two")], 5, ["heed this"])
    assert run(lambda: answer) == 5
    assert capfd.readouterr() == ('{"a":[1,"é\\u009b"]}\n', "seedline: heed this\n")
    assert run(lambda: answer, as_json=False) == 5
    assert capfd.readouterr() == ("one\ntwo\n", "seedline: heed this\n")


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (
            SessionPersistenceCorruptionError("bad", path="f", line=3, offset=9),
            5,
            {"kind": "corrupt", "path": "f", "line": 3, "offset": 9},
        ),
        (
            NotASessionError("no header"),
            5,
            {"kind": "not-a-session", "path": "given", "line": None, "offset": None},
        ),
        (
            SessionNotFoundError("gone"),
            5,
            {"kind": "not-found", "path": "given", "line": None, "offset": None},
        ),
        (IdentityMismatchError("other id"), 5, {"kind": "identity-mismatch", "path": "given"}),
        (UnfinishedCallError(2, 3), 3, {"kind": "unfinished-call", "path": "given", "turn": 2, "step": 3}),
        (UnfinishedCallError(2, 3, "own"), 3, {"kind": "unfinished-call", "path": "own", "line": None}),
        (OverrideRefusedError("entry", "wrong", "o.json"), 3, {"kind": "override-refused", "path": "o.json"}),
        (HeaderRefusedError("id", "empty"), 5, {"kind": "header-refused", "path": "given"}),
        (FileNotFoundError(2, "No such file", "gone"), 5, {"kind": "not-found", "path": "gone"}),
        (PermissionError(13, "Permission denied", b"x"), 5, {"kind": "not-found", "path": "x"}),
        (IsADirectoryError(21, "Is a directory", "d"), 5, {"kind": "not-a-session", "path": "d"}),
        (MemoryError(), 5, {"kind": "too-large", "path": "given"}),
    ],
)
def test_an_error_is_a_document_of_its_facts(
    error: Exception, code: int, expected: dict[str, Any], capfd: Capture
) -> None:
    assert run(failing(error), path="given") == code
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert err == ""
    assert set(document) == {"error"}
    assert document["error"] | expected == document["error"]
    assert {"kind", "message", "path", "line", "offset"} <= set(document["error"])
    assert str(document["error"]["path"]) in document["error"]["message"] or code == 5

    assert run(failing(error), path="given", as_json=False) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"seedline: {document['error']['message']}\n"


def test_of_several_failures_the_worst_sets_the_code_and_all_are_listed(capfd: Capture) -> None:
    failures = [failure_of(UnfinishedCallError(1, 1), "a"), failure_of(NotASessionError("no"), "b")]
    given = [failure for failure in failures if isinstance(failure, Failure)]
    assert run(failing(FailedError(given))) == 5
    document = json.loads(capfd.readouterr().out)
    assert document["error"]["path"] == "b"
    assert [each["kind"] for each in document["errors"]] == ["unfinished-call", "not-a-session"]


def test_an_error_that_nobody_raises_on_purpose_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError):
        deliver(failing(ZeroDivisionError()), as_json=True)


def test_cancelling_exits_with_130() -> None:
    assert run(failing(KeyboardInterrupt())) == 130


def test_an_error_message_is_inert(capfd: Capture) -> None:
    assert run(failing(NotASessionError("\x1b[2J\ud800")), as_json=False) == 5
    assert r"\x1b[2J" in (shown := capfd.readouterr().err)
    assert "\ufffd" in shown


class Stream(io.TextIOWrapper):
    """A standard stream of a given encoding over memory."""

    def __init__(self, encoding: str) -> None:
        self.memory = io.BytesIO()
        super().__init__(self.memory, encoding=encoding)


def test_json_is_utf8_whatever_the_stream_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    assert run(lambda: Answer({"a": "é日"}, [])) == 0
    assert stream.memory.getvalue() == '{"a":"é日"}\n'.encode()


def test_text_for_people_escapes_what_the_stream_cannot_spell(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert run(lambda: Answer({}, [Line("é日")]), as_json=False) == 0
    assert stream.memory.getvalue() == rb"\xe9\u65e5" + b"\n"


def test_a_closed_standard_output_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(lambda: Answer({"a": 1}, [Line("x")], 5)) == 5
    assert run(lambda: Answer({"a": 1}, [Line("x")], 5), as_json=False) == 5


class Broken(io.StringIO):
    """A stream whose writes fail."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def test_a_reader_that_went_away_is_no_failure(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError(32, "Broken pipe")))
    assert run(lambda: Answer({"a": 1}, [], 5)) == 5
    assert capfd.readouterr().err == ""


def test_an_output_that_cannot_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(OSError(28, "No space left on device")))
    assert run(lambda: Answer({"a": 1}, [])) == 2
    assert "No space left on device" in capfd.readouterr().err


def test_a_stream_without_bytes_takes_text() -> None:
    stream = io.StringIO()
    assert write(stream, "é\n", "utf-8") == 0
    assert stream.getvalue() == "é\n"
