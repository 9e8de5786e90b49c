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
from seedline.snapshot.record import Record
from tests.conformance.corpus import CORPUS, recorded
from tests.unit.snapshot.recording import Value, events_of, replay, replay_one, values_of

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
