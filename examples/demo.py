"""What `make demo` runs: replay a recorded tree, then alter one event of a copy and replay that."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TEAM = Path(__file__).parent / "team"
ALTERED = "session.3.jsonl"
SAID, CLAIMED = "Confident, 8.", "Confident, 9."


def replay(folder: Path) -> int:
    print(f"$ seedline replay {folder.name}", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "seedline", "replay", folder.name], cwd=folder.parent, check=False
    ).returncode


def alter(log: Path) -> None:
    """Change what the recorded answer says, but not the chunks it was made of."""
    rows = log.read_text(encoding="utf-8").split("\n")
    at = next(n for n, row in enumerate(rows) if row.startswith('{"type":"assistant/message"'))
    rows[at] = rows[at].replace(SAID, CLAIMED)
    log.write_text("\n".join(rows), encoding="utf-8")


def main() -> int:
    print(
        "A recorded run: a root that finishes a turn, then spawns one child, forks one, and then runs three\n"
        "children at once, two of which got the same prompt and gave different answers.\n"
    )
    if replay(TEAM) != 0:
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "altered-team"
        shutil.copytree(TEAM, copy)
        alter(copy / ALTERED)
        print(f"\nThe same run, with one event of {ALTERED} altered: {SAID!r} became {CLAIMED!r}.\n")
        return 0 if replay(copy) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
