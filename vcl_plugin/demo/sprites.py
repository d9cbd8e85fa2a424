"""Sprites: cut-outs that fly across a shot on ways of their own.

In: a random generator and the picture's height. Out: a `Sprite`.
"""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image, ImageDraw

from vcl_plugin.demo.brushes import Rng, draw_fish, draw_shape, pick_colour


@dataclass(frozen=True, slots=True)
class Sprite:
    """A cut-out and its way: where it starts, picture widths a second, bobs a second."""

    picture: Image.Image
    x: float
    y: float
    pace: float
    beat: float


def paint_sprite(rng: Rng, height: int) -> Sprite:
    """A balloon, a fish or a shape, on its own way across the picture."""
    side = int(height * rng.uniform(0.16, 0.34))
    picture = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    kind = int(rng.integers(3))
    if kind == 0:
        ink = pick_colour(rng, 0.85, 0.95)
        draw.line((side / 2, side * 0.5, side / 2, side), fill=(40, 40, 40, 255), width=2)
        draw.ellipse(
            (side * 0.18, 0, side * 0.82, side * 0.76), fill=ink, outline=(30, 30, 30), width=2
        )
        draw.ellipse((side * 0.3, side * 0.1, side * 0.45, side * 0.3), fill=(255, 255, 255, 200))
    elif kind == 1:
        draw_fish(draw, rng, side / 2, side / 2, side * 0.4)
    else:
        draw_shape(draw, rng, side / 2, side / 2, side * 0.46, pick_colour(rng, 0.9, 0.95))
        draw_shape(draw, rng, side / 2, side / 2, side * 0.22, pick_colour(rng, 0.9, 0.4))
    pace = rng.uniform(0.12, 0.4) * rng.choice([-1, 1])
    return Sprite(
        picture, rng.random(), rng.uniform(0.15, 0.85), float(pace), rng.uniform(0.1, 0.5)
    )
