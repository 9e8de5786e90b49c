"""Every alteration of a recording is reported, at the event that was altered, with what made it differ.

First: the untouched record drives, and an altered copy is compared. Nothing may pass then. Second: the
altered copy is both. Then what the loop derives must show, and what is given cannot; both are listed.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from seedline.session.tree import RecordedSession
from seedline.snapshot.load import Scenario, load_scenario
from seedline.snapshot.record import Record, replay_start
from tests.conformance.corpus import CORPUS, recorded
from tests.unit.snapshot.recording import Value, altered, events_of, replay, replay_one, values_of

LOGS = CORPUS / "recorded" / "logs"
PATHS: list[str] = [parameter.values[0]["path"] for parameter in recorded("current")]
SWEEP = os.environ.get("SEEDLINE_SWEEP") == "1"
EACH = 80 if SWEEP else 8
"""Alterations of one log."""
CHILDREN = 40 if SWEEP else 10
"""Alterations of one result that a child gave."""


@cache
def session_of(path: str) -> RecordedSession:
    return load_scenario(str(LOGS / path)).tree.primary.session


@cache
def recorded_values(path: str) -> list[Value]:
    """The replayed session's events as values; not to be changed."""
    return values_of(session_of(path))


# --- the record drives, an altered copy is compared --------------------------------------------------------


class Altered(NamedTuple):
    """An altered copy: where it first differs, and what that is to be put down to."""

    name: str
    values: list[Value]
    seq: int
    kind: str


def alterations(rng: random.Random, session: RecordedSession, count: int) -> Iterator[Altered]:
    """Yield alterations, each of one event that the loop makes.

    The cause that counts as right was fixed before the first run: a tool's result for what the tool said, the
    child for what a delegated call said; the prompt and the schemas in a request header; the clock for a
    time; input that was handed in for a message that entered a step unclaimed; the record for all else.
    """
    values = values_of(session)
    record = Record(session.header, session.inherited_event_count, session.events)
    owned = [event.seq for event in record.owned_from(record.start)]
    while count:
        seq = rng.choice(owned)
        name, alter = rng.choice(list(changes(values[seq]).items()))
        copied = copy.deepcopy(values)
        kind = alter(copied, seq, rng)
        first = first_difference(values, copied)
        if first is not None:
            count -= 1
            yield Altered(f"{name} {values[seq]['type']}", copied, first, kind)


def first_difference(left: list[Value], right: list[Value]) -> int | None:
    """The first place where two logs differ, whatever seqs the rows say."""
    for at in range(max(len(left), len(right))):
        if at >= len(left) or at >= len(right) or bare(left[at]) != bare(right[at]):
            return at
    return None


def bare(value: Value) -> Value:
    return {name: part for name, part in value.items() if name != "seq"}


Change = Callable[[list[Value], int, random.Random], str]


def changes(value: Value) -> dict[str, Change]:
    """The ways to alter an event of this type."""
    found: dict[str, Change] = {"drop": drop, "duplicate": duplicate, "reorder": reorder, "time": change_time}
    if value.get("sourceEventSeqs"):
        found["sources"] = change_sources
    if value["type"] in NUMBERED:
        found["numbers"] = change_numbers
    if value["type"] in OWN_CHANGES:
        found |= OWN_CHANGES[value["type"]]
    return found


def drop(values: list[Value], seq: int, rng: random.Random) -> str:
    del values[seq]
    return "record"


def duplicate(values: list[Value], seq: int, rng: random.Random) -> str:
    values.insert(seq, copy.deepcopy(values[seq]))
    return "record"


def reorder(values: list[Value], seq: int, rng: random.Random) -> str:
    values.insert(seq, values.pop(min(seq + 1, len(values) - 1)))
    return "record"


def change_time(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["time"] += rng.choice([-1, 1, 1000])
    return "clock"


def change_sources(values: list[Value], seq: int, rng: random.Random) -> str:
    sources = values[seq]["sourceEventSeqs"]
    if rng.random() < 0.5:
        sources.pop(rng.randrange(len(sources)))
    else:
        sources[rng.randrange(len(sources))] += 1
    return "record"


NUMBERED = {"turn/start", "turn/end", "step/start", "step/end", "assistant/chunk", "assistant/message"}
NUMBERED |= {"tool/call", "tool/result"}


def change_numbers(values: list[Value], seq: int, rng: random.Random) -> str:
    data = values[seq]["data"]
    name = rng.choice([name for name in ("turn", "step") if name in data])
    data[name] += rng.choice([-1, 1])
    return "record"


def change_reason(values: list[Value], seq: int, rng: random.Random) -> str:
    reason = values[seq]["data"]["reason"]
    kinds = {"completed", "max-tokens", "blocked", "aborted", "error", "interrupted"} - {reason["kind"]}
    values[seq]["data"]["reason"] = {"kind": rng.choice(sorted(kinds))}
    return "record"


def change_message_text(values: list[Value], seq: int, rng: random.Random) -> str:
    data = values[seq]["data"]
    content = data["message"]["content"] if "message" in data else data["content"]
    if not content:
        content.append({"type": "text", "text": "x"})
    elif "text" in content[0]:
        content[0]["text"] += "x"
    else:
        content[0]["name"] = "other"
    return "record"


def change_entered_text(values: list[Value], seq: int, rng: random.Random) -> str:
    claimed = any(
        values[seq]["data"] == message
        for value in values
        if value["type"] == "agent/inbox/spliced"
        for message in value["data"]["inserted"]
    )
    change_message_text(values, seq, rng)
    return "record" if claimed else "fed-input"


def change_usage(values: list[Value], seq: int, rng: random.Random) -> str:
    usage = values[seq]["data"].setdefault("usage", {"inputTokens": 0, "outputTokens": 0})
    usage["inputTokens"] += 1
    return "record"


def change_message_source(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["data"]["message"]["source"][rng.choice(["provider", "model"])] = "other"
    return "record"


def change_chunk(values: list[Value], seq: int, rng: random.Random) -> str:
    chunk = values[seq]["data"]["chunk"]
    texts = [name for name, part in chunk.items() if isinstance(part, str)]
    chunk[rng.choice(texts)] += "x"
    return "record"


def change_call(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["data"][rng.choice(["arguments", "name", "callId"])] += " "
    return "record"


def change_result(values: list[Value], seq: int, rng: random.Random) -> str:
    data = values[seq]["data"]
    block = data["message"]["content"][0]
    what = rng.choice(["content", "isError", "error", "meta"])
    if what == "content":
        block["content"] = [*block["content"], {"type": "text", "text": "more"}]
    elif what == "isError":
        block["isError"] = not block["isError"]
    else:
        data[what] = {"name": "OtherError", "code": "OTHER"}
    return "tool-result"


def change_result_frame(values: list[Value], seq: int, rng: random.Random) -> str:
    message = values[seq]["data"]["message"]
    holder, name = rng.choice(
        [(message, "role"), (message["source"], "callId"), (message["content"][0], "toolCallId")]
    )
    holder[name] += "x"
    return "record"


def change_header_reason(values: list[Value], seq: int, rng: random.Random) -> str:
    reasons = {"initial", "resume", "change"} - {values[seq]["data"]["reason"]}
    values[seq]["data"]["reason"] = rng.choice(sorted(reasons))
    return "record"


def change_prompt(values: list[Value], seq: int, rng: random.Random) -> str:
    header = values[seq]["data"]["header"]
    header["system"] = header.get("system", "") + " And be brief."
    return "prompt"


def change_schema(values: list[Value], seq: int, rng: random.Random) -> str:
    header = values[seq]["data"]["header"]
    tool = {"name": "other", "description": "", "parameters": {}}
    header["tools"] = [*header["tools"], tool] if isinstance(header.get("tools"), list) else [tool]
    return "schema"


def change_config(values: list[Value], seq: int, rng: random.Random) -> str:
    config = values[seq]["data"]["header"]["config"]
    config[rng.choice(["provider", "model"])] += "x"
    return "record"


def change_context(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["data"][rng.choice(["provider", "model"])] += "x"
    return "record"


def change_claim(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["data"][rng.choice(["start", "removedCount"])] += 1
    return "record"


def change_mark(values: list[Value], seq: int, rng: random.Random) -> str:
    values[seq]["data"]["note"] = "x"
    return "record"


OWN_CHANGES: dict[str, dict[str, Change]] = {
    "turn/end": {"reason": change_reason},
    "user/message": {"text": change_entered_text},
    "assistant/message": {
        "text": change_message_text,
        "usage": change_usage,
        "source": change_message_source,
    },
    "assistant/chunk": {"chunk": change_chunk},
    "tool/call": {"call": change_call},
    "tool/result": {"result": change_result, "frame": change_result_frame},
    "request/header": {
        "reason": change_header_reason,
        "prompt": change_prompt,
        "schema": change_schema,
        "config": change_config,
    },
    "request/context": {"context": change_context},
    "agent/inbox/spliced": {"claim": change_claim},
    "session/end-seed": {"mark": change_mark},
}


class Score:
    """How many alterations were caught, at the right event, with the right cause."""

    def __init__(self) -> None:
        self.made = self.exact = self.right = 0
        self.missed: list[str] = []
        self.wrong: Counter[str] = Counter()

    def count(self, name: str, report: Any, seq: int, kind: str) -> None:
        self.made += 1
        if report.status != "diverged":
            self.missed.append(f"{name}: {report.status} {report.reason}")
            return
        found = report.divergence
        self.exact += found.seq == seq
        self.right += found.cause.kind == kind
        if found.seq != seq:
            self.wrong[f"{name}: at {found.seq} instead of {seq}"] += 1
        if found.cause.kind != kind:
            self.wrong[f"{name}: {found.cause.kind} instead of {kind}"] += 1


def test_every_altered_copy_of_a_log_is_caught_at_its_event_with_its_cause() -> None:
    rng, score = random.Random(20260101), Score()
    for path in PATHS:
        session = session_of(path)
        for change in alterations(rng, session, EACH):
            expected = {session: events_of(change.values)}
            score.count(change.name, replay_one(session, expected=expected), change.seq, change.kind)
    assert score.made == EACH * len(PATHS) >= (5000 if SWEEP else 500)
    assert score.missed == []
    assert score.exact >= 0.95 * score.made, score.wrong
    assert score.right >= 0.90 * score.made, score.wrong


TREES = ["subagent-parallel", "subagent-depth-two-rejection", "subagent-fork-in-process", "workflow-run"]
TREES += ["subagent-spawn-in-process", "advanced-toolchain"]


def scenario_of(name: str) -> Scenario:
    return load_scenario(str(LOGS / "examples" / "acp-agent" / "tests" / "snapshots" / name))


@pytest.mark.parametrize("name", TREES)
def test_in_a_tree_what_a_child_said_is_put_down_to_the_child(name: str) -> None:
    """A result that a child gave is the child's answer; any other result its tool's."""
    scenario, rng, score = scenario_of(name), random.Random(7), Score()
    sessions = [node.session for node in scenario.tree.primary.walk()]
    for node in scenario.tree.primary.walk():
        values = values_of(node.session)
        delegating = {child.place.call_id for child in node.children if child.place}  # type: ignore[union-attr]  # of calls
        tools = {v["data"]["callId"]: v["data"]["name"] for v in values if v["type"] == "tool/call"}
        for seq in (value["seq"] for value in values if value["type"] == "tool/result"):
            call_id = values[seq]["data"]["message"]["source"]["callId"]
            answered = call_id in delegating and tools[call_id] in ("subagent", "subagent_fork")
            for _ in range(CHILDREN):
                copied = copy.deepcopy(values)
                change_result(copied, seq, rng)
                if bare(copied[seq]) == bare(values[seq]):
                    continue
                reports = replay(sessions, expected={node.session: events_of(copied)})
                report = next(r for r in reports if r.key == node.key)
                score.count(f"{name} {seq}", report, seq, "child-answer" if answered else "tool-result")
                assert all(r.status == "identical" for r in reports if r is not report)
    assert score.made >= CHILDREN
    assert (score.missed, score.wrong) == ([], Counter())


# --- the altered copy is both ------------------------------------------------------------------------------
#
# One entry for each derived field of the table in replay derivability, section 5. An entry names an event, by
# type and by what it must be, and a change of it. It runs on every log that has such an event.

Pick = Callable[[list[Value], Value], bool]


class Field(NamedTuple):
    """A field that the loop, or a rule, derives: of which events, and how it is altered."""

    name: str
    event_type: str
    alter: Callable[[list[Value], Value], object]
    pick: Pick = lambda values, value: True


def put(*path: str | int, to: Any) -> Callable[[list[Value], Value], object]:
    """A change of one member. A function is given the member's value, None where there is none."""

    def alter(values: list[Value], value: Value) -> None:
        holder: Any = value
        for name in path[:-1]:
            holder = holder[name]
        old = holder.get(path[-1]) if isinstance(holder, dict) else holder[path[-1]]
        holder[path[-1]] = to(old) if callable(to) else to

    return alter


def more(number: Any) -> Any:
    return number + 1


def other(text: Any) -> Any:
    return f"{text}x"


def remove(values: list[Value], value: Value) -> None:
    values.remove(value)


def double(values: list[Value], value: Value) -> None:
    values.insert(values.index(value), copy.deepcopy(value))


def swap_with_next(values: list[Value], value: Value) -> None:
    at = values.index(value)
    values[at], values[at + 1] = values[at + 1], value


def is_claim(values: list[Value], value: Value) -> bool:
    return not value["data"]["inserted"] and "outcome" not in value["data"]


def is_insert(values: list[Value], value: Value) -> bool:
    return bool(value["data"]["inserted"])


def is_cancel(values: list[Value], value: Value) -> bool:
    return value["data"].get("outcome") == "canceled" and "removedCount" in value["data"]


def is_entered(values: list[Value], value: Value) -> bool:
    """True for a message that a claim brought into a step."""
    if value.get("surfaceOp") != "append":
        return False
    splices = (v["data"] for v in values[: values.index(value)] if v["type"] == "agent/inbox/spliced")
    return any(value["data"] in splice["inserted"] for splice in splices)


def is_extra(values: list[Value], value: Value) -> bool:
    """True for a message that entered a step unclaimed, before its request."""
    return value.get("surfaceOp") == "append" and not is_entered(values, value)


def is_snapshot(values: list[Value], value: Value) -> bool:
    return bool(value["data"]["source"].get("sections"))


def says_text(values: list[Value], value: Value) -> bool:
    return any(block["type"] == "text" for block in value["data"]["message"]["content"])


def has_usage(values: list[Value], value: Value) -> bool:
    return "usage" in value["data"]


def has_replay_state(values: list[Value], value: Value) -> bool:
    return "replayState" in value["data"]["message"]["source"]


def calls_tools(values: list[Value], value: Value) -> bool:
    return any(block["type"] == "tool-call" for block in value["data"]["message"]["content"])


def is_result(values: list[Value], value: Value) -> bool:
    return value.get("surfaceOp") == "append"


def is_followed_by_a_result(values: list[Value], value: Value) -> bool:
    return is_result(values, value) and values[values.index(value) + 1]["type"] == "tool/result"


def is_followed_by_a_call(values: list[Value], value: Value) -> bool:
    return values[values.index(value) + 1]["type"] == "tool/call"


def code_is(code: str) -> Pick:
    return lambda values, value: value["data"].get("error", {}).get("code") == code


def is_pair_of_a_skipped_call(values: list[Value], value: Value) -> bool:
    following = values[values.index(value) + 1]
    return following["type"] == "tool/result" and code_is("ABORTED_BEFORE_DISPATCH")(values, following)


def ends(*kinds: str) -> Pick:
    return lambda values, value: value["data"]["reason"]["kind"] in kinds


def ends_with_a_models_failure(values: list[Value], value: Value) -> bool:
    """True for a turn that failed as its last chunk says."""
    if not ends("error")(values, value):
        return False
    chunks = [v for v in values[: values.index(value)] if v["type"] == "assistant/chunk"]
    finish = chunks[-1]["data"]["chunk"] if chunks else {}
    return finish.get("reason", {}).get("failure") == value["data"]["reason"]["error"]


def is_fallback(values: list[Value], value: Value) -> bool:
    return value["data"]["source"]["kind"] == "fallback"


def follows_a_summary(values: list[Value], value: Value) -> bool:
    at = values.index(value)
    return at > 0 and values[at - 1]["type"] == "compaction/summary"


def after_the_request(values: list[Value], value: Value) -> None:
    """Move a message behind the first chunk of its step."""
    at = values.index(value)
    chunk = next(n for n, v in enumerate(values) if n > at and v["type"] == "assistant/chunk")
    values.insert(chunk, values.pop(at))


def once_more_in_the_next_step(values: list[Value], value: Value) -> None:
    at = values.index(value)
    starts = [n for n, v in enumerate(values) if n > at and v["type"] == "step/start"]
    values.insert(starts[0] + 1, copy.deepcopy(value))


def has_a_next_step(values: list[Value], value: Value) -> bool:
    at = values.index(value)
    turn_ends = next(n for n, v in enumerate(values) if n > at and v["type"] == "turn/end")
    return is_snapshot(values, value) and any(v["type"] == "step/start" for v in values[at:turn_ends])


def blocks(*path: str | int, to: Any) -> Callable[[list[Value], Value], object]:
    return put("data", "message", "content", *path, to=to)


DERIVED = [
    # turn/start: the number; that it happens
    Field("number", "turn/start", put("data", "turn", to=more)),
    Field("happens", "turn/start", remove),
    Field("happens once", "turn/start", double),
    # agent/inbox/spliced, claim: all
    Field("claim start", "agent/inbox/spliced", put("data", "start", to=more), is_claim),
    Field("claim count", "agent/inbox/spliced", put("data", "removedCount", to=more), is_claim),
    Field("claim target", "agent/inbox/spliced", put("data", "target", to="next-elsewhere"), is_claim),
    Field("claim happens", "agent/inbox/spliced", remove, is_claim),
    # agent/inbox/spliced, insert or cancel: the coordinates
    Field("insert start", "agent/inbox/spliced", put("data", "start", to=more), is_insert),
    Field("cancel start", "agent/inbox/spliced", put("data", "start", to=more), is_cancel),
    Field("cancel count", "agent/inbox/spliced", put("data", "removedCount", to=more), is_cancel),
    # step/start, step/end: all
    Field("number", "step/start", put("data", "step", to=more)),
    Field("turn", "step/start", put("data", "turn", to=more)),
    Field("happens", "step/start", remove),
    Field("number", "step/end", put("data", "step", to=more)),
    Field("turn", "step/end", put("data", "turn", to=more)),
    Field("happens", "step/end", remove),
    # user/message, claimed: verbatim copy (the order of several: tests/unit/snapshot/test_runner.py)
    Field("copy", "user/message", put("data", "content", to=[{"type": "text", "text": "x"}]), is_entered),
    Field("enters", "user/message", remove, is_entered),
    # user/message, pre-step extra: place
    Field("place", "user/message", after_the_request, is_extra),
    # request/header: the reason, and whether it appears
    Field(
        "reason",
        "request/header",
        put("data", "reason", to=lambda r: "resume" if r != "resume" else "change"),
    ),
    Field("appears once", "request/header", double),
    # request/context: whether it appears; provider and model
    Field("provider", "request/context", put("data", "provider", to=other)),
    Field("model", "request/context", put("data", "model", to=other)),
    Field("appears", "request/context", remove),
    Field("appears once", "request/context", double),
    # assistant/chunk: turn, step
    Field("turn", "assistant/chunk", put("data", "turn", to=more)),
    Field("step", "assistant/chunk", put("data", "step", to=more)),
    # assistant/message: derived completely
    Field("text", "assistant/message", blocks(0, "text", to=other), says_text),
    Field("tool call", "assistant/message", blocks(-1, "arguments", to=other), calls_tools),
    Field("provider", "assistant/message", put("data", "message", "source", "provider", to=other)),
    Field("model", "assistant/message", put("data", "message", "source", "model", to=other)),
    Field("role", "assistant/message", put("data", "message", "role", to="user")),
    Field("usage", "assistant/message", put("data", "usage", "inputTokens", to=more), has_usage),
    Field("interrupted", "assistant/message", put("data", "interrupted", to=lambda was: not was)),
    Field(
        "replay metadata",
        "assistant/message",
        put("data", "message", "source", "replayState", to={"x": 1}),
        has_replay_state,
    ),
    Field("sources", "assistant/message", put("sourceEventSeqs", to=lambda seqs: seqs[1:])),
    Field("turn", "assistant/message", put("data", "turn", to=more)),
    Field("step", "assistant/message", put("data", "step", to=more)),
    Field("happens", "assistant/message", remove),
    # tool/call: derived completely
    Field("id", "tool/call", put("data", "callId", to=other)),
    Field("name", "tool/call", put("data", "name", to=other)),
    Field("arguments", "tool/call", put("data", "arguments", to=other)),
    Field("turn", "tool/call", put("data", "turn", to=more)),
    Field("step", "tool/call", put("data", "step", to=more)),
    Field("order", "tool/call", swap_with_next, is_followed_by_a_call),
    Field("happens", "tool/call", remove),
    # tool/result: role, source, block shape, order, sources
    Field("role", "tool/result", put("data", "message", "role", to="tool"), is_result),
    Field("source kind", "tool/result", put("data", "message", "source", "kind", to="user"), is_result),
    Field("source call", "tool/result", put("data", "message", "source", "callId", to=other), is_result),
    Field("block call", "tool/result", blocks(0, "toolCallId", to=other), is_result),
    Field("block type", "tool/result", blocks(0, "type", to="text"), is_result),
    Field("blocks", "tool/result", put("data", "message", "content", to=lambda list: list * 2), is_result),
    Field("sources", "tool/result", put("sourceEventSeqs", to=lambda seqs: [seqs[0] - 1]), is_result),
    Field("turn", "tool/result", put("data", "turn", to=more), is_result),
    Field("step", "tool/result", put("data", "step", to=more), is_result),
    Field("order", "tool/result", swap_with_next, is_followed_by_a_result),
    Field("happens", "tool/result", remove, is_result),
    # skipped call pairs after a cancel: the whole pair
    Field("skipped id", "tool/call", put("data", "callId", to=other), is_pair_of_a_skipped_call),
    Field("skipped text", "tool/result", blocks(0, "content", to=[]), code_is("ABORTED_BEFORE_DISPATCH")),
    Field("skipped error", "tool/result", blocks(0, "isError", to=False), code_is("ABORTED_BEFORE_DISPATCH")),
    Field(
        "skipped name",
        "tool/result",
        put("data", "error", "name", to="OtherError"),
        code_is("ABORTED_BEFORE_DISPATCH"),
    ),
    # turn/end completed, max-tokens: all
    Field("number", "turn/end", put("data", "turn", to=more)),
    Field("completed", "turn/end", put("data", "reason", "kind", to="max-tokens"), ends("completed")),
    Field("blocked", "turn/end", put("data", "reason", "kind", to="blocked"), ends("completed")),
    Field("max-tokens", "turn/end", put("data", "reason", "kind", to="completed"), ends("max-tokens")),
    # turn/end error of a model: the failure
    Field(
        "failure text",
        "turn/end",
        put("data", "reason", "error", "message", to=other),
        ends_with_a_models_failure,
    ),
    Field(
        "failure code",
        "turn/end",
        put("data", "reason", "error", "code", to=other),
        ends_with_a_models_failure,
    ),
    # turn/end of another kind: the position
    Field("happens", "turn/end", remove),
    Field("happens once", "turn/end", double),
    # session/end-seed: from being seeded
    Field("is empty", "session/end-seed", put("data", "note", to="x")),
    # llm/retry, llm/retry-started: all but the id, given the policy and a delay
    Field("turn", "llm/retry", put("data", "turn", to=more)),
    Field("step", "llm/retry", put("data", "step", to=more)),
    Field("provider", "llm/retry", put("data", "provider", to=other)),
    Field("ordinal", "llm/retry", put("data", "retry", to=more)),
    Field("failure", "llm/retry", put("data", "failure", "code", to=other)),
    Field("id", "llm/retry-started", put("data", "retryId", to=other)),
    Field("turn", "llm/retry-started", put("data", "turn", to=more)),
    Field("step", "llm/retry-started", put("data", "step", to=more)),
    Field("ordinal", "llm/retry-started", put("data", "retry", to=more)),
    # session/title, fallback: title, messageSeqs
    Field("title", "session/title", put("data", "title", to=other), is_fallback),
    Field(
        "messages", "session/title", put("data", "messageSeqs", to=lambda seqs: [seqs[0] - 1]), is_fallback
    ),
    # runtime snapshot: the text; never repeats an equal one
    Field("text", "user/message", put("data", "content", 0, "text", to=other), is_snapshot),
    Field("never repeats", "user/message", once_more_in_the_next_step, has_a_next_step),
    # compaction/*: sources and adjacency
    Field("id", "compaction/summary", put("data", "compactionId", to=other)),
    Field("shadowed", "compaction/summary", put("data", "shadowedSeqs", to=[])),
    Field("id", "compaction/end", put("data", "compactionId", to=other)),
    Field("turn", "compaction/end", put("data", "turn", to=more)),
    Field("sources", "user/message", put("sourceEventSeqs", to=lambda seqs: seqs[:-1]), follows_a_summary),
    Field("range", "user/message", put("surfaceOp", "end", to=lambda end: end + 9), follows_a_summary),
    Field("adjacency", "user/message", swap_with_next, follows_a_summary),
]


class Case(NamedTuple):
    """A field altered in one log."""

    session: RecordedSession
    seq: int


@cache
def cases_of(index: int, fields: str) -> list[Case]:
    """The first event of the field in each log that has one, in what is replayed of it."""
    field = (DERIVED if fields == "derived" else GIVEN)[index]
    found: list[Case] = []
    for path in PATHS:
        session, values = session_of(path), recorded_values(path)
        for value in values[replay_start(session.inherited_event_count, session.events) :]:
            if value["type"] == field.event_type and field.pick(values, value):
                found.append(Case(session, value["seq"]))
                break
    return found


def alter_field(case: Case, field: Field) -> RecordedSession:
    return altered(case.session, lambda values: field.alter(values, values[case.seq]))


def named(fields: list[Field]) -> list[str]:
    return [f"{field.event_type} {field.name}" for field in fields]


MOST = 75 if SWEEP else 4


@pytest.mark.parametrize("index", range(len(DERIVED)), ids=named(DERIVED))
def test_an_altered_derived_field_is_reported(index: int) -> None:
    cases = cases_of(index, "derived")
    assert cases, "no current log has such an event"
    for case in cases[:MOST]:
        report = replay_one(alter_field(case, DERIVED[index]))
        assert report.status in ("diverged", "error"), (case.session.name, case.seq)


# --- what cannot show --------------------------------------------------------------------------------------
#
# These are given, so a record that was altered there agrees with itself. Each has its reason; all of them
# show when the untouched record drives.

GIVEN = [
    # The model's words come from the record; of a block, its end has the word.
    Field("delta", "assistant/chunk", put("data", "chunk", "text", to=other), lambda v, x: is_delta(x)),
    # A tool's result comes from the record: no body runs.
    Field("content", "tool/result", blocks(0, "content", 0, "text", to=other), lambda v, x: is_plain(x)),
    Field("isError", "tool/result", blocks(0, "isError", to=True), lambda v, x: is_plain(x)),
    Field(
        "error", "tool/result", put("data", "error", to={"name": "E", "code": "E"}), lambda v, x: is_plain(x)
    ),
    Field("meta", "tool/result", put("data", "meta", to={"x": 1}), lambda v, x: is_plain(x)),
    # The prompt and the schemas are tokens in the recordings, so the header's content is handed in.
    Field("system", "request/header", put("data", "header", "system", to="other")),
    Field("tools", "request/header", put("data", "header", "tools", to=[])),
    # Only the adapter knows the window.
    Field("window", "request/context", put("data", "contextWindow", to=7)),
    # Why somebody cancelled is theirs to say.
    Field("cause", "turn/end", put("data", "reason", "reason", to={"kind": "parent"}), ends("aborted")),
    # Whoever adds a message before a step words it.
    Field(
        "extra",
        "user/message",
        put("data", "content", 0, "text", to=other),
        lambda v, x: is_extra(v, x) and not is_snapshot(v, x),
    ),
    # Ids and times of the run are the recorded ones.
    Field("id", "assistant/message", put("data", "message", "id", to="other")),
    Field("id", "tool/result", put("data", "message", "id", to="other"), is_result),
    Field("time", "turn/start", put("time", to=more)),
    # Policy and delay of a retry, and the id that tells it from others.
    Field("delay", "llm/retry", put("data", "delayMs", to=more)),
    Field("mode", "llm/retry", put("data", "mode", to="always")),
    # The words of a summary are a model's.
    Field("summary", "compaction/summary", put("data", "summary", to=[])),
    # What plugins and tools log is theirs.
    Field("data", "hook/result", put("data", "durationMs", to=1)),
    Field("data", "todo/write", put("data", "todos", to=[])),
    Field("data", "approval/policy", put("data", "policy", to="never")),
    Field("data", "sandbox/mode", put("data", "mode", to="other")),
]


def is_delta(value: Value) -> bool:
    return value["data"]["chunk"]["type"] == "text-delta"


def is_plain(value: Value) -> bool:
    """True for a successful result that is a text."""
    block = value["data"]["message"]["content"][0]
    plain = not block["isError"] and "error" not in value["data"]
    return plain and value.get("surfaceOp") == "append" and [b["type"] for b in block["content"]] == ["text"]


@pytest.mark.parametrize("index", range(len(GIVEN)), ids=named(GIVEN))
def test_what_is_given_cannot_show(index: int) -> None:
    cases = cases_of(index, "given")
    assert cases, "no current log has such an event"
    report = replay_one(alter_field(cases[0], GIVEN[index]))
    assert report.status == "identical", (cases[0], report)
