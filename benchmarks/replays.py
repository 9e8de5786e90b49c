"""Replaying a recorded tree in process, many times."""

from __future__ import annotations

from pathlib import Path

import anyio

from benchmarks.measure import Row, best_seconds, table
from seedline.snapshot.load import load_scenario
from seedline.snapshot.runner import ReplayOptions, replay_tree

TEAM = Path(__file__).parents[1] / "examples" / "team"
ROUNDS = 20


async def rounds(path: Path) -> int:
    """Replay the tree from loaded files; return how many events went through the loop."""
    scenario = load_scenario(str(path))
    events = 0
    for _ in range(ROUNDS):
        reports = await replay_tree(scenario.tree, ReplayOptions())
        assert all(report.status == "identical" for report in reports)
        events += sum(report.compared + report.fed for report in reports)
    return events


def report() -> str:
    """Measure the shipped recording (a root and five children) on one core."""
    events = anyio.run(rounds, TEAM)
    seconds = best_seconds(lambda: anyio.run(rounds, TEAM), 3)
    per_tree = seconds / ROUNDS
    rows = [
        Row(
            "one tree, root and five children",
            f"{per_tree * 1000:.1f} ms",
            "aim 5 ms a session",
            per_tree / 0.03,
        ),
        Row(
            "trees per second and core",
            f"{1 / per_tree:.0f}",
            "aim 8.3 (1,000 in 60 s on 2 cores)",
            per_tree / 0.12,
        ),
        Row("events per second through the loop", f"{events / seconds:,.0f}", "-"),
    ]
    return table("Replay", rows)
