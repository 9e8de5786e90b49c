"""The `--store` option of verbs that read recordings."""

from __future__ import annotations

import os.path

import typer


def store_folder(url: str | None) -> str | None:
    """Return the folder of a `jsonl:PATH[?...]` store, None for None. Raises `typer.BadParameter`."""
    if url is None:
        return None
    scheme, _, rest = url.partition(":")
    path = rest.partition("?")[0]
    if scheme != "jsonl" or not path:
        raise typer.BadParameter(
            f"{url!r} is not jsonl:PATH; sessions of other stores are not read here. "
            "Export the session to a file and name that",
            param_hint="'--store'",
        )
    return os.path.abspath(os.path.expanduser(path))
