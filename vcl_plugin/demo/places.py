"""Painted places: a landscape, a skyline, a reef, space, a wall, shelves.

In: a random generator and a size. Out: an RGB picture with things before a ground.
Listed by `scenery`, which paints the worlds of the rendered footage with them.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import ImageDraw

from vcl_plugin.demo.brushes import (
    Picture,
    Rng,
    Size,
    draw_fish,
    draw_planet,
    draw_shape,
    draw_tree_or_house,
    draw_writing,
    fractal_noise,
    light_unevenly,
    pick_colour,
    ridge_line,
    shade,
    to_image,
)


def paint_landscape(rng: Rng, size: Size) -> Picture:
    """Ranges of hills under a clouded sky, with trees and houses in front."""
    width, height = size
    low, high = pick_colour(rng, 0.35, 1.0), pick_colour(rng, 0.6, 0.75)
    rows = np.linspace(0, 1, height)[:, None, None]
    sky = (1 - rows) * np.array(high) + rows * np.array(low)
    clouds = np.clip(fractal_noise(rng, size, 5) * 2.6 - 1.2, 0, 1)[..., None]
    image = to_image(sky * (1 - 0.7 * clouds) + 255 * 0.7 * clouds)
    draw = ImageDraw.Draw(image)
    x, y, radius = width * rng.random(), height * rng.uniform(0.1, 0.4), height * 0.09
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=pick_colour(rng, 0.5, 1.0))
    hue = rng.random()
    for layer in range(4):
        base = height * (0.45 + 0.15 * layer)
        ridge = base - height * 0.28 * (ridge_line(rng, width) - 0.4)
        tone = shade(hue + 0.05 * layer, 0.35 + 0.12 * layer, 0.75 - 0.15 * layer)
        draw.polygon([(0, height), *enumerate(ridge.tolist()), (width, height)], fill=tone)
        for _ in range(5 + 4 * layer):
            at = int(rng.integers(width))
            draw_tree_or_house(draw, rng, at, float(ridge[at]) + 6, height * (0.05 + 0.035 * layer))
    return light_unevenly(rng, image)


def paint_skyline(rng: Rng, size: Size) -> Picture:
    """Towers with lit windows before an evening sky."""
    width, height = size
    top, bottom = shade(rng.random(), 0.7, 0.25), pick_colour(rng, 0.6, 0.9)
    rows = np.linspace(0, 1, height)[:, None, None]
    image = to_image((1 - rows) * np.array(top) + rows * np.array(bottom) + np.zeros((1, width, 1)))
    draw = ImageDraw.Draw(image)
    for _ in range(160):
        x, y = rng.random() * width, rng.random() * height * 0.6
        draw.point((x, y), fill=(255, 255, 240))
    for depth in range(3):
        x = -20.0
        while x < width:
            wide = rng.uniform(0.03, 0.09) * width
            tall = height * rng.uniform(0.25, 0.8 - 0.14 * depth)
            wall = pick_colour(rng, 0.4, 0.55 - 0.15 * depth)
            draw.rectangle((x, height - tall, x + wide, height), fill=wall)
            lamp = pick_colour(rng, 0.45, 1.0)
            step_x, step_y = rng.uniform(7, 15), rng.uniform(9, 18)
            lit = rng.random((int(tall / step_y) + 1, int(wide / step_x) + 1)) < rng.uniform(
                0.3, 0.8
            )
            for row, column in np.argwhere(lit).tolist():
                left, up = x + 3 + column * step_x, height - tall + 4 + row * step_y
                if left + step_x * 0.55 < x + wide:
                    draw.rectangle((left, up, left + step_x * 0.5, up + step_y * 0.5), fill=lamp)
            if rng.random() < 0.4:
                tip = height - tall - rng.uniform(10, 50)
                draw.line((x + wide / 2, height - tall, x + wide / 2, tip), fill=wall, width=3)
            x += wide + rng.uniform(0, 0.03) * width
    return light_unevenly(rng, image)


def paint_reef(rng: Rng, size: Size) -> Picture:
    """Under water: light from above, weeds, stones, a shoal."""
    width, height = size
    hue = rng.uniform(0.4, 0.72)
    rows = np.linspace(1, 0.25, height)[:, None, None]
    water = np.array(shade(hue, 0.7, 0.95)) * rows
    ripples = np.abs(fractal_noise(rng, size, 5, stretch=3) - 0.5) * 2
    image = to_image(water + 90 * np.clip(0.35 - ripples, 0, 1)[..., None] * rows * 3)
    draw = ImageDraw.Draw(image)
    for _ in range(26):
        x, tall, ink = (
            rng.random() * width,
            height * rng.uniform(0.2, 0.7),
            pick_colour(rng, 0.8, 0.6),
        )
        sway = [(x + 14 * math.sin(step * 0.9 + x), height - tall * step / 9) for step in range(10)]
        draw.line(sway, fill=ink, width=int(rng.integers(4, 11)), joint="curve")
    for _ in range(14):
        x, radius = rng.random() * width, rng.uniform(15, 60)
        draw.ellipse(
            (x - radius * 1.5, height - radius, x + radius * 1.5, height + radius),
            fill=pick_colour(rng, 0.5, 0.45),
        )
    for _ in range(34):
        draw_fish(draw, rng, rng.random() * width, rng.random() * height * 0.9, rng.uniform(8, 34))
    for _ in range(70):
        x, y, radius = rng.random() * width, rng.random() * height, rng.uniform(2, 7)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=(225, 245, 255))
    return light_unevenly(rng, image)


def paint_space(rng: Rng, size: Size) -> Picture:
    """Stars and nebulae, with a few large banded planets, some with rings."""
    width, height = size
    cloud = np.clip(fractal_noise(rng, size, 5) * 2 - 0.8, 0, 1)[..., None]
    other = np.clip(fractal_noise(rng, size, 5) * 2 - 0.9, 0, 1)[..., None]
    sky = (
        12
        + cloud * np.array(pick_colour(rng, 0.8, 0.8))
        + other * np.array(pick_colour(rng, 0.8, 0.8))
    )
    stars = rng.random((height, width)) > 0.9975
    sky[stars] = 255
    for number in range(5):
        radius = height * rng.uniform(0.08, 0.3)
        cx, cy = width * (number + rng.uniform(0.1, 0.9)) / 5, height * rng.uniform(0.1, 0.9)
        draw_planet(rng, sky, cx, cy, radius)
    return light_unevenly(rng, to_image(sky))


def paint_wall(rng: Rng, size: Size) -> Picture:
    """Bricks with posters, each poster with a shape and lines of writing."""
    width, height = size
    brick = np.array(shade(rng.uniform(-0.05, 0.15), rng.uniform(0.3, 0.7), 0.7))
    tall, long = int(rng.integers(14, 26)), int(rng.integers(36, 64))
    ys, xs = np.mgrid[0:height, 0:width]
    row = ys // tall
    column = (xs + (row % 2) * (long // 2)) // long
    tint = rng.uniform(0.7, 1.15, (row.max() + 1, column.max() + 1))[row, column]
    mortar = (ys % tall < 2) | ((xs + (row % 2) * (long // 2)) % long < 2)
    tint = tint * (0.8 + 0.4 * fractal_noise(rng, size, 6))
    wall = np.where(
        mortar[..., None], np.array(pick_colour(rng, 0.05, 0.75)), brick * tint[..., None]
    )
    image = to_image(wall)
    draw = ImageDraw.Draw(image)
    x = rng.uniform(10, 80)
    while x < width - 60:
        wide, high = rng.uniform(80, 170), rng.uniform(100, 210)
        y = rng.uniform(5, max(10.0, height - high - 5))
        paper, ink = pick_colour(rng, 0.5, 0.95), pick_colour(rng, 0.8, 0.35)
        draw.rectangle((x, y, x + wide, y + high), fill=paper, outline=ink, width=3)
        draw_shape(
            draw, rng, x + wide / 2, y + high * 0.36, wide * 0.32, pick_colour(rng, 0.8, 0.8)
        )
        for line in range(4):
            top = y + high * (0.66 + 0.08 * line)
            draw_writing(draw, rng, x + 10, top, wide - 20, high * 0.05, ink)
        x += wide + rng.uniform(15, 110)
    return np.asarray(image)


def paint_shelves(rng: Rng, size: Size) -> Picture:
    """Shelves of jars, boxes and books, each with its label."""
    width, height = size
    wood = (
        np.array(pick_colour(rng, 0.5, 0.45))
        * (0.7 + 0.5 * fractal_noise(rng, size, 4, stretch=8))[..., None]
    )
    image = to_image(wood)
    draw = ImageDraw.Draw(image)
    shelves = int(rng.integers(3, 5))
    for shelf in range(shelves):
        floor = height * (shelf + 1) / shelves - 10
        room = height / shelves - 20
        x = rng.uniform(0, 10)
        while x < width:
            wide, tall, ink = (
                rng.uniform(12, 62),
                room * rng.uniform(0.5, 1.0),
                pick_colour(rng, 0.75, 0.85),
            )
            box = (x, floor - tall, x + wide, floor)
            if rng.random() < 0.5:
                draw.rectangle(box, fill=ink, outline=(25, 20, 20), width=2)
            else:
                draw.rounded_rectangle(
                    box, radius=wide * 0.28, fill=ink, outline=(25, 20, 20), width=2
                )
                draw.rectangle(
                    (x + 3, floor - tall - 4, x + wide - 3, floor - tall + 6),
                    fill=pick_colour(rng, 0.4, 0.4),
                )
            label = (x + 4, floor - tall * 0.7, x + wide - 4, floor - tall * 0.25)
            draw.rectangle(label, fill=shade(rng.random(), 0.2, 0.95))
            if wide > 24:
                draw_shape(
                    draw,
                    rng,
                    x + wide / 2,
                    floor - tall * 0.48,
                    tall * 0.14,
                    pick_colour(rng, 0.9, 0.7),
                )
            x += wide + rng.uniform(1, 9)
        draw.rectangle((0, floor, width, floor + 10), fill=pick_colour(rng, 0.4, 0.3))
    return light_unevenly(rng, image)
