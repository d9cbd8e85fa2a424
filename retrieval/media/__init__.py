"""A hostile file becomes frames: decoded in a confined child, a few at a time."""
