"""The bash tool, on real processes."""

from __future__ import annotations

import json
import os
import signal as signals
from pathlib import Path
from typing import Any

import anyio
import pytest

from seedline.clock import ManualClock
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.tools.base import Call, CallContext, Outcome, Signal
from seedline.tools.registry import Registry
from seedline.tools.shell import KEPT_BYTES, BashTool, is_secret_name, working_folder

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def session_in(folder: Path) -> Session:
    header = SessionHeader(id="s", created_at=0, cwd=str(folder))
    session = Session.create(header, clock=ManualClock(), inherited_event_count=START)
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    return session


async def bash(session: Session, command: str, signal: Signal | None = None, **more: Any) -> Outcome:
    """Run a command as an agent would, and log its result."""
    arguments = json.dumps({"command": command, **more})
    call = Call(0, "c", "bash", arguments)
    context = CallContext(session, None, 1, 1, call, signal or Signal())
    registry = Registry([BashTool(environment={"ADDED": "yes"})])
    return await registry.prepare(context) or await registry.run(context)


def log(session: Session, outcome: Outcome) -> None:
    """Log a result as the loop does."""
    fields = {"turn": 1, "step": 1, "callId": "c", "name": "bash", "arguments": "{}"}
    call = session.append("tool/call", fields)
    block = {
        "type": "tool-result",
        "toolCallId": "c",
        "content": outcome.content,
        "isError": outcome.is_error,
    }
    message = {"source": {"kind": "tool", "callId": "c"}, "content": [block], "role": "user", "id": "m"}
    data = {"turn": 1, "step": 1, "message": message, "meta": outcome.meta}
    session.append("tool/result", data, surface_op="append", source_event_seqs=[call.seq])


def text_of(outcome: Outcome) -> str:
    [block] = outcome.content
    return block["text"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi", "hi"),
        ("true", "(no output)"),
        ("printf 'a\\n\\n'", "a\n"),
        ("echo out; echo err >&2; exit 3", "out\n[stderr]\nerr\n[exit code 3]"),
        ("false", "(no output)\n[exit code 1]"),
        ("kill -9 $$", "(no output)\n[ended by SIGKILL]"),
        ("cat", "(no output)"),
        ("echo $ADDED $PAGER", "yes cat"),
        ('echo "it\'s" \'"$x"\'', 'it\'s "$x"'),
    ],
)
async def test_the_answer_is_what_the_command_wrote_and_how_it_ended(
    tmp_path: Path, command: str, text: str
) -> None:
    outcome = await bash(session_in(tmp_path), command)
    assert (text_of(outcome), outcome.is_error) == (text, False)


async def test_a_syntax_error_is_the_shells_own_answer(tmp_path: Path) -> None:
    outcome = await bash(session_in(tmp_path), "if then")
    assert "syntax error" in text_of(outcome)
    assert text_of(outcome).endswith("[exit code 2]")


async def test_the_folder_carries_over_and_lives_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    session = session_in(tmp_path)
    assert working_folder(session) == str(tmp_path)
    log(session, await bash(session, "cd a; exit 1"))
    log(session, await bash(session, "pwd; cd b"))
    assert working_folder(session) == str((tmp_path / "a" / "b").resolve())
    again = Session.restore(
        session.header, clock=ManualClock(), inherited_event_count=START, events=session.events
    )
    assert working_folder(again) == working_folder(session)
    assert text_of(await bash(again, "pwd", workdir="..")) == str((tmp_path / "a").resolve())
    (tmp_path / "a" / "b").rmdir()
    assert working_folder(session) == str((tmp_path / "a").resolve()), "the folder is gone: the one before"


async def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    outcome = await bash(session_in(tmp_path), "pwd", workdir="missing")
    assert outcome.error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
    assert "missing" in text_of(outcome)


@pytest.mark.parametrize("bad", [{"timeoutMs": 0}, {"timeoutMs": 600_001}, {"command": ""}, {"more": 1}])
async def test_bad_arguments_run_nothing(tmp_path: Path, bad: dict[str, Any]) -> None:
    bad = dict(bad)
    outcome = await bash(session_in(tmp_path), bad.pop("command", "touch x"), **bad)
    assert outcome.error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
    assert not (tmp_path / "x").exists()


async def test_long_output_keeps_its_end_and_goes_whole_to_a_file(tmp_path: Path) -> None:
    outcome = await bash(session_in(tmp_path), "seq 1 100000")
    first, _, rest = text_of(outcome).partition("\n")
    whole = Path(first.rpartition(": ")[2].removesuffix("]"))
    try:
        assert whole.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
        assert whole.stat().st_mode & 0o777 == 0o600
        assert len(rest) == KEPT_BYTES - 1, "without the last line end"
        assert rest.endswith("\n99999\n100000")
    finally:
        whole.unlink()


async def test_bytes_that_are_no_text_are_shown(tmp_path: Path) -> None:
    assert text_of(await bash(session_in(tmp_path), "printf 'a\\xffb'")) == "a\N{REPLACEMENT CHARACTER}b"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def pids_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


async def gone(*pids: int) -> None:
    """Wait until the processes have ended: their parent may take a moment to collect them."""
    with anyio.fail_after(10):
        while any(map(is_alive, pids)):
            await anyio.sleep(0.01)


async def test_a_command_that_takes_too_long_ends_with_all_its_processes(tmp_path: Path) -> None:
    command = "sleep 300 & echo $! > pids; echo $$ >> pids; echo early; sleep 300"
    outcome = await bash(session_in(tmp_path), command, timeoutMs=300)
    assert text_of(outcome) == "early\n[ended after 300 ms, the time it had]"
    await gone(*pids_in(tmp_path / "pids"))


async def test_what_ignores_the_first_signal_gets_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedline.tools.shell.GRACE_SECONDS", 0.1)
    command = "trap '' TERM; echo $$ > pids; while :; do sleep 0.05; done"
    outcome = await bash(session_in(tmp_path), command, timeoutMs=200)
    assert "ended after 200 ms" in text_of(outcome)
    await gone(*pids_in(tmp_path / "pids"))


async def test_a_background_process_ends_with_its_command(tmp_path: Path) -> None:
    outcome = await bash(session_in(tmp_path), "sleep 300 & echo $! > pids; echo done")
    assert text_of(outcome) == "done"
    await gone(*pids_in(tmp_path / "pids"))


async def test_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    outcome = await bash(session_in(tmp_path), "setsid sleep 300 & echo $! > pids; sleep 0.1; echo done")
    assert text_of(outcome) == "done"
    for pid in pids_in(tmp_path / "pids"):
        os.kill(pid, signals.SIGKILL)


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_a_cancel_ends_the_command(tmp_path: Path, moment: str) -> None:
    signal = Signal()
    outcomes: list[Outcome] = []

    async def run() -> None:
        command = "echo $$ > pids; sleep 300 & echo $! >> pids; touch ready; wait"
        outcomes.append(await bash(session_in(tmp_path), command, signal))

    if moment == "before":
        signal.abort({"kind": "user"})
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while moment == "during" and not (tmp_path / "ready").exists():
                await anyio.sleep(0.01)
            signal.abort({"kind": "user"})
    assert outcomes[0].error == {"name": "AbortError", "code": "ABORTED"}
    if moment == "during":
        await gone(*pids_in(tmp_path / "pids"))


async def test_a_cancelled_task_leaves_no_process(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bash, session_in(tmp_path), "echo $$ > pids; touch ready; sleep 300")
            while not (tmp_path / "ready").exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    await gone(*pids_in(tmp_path / "pids"))


async def test_keys_stay_out_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_API_KEY", "very-secret")
    monkeypatch.setenv("SEEDLINE_STORE", "somewhere")
    written = text_of(await bash(session_in(tmp_path), "env"))
    assert "very-secret" not in written
    assert "somewhere" not in written
    assert is_secret_name("VENDOR_API_KEY")
    assert not is_secret_name("PATH")


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    await bash(session, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await bash(session, "echo x")
    assert len(os.listdir("/proc/self/fd")) == before
