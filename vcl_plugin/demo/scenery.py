"""Painted worlds: what the rendered footage is filmed from.

In: a random generator and a size. Out: an RGB picture; `SCENES` lists the kinds there are.
Each scene looks unlike the others and unlike itself with another generator, because a copy detector
must tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from vcl_plugin.demo.brushes import Picture, Rng, Size, pick_colour
from vcl_plugin.demo.patterns import (
    paint_cloth,
    paint_glass,
    paint_lines,
    paint_map,
    paint_pages,
    paint_tiles,
)
from vcl_plugin.demo.places import (
    paint_landscape,
    paint_reef,
    paint_shelves,
    paint_skyline,
    paint_space,
    paint_wall,
)

SCENES: tuple[Callable[[Rng, Size], Picture], ...] = (
    paint_landscape,
    paint_skyline,
    paint_glass,
    paint_wall,
    paint_map,
    paint_pages,
    paint_tiles,
    paint_reef,
    paint_lines,
    paint_space,
    paint_shelves,
    paint_cloth,
)


def paint_world(rng: Rng, scene: Callable[[Rng, Size], Picture], size: Size) -> Picture:
    """The scene with large pieces of another one let into it.

    Two films then share a kind of scene but hardly ever a pair of kinds, so that footage from two
    seeds looks like two films and not like two takes of one.
    """
    world = Image.fromarray(scene(rng, size))
    width, height = size
    for _ in range(2):
        other = Image.fromarray(SCENES[int(rng.integers(len(SCENES)))](rng, size))
        mask = Image.new("L", size, 0)
        shape = ImageDraw.Draw(mask)
        rim = ImageDraw.Draw(world)
        ink = pick_colour(rng, 0.6, 0.9)
        for piece in range(3):
            x = width * (piece + rng.uniform(0.1, 0.9)) / 3
            y, reach = height * rng.uniform(0.1, 0.9), height * rng.uniform(0.18, 0.36)
            corners = int(rng.integers(3, 9))
            turns = np.sort(rng.uniform(0, 2 * math.pi, corners)) + rng.uniform(0, 1)
            outline = [
                (x + 1.3 * reach * math.cos(turn), y + reach * math.sin(turn))
                for turn in turns.tolist()
            ]
            shape.polygon(outline, fill=255)
            rim.line([*outline, outline[0]], fill=ink, width=9, joint="curve")
        world.paste(other, (0, 0), mask)
    return np.asarray(world)
