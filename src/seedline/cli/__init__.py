"""The `seedline` command."""
