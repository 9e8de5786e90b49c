"""Sessions in one schema of a PostgreSQL database, through psycopg 3 (`docs/decisions/0003`)."""

from seedline.storage.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
