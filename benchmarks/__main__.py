"""`make bench`: measure and print; nothing here passes or fails."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from benchmarks import logs, replays, stores

CORPUS = Path(os.environ.get("SEEDLINE_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))


def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    big = CORPUS / "bench" / "big.session.jsonl.zstd"
    if big.exists():
        print(logs.report(big))
    else:
        print("The large log is not here: set SEEDLINE_CORPUS to the corpus that holds bench/.\n")
    print(replays.report())
    print(stores.report())


if __name__ == "__main__":
    main()
