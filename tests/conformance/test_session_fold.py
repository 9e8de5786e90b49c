"""Folds, repair and forks of the corpus against the figures that dsh's own code gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from seedline.clock import ManualClock
from seedline.errors import ForkRefusedError, SeedlineError, SessionPersistenceCorruptionError
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.ids import SeededIds
from seedline.jsonvalue import canonical, canonical_text, decode
from seedline.session.header import START, SessionHeader, SessionLogOffset
from seedline.session.lineage import own
from seedline.session.log import Session
from seedline.session.relations import problems_in
from seedline.session.repair import closers
from seedline.session.request import RequestFolds
from seedline.session.sequence import Events
from seedline.session.store import CreateSessionOptions, RestoredSession, SessionStore
from seedline.session.surface import LogMessage, fold_surface
from seedline.session.usage import UsageTotals, usage_of
from tests.conformance.corpus import (
    CORPUS,
    digest,
    events_digest,
    expected,
    read_json,
    read_log,
    recorded,
    recorded_log,
    written,
)

CURRENT = recorded("current")
ALL = recorded()


def restored(header: SessionHeader, cut: SessionLogOffset, events: Events) -> Session:
    return Session.restore(header, clock=ManualClock(), inherited_event_count=cut, events=events)


def messages_digest(messages: list[LogMessage]) -> str:
    return digest(b"[" + b",".join(canonical_text(message.data) for message in messages) + b"]")


# --- recorded: messages, surface, closers, request header -------------------------------------------


def test_the_current_group_is_whole() -> None:
    assert len(CURRENT) == 75


@pytest.mark.parametrize("entry", ALL)
def test_messages(entry: Any) -> None:
    figures, log = expected(entry)["messages"], recorded_log(entry)
    if "error" in figures:
        with pytest.raises(SeedlineError):
            restored(*log)
        return
    messages = restored(*log).derive_messages()
    assert len(messages) == figures["count"]
    assert [message.value["role"] for message in messages] == figures["roles"]
    assert messages_digest(messages) == figures["canonicalSha256"]


@pytest.mark.parametrize("entry", ALL)
def test_surface(entry: Any) -> None:
    figures, (_, _, events) = expected(entry)["surface"], recorded_log(entry)
    if "error" in figures:
        with pytest.raises(SeedlineError):
            fold_surface(events, events.at_seq)
        return
    surface = fold_surface(events.without_chunks(), events.at_seq)
    replacements = [
        {"seq": seq, "start": start, "end": end, "shadowedSeqs": list(shadowed)}
        for seq, start, end, shadowed in surface.replacements
    ]
    assert len(surface.nodes) == figures["nodes"]
    assert digest(canonical(list(surface.nodes))) == figures["nodesSha256"]
    assert len(replacements) == figures["replacements"]
    assert digest(canonical(replacements)) == figures["replacementsSha256"]


@pytest.mark.parametrize("entry", ALL)
def test_closers(entry: Any) -> None:
    figures, (_, _, events) = expected(entry)["closers"], recorded_log(entry)
    if "error" in figures:
        with pytest.raises(SessionPersistenceCorruptionError) as corrupt:
            closers(events)
        assert corrupt.value.seq is not None
        return
    found = closers(events)
    assert [e.type for e in found] == figures["types"]
    assert events_digest(found) == figures["canonicalSha256"]


@pytest.mark.parametrize("entry", [entry for entry in ALL if entry.values[0]["group"] != "stub"])
def test_request_header(entry: Any) -> None:
    figures, (_, _, events) = expected(entry)["requestHeader"], recorded_log(entry)
    folds = RequestFolds()
    for event in events.without_chunks():
        folds.take(event)
    if not figures["present"]:
        assert folds.header is None
        return
    assert (
        digest(canonical(msgspec.to_builtins(folds.header, builtin_types=()))) == figures["canonicalSha256"]
    )


@pytest.mark.parametrize("entry", CURRENT)
def test_every_current_message_has_a_typed_view(entry: Any) -> None:
    session = restored(*recorded_log(entry))
    assert [m.message.id for m in session.derive_messages()] == [
        m.value["id"] for m in session.derive_messages()
    ]


@pytest.mark.parametrize("entry", CURRENT)
def test_a_live_session_takes_every_current_log_event_by_event(entry: Any) -> None:
    header, cut, events = recorded_log(entry)
    session = Session.create(header, clock=ManualClock(), inherited_event_count=cut)
    append_all(session, events)
    assert [encode_event(e) for e in session.events] == [
        encode_event(msgspec.structs.replace(e, time=0)) for e in events
    ]
    assert messages_digest(session.derive_messages()) == expected(entry)["messages"]["canonicalSha256"]


def append_all(session: Session, events: Events) -> None:
    for event in events:
        session.append(
            event.type,
            event.data,
            surface_op=event.surface_op,
            source_event_seqs=event.source_event_seqs,
        )


def test_only_logs_with_chunks_outside_a_step_break_a_relation() -> None:
    broken = {
        entry.values[0]["path"]: {(p.event_type, p.relation) for p in found}
        for entry in CURRENT
        if (found := problems_in(recorded_log(entry.values[0])[2]))
    }
    assert all(found == {("assistant/chunk", "outside-step")} for found in broken.values())
    known = (
        "ralph-loop/session.1.jsonl",
        "ralph-loop/session.2.jsonl",
        "subagent-settlement/child.replay.jsonl",
    )
    assert all(path.endswith(known) for path in broken)


# --- recorded: usage ----------------------------------------------------------------------------------


def naive_tokens(events: list[Event]) -> tuple[int, int]:
    """Input and output tokens by the plain rule: all usage chunks, and answers of steps without one."""
    chunks = [e.value for e in events if e.type == "assistant/chunk"]
    found = [(c["turn"], c["step"], c["chunk"]["usage"]) for c in chunks if c["chunk"]["type"] == "usage"]
    steps = {(turn, step) for turn, step, _ in found}
    answers = [e.value for e in events if e.type == "assistant/message"]
    fallback = [a["usage"] for a in answers if "usage" in a and (a["turn"], a["step"]) not in steps]
    summaries = [e.value for e in events if e.type == "compaction/summary"]
    compactions = [s["usage"] for s in summaries if s.get("llmStreamCall") is True and "usage" in s]
    usages = [*(usage for _, _, usage in found), *fallback, *compactions]
    return sum(u["inputTokens"] for u in usages), sum(u["outputTokens"] for u in usages)


@pytest.mark.parametrize("entry", CURRENT)
def test_usage_counts_the_calls_of_the_own_script(entry: Any) -> None:
    _, cut, events = recorded_log(entry)
    totals = usage_of(events, cut)
    assert (totals.input_tokens, totals.output_tokens) == naive_tokens(list(own(events, cut)))
    replay = expected(entry)["replay"]
    script = replay["asPrimary"] if replay["ownOnly"] == "same-as-primary" else replay["ownOnly"]
    own_types = [e.type for e in own(events, cut)]
    assert (totals.turns, totals.tool_calls) == (own_types.count("turn/start"), own_types.count("tool/call"))
    if "entries" in script and "assistant/chunk" in own_types:
        assert totals.requests == script["entries"] + answers_without_chunks(list(own(events, cut)))


def answers_without_chunks(events: list[Event]) -> int:
    """How many answers stand in a step of which no chunk is recorded."""
    steps = {(e.value["turn"], e.value["step"]) for e in events if e.type == "assistant/chunk"}
    answers = [e.value for e in events if e.type == "assistant/message"]
    return sum((a["turn"], a["step"]) not in steps for a in answers)


# --- recorded: the texts that a run derives again -----------------------------------------------------


def log_at(*tail: str) -> Events:
    [path] = CORPUS.joinpath("recorded", "logs").rglob(str(Path(*tail)))
    return read_log(path)[2]


def test_the_unknown_outcome_is_derived_byte_for_byte() -> None:
    events = log_at("tool-outcome-unknown", "session.expected.jsonl")
    assert [bytes(e.data) for e in closers(events[:5])] == [bytes(e.data) for e in events[5:8]]
    assert closers(events[:5]) == list(events[5:8])


# --- written: interrupted -----------------------------------------------------------------------------


def without_text(closer: Any) -> Any:
    """A closer as a plain value, set aside the text for the model, which is our own."""
    message = closer["data"].get("message")
    if message:
        message["content"][0]["content"] = []
    return closer


@pytest.mark.parametrize("case", written("interrupted/"))
def test_interrupted(case: Any) -> None:
    for variant in case["variants"].values():
        header, cut, events = read_log(CORPUS / "written" / variant["file"]["path"])
        assert len(events) == case["logicalEvents"]
        assert events_digest(events) == variant["probe"]["readFrom0"]["canonicalSha256"]
        found = closers(events)
        ours = [without_text(decode(encode_event(closer))) for closer in found]
        assert ours == [without_text(closer) for closer in case["closers"]]
        if all(e.type != "tool/result" for e in found):
            assert events_digest(found) == case["closersSha256"]
            assert events_digest([*events, *found]) == variant["probe"]["inspect"]["canonicalSha256"]
        whole = Events.of([*events, *found])
        session = restored(header, cut, whole)
        assert closers(session.events) == []
        assert problems_in(session.events) == []


# --- written: fork ------------------------------------------------------------------------------------

PARENT, FIRST, SECOND, GRANDCHILD = "parent-1", "child-1", "child-2", "grandchild/..~é"


def written_log(case: Any, name: str) -> Events:
    return read_log(CORPUS / "written" / case["sessions"][name]["file"]["path"])[2]


@pytest.mark.parametrize("case", written("fork/"))
def test_fork(case: Any) -> None:
    store = SessionStore(ManualClock(1770000000000, 1), SeededIds())
    header = case["sessions"][PARENT]["header"]
    parent = store.create(PARENT, CreateSessionOptions(cwd=header["cwd"], created_at=header["createdAt"]))
    append_all(parent, written_log(case, PARENT))
    cut = case["sessions"][FIRST]["header"]["seedLength"]
    child = store.fork(parent, cut - 1, FIRST)
    store.fork(PARENT, None, SECOND)
    append_all(child, written_log(case, FIRST)[child.seq :])
    store.fork(child, None, GRANDCHILD)
    assert [session.id for session in store.list()] == [PARENT, FIRST, SECOND, GRANDCHILD]
    for session in store.list():
        check_session(session, case["sessions"][session.id])
        assert list(session.events) == list(written_log(case, session.id))


def check_session(session: Session, figures: Any) -> None:
    header = {"version": 0, "id": session.id, "createdAt": session.header.created_at}
    header |= {"cwd": session.header.cwd}
    if session.header.is_seeded:
        header |= {"parentSession": session.header.parent_session}
        header |= {"seedLength": session.inherited_event_count}
    assert header == figures["header"]
    assert session.seq == figures["liveEvents"]
    assert events_digest(session.events) == figures["liveSha256"]
    assert session.first_live_seq == figures["firstLiveSeq"]
    messages = session.derive_messages()
    assert (len(messages), messages_digest(messages)) == (figures["messages"], figures["messagesSha256"])


@pytest.mark.parametrize("case", written("fork/"))
def test_fork_errors(case: Any) -> None:
    store = SessionStore(ManualClock(), SeededIds())
    header, cut, events = read_log(CORPUS / "written" / case["sessions"][PARENT]["file"]["path"])
    stored = RestoredSession(header=header, inherited_event_count=cut, events=events)
    parent = store.create(None, stored)
    store.create(FIRST)
    attempts: dict[str, tuple[Any, ...]] = {
        "openTurn": (parent, 1),
        "outOfRange": (parent, parent.seq),
        "negative": (parent, -1),
        "fractional": (parent, 1.5),
        "missing": ("nobody",),
        "duplicate": (parent, None, FIRST),
    }
    for name, arguments in attempts.items():
        with pytest.raises(ForkRefusedError) as refused:
            store.fork(*arguments)
        assert refused.value.code == case["errors"][name]["code"]
    assert attempts.keys() == case["errors"].keys()


@pytest.mark.parametrize("case", written("fork/"))
def test_a_stored_tree_comes_back_with_its_cuts(case: Any) -> None:
    store = SessionStore(ManualClock(), SeededIds())
    for figures in case["sessions"].values():
        header, cut, events = read_log(CORPUS / "written" / figures["file"]["path"])
        session = store.create(None, RestoredSession(header=header, inherited_event_count=cut, events=events))
        assert cut == figures["header"].get("seedLength", 0)
        assert header.is_seeded is ("seedLength" in figures["header"])
        assert session.first_live_seq == figures["liveEvents"]


# --- faults -------------------------------------------------------------------------------------------


def fault(name: str, file: str) -> tuple[SessionHeader, SessionLogOffset, Events]:
    return read_log(CORPUS / "faults" / name / file)


def test_inherited_history_is_not_billed_to_a_child() -> None:
    name = "05-fork-usage-counted-once"
    right = read_json("faults", name, "expect.json")
    tree = UsageTotals()
    for child, tokens in right["own"].items():
        _, cut, events = fault(name, f"{child}.jsonl")
        totals = usage_of(events, cut)
        assert {key: totals.as_dict()[key] for key in tokens} == tokens
        assert totals.turns == right["own_turns"][child]
        tree += totals
    assert {key: tree.as_dict()[key] for key in right["tree_total"]} == right["tree_total"]
    assert tree.requests == right["requests_in_tree"]
    whole = [usage_of(fault(name, f"{child}.jsonl")[2], START) for child in right["own"]]
    wrong = sum(whole, UsageTotals()).as_dict()
    assert {key: wrong[key] for key in right["wrong_naive_total"]} == right["wrong_naive_total"]


def test_reused_call_ids_pair_inside_their_step() -> None:
    name = "15-reused-tool-call-ids"
    right = read_json("faults", name, "expect.json")
    session = restored(*fault(name, "a-across-steps.jsonl"))
    results = [
        m.value["content"][0] for m in session.derive_messages() if m.value["source"]["kind"] == "tool"
    ]
    assert len(results) == right["a_tool_messages_in_request"]
    assert [r["content"][0]["text"] for r in results] == [text for _, text in right["a_pairs"]]
    assert problems_in(session.events) == []
    header, cut, events = fault(name, "b-open-turn.jsonl")
    found = closers(events)
    assert [e.type for e in found] == ["tool/result", "step/end", "turn/end"]
    assert found[0].source_event_seqs == (56,)
    assert found[0].value["message"]["source"]["callId"] == "call_0"
    assert sum(e.type == "tool/result" for e in found) == right["b_unanswered_calls"]
    assert problems_in(Events.of([*events, *found])) == []
    assert restored(header, cut, Events.of([*events, *found])).events[-1].type == "session/end-seed"
    assert found[1].surface_op is UNSET
