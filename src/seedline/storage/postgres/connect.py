"""Where a store lies, opening connections to it, and their errors in our terms."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from seedline.errors import StorageError, StoreLayoutError, StoreUrlError

Connection = psycopg.Connection[TupleRow]

BUSY_SECONDS: Final = 5
"""How long a write waits for a row that another transaction holds."""
_SCHEMES: Final = ("postgresql://", "postgres://")
_OWNER: Final = "seedline: "
_DEFAULTS: Final = {
    # A peer that vanished without a word is noticed within half a minute, at both ends.
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
_SETTINGS: Final = {
    "lock_timeout": f"{BUSY_SECONDS}s",
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "enable_sort": "off",  # events lie in the order of their key: walking it beats sorting them
}
_SETTLE: Final = (
    "SELECT set_config(name, wanted, false) FROM unnest(%s::text[], %s::text[]) AS known (name, wanted) "
    # `idle_session_timeout` came with PostgreSQL 14.
    "WHERE EXISTS (SELECT FROM pg_settings AS one WHERE one.name = known.name) "
    "UNION ALL SELECT set_config('search_path', quote_ident(%s), false) "
    # Whatever else the administrator chose waits for the medium.
    "UNION ALL SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


class Address:
    """A schema of a database. `place` names it for people, without a password."""

    def __init__(self, url: str, schema: str) -> None:
        known = _parsed(url)
        _check_schema(schema)
        self.schema = schema
        self.place = _place(known, schema)
        self._password = str(known.get("password") or "")
        self._target = make_conninfo("", **{**_DEFAULTS, **known, "client_encoding": "UTF8"})

    def connect(self) -> Connection:
        """Return a connection that commits each statement by itself. Raises `psycopg.Error`."""
        connection = psycopg.connect(self._target, autocommit=True, application_name=_OWNER + this_process())
        try:
            names, values = list(_SETTINGS), list(_SETTINGS.values())
            connection.execute(_SETTLE, (names, values, self.schema))
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def translated(self, session_id: str | None = None) -> Generator[None]:
        """Raise the errors of psycopg as ours, naming the place."""
        try:
            yield
        except (errors.UndefinedTable, errors.UndefinedColumn, errors.DatatypeMismatch) as error:
            reason = f"its tables were changed under an open store: {self._reason(error)}"
            raise StoreLayoutError(reason, place=self.place, session_id=session_id) from error
        except psycopg.Error as error:
            reason = f"PostgreSQL: {self._reason(error)}"
            raise StorageError(reason, place=self.place, session_id=session_id) from error

    def _reason(self, error: psycopg.Error) -> str:
        text = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._password, "***") if self._password else text

    def lock_key(self, session_id: bytes) -> int:
        """Return the number of a session's advisory lock; the empty id stands for the schema itself."""
        name = self.schema.encode() + b"\0" + session_id
        return int.from_bytes(blake2b(name, digest_size=8, person=b"seedline").digest(), signed=True)


def _parsed(url: str) -> dict[str, Any]:
    if not url.startswith(_SCHEMES):
        raise StoreUrlError("a PostgreSQL URL begins with postgresql://")
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:
        # The words of libpq would quote a piece of the URL, which may be one of the password.
        reason = "the URL is no PostgreSQL URL; write special characters of names and passwords as %XX"
        raise StoreUrlError(reason, place=_SCHEMES[0]) from None


def _check_schema(schema: str) -> None:
    size = len(schema.encode("utf-8", "surrogatepass"))
    if not 0 < size <= 63 or "\0" in schema or schema.startswith("pg_") or not _is_utf8(schema):
        raise StoreUrlError(f"{schema[:80]!r} cannot be the name of a schema", place=_SCHEMES[0])


def _is_utf8(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _place(known: dict[str, Any], schema: str) -> str:
    user, host, port = (str(known.get(name) or "") for name in ("user", "host", "port"))
    database = quote(str(known.get("dbname") or ""), safe="")
    is_folder = host.startswith(("/", "@"))
    server = ("" if is_folder else host) + (f":{port}" if port else "")
    who = f"{quote(user, safe='')}@" if user else ""
    folder = f"host={quote(host)}&" if is_folder else ""
    return f"postgresql://{who}{server}/{database}?{folder}schema={quote(schema)}"


def this_process() -> str:
    """Return how this process is named to others, short enough for the server: it keeps 63 bytes of ASCII."""
    node = os.uname().nodename.encode("ascii", "replace").decode()
    return f"process {os.getpid()} on {node}"[: 63 - len(_OWNER)]


def owner_of(application_name: str) -> str | None:
    """Return the process that signed a connection, None when none of ours did."""
    return application_name.removeprefix(_OWNER) if application_name.startswith(_OWNER) else None


def is_gone(owner: str) -> bool:
    """True when the process was one of this machine and is dead: its connections are about to end."""
    words = owner.split()
    if len(words) != 4 or this_process().partition(" on ")[2] != words[3] or not words[1].isdigit():
        return False
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
