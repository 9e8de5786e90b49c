"""Concurrent siblings replay exactly, under any schedule; a rule that binds by first call does not.

Live runs have random latencies, children get identical prompts, and every answer names the session that
gave it, so an answer in the wrong place shows.
"""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from seedline.events.codec import encode_event
from seedline.replay.model import Channel
from seedline.session.log import Session
from seedline.session.tree import SessionTree
from seedline.snapshot.report import SessionReport
from seedline.snapshot.runner import ReplayOptions, SessionRun, replay_tree
from tests.properties.trees import Plan, jitter, random_plan, record, wide_plan

SWEEP = os.environ.get("SEEDLINE_SWEEP") == "1"
SCHEDULES = 10_000 if SWEEP else 500
PER_TREE = 20
LARGEST = 65


def lines(session: Session) -> list[bytes]:
    return [encode_event(event) for event in session.events]


async def replay_shuffled(
    tree: SessionTree, rng: random.Random, route: Callable[[SessionRun], Channel] | None = None
) -> tuple[list[SessionReport], dict[str, list[bytes]]]:
    logs: dict[str, list[bytes]] = {}
    options = ReplayOptions(
        give_way=jitter(rng, 6),
        on_session=lambda key, session: logs.update({key: lines(session)}),
    )
    if route is not None:
        options = dataclasses.replace(options, route=route)
    return await replay_tree(tree, options), logs


async def check_tree(plan: Plan, rng: random.Random, schedules: int) -> None:
    made, tree = await record(plan, rng)
    recorded = {node.key: lines(_session(made, node.session.name)) for node in tree.primary.walk()}
    assert len(recorded) == plan.sessions()
    for _ in range(schedules):
        reports, logs = await replay_shuffled(tree, rng)
        assert [r.status for r in reports] == ["identical"] * plan.sessions(), [
            (r.key, r.reason, r.divergence) for r in reports if r.status != "identical"
        ]
        assert {r.grade for r in reports} == {"exact"}
        assert logs == recorded


def _session(made: list[Session], session_id: str) -> Session:
    return next(session for session in made if session.id == session_id)


def budgets() -> Iterator[int]:
    """Yield tree sizes with a median of 8 sessions."""
    while True:
        yield from (3, 5, 8, 8, 8, 12, 20)


@pytest.mark.parametrize("part", range(4))
def test_every_schedule_of_random_trees_gives_the_recorded_logs_byte_for_byte(part: int) -> None:
    async def sweep() -> None:
        rng = random.Random(1000 + part)
        for done, budget in zip(range(0, SCHEDULES // 4, PER_TREE), budgets(), strict=False):
            del done
            await check_tree(random_plan(rng, budget), rng, PER_TREE)

    anyio.run(sweep)


def test_sixty_four_siblings_with_one_prompt_each_get_their_own_answer() -> None:
    anyio.run(check_tree, wide_plan(LARGEST - 1), random.Random(7), PER_TREE if SWEEP else 3)


def test_binding_by_first_call_misbinds_the_same_trees() -> None:
    """The rule that this project replaces must fail in this harness, or the harness proves nothing."""

    async def misbound() -> int:
        rng = random.Random(5)
        wrong = 0
        for _ in range(20):
            _, tree = await record(wide_plan(4), rng)
            reports, _ = await replay_shuffled(tree, rng, first_call_route())
            wrong += any(report.status != "identical" for report in reports)
        return wrong

    assert anyio.run(misbound) >= 15


def first_call_route() -> Callable[[SessionRun], Channel]:
    """Return the rule under which a session takes the next unused script when it first calls the model."""
    bound: dict[str, Channel] = {}
    unused: list[Channel] = []

    def route(run: SessionRun) -> Channel:
        if run.node.key == "0":
            unused[:] = unused or [r.channel for r in children_of(run)]
            return run.channel
        if run.node.key not in bound:
            bound[run.node.key] = unused.pop(0)
        return bound[run.node.key]

    return route


def children_of(root: SessionRun) -> list[SessionRun]:
    return [SessionRun(child, root.options, delegated=True) for child in root.node.children]


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_hash_seed_changes_nothing(hash_seed: str) -> None:
    program = (
        "import anyio, random\n"
        "from tests.properties.test_concurrent_replay import check_tree\n"
        "from tests.properties.trees import random_plan\n"
        "anyio.run(check_tree, random_plan(random.Random(3), 9), random.Random(4), 3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
