"""Descriptors become candidates: the index, its snapshots, and what is asked of it."""
