"""Recordings driven through the real loop: the feeder and the runner of one session or a whole tree."""
