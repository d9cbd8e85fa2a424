"""Painted patterns: glass, a map, printed pages, tiles, lines of a plan, cloth.

In: a random generator and a size. Out: an RGB picture that is filled from edge to edge.
Listed by `scenery`, which paints the worlds of the rendered footage with them.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from vcl_plugin.demo.brushes import (
    Picture,
    Rng,
    Size,
    draw_shape,
    draw_writing,
    fractal_noise,
    light_unevenly,
    pick_colour,
    shade,
    to_image,
)


def paint_glass(rng: Rng, size: Size) -> Picture:
    """Stained glass: Voronoi cells between dark lead, larger and smaller ones."""
    width, height = size
    count = int(rng.integers(50, 170))
    seeds = rng.random((count, 2)) * (width, height)
    palette = np.array([pick_colour(rng, 0.75, 0.9) for _ in range(7)])
    colours = palette[rng.integers(7, size=count)] * rng.uniform(0.6, 1.1, (count, 1))
    ys, xs = np.mgrid[0:height:2, 0:width:2].astype(np.float32)
    nearest = np.full(xs.shape, np.inf, np.float32)
    second = nearest.copy()
    cell = np.zeros(xs.shape, np.int64)
    for number, (x, y) in enumerate(seeds.astype(np.float32)):
        distance = np.sqrt((xs - x) ** 2 + (ys - y) ** 2)
        closer = distance < nearest
        second = np.where(closer, nearest, np.minimum(second, distance))
        cell[closer] = number
        nearest = np.where(closer, distance, nearest)
    lead = np.clip((second - nearest) / 6, 0, 1)[..., None]
    glow = 1.1 - 0.35 * np.clip(nearest / 70, 0, 1)[..., None]
    image = to_image(colours[cell] * lead * glow).resize(size, Image.Resampling.BICUBIC)
    return light_unevenly(rng, image)


def paint_map(rng: Rng, size: Size) -> Picture:
    """A coast from above: height lines, roads between towns, names beside them."""
    width, height = size
    ground = fractal_noise(rng, size, 5)
    stops = np.array(
        [shade(rng.uniform(0.5, 0.65), 0.6, 0.75), *(pick_colour(rng, 0.4, 0.85) for _ in range(5))]
    )
    level = np.clip((ground - 0.2) * 1.6, 0, 0.999) * len(stops)
    picture = stops[level.astype(int)] * (0.82 + 0.3 * (level % 1))[..., None]
    picture[(level * 3 % 1) < 0.09] *= 0.72
    image = to_image(picture)
    draw = ImageDraw.Draw(image)
    towns = rng.random((14, 2)) * (width, height)
    for number, town in enumerate(towns):
        for other in rng.choice(len(towns), 2, replace=False):
            if other != number:
                middle = (town + towns[other]) / 2 + rng.normal(0, 50, 2)
                way = [tuple(town), tuple(middle), tuple(towns[other])]
                draw.line(way, fill=pick_colour(rng, 0.7, 0.95), width=int(rng.integers(2, 6)))
    for x, y in towns:
        radius = rng.uniform(5, 14)
        draw.ellipse(
            (x - radius, y - radius, x + radius, y + radius),
            fill=pick_colour(rng, 0.8, 0.9),
            outline=(20, 20, 20),
            width=2,
        )
        draw_writing(draw, rng, x + radius + 3, y - 6, rng.uniform(40, 90), 11, (15, 15, 25))
    return np.asarray(image)


def paint_pages(rng: Rng, size: Size) -> Picture:
    """Printed pages on a desk: headlines, columns of writing, pictures."""
    width, height = size
    desk = (
        np.array(pick_colour(rng, 0.5, 0.5))
        * (0.75 + 0.5 * fractal_noise(rng, (width, height), 4, stretch=9))[..., None]
    )
    image = to_image(desk)
    x = rng.uniform(-60, 20)
    while x < width:
        wide, high = rng.uniform(190, 300), height * rng.uniform(0.75, 1.1)
        page = Image.new("RGB", (int(wide), int(high)), shade(rng.random(), 0.12, 0.96))
        draw = ImageDraw.Draw(page)
        ink = shade(rng.random(), 0.6, 0.2)
        draw_writing(draw, rng, 14, 16, wide - 30, 24, pick_colour(rng, 0.9, 0.5))
        y, columns = 56.0, int(rng.integers(1, 4))
        step = (wide - 28) / columns
        while y < high - 20:
            if rng.random() < 0.16:
                tall = rng.uniform(50, 90)
                draw.rectangle((14, y, wide - 14, y + tall), fill=pick_colour(rng, 0.6, 0.8))
                for _ in range(4):
                    at = rng.uniform(40, wide - 40)
                    draw_shape(draw, rng, at, y + tall / 2, tall * 0.4, pick_colour(rng, 0.8, 0.7))
                y += tall + 10
            for column in range(columns):
                draw_writing(draw, rng, 14 + column * step, y, step - 10, 7, ink)
            y += 13
        page.putalpha(255)
        turned = page.rotate(rng.uniform(-9, 9), Image.Resampling.BICUBIC, expand=True)
        image.paste(turned, (int(x), int(rng.uniform(-30, 30))), turned)
        x += wide + rng.uniform(-20, 70)
    return np.asarray(image)


def paint_tiles(rng: Rng, size: Size) -> Picture:
    """Tiles of arcs and diagonals; the colours change from place to place."""
    width, height = size
    side = int(rng.integers(36, 72))
    image = Image.new("RGB", size)
    draw = ImageDraw.Draw(image)
    inks = [pick_colour(rng, 0.75, 0.85) for _ in range(6)]
    hue = fractal_noise(rng, size, 2)
    for y in range(0, height, side):
        for x in range(0, width, side):
            zone = int(hue[y, x] * 17) % len(inks)
            draw.rectangle((x, y, x + side, y + side), fill=inks[zone])
            ink, kind = inks[(zone + int(rng.integers(1, 5))) % len(inks)], int(rng.integers(5))
            if kind < 2:
                for cx, cy in (
                    ((x, y), (x + side, y + side)) if kind else ((x + side, y), (x, y + side))
                ):
                    draw.circle((cx, cy), side * 0.62, outline=ink, width=max(3, side // 5))
            elif kind == 2:
                draw.polygon([(x, y), (x + side, y), (x, y + side)], fill=ink)
            else:
                draw_shape(draw, rng, x + side / 2, y + side / 2, side * 0.4, ink)
    return light_unevenly(rng, image)


def paint_lines(rng: Rng, size: Size) -> Picture:
    """A metro plan, or a circuit: thick lines in right and half angles with stops."""
    width, height = size
    paper = shade(rng.random(), rng.uniform(0.05, 0.5), rng.choice([0.15, 0.95]))
    image = to_image(np.array(paper) * (0.9 + 0.15 * fractal_noise(rng, size, 4))[..., None])
    draw = ImageDraw.Draw(image)
    for _ in range(13):
        ink, x, y = pick_colour(rng, 0.85, 0.85), 0.0, rng.random() * height
        way = [(x, y)]
        while x < width:
            step = rng.uniform(30, 120)
            turn = float(rng.choice([-1, 0, 0, 1]))
            x, y = x + step, y + turn * step
            if not 10 < y < height - 10:
                y = float(np.clip(y, 10, height - 10))
            way.append((x, y))
        draw.line(way, fill=ink, width=int(rng.integers(5, 12)), joint="curve")
        for x, y in way[1:]:
            if rng.random() < 0.6:
                radius = rng.uniform(5, 11)
                draw.ellipse(
                    (x - radius, y - radius, x + radius, y + radius),
                    fill=(250, 250, 250),
                    outline=(10, 10, 10),
                    width=3,
                )
                if rng.random() < 0.5:
                    draw_writing(draw, rng, x + 8, y + 10, rng.uniform(30, 80), 9, ink)
    return light_unevenly(rng, image)


def paint_cloth(rng: Rng, size: Size) -> Picture:
    """Woven stripes with patches sewn on."""
    width, height = size
    ys, xs = np.mgrid[0:height, 0:width]
    inks = np.array([pick_colour(rng, 0.6, 0.8) for _ in range(12)])
    along = inks[
        np.repeat(rng.integers(12, size=width // 6 + 1), rng.integers(3, 34, width // 6 + 1))[
            :width
        ]
    ]
    across = inks[
        np.repeat(rng.integers(12, size=height // 3 + 1), rng.integers(3, 30, height // 3 + 1))[
            :height
        ]
    ]
    thread = ((xs + ys) // 3 % 2)[..., None]
    image = to_image(
        np.where(thread, along[None, :], across[:, None])
        * (0.8 + 0.35 * fractal_noise(rng, size, 4))[..., None]
    )
    draw = ImageDraw.Draw(image)
    for _ in range(16):
        x, y, radius = rng.random() * width, rng.random() * height, rng.uniform(24, 62)
        draw_shape(draw, rng, x, y, radius, pick_colour(rng, 0.8, 0.9))
        draw_shape(draw, rng, x, y, radius * 0.55, pick_colour(rng, 0.8, 0.5))
    return np.asarray(image)
