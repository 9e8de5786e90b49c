"""Tool scheduling holds its promises for every mix of calls, latencies, limits and moments of a cancel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from seedline.testing.relations import assert_relations
from seedline.tools.base import Call, CallContext, Concurrency, Outcome, text_outcome
from seedline.tools.schedule import StepPlace, run_tool_calls
from tests.unit.tools.harness import new_place


@dataclass(frozen=True)
class Plan:
    """One call: whether it overlaps, what policy says, how long each stage takes, and whether it fails."""

    parallel: bool
    denied: bool
    fails: bool
    admit_takes: int
    policy_takes: int
    body_takes: int


plans = st.builds(
    Plan,
    parallel=st.booleans(),
    denied=st.booleans(),
    fails=st.booleans(),
    admit_takes=st.integers(0, 1),
    policy_takes=st.integers(0, 2),
    body_takes=st.integers(0, 12),
)
batches = st.lists(plans, max_size=9)


@dataclass
class Planned:
    """Tools that do as planned and watch what runs beside what."""

    plans: list[Plan]
    limit: int
    abort_after: int | None = None
    running: set[int] = field(default_factory=set[int])
    judged: list[int] = field(default_factory=list[int])
    bodies: list[int] = field(default_factory=list[int])
    judging: bool = False
    passes: int = 0

    def schemas(self) -> list[Any]:
        return []

    def concurrency(self, call: Call) -> Concurrency:
        return "parallel" if self.plans[call.position].parallel else "exclusive"

    async def admit(self, call: Call) -> None:
        await self._pass(self.plans[call.position].admit_takes)

    async def prepare(self, context: CallContext) -> Outcome | None:
        plan = self.plans[context.call.position]
        assert not self.judging, "policy judges one call at a time"
        self.judging = True
        self.judged.append(context.call.position)
        try:
            await self._pass(plan.policy_takes, context)
        finally:
            self.judging = False
        return text_outcome("denied", is_error=True) if plan.denied else None

    async def run(self, context: CallContext) -> Outcome:
        position = context.call.position
        plan = self.plans[position]
        assert not context.signal.aborted, "a body starts after the cancel"
        self.running.add(position)
        self.bodies.append(position)
        assert len(self.running) <= self.limit, "the pool is over its limit"
        alone = any(not self.plans[at].parallel for at in self.running)
        assert not alone or len(self.running) == 1, "an exclusive call runs beside another"
        await self._pass(plan.body_takes, context)
        self.running.discard(position)
        return text_outcome(f"body {position}", is_error=plan.fails)

    async def _pass(self, count: int, context: CallContext | None = None) -> None:
        for _ in range(count):
            self.passes += context is not None
            if context and self.passes == self.abort_after:
                context.signal.abort({"kind": "user"})
            await anyio.lowlevel.checkpoint()


def run(tools: Planned) -> StepPlace:
    """Run the planned calls in a fresh step; return it with its log."""
    place = new_place()
    calls = [Call(position, f"c{position}", "t", "{}") for position in range(len(tools.plans))]
    anyio.run(lambda: run_tool_calls(calls, tools, place, lambda message: None, limit=tools.limit))
    return place


def assert_log(place: StepPlace, count: int) -> list[dict[str, Any]]:
    """Each call has one call row and one result, both in model order, the result citing its own call."""
    assert_relations(place.session.events)
    events = list(place.session.events)
    made = [event for event in events if event.type == "tool/call"]
    answered = [event for event in events if event.type == "tool/result"]
    order = [f"c{position}" for position in range(count)]
    assert [event.value["callId"] for event in made] == order
    assert [event.value["message"]["source"]["callId"] for event in answered] == order
    assert [event.source_event_seqs for event in answered] == [(event.seq,) for event in made]
    return [event.value for event in answered]


@given(batches, st.integers(1, 5))
def test_any_mix_of_calls(planned: list[Plan], limit: int) -> None:
    tools = Planned(planned, limit)
    results = assert_log(run(tools), len(planned))
    assert tools.judged == list(range(len(planned)))
    assert tools.bodies == [position for position, plan in enumerate(planned) if not plan.denied]
    for position, (plan, result) in enumerate(zip(planned, results, strict=True)):
        [block] = result["message"]["content"]
        said = "denied" if plan.denied else f"body {position}"
        assert block["content"] == [{"type": "text", "text": said}]
        assert block["isError"] is (plan.denied or plan.fails)
        assert "error" not in result


@given(batches, st.integers(1, 5), st.integers(1, 40))
def test_any_moment_of_a_cancel(planned: list[Plan], limit: int, moment: int) -> None:
    tools = Planned(planned, limit, abort_after=moment)
    place = run(tools)
    results = assert_log(place, len(planned))
    if not place.signal.aborted:
        return
    assert tools.running == set()
    for position, (plan, result) in enumerate(zip(planned, results, strict=True)):
        code = result.get("error", {}).get("code")
        [block] = result["message"]["content"]
        assert block["isError"] or code is None
        if position not in tools.bodies:
            assert code == "ABORTED_BEFORE_DISPATCH" or plan.denied
        elif code is not None:
            assert code == "ABORTED"
            assert not plan.fails
