"""The session: an append-only event log with a surface, its lineage and its life in memory."""
