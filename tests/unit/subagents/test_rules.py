"""The rules by which a result is read from a log, on hand-made logs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from seedline.events.event import Event
from seedline.events.vocabulary import TurnEndReason
from seedline.jsonvalue import encode
from seedline.session.sequence import Events
from seedline.subagents.base import DIAGNOSTIC_BYTES, cap_diagnostic, select_output
from seedline.subagents.in_process import reason_that_counts, stop_reason, turns_started


def log(*facts: tuple[str, Any]) -> Events:
    return Events.of(Event(kind, seq, 0, Raw(encode(data))) for seq, (kind, data) in enumerate(facts))


def delta(text: str, kind: str = "text-delta") -> tuple[str, Any]:
    return "assistant/chunk", {"turn": 1, "step": 1, "chunk": {"type": kind, "index": 0, "text": text}}


def message(*blocks: Any) -> tuple[str, Any]:
    source = {"kind": "model", "provider": "p", "model": "m"}
    value = {"id": "a", "role": "assistant", "content": list(blocks), "source": source}
    return "assistant/message", {"turn": 1, "step": 1, "message": value}


TEXT, THOUGHT = {"type": "text", "text": "t"}, {"type": "reasoning", "text": "r"}


# --- output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "output"),
    [
        ([], ()),
        ([message(TEXT)], (TEXT,)),
        ([message(TEXT), message()], (TEXT,)),
        ([message(TEXT), message(THOUGHT)], (THOUGHT,)),
        ([message(TEXT), delta("later")], (TEXT,)),
        ([delta("a"), delta("b"), message()], ({"type": "text", "text": "ab"},)),
        ([delta("a", "reasoning-delta"), message()], ()),
        ([delta("")], ()),
        ([delta("\ud83d"), delta("\ude00")], ({"type": "text", "text": "\U0001f600"},)),
    ],
)
def test_the_output_of_a_child(events: list[Any], output: Any) -> None:
    assert select_output(log(*events)) == output


# --- which turn counts -------------------------------------------------------------------------------

START, STEP = ("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})
SPLICE = {"target": "next-turn", "start": 0, "inserted": []}
CLAIM = ("agent/inbox/spliced", SPLICE | {"removedCount": 1})
DROP = ("agent/inbox/spliced", SPLICE | {"removedCount": 1, "outcome": "canceled"})
INSERT = ("agent/inbox/spliced", SPLICE)


def end(kind: str) -> tuple[str, Any]:
    return "turn/end", {"turn": 1, "reason": {"kind": kind}}


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([], None),
        ([START, STEP], None),
        ([START, CLAIM, STEP, end("completed")], "completed"),
        ([START, CLAIM, end("blocked")], "blocked"),
        ([START, CLAIM, end("aborted")], "aborted"),
        ([START, CLAIM, end("completed")], None),
        ([START, DROP, end("aborted")], None),
        ([START, INSERT, end("aborted")], None),
        ([CLAIM, START, end("aborted")], None),
        ([START, STEP, end("max-tokens"), START, end("completed")], "max-tokens"),
        ([START, STEP, end("completed"), START, CLAIM, end("blocked")], "blocked"),
        ([START, STEP, end("completed"), START, CLAIM, end("completed")], "completed"),
        ([START, STEP, end("error"), CLAIM, START, end("aborted")], "error"),
    ],
)
def test_the_turn_that_counts(events: list[Any], kind: str | None) -> None:
    reason = reason_that_counts(log(*events))
    assert (reason and reason.kind) == kind


@pytest.mark.parametrize(
    ("kind", "expected", "when_cancelled"),
    [
        ("completed", "completed", "completed"),
        ("aborted", "aborted", "aborted"),
        ("max-tokens", "max-tokens", "aborted"),
        ("blocked", "refusal", "aborted"),
        ("error", "error", "aborted"),
        ("interrupted", "error", "aborted"),
        ("something-new", "error", "aborted"),
        (None, "error", "aborted"),
    ],
)
def test_the_stop_reason_table(kind: str | None, expected: str, when_cancelled: str) -> None:
    reason = None if kind is None else TurnEndReason(kind)
    assert stop_reason(reason, cancelled=False) == expected
    assert stop_reason(reason, cancelled=True) == when_cancelled


def test_turns_started() -> None:
    assert turns_started(log()) == 0
    assert turns_started(log(START, end("completed"), ("turn/start", {"turn": 2}))) == 2


# --- the diagnostic ----------------------------------------------------------------------------------


characters = st.sampled_from(["a", "é", "€", "\U0001f600", "\ud83d"])


@given(st.lists(st.tuples(characters, st.integers(1, 2000)), min_size=1, max_size=6))
def test_a_capped_diagnostic_fits_and_is_cut_at_a_character(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * count for character, count in runs)
    capped = cap_diagnostic(text)
    size = len(capped.encode("utf-8", "surrogatepass"))
    assert size <= DIAGNOSTIC_BYTES
    if len(text.encode("utf-8", "surrogatepass")) <= DIAGNOSTIC_BYTES:
        assert capped == text
        return
    kept = capped.removesuffix(" [cut]")
    assert capped != kept
    assert text.startswith(kept)
    assert size > DIAGNOSTIC_BYTES - 4  # no character more would fit
