"""The `bash` tool: commands that run as the user, in a folder that persists from call to call."""

from __future__ import annotations

import os
import signal as signals
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import DEVNULL
from typing import Any, Final, cast

import anyio
import anyio.abc
import msgspec

from seedline.errors import ToolArgsError
from seedline.session.log import Session
from seedline.tools.base import CUT, CallContext, Concurrency, Outcome, text_outcome

DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_TIMEOUT_MS: Final = 600_000
KEPT_BYTES: Final = 64_000
"""Of each stream, how many of its last bytes the model reads."""
SPILLED_BYTES: Final = 64 << 20
"""Of each stream that is longer, how many of its first bytes go to a file."""
GRACE_SECONDS: Final = 3.0
"""How long a process group has after SIGTERM before SIGKILL."""
_DRAIN_SECONDS: Final = 0.2
_FOLDER_META: Final = "cwd"
# The command's last folder goes to a descriptor of its own; `eval` keeps a syntax error inside the trap.
_SCRIPT: Final = 'trap \'pwd -P >&"$SEEDLINE_CWD_FD" 2>/dev/null\' EXIT; eval "$1"'
_PLAIN: Final = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
_DESCRIPTION: Final = (
    "Run a bash command on this machine, as the user who started you and with that user's rights. Each call "
    "is a fresh shell; only the working folder carries over to the next call. Standard input is empty. The "
    "answer is what the command wrote, errors after the mark [stderr], and a last line for an exit code "
    "other than 0. Long output is cut at the front and kept whole in a file that the answer names. What "
    "still runs when the command ends is ended too."
)
_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "The command."},
        "description": {"type": "string", "description": "What it does, in five to ten words, for people."},
        "timeoutMs": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TIMEOUT_MS,
            "description": f"When to stop it, in milliseconds; {DEFAULT_TIMEOUT_MS} unless given.",
        },
        "workdir": {
            "type": "string",
            "description": "The folder to run in; relative to the working folder. Later calls start there.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}


class _Arguments(msgspec.Struct, rename="camel"):
    command: str
    description: str = ""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    workdir: str = "."


def is_secret_name(name: str) -> bool:
    """True for a variable that a command does not inherit: a key, or a setting of this program."""
    return name.endswith(("_API_KEY", "_API_TOKEN")) or name.startswith("SEEDLINE_")


@dataclass(frozen=True, kw_only=True)
class BashTool:
    """Runs each command with `bash -c` in a process group of its own.

    The working folder is a fact of the log: each result keeps it in `meta`, so that a resumed or forked
    session goes on where its history left off. A cancel or a time-out ends the whole group, by SIGTERM and
    after three seconds by SIGKILL; so does the end of the command for what it left running. Variables named
    by `is_secret_name` are not inherited unless `environment` gives them.
    """

    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    spill_folder: str | None = None
    name: str = "bash"
    description: str = _DESCRIPTION

    @property
    def parameters(self) -> dict[str, Any]:
        return _PARAMETERS

    def concurrency(self, arguments: Any) -> Concurrency:
        return "exclusive"

    async def execute(self, arguments: Any, context: CallContext) -> Outcome:
        """See `Tool.execute`. A failed command is a result; only one that cannot start is an error."""
        wanted = msgspec.convert(arguments, _Arguments)
        folder = os.path.join(working_folder(context.session), wanted.workdir)
        if not os.path.isdir(folder):
            raise ToolArgsError(self.name, [f"/workdir: {folder} is no folder"])
        done = await self._run(wanted, os.path.realpath(folder), context)
        return CUT if done is None else done

    async def _run(self, wanted: _Arguments, folder: str, context: CallContext) -> Outcome | None:
        reader, writer = os.pipe()
        try:
            process = await self._start(wanted.command, folder, writer)
        finally:
            os.close(writer)
        streams = _Stream(self.spill_folder, "stdout"), _Stream(self.spill_folder, "stderr")
        try:
            timed_out = await _finish(process, streams, wanted.timeout_ms, context)
            ended_in = _read_folder(reader) or folder
        finally:
            os.close(reader)
            for stream in streams:
                stream.close()
        if context.signal.aborted:
            return None
        text = _answer(streams, wanted.timeout_ms if timed_out else None, process.returncode)
        outcome = text_outcome(text)
        return msgspec.structs.replace(outcome, meta={_FOLDER_META: ended_in})

    async def _start(self, command: str, folder: str, writer: int) -> anyio.abc.Process:
        inherited = {name: value for name, value in os.environ.items() if not is_secret_name(name)}
        return await anyio.open_process(
            ["bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", command],
            stdin=DEVNULL,
            cwd=folder,
            env={**inherited, **_PLAIN, "SEEDLINE_CWD_FD": str(writer), **self.environment},
            start_new_session=True,
            pass_fds=(writer,),
        )


# --- the folder ------------------------------------------------------------------------------------------


def working_folder(session: Session) -> str:
    """Return where the next command of a session runs: where its last one ended, else the session's cwd."""
    for event in session.events.without_chunks_reversed():
        if event.type == "tool/result" and b'"meta"' in bytes(event.data):
            meta = cast("dict[str, Any]", event.value).get("meta")
            folder = cast("dict[str, Any]", meta).get(_FOLDER_META) if isinstance(meta, dict) else None
            if isinstance(folder, str) and os.path.isdir(folder):
                return folder
    return session.header.cwd or os.getcwd()


def _read_folder(reader: int) -> str | None:
    """Return the folder that the shell reported before it ended, if it did."""
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        return os.fsdecode(os.read(reader, 1 << 16).removesuffix(b"\n")) or None
    return None


# --- the process -----------------------------------------------------------------------------------------


async def _finish(
    process: anyio.abc.Process, streams: tuple[_Stream, _Stream], timeout_ms: int, context: CallContext
) -> bool:
    """Wait for the end of a command, or end it; True when it took too long."""
    assert process.stdout
    assert process.stderr
    waiting = anyio.CancelScope(deadline=anyio.current_time() + timeout_ms / 1000)
    undo = context.signal.on_abort(waiting.cancel)
    async with anyio.create_task_group() as readers:
        readers.start_soon(streams[0].drain, process.stdout)
        readers.start_soon(streams[1].drain, process.stderr)
        try:
            with waiting:
                await process.wait()
        finally:
            undo()
            with anyio.CancelScope(shield=True):
                await _end_group(process)
                # The pipes close with the group; what left it and kept them open is not waited for.
                with anyio.move_on_after(_DRAIN_SECONDS):
                    await _ended(streams)
                readers.cancel_scope.cancel()
                await process.aclose()
    return waiting.cancelled_caught and not context.signal.aborted


async def _ended(streams: tuple[_Stream, _Stream]) -> None:
    for stream in streams:
        await stream.ended.wait()


async def _end_group(process: anyio.abc.Process) -> None:
    """End what is left of a process group."""
    if not _signal(process.pid, signals.SIGTERM):
        return
    with anyio.move_on_after(GRACE_SECONDS):
        await process.wait()
        while _signal(process.pid, 0):
            await anyio.sleep(0.01)
    _signal(process.pid, signals.SIGKILL)
    await process.wait()


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; False when nobody is left in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# --- what it wrote ---------------------------------------------------------------------------------------


class _Stream:
    """The last bytes of a stream, and a file of the whole once it is longer."""

    def __init__(self, spill_folder: str | None, name: str) -> None:
        self.tail = bytearray()
        self.size = 0
        self.path: str | None = None
        self.ended = anyio.Event()
        self._folder = spill_folder
        self._name = name
        self._file: int | None = None

    async def drain(self, stream: anyio.abc.ByteReceiveStream) -> None:
        """Read to the end."""
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                self._take(await stream.receive())
        self.ended.set()

    def _take(self, data: bytes) -> None:
        if self._file is None and self.size + len(data) > KEPT_BYTES:
            self._open()
            self._spill(bytes(self.tail))
        if self._file is not None:
            self._spill(data)
        self.size += len(data)
        self.tail += data
        if len(self.tail) > 2 * KEPT_BYTES:
            del self.tail[:-KEPT_BYTES]

    def _open(self) -> None:
        with suppress(OSError):  # without a file the answer says that the rest is gone
            self._file, self.path = tempfile.mkstemp(f".{self._name}", "seedline-", self._folder)

    def _spill(self, data: bytes) -> None:
        if self._file is None:
            return
        room = SPILLED_BYTES - os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            if room > 0:
                os.write(self._file, data[:room])
        except OSError:
            self.close()
            self.path = None

    def text(self) -> str:
        """Return what the model reads of it."""
        if self.size <= KEPT_BYTES:
            return self.tail.decode("utf-8", "replace")
        kept = self.tail[-KEPT_BYTES:].decode("utf-8", "replace")
        place = self.path or "could not be kept"
        return f"[the first {self.size - KEPT_BYTES} bytes are left out; the whole output: {place}]\n{kept}"

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _answer(streams: tuple[_Stream, _Stream], timeout_ms: int | None, code: int | None) -> str:
    out, err = (stream.text() for stream in streams)
    parts = [out, f"[stderr]\n{err}" if err else "", *_marks(timeout_ms, code)]
    written = [part.removesuffix("\n") for part in parts if part]
    return "\n".join(written) if out or err else "\n".join(["(no output)", *written])


def _marks(timeout_ms: int | None, code: int | None) -> list[str]:
    if timeout_ms is not None:
        return [f"[ended after {timeout_ms} ms, the time it had]"]
    if code is not None and code < 0:
        return [f"[ended by {signals.Signals(-code).name}]"]
    return [f"[exit code {code}]"] if code else []
