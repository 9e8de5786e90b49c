"""The exit codes of every verb, and which one wins over several paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DONE: Final = 0
DIVERGED: Final = 1
USAGE: Final = 2
REPLAY: Final = 3
OFFLINE: Final = 4
UNREADABLE: Final = 5
CANCELLED: Final = 130

MEANINGS: Final = {
    DONE: "done; compared runs are the same",
    DIVERGED: "a replay diverged, or a run's turn ended in error",
    USAGE: "wrong use, or an output that cannot be written",
    REPLAY: "a recording cannot be replayed: an unfinished call, a wrong override, a grade below strict",
    OFFLINE: "something tried to leave the machine where only a recording may answer",
    UNREADABLE: "a file is missing, damaged, or in a format this build does not read",
    CANCELLED: "cancelled from the keyboard",
}
"""Exit code -> what it says."""

_PRIORITY: Final = (CANCELLED, UNREADABLE, OFFLINE, REPLAY, USAGE, DIVERGED, DONE)


def worst(codes: Iterable[int]) -> int:
    """Return the code to exit with after several paths were tried (5 > 4 > 3 > 1 > 0), 0 for none."""
    return min(codes, key=_PRIORITY.index, default=DONE)
