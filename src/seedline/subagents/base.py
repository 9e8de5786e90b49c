"""The provider seam of subagents. Whoever writes a provider, or a tool that delegates, reads this file.

A provider turns a `SubagentRequest` into a running child. `Subagents` holds the providers by name, refuses
what a provider cannot do before it is asked, and tells observers when a run starts and ends.
Rules: subagents and replay, 1.1 to 1.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import anyio
import msgspec
from msgspec import UNSET

from seedline.agent.loop import Agent
from seedline.errors import SubagentError
from seedline.events.event import CHUNK
from seedline.events.vocabulary import SubagentDescriptor, ToolFilter
from seedline.ids import IdSource
from seedline.jsonvalue import is_count, join_surrogates
from seedline.session.header import CallSpawn
from seedline.session.sequence import Events
from seedline.subagents.structured import check_output_schema
from seedline.tools.base import Signal

DESCRIPTOR_VERSION: Final = 2
DIAGNOSTIC_BYTES: Final = 4096
_CUT_MARK: Final = " [cut]"
_log = logging.getLogger("seedline.subagents")


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a child does otherwise than its parent; None takes the parent's. `max_tokens` is per request."""

    provider: str | None = None
    model: str | None = None
    max_tokens: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Which optional request fields a provider honours."""

    output_schema: bool = False
    depth_limit: bool = False
    tool_filter: bool = False
    persona: bool = False


_GATES: Final = (
    ("output_schema", "output_schema"),
    ("max_depth", "depth_limit"),
    ("tool_filter", "tool_filter"),
    ("persona", "persona"),
)
"""Request field and the capability it needs, in the order of checking."""


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """The request fields that need a capability; None asks for nothing.

    `max_depth` is absolute: the depth that the child may have, counted from the root.
    """

    output_schema: dict[str, Any] | None = None
    max_depth: int | None = None
    tool_filter: ToolFilter | None = None
    persona: str | None = None


class SubagentRequest(Gated, frozen=True, kw_only=True):
    """One task for a child.

    `prompt` holds content blocks as JSON values; they become the child's first user message. `parent` is the
    live agent that delegates, `signal` the only way to cancel. `parent_depth` is what the caller knows of the
    parent's depth and can only deepen what the parent's header says. `spawn` is the place of the delegating
    call, taken before its first await; None for a child that host code makes.
    """

    prompt: tuple[Any, ...]
    parent: Agent
    signal: Signal
    label: str | None = None
    agent_options: AgentOptions = AgentOptions()
    spawn: CallSpawn | None = None
    parent_depth: int = 0


class SubagentResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended.

    `stop_reason` is `completed`, `aborted`, `error`, `max-tokens` or `refusal`; the set is open, and an
    unknown one is a failure. `output` holds JSON blocks, possibly none. `structured` is UNSET where no
    structured output was asked for or given. `diagnostic` is the provider's word on a failure: no secret, no
    path, no payload.
    """

    stop_reason: str
    output: tuple[Any, ...] = ()
    structured: Any = UNSET
    diagnostic: str | None = None


class SubagentRun(Protocol):
    """A published child at work."""

    @property
    def id(self) -> str:
        """The child's session id for a local child, a fresh id for any other."""
        ...

    @property
    def local_agent(self) -> Agent | None:
        """The child, when it lives in this process."""
        ...

    async def result(self) -> SubagentResult:
        """Return how the run ended, once it has; the same for every caller.

        A failure of the child is a result. Raises only what no stop reason can say.
        """
        ...

    async def dispose(self) -> None:
        """Cancel the run and return when it is at rest and released, its result known.

        Any number of calls do the work once. Raises only a failure of the release.
        """
        ...


class Provider(Protocol):
    """A way to run children."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def inherits_parent_context(self) -> bool:
        """True when the child sees the parent's conversation. It only chooses the wording of tools."""
        ...

    async def start(self, request: SubagentRequest, descriptor: SubagentDescriptor) -> SubagentRun:
        """Return a run whose child exists and is published; before that any failure leaves no child.

        Whatever belongs to the moment of the call (policy, history, place) is taken before the first await.
        """
        ...


# --- events ------------------------------------------------------------------------------------------


class ProviderAdded(msgspec.Struct, frozen=True):
    """A provider can be started."""

    provider: str


class ProviderRemoved(msgspec.Struct, frozen=True):
    """A provider takes no new starts; its runs go on."""

    provider: str


class RunStarted(msgspec.Struct, frozen=True):
    """A child was published. `run_id` is fresh and pairs the start with its end."""

    run_id: str
    provider: str
    child_id: str
    local: bool


class RunEnded(msgspec.Struct, frozen=True):
    """The result of a run is known. `output` is None when the child said nothing."""

    run_id: str
    provider: str
    child_id: str
    local: bool
    stop_reason: str
    output: tuple[Any, ...] | None = None


SubagentEvent = ProviderAdded | ProviderRemoved | RunStarted | RunEnded
Listener = Callable[[SubagentEvent], None]


# --- the service -------------------------------------------------------------------------------------


class _Family:
    """The starts and runs of one parent."""

    def __init__(self) -> None:
        self.closed = False
        self.links: set[Signal] = set()
        self.runs: set[_ObservedRun] = set()
        self.starting = 0
        self.settled = anyio.Event()

    def start_ended(self) -> None:
        self.starting -= 1
        if not self.starting:
            self.settled.set()
            self.settled = anyio.Event()


class Subagents:
    """The providers of one application, by name, and the runs that each parent has started."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._providers: dict[str, Provider] = {}
        self._listeners: list[tuple[Listener, Agent | None]] = []
        self._families: WeakKeyDictionary[Agent, _Family] = WeakKeyDictionary()

    # --- providers ---------------------------------------------------------------------------------

    def register(self, provider: Provider) -> Callable[[], None]:
        """Make a provider available. Returns the undo, which blocks new starts only.

        Raises `SubagentError` (`DUPLICATE_PROVIDER`), and what a listener of `ProviderAdded` raises: the
        provider is then not registered.
        """
        name = provider.name
        if name in self._providers:
            raise SubagentError("DUPLICATE_PROVIDER", f"a subagent provider {name!r} is registered already")
        self._providers[name] = provider
        try:
            for listener, _ in tuple(self._listeners):
                listener(ProviderAdded(name))
        except BaseException:
            del self._providers[name]
            raise

        def undo() -> None:
            if self._providers.get(name) is provider:
                del self._providers[name]
                self._tell(ProviderRemoved(name))

        return undo

    def get(self, name: str) -> Provider | None:
        """Return the provider of this name."""
        return self._providers.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of the providers in the order of registration."""
        return tuple(self._providers)

    def require(self, name: str) -> Provider:
        """Return the provider of this name. Raises `SubagentError` (`NO_PROVIDER`)."""
        provider = self._providers.get(name)
        if provider is None:
            known = ", ".join(map(repr, self._providers)) or "none"
            raise SubagentError(
                "NO_PROVIDER", f"no subagent provider {name!r} is registered (there is {known})"
            )
        return provider

    # --- observers ---------------------------------------------------------------------------------

    def listen(self, listener: Listener, *, parent: Agent | None = None) -> Callable[[], None]:
        """Tell `listener` of every later event, with `parent` of that parent's runs only. Returns the undo.

        A listener's failure is logged and changes nothing, except for `ProviderAdded`.
        """
        entry = (listener, parent)
        self._listeners.append(entry)

        def undo() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return undo

    def _tell(self, event: SubagentEvent, parent: Agent | None = None) -> None:
        for listener, scope in tuple(self._listeners):
            if scope is not None and parent is not None and scope is not parent:
                continue
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s", type(event).__name__)

    # --- runs --------------------------------------------------------------------------------------

    async def start(self, name: str, request: SubagentRequest) -> SubagentRun:
        """Start a one-shot child and return its run; whoever called disposes it.

        Reaches the provider before the first await. Raises `SubagentError`: `NO_PROVIDER`,
        `UNSUPPORTED_CAPABILITY`, `INVALID_REQUEST`, `INVALID_OUTPUT_SCHEMA`, `DRAINING`, or what the provider
        raises. No child exists then, and no event is told.
        """
        provider = self.require(name)
        check_capabilities(provider, request)
        check_request(request)
        descriptor = SubagentDescriptor(DESCRIPTOR_VERSION, "one-shot", name, request.label)
        family = self._family(request.parent)
        if family.closed:
            raise SubagentError("DRAINING", f"session {request.parent.session.id!r} is being closed")
        link, unlink = _linked(request.signal, family)
        family.starting += 1
        try:
            run = await provider.start(msgspec.structs.replace(request, signal=link), descriptor)
        except BaseException:
            unlink()
            raise
        finally:
            family.start_ended()
        observed = _ObservedRun(run, family, unlink, self._pair(provider.name, run, request.parent))
        return observed

    def _pair(self, provider: str, run: SubagentRun, parent: Agent) -> Callable[[SubagentResult], None]:
        """Tell the start; return what tells the end, once."""
        facts = (self._ids.fresh(), provider, run.id, run.local_agent is not None)
        told: list[RunEnded] = []
        self._tell(RunStarted(*facts), parent)

        def end(result: SubagentResult) -> None:
            if not told:
                told.append(RunEnded(*facts, result.stop_reason, result.output or None))
                self._tell(told[0], parent)

        return end

    async def close(self, parent: Agent) -> None:
        """Let `parent` start no more children and release those it has; return when all of it is done.

        Starts in progress are aborted, and runs are cancelled from the top down. For whoever disposes an
        agent. After every run has settled it raises `SubagentError` (`TEARDOWN_FAILED`), from
        an `ExceptionGroup`, for those that could not be released.
        """
        family = self._family(parent)
        family.closed = True
        for link in tuple(family.links):
            link.abort({"kind": "disposed"})
        while family.starting:
            await family.settled.wait()
        failures: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            for run in tuple(family.runs):
                tasks.start_soon(_dispose_into, run, failures)
        if failures:
            reason = f"{len(failures)} children of session {parent.session.id!r} were not released"
            raise SubagentError("TEARDOWN_FAILED", reason) from ExceptionGroup(reason, failures)

    def _family(self, parent: Agent) -> _Family:
        return self._families.setdefault(parent, _Family())


def _linked(signal: Signal, family: _Family) -> tuple[Signal, Callable[[], None]]:
    """Return a signal that aborts with `signal` or when the family closes, and what ends the tie."""
    link = Signal()
    family.links.add(link)
    undo = signal.on_abort(lambda: link.abort(signal.cause or {"kind": "parent"}))

    def unlink() -> None:
        undo()
        family.links.discard(link)

    return link, unlink


async def _dispose_into(run: _ObservedRun, failures: list[Exception]) -> None:
    try:
        await run.dispose()
    except Exception as error:
        failures.append(error)


class _ObservedRun:
    """A provider's run whose end is told and whose diagnostic is capped."""

    def __init__(
        self,
        run: SubagentRun,
        family: _Family,
        unlink: Callable[[], None],
        end: Callable[[SubagentResult], None],
    ) -> None:
        self._run = run
        self._family = family
        self._unlink = unlink
        self._end = end
        self._settled: SubagentResult | None = None
        family.runs.add(self)

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def local_agent(self) -> Agent | None:
        return self._run.local_agent

    async def result(self) -> SubagentResult:
        try:
            result = await self._run.result()
        except Exception:
            self._end(SubagentResult(stop_reason="error"))
            raise
        if self._settled is None:
            self._settled = _capped(result)
            self._end(self._settled)
        return self._settled

    async def dispose(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self._run.dispose()
            finally:
                self._unlink()
                self._family.runs.discard(self)
                with suppress(Exception):  # a fault of the run belongs to `result`
                    await self.result()


# --- checks and rules --------------------------------------------------------------------------------


def check_capabilities(provider: Provider, request: Gated) -> None:
    """Raise `SubagentError` (`UNSUPPORTED_CAPABILITY`) for the first field the provider cannot honour."""
    for field, capability in _GATES:
        if getattr(request, field) is not None and not getattr(provider.capabilities, capability):
            raise SubagentError(
                "UNSUPPORTED_CAPABILITY",
                f"provider {provider.name!r} does not support `{field}` of a request",
            )


def check_request(request: Gated) -> None:
    """Raise `SubagentError` (`INVALID_REQUEST`, `INVALID_OUTPUT_SCHEMA`) for a field that cannot be right."""
    check_max_depth(request.max_depth)
    check_tool_filter(request.tool_filter)
    if request.output_schema is not None:
        check_output_schema(request.output_schema)


def check_max_depth(max_depth: Any) -> None:
    """Raise `SubagentError` (`INVALID_REQUEST`) unless the cap is None or a non-negative integer."""
    if max_depth is not None and not is_count(max_depth):
        raise SubagentError("INVALID_REQUEST", f"max_depth {max_depth!r} is not a non-negative integer")


def check_tool_filter(tool_filter: ToolFilter | None) -> None:
    """Raise `SubagentError` (`INVALID_REQUEST`) for a filter that names neither list."""
    if tool_filter is not None and tool_filter.allow is None and tool_filter.deny is None:
        raise SubagentError("INVALID_REQUEST", "a tool filter names neither `allow` nor `deny`")


def select_output(own: Events) -> tuple[Any, ...]:
    """Return what a child said, from its own events: the content of its last message that has any.

    Without such a message all text it streamed is one text block; without that there is nothing. Reasoning
    counts as content, and a message with content wins over text streamed after it.
    """
    for event in own.without_chunks_reversed():
        if event.type == "assistant/message":
            content = event.value["message"]["content"]
            if content:
                return tuple(content)
    chunks = (event.value["chunk"] for event in own if event.type == CHUNK)
    streamed = join_surrogates(
        "".join(chunk["text"] for chunk in chunks if chunk.get("type") == "text-delta")
    )
    return ({"type": "text", "text": streamed},) if streamed else ()


def text_of(output: tuple[Any, ...]) -> str:
    """Return the text blocks of an output joined, nothing between them."""
    return "".join(block["text"] for block in output if block.get("type") == "text")


def cap_diagnostic(text: str) -> str:
    """Return `text`, or its beginning and a mark: at most 4096 bytes of UTF-8, cut at a character."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= DIAGNOSTIC_BYTES:
        return text
    end = DIAGNOSTIC_BYTES - len(_CUT_MARK)
    while raw[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return raw[:end].decode("utf-8", "surrogatepass") + _CUT_MARK


def _capped(result: SubagentResult) -> SubagentResult:
    if result.diagnostic is None:
        return result
    return msgspec.structs.replace(result, diagnostic=cap_diagnostic(result.diagnostic))
