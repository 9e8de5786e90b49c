"""Comparisons with physical limits and peers, each measured beside its counterpart in one run."""
