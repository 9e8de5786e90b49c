"""Folders that are on the medium once they are made."""

from __future__ import annotations

import os
from contextlib import suppress


def make_folder(folder: str) -> None:
    """Make a folder, mode 0700, and those above it; they are on the medium on return."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    make_folder(above)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    sync_folder(above)


def sync_folder(folder: str) -> None:
    """Put the names in a folder on the medium."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
