"""Order and overlap of tool calls: 2.9 of the loop's rules. Cancel is tested with the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from seedline.errors import SettingRefusedError
from seedline.testing.relations import assert_relations
from seedline.tools.base import Call, CallContext, Concurrency, Outcome, text_outcome
from seedline.tools.schedule import StepPlace, run_tool_calls
from tests.unit.tools.harness import calls, new_place, rows

pytestmark = pytest.mark.anyio


class Bench:
    """Tools whose bodies end when told to. A name that begins with `p` overlaps, with `d` is denied."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.log: list[str] = []
        self.most = 0
        self.gates: dict[str, anyio.Event] = {}
        self.classify: Callable[[Call], Concurrency] = lambda call: (
            "parallel" if call.name[0] in "pd" else "exclusive"
        )

    def schemas(self) -> list[Any]:
        return []

    def concurrency(self, call: Call) -> Concurrency:
        return self.classify(call)

    async def admit(self, call: Call) -> None:
        self.log.append(f"admit {call.call_id}")

    async def prepare(self, context: CallContext) -> Outcome | None:
        self.log.append(f"prepare {context.call.call_id}")
        await anyio.lowlevel.checkpoint()
        return text_outcome("no", is_error=True) if context.call.name.startswith("d") else None

    async def run(self, context: CallContext) -> Outcome:
        name = context.call.call_id
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        if name in self.gates:
            await self.gates[name].wait()
        await anyio.lowlevel.checkpoint()
        self.running.remove(name)
        return text_outcome(name)


async def settled() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def run(bench: Bench, *names: str, limit: float = 10) -> list[str]:
    place = new_place()
    await run_tool_calls(calls(*names), bench, place, lambda message: None, limit=limit)
    assert_relations(place.session.events)
    return rows(place.session)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("x", "call x0, x0"),
        ("xx", "call x0, x0, call x1, x1"),
        ("pp", "call p0, call p1, p0, p1"),
        ("ppx", "call p0, call p1, p0, p1, call x2, x2"),
        ("xpp", "call x0, x0, call p1, call p2, p1, p2"),
        ("pxp", "call p0, p0, call x1, x1, call p2, p2"),
        ("d", "call d0, d0 !error"),
        ("pdp", "call p0, call d1, call p2, p0, d1 !error, p2"),
        ("dx", "call d0, d0 !error, call x1, x1"),
        ("", ""),
    ],
)
async def test_the_order_of_calls_and_results(names: str, order: str) -> None:
    assert ", ".join(await run(Bench(), *names)) == order


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (3, 3), (10, 5), (float("inf"), 5)])
async def test_no_more_calls_run_than_the_limit_allows(limit: float, most: int) -> None:
    bench = Bench()
    bench.gates = {f"p{position}": anyio.Event() for position in range(5)}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(bench, *"ppppp", limit=limit))
        for position in range(5):
            await settled()
            bench.gates[f"p{position}"].set()
    assert bench.most == most


async def test_results_wait_for_their_turn_and_a_late_call_comes_after_an_early_result() -> None:
    bench = Bench()
    bench.gates = {"p0": anyio.Event(), "p1": anyio.Event()}
    place = new_place()
    async with anyio.create_task_group() as tasks:

        async def all_calls() -> None:
            await run_tool_calls(calls(*"ppp"), bench, place, lambda message: None, limit=2)

        tasks.start_soon(all_calls)
        await settled()
        bench.gates["p1"].set()
        await settled()
        assert rows(place.session) == ["call p0", "call p1", "call p2"]
        bench.gates["p0"].set()
    assert rows(place.session) == ["call p0", "call p1", "call p2", "p0", "p1", "p2"]


async def test_a_pool_rolls_on_as_soon_as_one_body_ends() -> None:
    bench = Bench()
    bench.gates = {"p1": anyio.Event()}
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def all_calls() -> None:
            found.extend(await run(bench, *"ppp", limit=2))

        tasks.start_soon(all_calls)
        await settled()
        bench.gates["p1"].set()
    assert found == ["call p0", "call p1", "p0", "call p2", "p1", "p2"]


async def test_a_call_is_classed_again_right_before_it_starts() -> None:
    bench = Bench()
    bench.gates = {"a0": anyio.Event(), "b1": anyio.Event()}
    alone: set[str] = set()
    bench.classify = lambda call: "exclusive" if call.call_id in alone else "parallel"
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def all_calls() -> None:
            found.extend(await run(bench, *"abc", limit=2))

        tasks.start_soon(all_calls)
        await settled()
        alone.add("c2")
        bench.gates["a0"].set()
        await settled()
        assert bench.running == ["b1"]
        bench.gates["b1"].set()
    assert found == ["call a0", "call b1", "a0", "b1", "call c2", "c2"]


async def test_policy_runs_one_call_at_a_time_in_model_order() -> None:
    bench = Bench()
    await run(bench, *"ppx")
    assert [line for line in bench.log if line.startswith("prepare")] == [
        "prepare p0",
        "prepare p1",
        "prepare x2",
    ]
    assert [line for line in bench.log if line.startswith("admit")] == ["admit p0", "admit p1", "admit x2"]


async def test_contexts_follow_their_own_result_at_once() -> None:
    place = new_place()

    class Talks(Bench):
        async def run(self, context: CallContext) -> Outcome:
            notes = ({"id": f"{context.call.call_id} {n}"} for n in (1, 2))
            return Outcome(content=[], contexts=tuple(notes))

    def inject(message: dict[str, Any]) -> None:
        place.session.append("plugin/note", message)

    await run_tool_calls(calls("p", "p"), Talks(), place, inject)
    assert [e.value.get("id") or e.type for e in place.session.events][2:] == [
        "tool/call",
        "tool/call",
        "tool/result",
        "p0 1",
        "p0 2",
        "tool/result",
        "p1 1",
        "p1 2",
    ]


async def test_the_shape_of_a_call_and_a_result() -> None:
    place = new_place()

    class Answers(Bench):
        async def run(self, context: CallContext) -> Outcome:
            return Outcome(content=[], is_error=True, error={"name": "E", "code": "C"}, meta={"lines": 3})

    await run_tool_calls([Call(0, "id-1", "x", "{oops")], Answers(), place, lambda message: None)
    call, result = list(place.session.events)[2:]
    assert call.value == {"turn": 1, "step": 1, "callId": "id-1", "name": "x", "arguments": "{oops"}
    message = result.value["message"]
    assert list(result.value) == ["turn", "step", "message", "error", "meta"]
    assert list(message) == ["source", "content", "role", "id"]
    assert message["source"] == {"kind": "tool", "callId": "id-1"}
    assert list(message["content"][0]) == ["type", "toolCallId", "content", "isError"]
    assert (result.source_event_seqs, result.surface_op) == ((call.seq,), "append")


async def test_whether_a_success_concluded_the_turn() -> None:
    class Concludes(Bench):
        async def run(self, context: CallContext) -> Outcome:
            return Outcome(content=[], concludes_turn=context.call.call_id == "p1")

    place = new_place()
    assert await run_tool_calls(calls("p", "p", "x"), Concludes(), place, lambda message: None)
    assert not await run_tool_calls(calls("p"), Concludes(), new_place(), lambda message: None)


@pytest.mark.parametrize("limit", [0, -1, 0.5, float("nan")])
async def test_a_limit_below_one_is_refused(limit: float) -> None:
    with pytest.raises(SettingRefusedError):
        await run(Bench(), "p", limit=limit)


@pytest.mark.parametrize("hook", ["concurrency", "admit", "prepare", "run"])
async def test_a_fault_passes_through_without_a_made_up_result(hook: str) -> None:
    bench = Bench()
    original = getattr(bench, hook)

    def broken(subject: Any) -> Any:
        if getattr(subject, "call", subject).call_id == "p1":
            raise LookupError("lost")
        return original(subject)

    setattr(bench, hook, broken)
    place: StepPlace = new_place()
    with pytest.raises(LookupError, match="lost"):
        await run_tool_calls(calls("p", "p", "p"), bench, place, lambda message: None)
    found = rows(place.session)
    assert "p0" in found
    assert not {"p1", "p2"} & set(found)
    assert bench.running == []


@pytest.mark.parametrize("hook", ["admit", "prepare"])
async def test_an_abort_wakes_a_call_that_waits_to_be_admitted_or_judged(hook: str) -> None:
    bench, place = Bench(), new_place()
    asked: list[str] = []

    async def waits(subject: Any) -> None:
        asked.append(getattr(subject, "call", subject).call_id)
        await anyio.sleep_forever()

    async def all_calls() -> None:
        await run_tool_calls(calls("p", "x"), bench, place, lambda message: None)

    setattr(bench, hook, waits)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(all_calls)
            await settled()
            place.signal.abort({"kind": "user"})
    assert asked == ["p0"]
    assert rows(place.session) == [
        "call p0",
        "p0 !ABORTED_BEFORE_DISPATCH",
        "call x1",
        "x1 !ABORTED_BEFORE_DISPATCH",
    ]
