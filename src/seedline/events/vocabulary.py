"""The 48 event types of format version 0, one frozen class each.

Each docstring says when the event is written and what it promises. Fields mirror the wire names in
Python spelling; an optional field is None when the event does not carry it. `PAYLOADS` maps wire names
to classes. Source of the rules: dsh session format version 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from seedline.events.messages import Block, Failure, Message, Record, Source, Usage

PAYLOADS: dict[str, type[Record]] = {}
TYPE_OF: dict[type[Record], str] = {}
R = TypeVar("R", bound=Record)

SURFACE_TYPES: Final = frozenset({"user/message", "assistant/message", "tool/result"})
RETIRED_TYPES: Final = frozenset({"request/header-delta", "mode/set"})


def is_surface_eligible_type(event_type: str) -> bool:
    """True for the three types that join the surface and must carry `surfaceOp`."""
    return event_type in SURFACE_TYPES


def _event(name: str) -> Callable[[type[R]], type[R]]:
    def register(payload: type[R]) -> type[R]:
        PAYLOADS[name] = payload
        TYPE_OF[payload] = name
        return payload

    return register


# --- core: turns, steps, messages, tools, requests ------------------------------------------------


class TurnEndReason(Record):
    """Why a turn ended; `kind` decides which other field is present. The set of kinds is open."""

    kind: str
    reason: dict[str, Any] | None = None
    error: Failure | None = None


@_event("turn/start")
class TurnStart(Record):
    """Written before any input is claimed. Turns count from 1 per session, on across resume and fork."""

    turn: int


@_event("turn/end")
class TurnEnd(Record):
    """Written once for every started turn, also when it failed; crash repair writes `interrupted`."""

    turn: int
    reason: TurnEndReason


@_event("step/start")
class StepStart(Record):
    """Written before the entered messages of a step. Steps count from 1 per turn."""

    turn: int
    step: int


@_event("step/end")
class StepEnd(Record):
    """Written once for every started step, whatever happened in it."""

    turn: int
    step: int


@_event("user/message")
class UserMessage(Message):
    """A user-role message joins the surface. The payload is the message itself."""


@_event("assistant/chunk")
class AssistantChunk(Record):
    """One raw chunk of a model call, also of a failed attempt. `chunk` is its JSON value."""

    turn: int
    step: int
    chunk: Any


@_event("assistant/message")
class AssistantMessage(Record):
    """The answer of one model call joins the surface; its sources are that attempt's chunks.

    `interrupted` marks a message that holds only the visible prefix of a cancelled stream.
    """

    turn: int
    step: int
    message: Message
    interrupted: bool | None = None
    usage: Usage | None = None


@_event("tool/call")
class ToolCall(Record):
    """Written just before a call is prepared. `arguments` is the raw text the model produced."""

    turn: int
    step: int
    call_id: str
    name: str
    arguments: str


class ToolError(Record):
    """The typed failure behind an error result."""

    name: str
    code: str


@_event("tool/result")
class ToolResult(Record):
    """A call's answer joins the surface, in the order the model made the calls."""

    turn: int
    step: int
    message: Message
    error: ToolError | None = None
    meta: Any = None


class TodoItem(Record):
    """One line of the task list."""

    content: str
    status: str


@_event("todo/write")
class TodoWrite(Record):
    """The whole task list; the last one wins."""

    todos: tuple[TodoItem, ...]


class RequestConfig(Record):
    """Where a request goes and its parameters."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None


class AdapterDefaults(Record):
    """Which parameters the adapter supplied."""

    reasoning_effort: bool | None = None
    max_tokens: bool | None = None


class RequestHeaderBody(Record):
    """Everything of a request but its messages. `tools` is a list of schemas, or a recorded placeholder."""

    config: RequestConfig
    adapter_defaults: AdapterDefaults | None = None
    system: str | None = None
    tools: Any = None


@_event("request/header")
class RequestHeader(Record):
    """The request header in force from here on. `reason` is `initial`, `resume` or `change`."""

    header: RequestHeaderBody
    reason: str


@_event("request/context")
class RequestContext(Record):
    """Provider, model and context window in tokens; written only when it differs from the last one."""

    provider: str
    model: str
    context_window: int | None = None


@_event("session/end-seed")
class SessionEndSeed(Record):
    """The end of whatever seed a constructor received. It is not the cut."""


# --- agent and its plugins, all log-only ------------------------------------------------------------


@_event("agent/inbox/spliced")
class AgentInboxSpliced(Record):
    """One change of an input queue, logged before it is applied. `removed_count` is absent when 0."""

    target: Literal["next-turn", "next-step"]
    start: int
    inserted: tuple[Message, ...]
    removed_count: int | None = None
    outcome: str | None = None


@_event("agent-preset/selected")
class AgentPresetSelected(Record):
    """A named configuration was chosen."""

    agent_preset: str


@_event("approval/asked")
class ApprovalAsked(Record):
    """A person was asked to allow a call."""

    id: str
    tool_name: str
    call_id: str | None = None
    reason: str | None = None


@_event("approval/decided")
class ApprovalDecided(Record):
    """The answer to `approval/asked` of the same id."""

    id: str
    outcome: str


@_event("approval/policy")
class ApprovalPolicy(Record):
    """Whether approvals may be asked for; `source` is `delegation` in a child."""

    policy: str
    source: str | None = None


@_event("command/run")
class CommandRun(Record):
    """A person ran a command. `args` is the verbatim rest of the line."""

    command_id: str
    name: str
    source: Source
    args: str | None = None


@_event("command/done")
class CommandDone(Record):
    """The end of `command/run` of the same id."""

    command_id: str
    kind: str
    text: str | None = None
    source_event_seq: int | None = None


@_event("compaction/start")
class CompactionStart(Record):
    """A compaction begins; `turn` is null for a manual one."""

    compaction_id: str
    turn: int | None
    source_command_id: str | None = None


class ShadowedRange(Record):
    """First and last surface seq that a replacement takes away."""

    start: int
    end: int


@_event("compaction/summary")
class CompactionSummary(Record):
    """The summary that replaces a stretch of surface; the replacing message follows at once.

    `llm_stream_call` marks a model call whose chunks are not in the log; `raw_output` then holds its blocks.
    """

    compaction_id: str
    summary: tuple[Block, ...]
    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int
    provider: str
    model: str
    source_command_id: str | None = None
    raw_output: Any = None
    llm_stream_call: bool | None = None
    max_tokens: int | None = None
    usage: Usage | None = None


@_event("compaction/end")
class CompactionEnd(Record):
    """A compaction ended; `error` says why it changed nothing."""

    compaction_id: str
    turn: int | None
    source_command_id: str | None = None
    error: str | None = None


@_event("compaction/prune")
class CompactionPrune(Record):
    """One tool result is shortened; the replacing result follows at once."""

    shadowed_range: ShadowedRange
    shadowed_seqs: tuple[int, ...]
    shadowed_token_count: int


@_event("feedback/record")
class FeedbackRecord(Record):
    """A person's feedback on the session."""

    text: str


@_event("goal/change")
class GoalChange(Record):
    """A standing goal changed; which fields are present depends on `operation`."""

    kind: str
    version: int
    operation: str
    goal: Any = None
    rounds_started: int | None = None
    created_at: int | None = None
    updated_at: int | None = None
    cleared: Any = None
    cleared_at: int | None = None


@_event("hook/invoked")
class HookInvoked(Record):
    """A configured hook is about to run."""

    turn: int
    point: str
    dialect: str
    handler_id: str
    matcher: str | None = None


@_event("hook/result")
class HookResult(Record):
    """What a hook decided. `duration_ms` may have a fraction."""

    turn: int
    point: str
    handler_id: str
    decision: str
    duration_ms: float
    exit_code: int | None = None
    stderr_summary: str | None = None


@_event("llm/retry")
class LlmRetry(Record):
    """A failed request will be tried again after `delay_ms`, within the same step."""

    retry_id: str
    turn: int
    step: int
    provider: str
    mode: str
    policy_key: str
    retry: int
    delay_ms: float
    failure: Failure
    max_retries: int | None = None


@_event("llm/retry-started")
class LlmRetryStarted(Record):
    """The wait of `llm/retry` is over."""

    retry_id: str
    turn: int
    step: int
    retry: int


@_event("permission/preset")
class PermissionPreset(Record):
    """A named set of permissions was chosen."""

    preset: str


@_event("plan/mode")
class PlanMode(Record):
    """Planning began or ended."""

    active: bool


@_event("sandbox/mode")
class SandboxMode(Record):
    """What tools may change on disk; `source` is `delegation` in a child."""

    mode: str
    source: str | None = None


@_event("schedule/change")
class ScheduleChange(Record):
    """A scheduled prompt was made, deleted or dispatched."""

    version: int
    operation: str
    schedule: Any = None
    id: str | None = None
    accepted_at: int | None = None


class TitleSource(Record):
    """Who named the session: `fallback`, `user` or `provider`."""

    kind: str
    provider: str | None = None
    model: Any = None


@_event("session/title")
class SessionTitle(Record):
    """A title for people, made from the messages at `message_seqs`; the last one wins."""

    title: str
    message_seqs: tuple[int, ...]
    source: TitleSource


@_event("session/title-llm-request")
class SessionTitleLlmRequest(Record):
    """The request a model-written title was asked with."""

    title_provider: str
    message_seqs: tuple[int, ...]
    route: Any
    system: str
    messages: Any
    max_tokens: int


class ToolFilter(Record):
    """Which tools a child sees."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


@_event("subagent/descriptor")
class SubagentDescriptor(Record):
    """What kind of child this session is. The first one of the own suffix is authoritative."""

    version: int
    mode: str
    provider: str
    label: str | None = None
    agent_provider: str | None = None
    agent_model: str | None = None
    persona: str | None = None
    tool_filter: ToolFilter | None = None


@_event("team/member")
class TeamMember(Record):
    """A roster snapshot of one team member."""

    version: int
    team_id: str
    member: Any


@_event("team/task")
class TeamTask(Record):
    """A revision of one task on a team's board."""

    version: int
    team_id: str
    task: Any


@_event("team/message/queued")
class TeamMessageQueued(Record):
    """A message between team members was accepted."""

    version: int
    team_id: str
    message: Any


@_event("team/message/delivered")
class TeamMessageDelivered(Record):
    """A queued team message reached its target."""

    version: int
    team_id: str
    message_id: str
    target_id: str


@_event("tool/code-dispatch-start")
class ToolCodeDispatchStart(Record):
    """Code run by a tool calls another tool. `arguments` is parsed JSON here."""

    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any


@_event("tool/code-dispatch")
class ToolCodeDispatch(Record):
    """The answer to `tool/code-dispatch-start` of the same sub call id."""

    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any
    is_error: bool
    content: tuple[Block, ...]


@_event("tool-workflow/run-start")
class ToolWorkflowRunStart(Record):
    """A workflow of several children begins."""

    run_id: str
    name: str


@_event("tool-workflow/agent-start")
class ToolWorkflowAgentStart(Record):
    """A workflow member was created. `seq` numbers the members, not events."""

    run_id: str
    seq: int
    label: str
    child_id: str
    phase: str | None = None


@_event("tool-workflow/agent-end")
class ToolWorkflowAgentEnd(Record):
    """A workflow member ended."""

    run_id: str
    seq: int
    outcome: str


@_event("tool-workflow/run-end")
class ToolWorkflowRunEnd(Record):
    """A workflow ended."""

    run_id: str
    stop_reason: str


@_event("web/deepseek-search-llm-request")
class WebDeepseekSearchLlmRequest(Record):
    """The request a web search was asked with."""

    endpoint: str
    api_version: str
    body: Any


KNOWN_TYPES: Final = frozenset(PAYLOADS)
