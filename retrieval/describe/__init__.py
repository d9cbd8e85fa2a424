"""Frames become descriptors: 256 numbers of unit length for each second of video."""
