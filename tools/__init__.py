"""Programs that work on the repository itself; nothing here is shipped."""
