"""The input queues: 2.1 of the loop's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.agent.inbox import Inbox, Target
from seedline.errors import DuplicateMessageError, EventRefusedError, JsonValueError
from tests.unit.agent.harness import new_session, outline, reopened, say

TARGETS: tuple[Target, ...] = ("next-turn", "next-step")


def ids(inbox: Inbox, target: Target) -> list[str]:
    return [message["id"] for message in inbox.waiting(target)]


def filled(*texts: str) -> Inbox:
    inbox = Inbox(new_session())
    for text in texts:
        inbox.insert("next-turn", say(text))
    return inbox


@pytest.mark.parametrize(
    ("start", "count", "logged"),
    [
        (0, 1, "next-turn @0 drop 1 insert x"),
        (1, 1, "next-turn @1 drop 1 insert x"),
        (-1, 1, "next-turn @2 drop 1 insert x"),
        (-9, 9, "next-turn @0 drop 3 insert x"),
        (9, 9, "next-turn @3 insert x"),
        (1, -2, "next-turn @1 insert x"),
        (0, 0, "next-turn @0 insert x"),
    ],
)
def test_a_splice_is_normalised_like_an_array_splice(start: int, count: int, logged: str) -> None:
    session = new_session()
    inbox = Inbox(session)
    for text in "abc":
        inbox.insert("next-turn", say(text))
    inbox.splice("next-turn", start, count, [say("x")])
    assert outline(session.events)[-1] == logged


def test_the_keys_of_a_splice_stand_in_the_recorded_order() -> None:
    session = new_session()
    inbox = Inbox(session)
    inbox.insert("next-turn", say("a"))
    inbox.claim("next-turn")
    inbox.insert("next-turn", say("b"))
    inbox.remove("b")
    assert [list(event.value) for event in session.events] == [
        ["target", "start", "inserted"],
        ["target", "start", "removedCount", "inserted"],
        ["target", "start", "inserted"],
        ["target", "start", "removedCount", "inserted", "outcome"],
    ]


def test_a_change_of_nothing_logs_nothing() -> None:
    session = new_session()
    inbox = Inbox(session)
    inbox.splice("next-turn", 0, 5)
    inbox.clear()
    assert inbox.claim("next-turn") == inbox.claim("next-step") == []
    assert not inbox.remove("nobody")
    assert session.seq == 0


def test_next_step_is_claimed_whole_and_next_turn_one_by_one() -> None:
    inbox = filled("a", "b")
    inbox.insert("next-step", say("c"))
    inbox.insert("next-step", say("d"))
    assert [m["id"] for m in inbox.claim("next-step")] == ["c", "d"]
    assert [m["id"] for m in inbox.claim("next-turn")] == ["a"]
    assert ids(inbox, "next-turn") == ["b"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_id_waits_once_over_both_queues(target: Target) -> None:
    inbox = filled("a")
    with pytest.raises(DuplicateMessageError, match="'a'"):
        inbox.insert(target, say("a"))
    inbox.splice("next-turn", 0, 1, [say("a")])
    inbox.claim("next-turn")
    inbox.insert(target, say("a"))
    with pytest.raises(DuplicateMessageError):
        inbox.splice("next-turn", 0, 0, [say("b"), say("b")])


@pytest.mark.parametrize(
    "message",
    [
        {},
        "hello",
        {**say("a"), "id": ""},
        {**say("a"), "role": "assistant"},
        {**say("a"), "source": {}},
        {**say("a"), "content": "hello"},
    ],
)
def test_what_is_no_user_message_is_refused(message: Any) -> None:
    inbox = filled()
    with pytest.raises(EventRefusedError, match="message"):
        inbox.insert("next-turn", message)
    assert not len(inbox)


def test_what_is_not_lossless_json_is_refused() -> None:
    with pytest.raises(JsonValueError, match="/extra"):
        filled().insert("next-turn", {**say("a"), "extra": float("inf")})


def test_the_queue_holds_what_the_log_holds_not_the_callers_object() -> None:
    message = say("a")
    inbox = filled()
    inbox.insert("next-turn", message)
    message["content"][0]["text"] = "changed"
    assert inbox.waiting("next-turn")[0]["content"][0]["text"] == "a"


moves = st.tuples(
    st.sampled_from(["insert", "claim", "remove", "clear", "splice"]),
    st.sampled_from(TARGETS),
    st.integers(-4, 4),
    st.integers(-1, 3),
)


@given(st.lists(moves, max_size=25))
def test_the_queues_are_what_the_log_says(steps: list[tuple[str, Target, int, int]]) -> None:
    session = new_session()
    inbox = Inbox(session)
    for number, (move, target, start, count) in enumerate(steps):
        match move:
            case "insert":
                inbox.insert(target, say(f"m{number}"))
            case "claim":
                inbox.claim(target)
            case "remove":
                inbox.remove(f"m{abs(start)}")
            case "clear":
                inbox.clear()
            case _:
                before = ids(inbox, target)
                inbox.splice(target, start, count, [say(f"m{number}")])
                first = len(before) + start if start < 0 else start
                first = min(max(first, 0), len(before))
                last = first + max(0, count)
                assert ids(inbox, target) == [*before[:first], f"m{number}", *before[last:]]
    again = Inbox(reopened(session))
    assert [again.waiting(target) for target in TARGETS] == [inbox.waiting(target) for target in TARGETS]
