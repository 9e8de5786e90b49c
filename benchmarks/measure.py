"""Timing, memory and rows of a report."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: a figure, what it stands beside, and their ratio (lower is better)."""

    what: str
    ours: str
    beside: str
    ratio: float | None = None


def best_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the shortest of some runs; the collector is emptied before each and works as usual in it."""
    times: list[float] = []
    for _ in range(repeats):
        gc.collect()
        begin = time.perf_counter()
        kept = work()
        times.append(time.perf_counter() - begin)
        del kept
    return min(times)


def alternating(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Return the best times of two works, measured in turns, so that a busy machine slows both."""
    a, b = [], []
    for _ in range(5):
        a.append(best_seconds(first, 1))
        b.append(best_seconds(second, 1))
    return min(a), min(b)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def resident_growth(setup: str, work: str) -> int:
    """Return by how many bytes a fresh process grows over `work`, after `setup` and a collection."""
    program = (
        "import gc, os, resource\n"
        "def resident():\n"
        "    gc.collect()\n"
        "    with open('/proc/self/statm') as statm:\n"
        "        return int(statm.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')\n"
        f"{setup}\n"
        "before = resident()\n"
        f"{work}\n"
        "print(resident() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def table(title: str, rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [f"## {title}", "", "| What | Seedline | Beside it | Ratio |", "|---|---|---|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        lines.append(f"| {row.what} | {row.ours} | {row.beside} | {ratio} |")
    return "\n".join(lines) + "\n"
