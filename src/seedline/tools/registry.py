"""The tools of an agent: which it sees, and how a call of one becomes an outcome (4.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any, cast

import anyio
import msgspec
from msgspec import UNSET, Raw

from seedline.clock import Clock, SystemClock
from seedline.errors import (
    EventRefusedError,
    JsonValueError,
    SeedlineError,
    SettingRefusedError,
    ToolOutputError,
    ToolSetRefusedError,
    ToolTimeoutError,
    ToolUnknownError,
    sole_error,
)
from seedline.events.event import Event
from seedline.events.vocabulary import ToolFilter
from seedline.jsonvalue import encode_lossless, is_count
from seedline.session.guards import check_shape
from seedline.tools.arguments import check_arguments, parse_arguments
from seedline.tools.base import CUT, Call, CallContext, Concurrency, Outcome, Signal, Tool, text_outcome
from seedline.tools.policy import Approver, Policy, denial


class Registry:
    """A set of tools behind the loop's `Tools` seam.

    `mask` hides the tools that it does not let through and refuses their calls; `scoped` tools belong to one
    agent, shadow others of their name and are never masked. `policy` judges each call before its body.
    Whatever goes wrong in a call is its outcome, never an exception. Raises `ToolSetRefusedError` for two
    tools of one name and for a mask that names no tool or none of these, `SettingRefusedError` for a time-out
    that is none.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        policy: Policy | None = None,
        *,
        scoped: Iterable[Tool] = (),
        mask: ToolFilter | None = None,
        approver: Approver | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._all = _by_name(tools)
        self._policy = policy
        self._approver = approver
        self._clock = clock or SystemClock()
        self._visible = {**_masked(self._all, mask), **_by_name(scoped)}

    def derive(self, *, scoped: Iterable[Tool] = (), mask: ToolFilter | None = None) -> Registry:
        """Return a registry of the same unscoped tools for another agent."""
        return Registry(
            self._all.values(),
            self._policy,
            scoped=scoped,
            mask=mask,
            approver=self._approver,
            clock=self._clock,
        )

    def schemas(self) -> list[Any]:
        """Return `{name, description, parameters}` of each visible tool, by the code units of the name."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for _, tool in sorted(self._visible.items(), key=lambda item: _units(item[0]))
        ]

    def concurrency(self, call: Call) -> Concurrency:
        """Return what the tool says of the call; an unknown tool and a failing answer are exclusive."""
        tool = self._visible.get(call.name)
        if tool is None:
            return "exclusive"
        try:
            said = tool.concurrency(parse_arguments(call.arguments))
        except Exception:
            return "exclusive"
        return "parallel" if said == "parallel" else "exclusive"

    async def admit(self, call: Call) -> None:
        """Every call may start at once."""

    async def prepare(self, context: CallContext) -> Outcome | None:
        """Return an error outcome for a call that must not or cannot run, None when its body may run.

        A denial has no typed error: it is an answer, not a failure.
        """
        try:
            tool = self._tool(context.call)
            check_arguments(tool, parse_arguments(context.call.arguments))
            reason = await denial(
                self._policy, self._approver, context, parse_arguments(context.call.arguments)
            )
        except Exception as error:
            return failed(error)
        return None if reason is None else text_outcome(f"Error: {reason}", is_error=True)

    async def run(self, context: CallContext) -> Outcome:
        """Run the body; a time-out aborts its signal and then waits for it to end."""
        try:
            tool = self._tool(context.call)
        except ToolUnknownError as error:
            return failed(error)
        limit = _timeout(tool)
        if limit is None:
            return await _answer(tool, context)
        return await self._run_timed(tool, context, limit)

    async def _run_timed(self, tool: Tool, context: CallContext, limit: int) -> Outcome:
        signal, cause = Signal(), {"kind": "hook", "reason": "time-out"}
        undo = context.signal.on_abort(lambda: signal.abort(context.signal.cause or cause))
        outcome = CUT
        async with anyio.create_task_group() as timer:
            timer.start_soon(self._abort_after, limit, signal, cause)
            outcome = await _answer(tool, context.with_signal(signal))
            timer.cancel_scope.cancel()
        undo()
        return failed(ToolTimeoutError(tool.name, limit)) if signal.cause is cause else outcome

    async def _abort_after(self, limit: int, signal: Signal, cause: dict[str, Any]) -> None:
        await self._clock.sleep(limit)
        signal.abort(cause)

    def _tool(self, call: Call) -> Tool:
        tool = self._visible.get(call.name)
        if tool is None:
            raise ToolUnknownError(call.name)
        return tool


def failed(raised: Exception) -> Outcome:
    """Return the outcome of a call that raised: its text, and name and code of an error of our tree."""
    error = sole_error(raised)
    text = f"Error: {str(error) or type(error).__name__}"
    code: Any = getattr(error, "code", None)
    typed = isinstance(error, SeedlineError) and isinstance(code, str)
    return text_outcome(
        text,
        is_error=True,
        error={"name": type(error).__name__, "code": cast("str", code)} if typed else None,
    )


async def _answer(tool: Tool, context: CallContext) -> Outcome:
    try:
        outcome: Any = await tool.execute(parse_arguments(context.call.arguments), context)
        _check_outcome(tool, outcome)
    except Exception as error:
        return failed(error)
    return outcome


def _check_outcome(tool: Tool, outcome: Any) -> None:
    """Raise `ToolOutputError` for an answer that a log cannot hold unchanged."""
    if not isinstance(outcome, Outcome):
        raise ToolOutputError(tool.name, f"a {type(outcome).__name__} is no outcome")
    try:
        encode_lossless(outcome.content)
        if outcome.meta is not UNSET:
            encode_lossless(outcome.meta)
        for message in outcome.contexts:
            check_shape(Event("user/message", 0, 0, Raw(encode_lossless(message))))
    except JsonValueError as error:
        raise ToolOutputError(tool.name, f"{error.reason} at {error.where or 'the root'}") from None
    except EventRefusedError as error:
        raise ToolOutputError(tool.name, f"a context is no user message: {error.reason}") from None
    problem = _shape_problem(outcome)
    if problem:
        raise ToolOutputError(tool.name, problem)


def _shape_problem(outcome: Outcome) -> str | None:
    content: Any = outcome.content
    if not isinstance(content, list) or not all(map(_is_block, cast("list[Any]", content))):
        return "its content is no list of blocks"
    error: Any = outcome.error
    if error is not None and not (
        isinstance(error, dict)
        and all(isinstance(cast("Any", error).get(name), str) for name in ("name", "code"))
    ):
        return "its error has no name or no code"
    return None


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    value = cast("dict[str, Any]", block)
    kind = value.get("type")
    return isinstance(kind, str) and (kind != "text" or isinstance(value.get("text"), str))


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if not tool.name:
            raise ToolSetRefusedError("a tool has no name")
        if tool.name in found:
            raise ToolSetRefusedError(f"two tools are named {tool.name!r}")
        _timeout(tool)
        found[tool.name] = tool
    return found


def _timeout(tool: Tool) -> int | None:
    limit: Any = getattr(tool, "timeout_ms", None)
    if limit is not None and not (is_count(limit) and limit):
        raise SettingRefusedError(
            f"timeout_ms of tool {tool.name}", limit, "a whole number of milliseconds above 0"
        )
    return limit


def _masked(tools: dict[str, Tool], mask: ToolFilter | None) -> dict[str, Tool]:
    if mask is None:
        return tools
    if mask.allow is None and mask.deny is None:
        raise ToolSetRefusedError("a filter names neither what it allows nor what it denies")
    unknown = sorted({*(mask.allow or ()), *(mask.deny or ())} - set(tools))
    if unknown:
        raise ToolSetRefusedError(f"a filter names {', '.join(map(repr, unknown))}, which no tool is called")
    allowed = tools if mask.allow is None else mask.allow
    return {name: tool for name, tool in tools.items() if name in allowed and name not in (mask.deny or ())}


def _units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


# --- tools from functions ------------------------------------------------------------------------------

Answered = Outcome | str | list[dict[str, Any]]
"""What a tool function may return: an outcome, its text, or its blocks."""
Function = Callable[[Any, CallContext], Answered | Awaitable[Answered]]


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool whose body is one function. An awaiting one is cancelled when its signal is aborted."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Function
    parallel: bool = False
    timeout_ms: int | None = None

    def concurrency(self, arguments: Any) -> Concurrency:
        return "parallel" if self.parallel else "exclusive"

    async def execute(self, arguments: Any, context: CallContext) -> Outcome:
        with anyio.CancelScope() as scope:
            undo = context.signal.on_abort(scope.cancel)
            try:
                answered = self.function(arguments, context)
                return self._outcome(await answered if isawaitable(answered) else answered)
            finally:
                undo()
        return CUT

    def _outcome(self, answered: Any) -> Outcome:
        if isinstance(answered, Outcome):
            return answered
        if isinstance(answered, str):
            return text_outcome(answered)
        if isinstance(answered, list):
            return Outcome(content=cast("list[Any]", answered))
        raise ToolOutputError(
            self.name, f"a {type(answered).__name__} is neither text, blocks nor an outcome"
        )


def function_tool(
    name: str,
    description: str,
    parameters: dict[str, Any],
    execute: Function,
    parallel: bool = False,
    *,
    timeout_ms: int | None = None,
) -> FunctionTool:
    """Return a tool whose body is `execute(arguments, context)`, plain or async."""
    return FunctionTool(
        name=name,
        description=description,
        parameters=parameters,
        function=execute,
        parallel=parallel,
        timeout_ms=timeout_ms,
    )
