"""What happened: questions about stored and live sessions. Nothing here writes to a log or repairs one."""
