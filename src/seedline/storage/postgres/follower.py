"""Being told of changes by the server, or by looking where it cannot tell."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

import psycopg
from psycopg import sql

from seedline.errors import StorageError
from seedline.storage.postgres.connect import Connection
from seedline.storage.postgres.database import Database
from seedline.storage.postgres.lock import channel

_LOOK_SECONDS: Final = 1.0
"""How often a follower looks without being told: an announcement may have been lost."""
_RETRY_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 60.0
"""How long the server may be away."""
_SLICE_SECONDS: Final = 0.1
"""How soon a follower notices that it is to stop."""


class Follower:
    """A connection that listens for one session."""

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._channel = channel(database, session_id)
        self._connection: Connection | None = None
        self._told = True
        self._look_at = 0.0
        self._away_since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()

    def is_due(self) -> bool:
        """True when the caller is to look: at first, when told, and now and then. Listens from here on."""
        self._listen()
        if not self._told and time.monotonic() < self._look_at:
            return False
        self._told = False
        self._look_at = time.monotonic() + _LOOK_SECONDS
        return True

    def _listen(self) -> None:
        """Open the connection where there is none; what was announced before is for the caller to see."""
        if self._connection is not None and not self._connection.closed:
            return
        self._drop()
        try:
            self._connection = self._database.open_reader()
            if self._connection is not None:
                self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        except psycopg.Error:  # the caller looks for itself, and is told why it cannot
            self._drop()
        self._told = True

    def wait(self, seconds: float) -> None:
        """Return when the session has changed, or after some time that is no longer than `seconds`."""
        limit = max(0.0, min(seconds, _SLICE_SECONDS))
        if self._told:
            time.sleep(min(limit, _RETRY_SECONDS))
        elif self._connection is None:
            time.sleep(limit)
        else:
            self._hear(self._connection, limit)

    def _hear(self, connection: Connection, seconds: float) -> None:
        try:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                self._told = True
        except psycopg.Error:
            self._drop()

    def failed(self, error: StorageError) -> None:
        """Keep calm for a while. Raises the error when the server stays away."""
        self._away_since = self._away_since or time.monotonic()
        self._told = True
        if time.monotonic() - self._away_since > _PATIENCE_SECONDS:
            raise error

    def succeeded(self) -> None:
        """Forget that the server was away."""
        self._away_since = None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._database.close_reader(connection)
