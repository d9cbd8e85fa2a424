"""The retrieval engine: a video in, candidate pairs out."""
