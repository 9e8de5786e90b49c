"""Subagents: the provider seam, the in-process providers `spawn` and `fork`, and the delegation tools."""
