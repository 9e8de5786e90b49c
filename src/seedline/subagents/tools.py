"""The tools by which a model delegates: `subagent` and `subagent_fork` (subagents and replay, 1.12)."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from seedline.agent.loop import Agent
from seedline.errors import SubagentError, ToolArgsError
from seedline.events.vocabulary import ToolFilter
from seedline.session.header import CallSpawn
from seedline.subagents.base import (
    AgentOptions,
    Gated,
    SubagentRequest,
    SubagentResult,
    SubagentRun,
    Subagents,
    check_capabilities,
    check_request,
    text_of,
)
from seedline.tools.base import CallContext, Concurrency, Outcome, text_outcome
from seedline.tools.registry import failed

DEFAULT_MAX_DEPTH: Final = 3
_FRESH: Final = (
    "Hand a task to a subagent and wait for its answer. The subagent starts with nothing but your prompt: "
    "put everything it needs to know into it, and say what the answer must contain. Only its last message "
    "comes back. Several calls in one answer run at the same time."
)
_FORKED: Final = (
    "Hand a task to a subagent that knows this conversation up to the end of the last completed turn, and "
    "wait for its answer. What happened in the turn under way it does not know: put that into the prompt. "
    "Only its last message comes back. Several calls in one answer run at the same time."
)
_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "description": {
            "type": "string",
            "description": "The task in three to five words, for people to read.",
        },
        "prompt": {"type": "string", "description": "The task, complete in itself."},
    },
    "required": ["description", "prompt"],
}
_HEADLINES: Final = {
    "aborted": "the subagent was cancelled before it finished",
    "error": "the subagent failed",
    "max-tokens": "the subagent reached the limit of its output tokens",
    "refusal": "the subagent declined the task before its first step",
}


class _Task(msgspec.Struct):
    """The arguments of a call; more of them change nothing."""

    description: str
    prompt: str


class DelegationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one delegation tool delegates.

    `max_depth` is absolute and 0 forbids delegation; `provider-managed` sends no cap.
    """

    tool_name: str = "subagent"
    max_depth: int | Literal["provider-managed"] = DEFAULT_MAX_DEPTH
    agent_options: AgentOptions = AgentOptions()
    persona: str | None = None
    tool_filter: ToolFilter | None = None


class DelegationTool:
    """Runs one child per call, in the foreground. Calls overlap freely.

    Stays visible at the depth cap; each attempt there is an error result.
    """

    def __init__(self, subagents: Subagents, provider: str, options: DelegationOptions | None = None) -> None:
        """Mount the tool. Raises `SubagentError`: `NO_PROVIDER`; `INVALID_REQUEST` for options that cannot be
        right; `UNSUPPORTED_CAPABILITY` for options that the provider cannot honour."""
        options = options or DelegationOptions()
        mounted = subagents.require(provider)
        self._limits = Gated(
            max_depth=None if options.max_depth == "provider-managed" else options.max_depth,
            tool_filter=options.tool_filter,
            persona=options.persona,
        )
        check_request(self._limits)
        check_capabilities(mounted, self._limits)
        self._subagents = subagents
        self._provider = provider
        self._options = options
        self._description = _FORKED if mounted.inherits_parent_context else _FRESH

    @property
    def name(self) -> str:
        return self._options.tool_name

    @property
    def description(self) -> str:
        return self._description

    @property
    def parameters(self) -> dict[str, Any]:
        return _PARAMETERS

    def concurrency(self, arguments: Any) -> Concurrency:
        return "parallel"

    async def execute(self, arguments: Any, context: CallContext) -> Outcome:
        place = place_of(context)  # before the first await: calls that overlap must not swap their children
        if not isinstance(context.owner, Agent):
            return text_outcome("Error: only an agent can delegate", is_error=True)
        try:
            request = self._request(msgspec.convert(arguments, _Task), context, place)
            run = await self._subagents.start(self._provider, request)
        except msgspec.ValidationError as error:
            return failed(ToolArgsError(self.name, [str(error)]))
        except SubagentError as error:
            return failed(error)
        return await _foreground(run)

    def _request(self, task: _Task, context: CallContext, place: CallSpawn) -> SubagentRequest:
        options = self._options
        return SubagentRequest(
            prompt=({"type": "text", "text": task.prompt},),
            parent=context.owner,
            signal=context.signal,
            label=task.description,
            agent_options=options.agent_options,
            max_depth=self._limits.max_depth,
            tool_filter=self._limits.tool_filter,
            persona=self._limits.persona,
            spawn=place,
        )


def place_of(context: CallContext) -> CallSpawn:
    """Return the place of the next child of a call."""
    call = context.call
    return CallSpawn(
        turn=context.turn,
        step=context.step,
        call=call.position,
        n=context.next_child(),
        call_id=call.call_id,
        tool=call.name,
    )


async def _foreground(run: SubagentRun) -> Outcome:
    """Wait for a run, release it, and return what the model reads of it."""
    result: SubagentResult | None = None
    failures: list[str] = []
    try:
        result = await run.result()
    except Exception as error:
        failures.append(f"the subagent's run broke: {_said(error)}")
    finally:
        try:
            await run.dispose()
        except Exception as error:
            failures.append(f"releasing the subagent failed: {_said(error)}")
    if failures or result is None:
        return text_outcome(f"Error: {'; '.join(failures)}", is_error=True)
    return render(result)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def render(result: SubagentResult) -> Outcome:
    """Return what the model reads of a result.

    A completed run is its text. Any other end is an error: a headline, then the diagnostic, then the text the
    child had come to, each on lines of its own where there is one.
    """
    text = text_of(result.output)
    if result.stop_reason == "completed":
        return text_outcome(text)
    unknown = f"the subagent ended for a reason that is not known here ({result.stop_reason})"
    lines = [f"Error: {_HEADLINES.get(result.stop_reason, unknown)}"]
    if result.diagnostic:
        lines.append(f"Diagnostic: {result.diagnostic}")
    if text:
        lines += ["Its text up to then:", text]
    return text_outcome("\n".join(lines), is_error=True)
