"""Segments become claims: whose work it is, what the owner wants, and what people decided."""
