"""The tool seam. Whoever writes a tool, or another way to answer calls, reads this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec

from seedline.session.log import Session
from seedline.session.wire_texts import ABORTED, ABORTED_BEFORE_DISPATCH

Concurrency = Literal["exclusive", "parallel"]
AbortCause = dict[str, Any]
"""Why a turn was cancelled, as `turn/end` records it: `kind` is `user`, `parent`, `hook` or `disposed`."""


class Signal:
    """A cancel signal of one event loop.

    The first cause wins. A callback runs once: at the abort, or at once when that has been.
    """

    def __init__(self) -> None:
        self._cause: AbortCause | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cause(self) -> AbortCause | None:
        return self._cause

    @property
    def aborted(self) -> bool:
        return self._cause is not None

    def abort(self, cause: AbortCause) -> None:
        """Abort with `cause` unless aborted before."""
        if self._cause is not None:
            return
        self._cause = cause
        waiting, self._callbacks = self._callbacks, []
        for callback in waiting:
            callback()

    def on_abort(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at the abort. Returns the undo."""
        if self.aborted:
            callback()
            return lambda: None
        self._callbacks.append(callback)

        def undo() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return undo


class Call(msgspec.Struct, frozen=True):
    """One tool call of an assistant message. `position` is its 0-based place among that message's calls."""

    position: int
    call_id: str
    name: str
    arguments: str


class CallContext:
    """Where and for whom a call runs.

    `signal` is aborted when the turn is cancelled or the call takes too long; a body that heeds it ends soon.
    `next_child` counts the children started by this call; take the number before the first await.
    """

    def __init__(
        self, session: Session, owner: Any, turn: int, step: int, call: Call, signal: Signal
    ) -> None:
        self.session = session
        self.owner = owner
        self.turn = turn
        self.step = step
        self.call = call
        self.signal = signal
        self._children = 0

    def with_signal(self, signal: Signal) -> CallContext:
        """Return the same context under another signal; the count of children begins anew."""
        return CallContext(self.session, self.owner, self.turn, self.step, self.call, signal)

    def next_child(self) -> int:
        """Return the 0-based ordinal of the next child of this call."""
        self._children += 1
        return self._children - 1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a call came to.

    `content` holds JSON blocks. `error` is `{"name", "code"}` for a typed failure, None otherwise; a plain
    denial has `is_error` and no `error`. `meta` is private to the tool and not shown to the model.
    `contexts` are messages for the next step. `concludes_turn` ends the turn after this step.
    """

    content: list[Any]
    is_error: bool = False
    error: dict[str, str] | None = None
    meta: Any = msgspec.UNSET
    contexts: tuple[dict[str, Any], ...] = ()
    concludes_turn: bool = False


def text_outcome(text: str, *, is_error: bool = False, error: dict[str, str] | None = None) -> Outcome:
    """Return an outcome of one text block."""
    return Outcome(content=[{"type": "text", "text": text}], is_error=is_error, error=error)


BEFORE_DISPATCH: Final = text_outcome(
    ABORTED_BEFORE_DISPATCH,
    is_error=True,
    error={"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"},
)
"""What becomes of a call whose body did not run because of a cancel."""

CUT: Final = text_outcome(ABORTED, is_error=True, error={"name": "AbortError", "code": "ABORTED"})
"""What becomes of a call that was cancelled while its body ran."""


class Tools(Protocol):
    """What the loop needs of tools: their schemas, and an answer to every call."""

    def schemas(self) -> list[Any]:
        """Return `{name, description, parameters}` for each visible tool, in request order."""
        ...

    def concurrency(self, call: Call) -> Concurrency:
        """Say whether `call` may overlap others. Asked again just before each start."""
        ...

    async def admit(self, call: Call) -> None:
        """Return when `call` may start; nothing is logged for it yet."""
        ...

    async def prepare(self, context: CallContext) -> Outcome | None:
        """Apply policy after `tool/call` is logged; one call at a time. An outcome ends the call here.

        Like `admit` it may wait for somebody, and is cancelled at an abort.
        """
        ...

    async def run(self, context: CallContext) -> Outcome:
        """Run the body. Every failure is an outcome; an exception is a fault of the harness."""
        ...


class Tool(Protocol):
    """One tool. `parameters` is the JSON Schema of its arguments, an object at the root.

    A tool that must not take for ever also has `timeout_ms`, a whole number above 0.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> dict[str, Any]: ...

    def concurrency(self, arguments: Any) -> Concurrency:
        """Say whether a call with these arguments may overlap others."""
        ...

    async def execute(self, arguments: Any, context: CallContext) -> Outcome:
        """Answer a call. An exception becomes an error outcome with its text.

        `context.signal` tells of a cancel or a time-out. The call ends when this returns, not before: whoever
        waits for something must watch the signal.
        """
        ...
