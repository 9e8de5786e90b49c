"""From a call to an outcome: 4.2 and 4.3 of the loop's rules."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from seedline.clock import ManualClock
from seedline.errors import EventRefusedError, SettingRefusedError, ToolSetRefusedError
from seedline.events.vocabulary import ToolFilter
from seedline.tools.base import Call, CallContext, Outcome, text_outcome
from seedline.tools.policy import Allow, Approval, Ask, Deny, Policy, Strictest, Verdict
from seedline.tools.registry import FunctionTool, Registry, function_tool
from tests.unit.tools.harness import context, new_place, text_in

pytestmark = pytest.mark.anyio

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def tool(name: str, body: Any = "done", parameters: Any = None, **options: Any) -> FunctionTool:
    function: Any = body if callable(body) else lambda arguments, context: body
    return function_tool(name, f"About {name}.", parameters or {"type": "object"}, function, **options)


async def outcome_of(registry: Registry, subject: CallContext) -> Outcome:
    """What the loop would log for a call."""
    denied = await registry.prepare(subject)
    return denied if denied is not None else await registry.run(subject)


# --- which tools -------------------------------------------------------------------------------------


def test_schemas_stand_in_the_order_of_utf16_code_units() -> None:
    names = ["b", "a", "Z", "\uffff", "\U0001f600"]
    schemas = Registry([tool(name) for name in names]).schemas()
    # U+1F600 is the pair D83D DE00 and so comes before U+FFFF.
    assert [schema["name"] for schema in schemas] == ["Z", "a", "b", "\U0001f600", "\uffff"]
    assert schemas[1] == {"name": "a", "description": "About a.", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        (ToolFilter(allow=("a", "b")), ["a", "b", "own"]),
        (ToolFilter(deny=("a",)), ["b", "c", "own"]),
        (ToolFilter(allow=("a", "b"), deny=("b",)), ["a", "own"]),
        (ToolFilter(allow=()), ["own"]),
        (ToolFilter(deny=()), ["a", "b", "c", "own"]),
    ],
)
async def test_a_filter_hides_and_refuses_but_not_the_agents_own_tools(
    mask: ToolFilter, visible: list[str]
) -> None:
    registry = Registry([tool("a"), tool("b"), tool("c")]).derive(scoped=[tool("own")], mask=mask)
    assert [schema["name"] for schema in registry.schemas()] == visible
    for name in ("a", "b", "c", "own"):
        outcome = await outcome_of(registry, context(name))
        code = outcome.error["code"] if outcome.error else None
        assert code == (None if name in visible else "UNKNOWN_TOOL")


async def test_a_scoped_tool_shadows_and_a_derived_registry_starts_from_all_tools() -> None:
    base = Registry([tool("a", "global"), tool("b")])
    child = base.derive(scoped=[tool("a", "scoped")], mask=ToolFilter(deny=("b",)))
    assert text_in(await outcome_of(child, context("a"))) == "scoped"
    grandchild = child.derive()
    assert [schema["name"] for schema in grandchild.schemas()] == ["a", "b"]
    assert text_in(await outcome_of(grandchild, context("a"))) == "global"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Registry([tool("a"), tool("a")]), "two tools are named 'a'"),
        (lambda: Registry([tool("")]), "no name"),
        (lambda: Registry([tool("a")], mask=ToolFilter()), "neither"),
        (lambda: Registry([tool("a")], mask=ToolFilter(allow=("a", "z"))), "'z'"),
        (lambda: Registry([tool("a")], mask=ToolFilter(deny=("y",))), "'y'"),
    ],
)
def test_a_set_that_cannot_stand_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(ToolSetRefusedError, match=reason):
        make()


@pytest.mark.parametrize("limit", [0, -5, 1.5, True])
def test_a_time_out_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(SettingRefusedError, match="timeout_ms of tool a"):
        Registry([tool("a", timeout_ms=limit)])


class Odd(FunctionTool, frozen=True):
    """A tool whose classifier answers or raises what it is given."""

    answer: Any = None

    def concurrency(self, arguments: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(arguments) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "classed"),
    [
        ("odd", "{}", "parallel", "parallel"),
        ("odd", "{}", "exclusive", "exclusive"),
        ("odd", "{}", True, "exclusive"),
        ("odd", "{}", ValueError("no"), "exclusive"),
        ("odd", '{"read":true}', lambda a: "parallel" if a["read"] else "exclusive", "parallel"),
        ("odd", "{}", lambda a: "parallel" if a["read"] else "exclusive", "exclusive"),
        ("nobody", "{}", "parallel", "exclusive"),
    ],
)
def test_whether_a_call_overlaps(name: str, arguments: str, answer: Any, classed: str) -> None:
    odd = Odd(name="odd", description="", parameters={}, function=lambda a, c: "", answer=answer)
    assert Registry([odd]).concurrency(Call(0, "c", name, arguments)) == classed


# --- arguments ---------------------------------------------------------------------------------------


async def test_arguments_reach_the_body_as_values_of_their_own() -> None:
    seen: list[Any] = []

    class Meddles:
        async def judge(self, context: CallContext, arguments: Any) -> Verdict:
            arguments["path"] = "elsewhere"
            return Allow()

    registry = Registry(
        [tool("t", lambda arguments, context: seen.append(arguments) or "ok", PATH)], Meddles()
    )
    assert not (await outcome_of(registry, context(arguments='{"path":"a","extra":[1.0,1e3]}'))).is_error
    assert seen == [{"path": "a", "extra": [1, 1000]}]


async def test_no_argument_text_is_an_empty_object() -> None:
    registry = Registry([tool("t", lambda arguments, context: repr(arguments))])
    assert text_in(await outcome_of(registry, context(arguments=""))) == "{}"


@pytest.mark.parametrize(
    ("arguments", "violation"),
    [
        ("{}", "/path is missing"),
        ('{"path":5}', "/path must be a string"),
        ('{"path":', "text that is not JSON"),
        ("[]", "no object"),
        ('"{}"', "text that is not JSON"),
        (" ", "text that is not JSON"),
        ('{"path":1e999}', "text that is not JSON"),
    ],
)
async def test_arguments_that_do_not_fit_never_reach_policy_or_body(arguments: str, violation: str) -> None:
    class Never:
        async def judge(self, context: CallContext, arguments: Any) -> Verdict:
            raise AssertionError("judged a call that cannot run")

    outcome = await Registry([tool("t", parameters=PATH)], Never()).prepare(context(arguments=arguments))
    assert outcome is not None
    assert outcome.error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
    assert violation in text_in(outcome)
    assert outcome.is_error


async def test_an_unknown_tool_is_an_error_the_model_reads() -> None:
    outcome = await outcome_of(Registry([tool("t")]), context("grep"))
    assert outcome.error == {"name": "ToolUnknownError", "code": "UNKNOWN_TOOL"}
    assert "'grep'" in text_in(outcome)
    assert (await Registry([]).run(context("grep"))).error == outcome.error


# --- policy ------------------------------------------------------------------------------------------


class Says:
    """A policy with one verdict, or an approver with one answer."""

    def __init__(self, verdict: Verdict | Exception | None = None, approval: Approval = "allowed") -> None:
        self.verdict = verdict or Allow()
        self.approval: Approval = approval
        self.reasons: list[str | None] = []

    async def judge(self, context: CallContext, arguments: Any) -> Verdict:
        self.reasons.append(context.call.name)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def ask(self, context: CallContext, arguments: Any, reason: str | None) -> Approval:
        self.reasons.append(reason)
        return self.approval


@pytest.mark.parametrize(
    ("verdict", "approval", "text"),
    [
        (Allow(), None, None),
        (Deny("writes are off"), None, "writes are off"),
        (Ask("it deletes"), "allowed", None),
        (Ask("it deletes"), "rejected", "did not allow"),
        (Ask("it deletes"), "cancelled", "withdrawn"),
        (Ask(), "unavailable", "at the moment"),
        (Ask("it deletes"), None, "nobody to ask"),
    ],
)
async def test_a_verdict_decides_and_a_denial_is_no_typed_error(
    verdict: Verdict, approval: Approval | None, text: str | None
) -> None:
    approver = None if approval is None else Says(approval=approval)
    registry = Registry([tool("t")], Says(verdict), approver=approver)
    outcome = await registry.prepare(context())
    if text is None:
        assert outcome is None
        return
    assert outcome is not None
    assert text in text_in(outcome)
    assert text_in(outcome).startswith("Error: ")
    assert (outcome.is_error, outcome.error) == (True, None)
    if isinstance(verdict, Ask) and verdict.reason:
        assert "it deletes" in text_in(outcome)


async def test_the_refusals_tell_their_reasons_apart() -> None:
    texts: set[str] = set()
    answers: tuple[Approval | None, ...] = ("rejected", "cancelled", "unavailable", None)
    for approval in answers:
        approver = None if approval is None else Says(approval=approval)
        outcome = await Registry([tool("t")], Says(Ask()), approver=approver).prepare(context())
        texts.add(text_in(outcome))
    assert len(texts) == 4


async def test_a_policy_that_fails_lets_nothing_through() -> None:
    outcome = await Registry([tool("t")], Says(RuntimeError("no rules file"))).prepare(context())
    assert outcome is not None
    assert (text_in(outcome), outcome.is_error, outcome.error) == ("Error: no rules file", True, None)


@pytest.mark.parametrize(
    ("verdicts", "found", "asked"),
    [
        ([], Allow(), 0),
        ([Allow(), Allow()], Allow(), 2),
        ([Allow(), Ask("a"), Ask("b")], Ask("a"), 3),
        ([Ask("a"), Deny("d"), Allow()], Deny("d"), 2),
        ([Deny("d"), Deny("e")], Deny("d"), 1),
    ],
)
async def test_the_strictest_verdict_wins(verdicts: list[Verdict], found: Verdict, asked: int) -> None:
    policies = [Says(verdict) for verdict in verdicts]
    chain: list[Policy] = list(policies)
    assert await Strictest(chain).judge(context(), {}) == found
    assert sum(len(policy.reasons) for policy in policies) == asked


# --- bodies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "text", "error"),
    [
        (ValueError("no such file"), "Error: no such file", None),
        (ValueError(), "Error: ValueError", None),
        (
            EventRefusedError("data", "x", "too big"),
            "Error: event 'x' is refused (data): too big",
            {"name": "EventRefusedError", "code": "data"},
        ),
        (ToolSetRefusedError("x"), "Error: the tool set is refused", None),
        (ExceptionGroup("several", [ValueError("the one inside")]), "Error: the one inside", None),
    ],
)
async def test_what_a_body_raises_is_its_answer(raised: Exception, text: str, error: Any) -> None:
    def body(arguments: Any, context: CallContext) -> str:
        raise raised

    outcome = await outcome_of(Registry([tool("t", body)]), context())
    assert text_in(outcome).startswith(text)
    assert (outcome.is_error, outcome.error) == (True, error)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (5, "neither text"),
        (None, "neither text"),
        (Outcome(content=[{"type": "text"}]), "no list of blocks"),
        (Outcome(content=["text"]), "no list of blocks"),
        (Outcome(content=[{"text": "x"}]), "no list of blocks"),
        (Outcome(content=({"type": "text", "text": "x"},)), "tuple"),  # type: ignore[arg-type]  # the wrong type is the case
        (Outcome(content=[{"type": "x", "at": float("inf")}]), "/0/at"),
        (Outcome(content=[], meta={"path": b"x"}), "/path"),
        (Outcome(content=[], contexts=({"role": "user"},)), "no user message"),
        (Outcome(content=[], is_error=True, error={"name": "E"}), "no code"),
    ],
)
async def test_an_answer_that_cannot_be_logged_is_an_error(answer: Any, reason: str) -> None:
    outcome = await outcome_of(Registry([tool("t", answer)]), context())
    assert outcome.error == {"name": "ToolOutputError", "code": "INVALID_TOOL_OUTPUT"}
    assert reason in text_in(outcome)


async def test_a_body_may_answer_with_text_blocks_or_an_outcome_at_once_or_later() -> None:
    async def later(arguments: Any, context: CallContext) -> str:
        await anyio.lowlevel.checkpoint()
        return "later"

    blocks = [{"type": "text", "text": "a block"}, {"type": "custom", "n": 1}]
    answers = {"text": "at once", "blocks": blocks, "outcome": text_outcome("whole"), "later": later}
    registry = Registry([tool(name, answer) for name, answer in answers.items()])
    assert text_in(await outcome_of(registry, context("text"))) == "at once"
    assert (await outcome_of(registry, context("blocks"))).content == blocks
    assert text_in(await outcome_of(registry, context("outcome"))) == "whole"
    assert text_in(await outcome_of(registry, context("later"))) == "later"


# --- time-out and cancel -------------------------------------------------------------------------------


async def _forever(arguments: Any, context: CallContext) -> str:
    await anyio.sleep_forever()
    return "never"


class RealTime(ManualClock):
    """A clock whose sleeps are real and short."""

    async def sleep(self, milliseconds: int) -> None:
        await anyio.sleep(milliseconds / 1000)


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    clock = ManualClock()
    registry = Registry([tool("t", _forever, timeout_ms=250)], clock=clock)
    outcome = await outcome_of(registry, context())
    assert outcome.error == {"name": "ToolTimeoutError", "code": "TOOL_TIMEOUT"}
    assert "250 ms" in text_in(outcome)
    assert clock.now() == 250


async def test_a_time_out_waits_for_the_body_and_overrules_its_answer() -> None:
    settled: list[str] = []

    class Heedless(FunctionTool, frozen=True):
        async def execute(self, arguments: Any, context: CallContext) -> Outcome:
            while not context.signal.aborted:
                await anyio.lowlevel.checkpoint()
            settled.append("cleaned up")
            return text_outcome("done after all")

    heedless = Heedless(name="t", description="", parameters={}, function=lambda a, c: "", timeout_ms=5)
    outcome = await outcome_of(Registry([heedless], clock=RealTime()), context())
    assert settled == ["cleaned up"]
    assert outcome.error == {"name": "ToolTimeoutError", "code": "TOOL_TIMEOUT"}


async def test_a_tool_in_time_is_not_disturbed() -> None:
    registry = Registry([tool("t", "quick", timeout_ms=60_000)], clock=RealTime())
    with anyio.fail_after(5):
        assert text_in(await outcome_of(registry, context())) == "quick"


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
async def test_a_cancelled_turn_cuts_an_awaiting_body(timeout_ms: int | None) -> None:
    place = new_place()
    registry = Registry([tool("t", _forever, timeout_ms=timeout_ms)], clock=RealTime())
    outcomes: list[Outcome] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                outcomes.append(await registry.run(context(place=place)))

            tasks.start_soon(run)
            await anyio.lowlevel.checkpoint()
            place.signal.abort({"kind": "user"})
    assert outcomes[0].error == {"name": "AbortError", "code": "ABORTED"}


async def test_a_hard_cancel_is_no_answer() -> None:
    registry = Registry([tool("t", _forever)])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await registry.run(context())
    assert scope.cancelled_caught
