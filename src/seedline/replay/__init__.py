"""Replay: scripts from recorded logs, and the stand-in model that answers from them."""
