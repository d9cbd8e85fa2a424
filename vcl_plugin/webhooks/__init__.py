"""Webhooks: what happens is told to addresses that asked for it, signed, at least once."""
