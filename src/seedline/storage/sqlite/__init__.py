"""Sessions in one SQLite database, table layout 4 (format version 0, section 5)."""

from seedline.storage.sqlite.backend import SqliteBackend
from seedline.storage.sqlite.layout import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "SqliteBackend"]
