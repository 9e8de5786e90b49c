"""Where the `seedline` command enters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seedline.cli.collector import collector_paused
from seedline.cli.exits import CANCELLED


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with `arguments`, by default this process's; leaves through `SystemExit`.

    The exit codes are those of `seedline.cli.exits`.
    """
    try:
        with collector_paused():
            from seedline.cli.app import app

        app(None if arguments is None else [*arguments], prog_name="seedline")
    except KeyboardInterrupt:
        sys.exit(CANCELLED)
