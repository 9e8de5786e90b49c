"""Trees replay as recorded, and whatever does not fit is a verdict on the session that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from seedline.agent.loop import user_message
from seedline.agent.request import Declared
from seedline.clock import ManualClock
from seedline.errors import AuxiliaryCallError, SettingRefusedError
from seedline.ids import SeededIds
from seedline.llm.base import ModelRequest
from seedline.llm.scripted import ScriptedModel, call, failure, text, tool_calls
from seedline.replay.entries import ChunksEntry, HangEntry, ScriptEntry, ThrowEntry
from seedline.replay.script import derive_replay_script, recorded_tree
from seedline.runtime import Parts, Runtime
from seedline.session.header import CallSpawn, HostPlace, HostSpawn
from seedline.session.tree import RecordedSession
from seedline.snapshot.feeder import RecordModel
from seedline.snapshot.runner import ReplayOptions, SessionRun
from seedline.tools.base import CallContext
from seedline.tools.registry import Registry, function_tool
from tests.unit.snapshot.recording import (
    Value,
    alone,
    altered,
    by_key,
    delegate,
    events_of,
    family,
    first,
    last,
    record,
    replay,
    replay_one,
    statuses,
    values_of,
    with_header,
)

ONE, TWO, FORK = "0/t2.s1.c0.n0", "0/t2.s1.c1.n0", "0/t2.s2.c0.n0"


def test_a_recorded_family_replays_identical() -> None:
    reports = replay(family())
    assert statuses(reports) == dict.fromkeys(("0", ONE, TWO, FORK), "identical")
    assert {report.grade for report in reports} == {"exact"}
    for report in reports:
        assert report.events == report.inherited + report.compared + report.fed


def test_the_sessions_of_a_replay_are_the_recorded_ones() -> None:
    recorded = family()
    made: dict[str, Any] = {}
    replay(recorded, on_session=lambda key, session: made.update({key: session}))
    tree = recorded_tree(recorded, recorded[0])
    for node in tree.primary.walk():
        assert made[node.key].events == node.session.events
        assert made[node.key].header == node.session.header


# --- binding ---------------------------------------------------------------------------------------------


def spawned_at(session: RecordedSession, **place: Any) -> RecordedSession:
    spawn = session.header.spawn
    assert isinstance(spawn, CallSpawn)
    facts = {name: getattr(spawn, name) for name in spawn.__struct_fields__} | place
    return with_header(session, spawn=CallSpawn(**facts))


def test_a_child_that_another_tool_made_is_a_mismatch() -> None:
    root, one, two, fork = family()
    reports = by_key(replay([root, spawned_at(one, tool="subagent_fork"), two, fork]))
    assert reports[ONE].status == "error"
    assert "mismatch" in (reports[ONE].reason or "")
    assert "'subagent_fork'" in (reports[ONE].reason or "")
    assert {reports[key].status for key in ("0", TWO, FORK)} == {"identical"}


def test_a_child_that_no_call_makes_is_an_error() -> None:
    root, one, two, fork = family()
    reports = by_key(replay([root, spawned_at(one, call=7), two, fork]))
    left = reports.pop("0/t2.s1.c7.n0")
    assert (left.status, left.reason) == ("error", "no replayed call created this session")
    assert {report.status for report in reports.values()} == {"identical"}


def test_a_child_of_a_step_that_made_no_call_is_a_run_of_its_own() -> None:
    root, one, two, fork = family()
    reports = statuses(replay([root, spawned_at(one, turn=9), two, fork]))
    assert reports == dict.fromkeys(("0", TWO, FORK, "0/t9.s1.c0.n0"), "identical")


def test_a_child_of_host_code_is_a_run_of_its_own() -> None:
    root, one, two, fork = family()
    hosted = with_header(one, spawn=HostSpawn(HostPlace(2, 0)))
    assert statuses(replay([root, hosted, two, fork]))["0/h2.0"] == "identical"


def test_children_without_a_place_are_told_apart_by_their_answers() -> None:
    root, one, two, fork = (with_header(session, spawn=None) for session in family())
    for order in ([one, two], [two, one]):
        reports = replay([root, *order, fork])
        assert {report.status for report in reports} == {"identical"}
        assert [report.grade for report in reports] == ["exact", "recovered", "content", "content"]


def test_a_child_whose_sibling_is_lost_is_bound_to_its_own_call() -> None:
    root, _, two, fork = (with_header(session, spawn=None) for session in family())
    reports = replay([root, two, fork])
    assert {report.status for report in reports} == {"identical"}
    assert sorted(report.grade for report in reports) == ["content", "exact", "recovered"]


def test_twins_are_bound_in_order() -> None:
    asked = delegate(("a part", "Do it."), ("a part", "Do it."))
    recorded = record(
        {
            "0": [asked, text("Done.")],
            "0/t1.s1.c0.n0": [text("Same.")],
            "0/t1.s1.c1.n0": [text("Same.")],
        }
    )
    reports = replay([with_header(session, spawn=None) for session in recorded])
    assert {report.status for report in reports} == {"identical"}
    assert [report.grade for report in reports] == ["exact", "twins", "twins"]


def test_a_child_that_fits_no_call_is_a_run_of_its_own() -> None:
    root, one, two, fork = (with_header(session, spawn=None) for session in family())

    def ask_otherwise(values: list[Value]) -> None:
        for value in values:
            if value["type"] == "agent/inbox/spliced" and value["data"]["inserted"]:
                value["data"]["inserted"][0]["content"][0]["text"] = "Something else."
            if value["type"] == "user/message" and value["data"]["source"]["kind"] == "user":
                value["data"]["content"][0]["text"] = "Something else."
            if value["type"] == "session/title":
                value["data"]["title"] = "Something else."

    reports = replay([root, altered(one, ask_otherwise), two, fork])
    assert {report.status for report in reports} == {"identical"}
    assert "ordered" in {report.grade for report in reports}


def test_a_child_without_its_parent_is_a_run_of_its_own() -> None:
    root, one, *_ = family()
    reports = replay([root, with_header(one, parent_session="somebody-else")])
    assert [(report.key, report.status) for report in reports] == [("0", "identical"), ("0/?0", "identical")]
    assert reports[1].grade == "ordered"


def test_calls_whose_children_were_not_given_are_served() -> None:
    root, *_ = family()
    assert replay_one(root).status == "identical"


def test_a_child_that_never_spoke_takes_no_place_of_its_siblings() -> None:
    root, one, two, fork = family()

    def decline(values: list[Value]) -> None:
        claim = next(v for v in values if v["type"] == "agent/inbox/spliced" and not v["data"]["inserted"])
        del values[values.index(claim) + 1 :]
        values.append(claim | {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "blocked"}}})

    def refuse(values: list[Value]) -> None:
        result = first(values, "tool/result", turn=2, step=1)["data"]["message"]["content"][0]
        result.update(isError=True, content=[{"type": "text", "text": "It declined."}])

    reports = replay([altered(root, refuse), altered(one, decline), two, fork])
    assert statuses(reports) == dict.fromkeys(("0", ONE, TWO, FORK), "identical")


def test_a_child_with_nothing_but_a_header_changes_nothing() -> None:
    root, one, two, fork = family()
    silent = altered(one, lambda values: values.clear())
    reports = by_key(replay([root, silent, two, fork], reasons={silent: "no-turns"}))
    assert reports[ONE].status == "not-replayable"
    assert {reports[key].status for key in ("0", TWO, FORK)} == {"identical"}


def test_a_fork_runs_as_the_root_of_its_own_run() -> None:
    async def run() -> list[RecordedSession]:
        answers = [text("One."), text("Two."), text("Other.")]
        parts = Parts(
            model=ScriptedModel(*answers),
            declared=Declared("scripted", "scripted-1"),
            clock=ManualClock(1, 1),
            ids=SeededIds(1),
        )
        async with Runtime(parts) as runtime:
            root = runtime.start(cwd="/project")
            root.followup(user_message("hi", parts.ids))
            await root.wait_idle()
            fork = runtime.fork(root.session)
            for agent in (root, fork):
                agent.followup(user_message("more", parts.ids))
                await agent.wait_idle()
            made = list(runtime.made)
        return [RecordedSession(s.header, s.inherited_event_count, s.events, s.id) for s in made]

    reports = replay(anyio.run(run))
    assert [(report.key, report.status) for report in reports] == [("0", "identical"), ("0", "identical")]
    assert reports[1].inherited > 0


# --- a parent that diverges --------------------------------------------------------------------------------


def test_children_of_a_parent_that_diverged_before_them_are_judged_by_themselves() -> None:
    root, *children = family()
    wrong = altered(root, lambda values: first(values, "turn/start", turn=2)["data"].update(turn=3))
    reports = by_key(replay([wrong, *children]))
    assert reports["0"].status == "diverged"
    assert {reports[key].status for key in (ONE, TWO, FORK)} == {"identical"}


def test_children_cut_off_with_their_parent_are_judged_by_themselves() -> None:
    asked = delegate(("a part", "Do it."), ("a part", "Do it."))
    inner = delegate(("a bit", "Do a bit."))
    long = " ".join(f"word{number}" for number in range(200))
    recorded = record(
        {
            "0": [asked, text("Done.")],
            "0/t1.s1.c0.n0": [text("Short.")],
            "0/t1.s1.c1.n0": [inner, text(long)],
            "0/t1.s1.c1.n0/t1.s1.c0.n0": [text("A bit.")],
        }
    )
    root, *children = recorded
    wrong = altered(root, lambda values: first(values, "tool/result")["data"]["message"].update(role="tool"))
    reports = by_key(replay([wrong, *children]))
    assert reports["0"].status == "diverged"
    assert reports["0"].divergence is not None
    assert reports["0"].divergence.path == "/data/message/role"
    assert {report.status for key, report in reports.items() if key != "0"} == {"identical"}
    assert all(r.events == r.inherited + r.compared + r.fed for key, r in reports.items() if key != "0")


def test_a_child_of_a_parent_that_cannot_be_replayed_is_judged_by_itself() -> None:
    root, *children = family()
    reports = by_key(replay([root, *children], reasons={root: "no-inbox"}))
    assert reports["0"].status == "not-replayable"
    assert {reports[key].status for key in (ONE, TWO, FORK)} == {"identical"}


def test_a_child_that_diverges_leaves_its_parent_as_recorded() -> None:
    root, one, two, fork = family()
    wrong = altered(one, lambda values: first(values, "step/start")["data"].update(step=4))
    assert statuses(replay([root, wrong, two, fork])) == {
        "0": "identical",
        ONE: "diverged",
        TWO: "identical",
        FORK: "identical",
    }


# --- what a child inherits ---------------------------------------------------------------------------------


def test_an_inherited_event_that_the_parent_does_not_have_is_a_divergence_there() -> None:
    root, one, two, fork = family()
    title = next(e.seq for e in fork.events if e.type == "session/title")
    wrong = altered(fork, lambda values: values[title]["data"].update(title="Another title"))
    report = by_key(replay([root, one, two, wrong]))[FORK]
    assert report.status == "diverged"
    assert report.divergence is not None
    assert (report.divergence.seq, report.divergence.path) == (title, "/data/title")


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        ({"cut": 3}, "/inheritedEventCount"),
        ({"delegation_depth": 4}, "/delegationDepth"),
        ({"origin": None}, "/origin"),
    ],
)
def test_a_header_fact_that_differs_is_a_divergence_of_the_header(facts: dict[str, Any], path: str) -> None:
    root, one, two, fork = family()
    if "cut" in facts:  # the mark of the replayed part moves along
        fork = altered(fork, lambda values: values.insert(3, values.pop(fork.inherited_event_count)))
    report = by_key(replay([root, one, two, with_header(fork, **facts)]))[FORK]
    assert report.divergence is not None
    assert (report.divergence.type, report.divergence.path) == ("session", path)


# --- input -------------------------------------------------------------------------------------------------


def steered() -> RecordedSession:
    """A session whose first step takes two messages at once."""

    async def run() -> list[RecordedSession]:
        parts = Parts(
            model=ScriptedModel(text("Hi.")),
            declared=Declared("scripted", "scripted-1"),
            clock=ManualClock(1, 1),
            ids=SeededIds(1),
        )
        async with Runtime(parts) as runtime:
            root = runtime.start(cwd="/project")
            root.inject(user_message("one two three four five six", parts.ids))
            root.inject(user_message("one two three four five seven", parts.ids))
            root.wake()
            await root.wait_idle()
            made = list(runtime.made)
        return [RecordedSession(s.header, s.inherited_event_count, s.events, s.id) for s in made]

    return anyio.run(run)[0]


def test_claimed_messages_enter_in_the_order_of_their_queue() -> None:
    session = steered()
    assert replay_one(session).status == "identical"

    def swap(values: list[Value]) -> None:
        entered = [n for n, value in enumerate(values) if value["type"] == "user/message"]
        assert len(entered) == 2
        values[entered[0]], values[entered[1]] = values[entered[1]], values[entered[0]]

    report = replay_one(altered(session, swap))
    assert report.divergence is not None
    assert (report.divergence.type, report.divergence.path) == (
        "user/message",
        "/data/content/0/text",
    )


# --- scripts -----------------------------------------------------------------------------------------------


def script_of(session: RecordedSession) -> list[ScriptEntry]:
    return derive_replay_script(session.own)


def test_a_call_that_was_recorded_and_not_made_is_an_error() -> None:
    session = alone(text("Hi."))
    report = replay_one(session, scripts={session: [*script_of(session), ChunksEntry((b"{}",))]})
    assert (report.status, report.reason) == ("error", "1 of 2 recorded model calls were not made")


def test_a_call_that_was_made_and_not_recorded_is_an_error() -> None:
    session = alone(text("Hi."))
    report = replay_one(session, scripts={session: []})
    assert report.status == "error"
    assert "model call 1 was made, the recording holds 0" in (report.reason or "")


def test_another_answer_is_input_that_was_handed_in() -> None:
    session = alone(text("Hi."))
    other = alone(text("Ho."))
    report = replay_one(session, scripts={session: script_of(other)})
    assert report.divergence is not None
    assert (report.divergence.type, report.divergence.path) == ("assistant/chunk", "/data/chunk/text")
    assert report.divergence.cause is not None
    assert report.divergence.cause.kind == "fed-input"


def test_a_script_for_a_child_answers_that_child() -> None:
    root, one, two, fork = family()
    reports = by_key(replay([root, one, two, fork], scripts={two: script_of(one)}))
    assert reports[TWO].status == "diverged"
    assert {reports[key].status for key in ("0", ONE, FORK)} == {"identical"}


def test_a_script_of_a_resumed_session_goes_on_after_the_calls_before() -> None:
    session = alone(text("Hi."), text("Ho."), prompts=["a", "b"])

    def resume(values: list[Value]) -> None:
        at = next(n for n, value in enumerate(values) if value["type"] == "turn/end") + 1
        values.insert(at, values[at] | {"type": "session/end-seed", "data": {}})
        second = first(values[at:], "user/message")
        header = copy_of(first(values, "request/header"))
        header["data"]["reason"] = "resume"
        values.insert(values.index(second) + 1, header)
        shift(values, at, 1)
        shift(values, values.index(header), 1)

    resumed = altered(session, resume)
    assert replay_one(resumed).status == "identical"
    assert replay_one(resumed, scripts={resumed: script_of(resumed)}).status == "identical"


def copy_of(value: Value) -> Value:
    return {**value, "data": {**value["data"]}}


def shift(values: list[Value], at: int, by: int) -> None:
    """Renumber sources from `at` on, after something was put in there."""
    for value in values:
        if "sourceEventSeqs" in value:
            value["sourceEventSeqs"] = [s + by if s >= at else s for s in value["sourceEventSeqs"]]


def test_a_throw_is_a_failure_of_the_call() -> None:
    session = alone(failure("SERVER", "it is down", said="Wait"))
    (entry,) = script_of(session)
    thrown = ThrowEntry(tuple(entry.chunks)[:-1], "it is down", "SERVER")
    assert replay_one(session, scripts={session: [thrown]}).status == "identical"
    other = ThrowEntry((), "it is up", "SERVER")
    assert replay_one(session, scripts={session: [other]}).status == "diverged"


def cancelled() -> RecordedSession:
    """A session whose call was cut by a cancel after the two chunks of a hang."""
    session = alone(text("partial"))

    def cancel(values: list[Value]) -> None:
        chunks = [value for value in values if value["type"] == "assistant/chunk"]
        for chunk in chunks[2:]:
            values.remove(chunk)
        chunks[1]["data"]["chunk"]["text"] = "partial"
        answer = last(values, "assistant/message")
        answer["data"]["message"]["content"] = [{"type": "text", "text": "partial"}]
        answer["data"] = {"turn": 1, "step": 1, "message": answer["data"]["message"], "interrupted": True}
        answer["sourceEventSeqs"] = answer["sourceEventSeqs"][:2]
        last(values, "turn/end")["data"]["reason"] = {"kind": "aborted", "reason": {"kind": "user"}}

    return altered(session, cancel)


def test_a_hang_ends_with_the_recorded_cancel() -> None:
    session = cancelled()
    assert replay_one(session).status == "identical"
    assert replay_one(session, scripts={session: [HangEntry()]}).status == "identical"


def test_the_ready_file_of_a_hang_is_not_touched(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = cancelled()
    assert replay_one(session, scripts={session: [HangEntry("ready")]}).status == "identical"
    assert list(tmp_path.iterdir()) == []


def test_a_hang_that_nothing_cancels_is_an_error_naming_the_session() -> None:
    session = altered(
        cancelled(),
        lambda values: last(values, "turn/end")["data"].update(
            reason={"kind": "error", "error": {"message": "no", "code": "NO"}}
        ),
    )
    report = replay_one(session, scripts={session: [HangEntry()]})
    assert report.status == "error"
    assert "session 0: the model call in turn 1, step 1 hangs" in (report.reason or "")


def test_an_unfinished_call_at_the_end_of_a_record_is_an_error() -> None:
    session = alone(text("A longer answer in several pieces."))
    cut = altered(session, lambda values: values.__delitem__(slice(values.index(last_chunk(values)), None)))
    report = replay_one(cut)
    assert report.status == "error"
    assert "turn 1, step 1 has no finish chunk" in (report.reason or "")


def last_chunk(values: list[Value]) -> Value:
    return last(values, "assistant/chunk")


@pytest.mark.parametrize("purpose", ["compaction", "session-title"])
def test_an_auxiliary_call_is_refused_and_fails_the_session(purpose: Any) -> None:
    session = alone(text("Hi."))
    run = SessionRun(recorded_tree([session]).primary, ReplayOptions(), delegated=False)
    options = run.options

    def no_agent() -> Any:
        raise AssertionError("nothing is cancelled")

    model = RecordModel(run.line, lambda: run.channel, no_agent, pace=options.pace, give_way=options.give_way)
    header = session_header(session)
    request = ModelRequest(header=header, messages=(), session_id="s", turn=1, step=1, purpose=purpose)

    async def ask() -> None:
        with pytest.raises(AuxiliaryCallError, match=f"session 0: a model call for '{purpose}'"):
            await anext(aiter(model.stream(request)))

    anyio.run(ask)
    assert run.report().status == "error"
    assert run.channel.consumed == 0


def session_header(session: RecordedSession) -> Any:
    return next(event for event in session.events if event.type == "request/header").payload.header


# --- an end to everything ----------------------------------------------------------------------------------


def test_a_replay_in_which_nothing_moves_ends() -> None:
    report = replay_one(alone(text("Hi.")), give_way=anyio.sleep_forever, stall_seconds=0.1)
    assert report.status == "error"
    assert "nothing has moved for 0.1 s at seq" in (report.reason or "")


def test_a_record_that_its_own_header_contradicts_is_an_error() -> None:
    session = alone(text("Hi."))
    beyond = with_header(session, cut=1000, is_seeded=True)
    report = replay_one(beyond)
    assert report.status == "error"
    assert "1000 events are inherited" in (report.reason or "")
    refused = replay_one(with_header(session, cut=2))
    assert (refused.status, "isSeeded" in (refused.reason or "")) == ("error", True)


def test_a_record_without_events_is_identical_to_nothing() -> None:
    report = replay_one(RecordedSession(alone().header, alone().inherited_event_count, events_of([]), "x"))
    assert (report.status, report.events, report.compared, report.fed) == ("identical", 0, 0, 0)


# --- tools -------------------------------------------------------------------------------------------------


def shout(answer: Callable[[], str]) -> Any:
    parameters = {"type": "object", "properties": {"say": {"type": "string"}}, "required": ["say"]}

    def body(arguments: Any, context: CallContext) -> str:
        return f"{answer()}: {arguments['say']}"

    return function_tool("shout", "Shout.", parameters, body)


def with_a_call(answer: str = "loud") -> RecordedSession:
    asked = tool_calls(call("shout", {"say": "hey"}, id="c1"), call("shout", {"say": "you"}, id="c2"))
    return alone(asked, text("Done."), tools=[shout(lambda: answer)])


def never() -> str:
    raise AssertionError("a served call ran its body")


def test_a_served_call_runs_no_body() -> None:
    tools = Registry([shout(never)])
    assert replay_one(with_a_call(), live_tools=tools).status == "identical"
    modes = {"*": "verify", "shout": "serve"}
    assert replay_one(with_a_call(), live_tools=tools, tool_modes=modes).status == "identical"


def test_an_executed_result_stands_and_is_not_compared() -> None:
    made: dict[str, Any] = {}
    report = replay_one(
        with_a_call(),
        live_tools=Registry([shout(lambda: "quiet")]),
        tool_modes={"shout": "execute"},
        on_session=lambda key, session: made.update({key: session}),
    )
    assert report.status == "identical"
    results = [event.value for event in made["0"].events if event.type == "tool/result"]
    assert [said(result) for result in results] == ["quiet: hey", "quiet: you"]


def said(result: Any) -> str:
    return result["message"]["content"][0]["content"][0]["text"]


def test_an_executed_call_may_also_fail() -> None:
    tools = Registry([shout(never)])
    assert replay_one(with_a_call(), live_tools=tools, tool_modes={"*": "execute"}).status == "identical"


def test_what_differs_after_an_executed_result_is_put_down_to_it() -> None:
    session = with_a_call()
    answer = next(event.seq for event in session.events if said_done(event))
    wrong = altered(session, lambda values: text_of(values[answer]).update(text="Finished."))
    report = replay_one(
        session,
        expected={session: wrong.events},
        live_tools=Registry([shout(lambda: "quiet")]),
        tool_modes={"shout": "execute"},
    )
    assert report.divergence is not None
    assert (report.divergence.seq, report.divergence.type) == (answer, "assistant/message")
    result = next(event for event in session.events if event.type == "tool/result")
    assert report.divergence.cause is not None
    assert (report.divergence.cause.kind, report.divergence.cause.seq) == ("tool-result", result.seq)


def said_done(event: Any) -> bool:
    return event.type == "assistant/message" and text_of({"data": event.value}).get("text") == "Done."


def text_of(message: Value) -> Value:
    return message["data"]["message"]["content"][0]


def test_a_verified_result_is_compared() -> None:
    session, modes = with_a_call(), {"shout": "verify"}
    same = replay_one(session, live_tools=Registry([shout(lambda: "loud")]), tool_modes=modes)
    assert same.status == "identical"
    other = replay_one(session, live_tools=Registry([shout(lambda: "quiet")]), tool_modes=modes)
    assert other.status == "diverged"
    assert other.divergence is not None
    assert other.divergence.path == "/data/message/content/0/content/0/text"
    assert (other.divergence.expected, other.divergence.actual) == ("loud: hey", "quiet: hey")
    assert other.divergence.cause is not None
    assert other.divergence.cause.kind == "tool-result"


def test_overlapping_calls_may_run_live() -> None:
    async def slow(arguments: Any, context: CallContext) -> str:
        for _ in range(len(arguments["say"])):
            await anyio.lowlevel.checkpoint()
        return arguments["say"]

    parameters = {"type": "object", "properties": {"say": {"type": "string"}}}
    tool = function_tool("echo", "Echo.", parameters, slow, parallel=True)
    asked = tool_calls(*(call("echo", {"say": "x" * n}, id=f"c{n}") for n in (9, 3, 6)))
    session = alone(asked, text("Done."), tools=[tool])
    report = replay_one(session, live_tools=Registry([tool]), tool_modes={"*": "verify"})
    assert report.status == "identical"


@pytest.mark.parametrize("modes", [{"*": "execute"}, {"shout": "verify"}, {"shout": "run"}])
def test_a_mode_that_cannot_be_is_refused(modes: Any) -> None:
    with pytest.raises(SettingRefusedError, match="tool_modes"):
        ReplayOptions(tool_modes=modes)


# --- the answer of a child ---------------------------------------------------------------------------------


def test_a_result_that_is_not_what_the_child_said_is_put_down_to_the_child() -> None:
    root, one, two, fork = family()
    wrong = altered(root, lambda values: answer_of(values).update(text="Three."))
    report = by_key(replay([wrong, one, two, fork]))["0"]
    assert report.divergence is not None
    assert (report.divergence.expected, report.divergence.actual) == ("Three.", "One.")
    said_last = max(event.seq for event in one.events if event.type == "assistant/message")
    cause = report.divergence.cause
    assert cause is not None
    assert (cause.kind, cause.key, cause.seq, cause.type) == (
        "child-answer",
        ONE,
        said_last,
        "assistant/message",
    )


def answer_of(values: list[Value]) -> Value:
    return first(values, "tool/result", turn=2, step=1)["data"]["message"]["content"][0]["content"][0]


def test_values_make_the_events_that_they_came_from() -> None:
    session = with_a_call()
    assert events_of(values_of(session)) == session.events
