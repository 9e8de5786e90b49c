"""The loop: input in, model calls and tool runs, every one of them in the log."""
