"""Rows, and who works on which: videos, searches and pairs, leases, and what keeps them moving."""
