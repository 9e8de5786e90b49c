"""The tables of a store, and the proof that those of a database are ours."""

from __future__ import annotations

import uuid
from typing import Final

from psycopg import sql

from seedline.errors import StoreLayoutError
from seedline.storage.postgres.connect import Address, Connection

SCHEMA_VERSION: Final = 1
"""The table layout. Any other is refused untouched; there is no migration."""

_COLUMNS: Final = {
    "layout": ("singleton boolean", "version bigint", "store_id uuid"),
    "sessions": (
        "key bigint",
        "id bytea",
        "version bigint",
        "created_at bigint",
        "cwd bytea",
        "parent_session bytea",
        "seed_length bigint",
        "origin bytea",
        "delegation_depth bigint",
        "agent_preset bytea",
        "spawn bytea",
        "prefix_owner bigint",
        "prefix_count bigint",
        "incarnation uuid",
        "revision bigint",
        "epoch bigint",
        "writer text",
        "deleted boolean",
    ),
    "events": (
        "session bigint",
        "seq bigint",
        "type bytea",
        "time bigint",
        "data bytea",
        "source_event_seqs bytea",
        "surface_op bytea",
        "ignorable smallint",
    ),
    "torn_events": (
        "session bigint",
        "cut_at_revision bigint",
        "seq bigint",
        "type bytea",
        "time bigint",
        "data bytea",
        "source_event_seqs bytea",
        "surface_op bytea",
        "ignorable smallint",
    ),
}

# Events carry no foreign key: it costs a query for each row, and the fence of each batch proves the session.
# Each batch updates its session's row, so half of every page is left for the next versions of it.
_TABLES: Final = (
    """CREATE TABLE layout (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version bigint NOT NULL,
    store_id uuid NOT NULL
)""",
    """CREATE TABLE sessions (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id bytea NOT NULL,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    cwd bytea,
    parent_session bytea,
    seed_length bigint,
    origin bytea,
    delegation_depth bigint,
    agent_preset bytea,
    spawn bytea,
    prefix_owner bigint REFERENCES sessions (key) CHECK (prefix_owner < key),
    prefix_count bigint NOT NULL CHECK ((prefix_owner IS NULL) = (prefix_count = 0)),
    incarnation uuid NOT NULL,
    revision bigint NOT NULL,
    epoch bigint NOT NULL,
    writer text NOT NULL,
    deleted boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50)""",
    "CREATE UNIQUE INDEX sessions_by_id ON sessions (id) WHERE NOT deleted",
    "CREATE INDEX sessions_by_prefix ON sessions (prefix_owner) WHERE prefix_owner IS NOT NULL",
    """CREATE TABLE events (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    type bytea NOT NULL,
    time bigint NOT NULL,
    data bytea NOT NULL,
    source_event_seqs bytea,
    surface_op bytea,
    ignorable smallint,
    PRIMARY KEY (session, seq)
)""",
    """CREATE TABLE torn_events (
    session bigint NOT NULL,
    cut_at_revision bigint NOT NULL,
    seq bigint NOT NULL,
    type bytea,
    time bigint,
    data bytea,
    source_event_seqs bytea,
    surface_op bytea,
    ignorable smallint
)""",
    "CREATE INDEX torn_events_by_session ON torn_events (session)",
)
_FOUND: Final = (
    "SELECT t.relname, array_agg(c.attname || ' ' || format_type(c.atttypid, NULL) ORDER BY c.attnum) "
    "FROM pg_class AS t JOIN pg_attribute AS c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped "
    "WHERE t.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s) "
    "AND t.relkind IN ('r', 'p', 'v', 'm', 'f') GROUP BY 1"
)
_SCHEMA_EXISTS: Final = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)"
_KEYS: Final = (
    "SELECT count(*) FROM pg_index WHERE indisunique AND indisvalid AND indrelid IN "
    "(to_regclass('sessions'), to_regclass('events'))"
)


def is_pristine(connection: Connection, address: Address) -> bool:
    """True where no table was made yet. Raises `StoreLayoutError` unless those there are ours."""
    found = {str(table): columns for table, columns in connection.execute(_FOUND, (address.schema,))}
    if not found:
        return True
    if found.get("layout") != list(_COLUMNS["layout"]):
        raise StoreLayoutError("the schema holds tables that are not Seedline's", place=address.place)
    _check_version(connection, address)
    for table, columns in _COLUMNS.items():
        if found.get(table) != list(columns):
            reason = f"its table {table!r} is not that of layout {SCHEMA_VERSION}"
            raise StoreLayoutError(reason, place=address.place)
    if (connection.execute(_KEYS).fetchone() or (0,))[0] < 3:  # two of the sessions, one of the events
        raise StoreLayoutError("a unique index of its tables is gone", place=address.place)
    return False


def _check_version(connection: Connection, address: Address) -> None:
    versions = [row[0] for row in connection.execute("SELECT version FROM layout")]
    if versions != [SCHEMA_VERSION]:
        found = ", ".join(map(str, versions)) or "missing"
        reason = f"its layout is {found}, this build's is {SCHEMA_VERSION}"
        raise StoreLayoutError(reason, place=address.place)


def ensure_tables(connection: Connection, address: Address) -> None:
    """Make schema and tables where there are none, in one process only. Raises `StoreLayoutError`."""
    if not is_pristine(connection, address):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (address.lock_key(b""),))
        if is_pristine(connection, address):
            _create_tables(connection, address)


def _create_tables(connection: Connection, address: Address) -> None:
    if not (connection.execute(_SCHEMA_EXISTS, (address.schema,)).fetchone() or (False,))[0]:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(address.schema)))
    for statement in _TABLES:
        connection.execute(statement)
    row = (SCHEMA_VERSION, uuid.uuid4())
    connection.execute("INSERT INTO layout (version, store_id) VALUES (%s, %s)", row)


def store_id(connection: Connection) -> str:
    """Return the random name that the store got when its tables were made."""
    row = connection.execute("SELECT store_id FROM layout").fetchone()
    return str(row[0]) if row else ""
