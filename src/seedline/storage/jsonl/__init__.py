"""One session per file: JSON lines, plain or in zstd frames (dsh format version 0, section 4)."""
