"""Brushes: noise, colours and small things that painted worlds are made of.

In: a random generator, a size or a place on a canvas. Out: arrays, colours, strokes on the canvas.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]
Rng = np.random.Generator
Size = tuple[int, int]


def fractal_noise(rng: Rng, size: Size, octaves: int, stretch: float = 1.0) -> NDArray[np.float32]:
    """Fractal value noise in [0, 1]; `stretch` draws it out sideways."""
    width, height = size
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        cells = 3 * 2**octave
        grid = rng.random((max(2, cells), max(2, int(cells * width / height / stretch)))).astype(
            np.float32
        )
        total += (
            np.asarray(Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC)) / 2**octave
        )
    low, high = total.min(), total.max()
    return (total - low) / max(1e-6, high - low)


def ridge_line(rng: Rng, width: int) -> NDArray[np.float32]:
    return fractal_noise(rng, (width, 2), 3, stretch=120)[0]


def pick_colour(rng: Rng, saturation: float, value: float) -> Colour:
    """Any hue, near the given saturation and value."""
    return shade(rng.random(), saturation * rng.uniform(0.7, 1.15), value * rng.uniform(0.75, 1.1))


def shade(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, min(1.0, saturation), min(1.0, value))
    return (int(red * 255), int(green * 255), int(blue * 255))


def to_image(picture: NDArray[np.floating]) -> Image.Image:
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def light_unevenly(rng: Rng, image: Image.Image) -> Picture:
    """Uneven light, so that no area is perfectly flat."""
    light = 0.86 + 0.24 * fractal_noise(rng, image.size, 5)
    return np.clip(np.asarray(image) * light[..., None], 0, 255).astype(np.uint8)


def draw_tree_or_house(
    draw: ImageDraw.ImageDraw, rng: Rng, x: float, y: float, tall: float
) -> None:
    ink = pick_colour(rng, 0.7, 0.6)
    if rng.random() < 0.6:
        draw.rectangle((x - tall * 0.06, y - tall * 0.5, x + tall * 0.06, y), fill=(70, 50, 40))
        if rng.random() < 0.5:
            draw.polygon(
                [
                    (x - tall * 0.35, y - tall * 0.3),
                    (x, y - tall * 1.3),
                    (x + tall * 0.35, y - tall * 0.3),
                ],
                fill=ink,
            )
        else:
            draw.ellipse(
                (x - tall * 0.4, y - tall * 1.2, x + tall * 0.4, y - tall * 0.35), fill=ink
            )
        return
    draw.rectangle(
        (x - tall * 0.5, y - tall * 0.7, x + tall * 0.5, y), fill=pick_colour(rng, 0.3, 0.9)
    )
    draw.polygon(
        [(x - tall * 0.6, y - tall * 0.7), (x, y - tall * 1.2), (x + tall * 0.6, y - tall * 0.7)],
        fill=ink,
    )
    for side in (-0.25, 0.12):
        draw.rectangle(
            (x + tall * side, y - tall * 0.5, x + tall * (side + 0.16), y - tall * 0.28),
            fill=(60, 60, 80),
        )


def draw_shape(
    draw: ImageDraw.ImageDraw, rng: Rng, x: float, y: float, radius: float, ink: Colour
) -> None:
    """A disc, a ring, a polygon or a star."""
    kind = int(rng.integers(4))
    if kind == 0:
        draw.circle((x, y), radius, fill=ink)
    elif kind == 1:
        draw.circle((x, y), radius, outline=ink, width=max(2, int(radius * 0.3)))
    else:
        corners = int(rng.integers(3, 8)) * (kind - 1)
        turn = rng.uniform(0, 2 * math.pi)
        reach = [radius * (0.45 if kind == 3 and corner % 2 else 1.0) for corner in range(corners)]
        angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
        outline = [
            (x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(reach, angles, strict=True)
        ]
        draw.polygon(outline, fill=ink)


def draw_fish(draw: ImageDraw.ImageDraw, rng: Rng, x: float, y: float, size: float) -> None:
    ink, way = pick_colour(rng, 0.85, 0.95), float(rng.choice([-1, 1]))
    tail = x - way * size
    draw.polygon(
        [(x - way * size * 0.5, y), (tail, y - size * 0.5), (tail, y + size * 0.5)], fill=ink
    )
    draw.ellipse((x - size * 0.8, y - size * 0.45, x + size * 0.8, y + size * 0.45), fill=ink)
    draw.ellipse(
        (x - size * 0.2, y - size * 0.44, x, y + size * 0.44), fill=pick_colour(rng, 0.7, 0.9)
    )
    eye = x + way * size * 0.5
    draw.ellipse((eye - size * 0.1, y - size * 0.2, eye + size * 0.1, y), fill=(10, 10, 10))


def draw_writing(
    draw: ImageDraw.ImageDraw, rng: Rng, x: float, y: float, wide: float, tall: float, ink: Colour
) -> None:
    """Words of made-up letters: strokes on a small grid, no font needed."""
    pen = max(1, int(tall / 6))
    end = x + wide
    while x + tall * 0.6 < end:
        for _ in range(int(rng.integers(2, 8))):
            if x + tall * 0.6 >= end:
                return
            corners = rng.integers(0, 3, (3, 2)) * (tall * 0.26, tall * 0.5)
            draw.line([(x + dx, y + dy) for dx, dy in corners.tolist()], fill=ink, width=pen)
            x += tall * 0.75
        x += tall * 0.6


def draw_planet(rng: Rng, sky: NDArray[np.floating], cx: float, cy: float, radius: float) -> None:
    """A lit, banded globe, half of them with a ring, painted into its part of the sky."""
    height, width = sky.shape[:2]
    left, right = max(0, int(cx - 1.8 * radius)), min(width, int(cx + 1.8 * radius))
    top, bottom = max(0, int(cy - 1.8 * radius)), min(height, int(cy + 1.8 * radius))
    part = sky[top:bottom, left:right]
    ys, xs = np.mgrid[top:bottom, left:right].astype(np.float32)
    dx, dy = (xs - cx) / radius, (ys - cy) / radius
    inside = dx**2 + dy**2 < 1
    tilt = rng.uniform(-0.6, 0.6)
    clouds = fractal_noise(rng, (right - left, bottom - top), 4)
    bands = np.sin((dy + tilt * dx) * rng.uniform(4, 14) + 5 * clouds)
    depth = np.sqrt(np.clip(1 - dx**2 - dy**2, 0, 1))
    light = np.clip(0.35 + 0.8 * (depth - 0.3 * dx), 0.08, 1.2)[..., None]
    mix = (bands * 0.5 + 0.5)[..., None]
    bright, dark = np.array(pick_colour(rng, 0.6, 0.95)), np.array(pick_colour(rng, 0.7, 0.7))
    part[inside] = ((mix * bright + (1 - mix) * dark) * light)[inside]
    if rng.random() < 0.5:
        lean = dy - tilt * dx
        orbit = np.sqrt(dx**2 + (lean * 3.5) ** 2)
        ring = (orbit > 1.3) & (orbit < 1.75) & ~(inside & (lean < 0))
        shine = (0.7 + 0.3 * np.sin(orbit[ring] * 40))[:, None]
        part[ring] = np.array(pick_colour(rng, 0.4, 0.85)) * shine
