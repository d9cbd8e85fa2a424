"""Edits that bring something else into the picture: writing, drawings, another picture.

In: an RGB picture, a strength in [0, 1], a random generator, another picture to mix in.
Out: an RGB picture. `edits` lists them.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from retrieval.describe.fitting.reshaping import Picture, Rng, crop, draw_colour


def caption(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Lines of large writing, with or without a box behind them."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    width, height = picture.size
    for _ in range(1 + int(3 * strength)):
        high = height * rng.uniform(0.05, 0.06 + 0.1 * strength)
        top, left = rng.uniform(0, height - high), width * rng.uniform(0, 0.3)
        ink = tuple(int(each) for each in rng.integers(0, 256, 3))
        if rng.random() < 0.4:
            paper = tuple(255 - each for each in ink)
            draw.rectangle((left, top, width * rng.uniform(0.7, 1.0), top + high), fill=paper)
        word = "".join(chr(int(each)) for each in rng.integers(65, 91, int(rng.integers(4, 16))))
        draw.text((left, top), word, fill=ink, font_size=max(8, high), stroke_width=int(high > 16))
    return picture


def sticker(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Pieces of another picture, round or square, over up to a third of this one."""
    picture = picture.copy()
    width, height = picture.size
    for _ in range(1 + int(2 * strength)):
        side = int(min(width, height) * rng.uniform(0.15, 0.2 + 0.25 * strength))
        piece = ImageOps.fit(crop(other, 0.6, rng, other), (side, side))
        mask = Image.new("L", (side, side), 255)
        if rng.random() < 0.6:
            mask.paste(0, (0, 0, side, side))
            ImageDraw.Draw(mask).ellipse((0, 0, side, side), fill=255)
        place = (int(rng.integers(0, width - side)), int(rng.integers(0, height - side)))
        picture.paste(piece, place, mask)
    return picture


def blend(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Another picture shines through."""
    return Image.blend(picture, other.resize(picture.size), 0.08 + 0.37 * strength)


def inset(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Picture in picture: small, somewhere inside another one."""
    width, height = other.size
    share = 0.8 - 0.45 * strength
    size = (int(width * share), int(height * share))
    canvas = other.copy()
    place = (int(rng.integers(0, width - size[0] + 1)), int(rng.integers(0, height - size[1] + 1)))
    canvas.paste(picture.resize(size), place)
    return canvas


def split_screen(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Beside or above another picture; the stronger, the less room."""
    width, height = picture.size
    share = 0.7 - 0.3 * strength
    canvas = other.resize(picture.size)
    if rng.random() < 0.5:
        size = (int(width * share), height)
        place = (0, 0) if rng.random() < 0.5 else (width - size[0], 0)
    else:
        size = (width, int(height * share))
        place = (0, 0) if rng.random() < 0.5 else (0, height - size[1])
    shown = picture.resize(size) if rng.random() < 0.5 else ImageOps.fit(picture, size)
    canvas.paste(shown, place)
    return canvas


def meme(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """A band with lines of writing above or below."""
    width, height = picture.size
    band = int(height * (0.12 + 0.28 * strength * rng.random()))
    paper = (255, 255, 255) if rng.random() < 0.7 else draw_colour(rng)
    canvas = Image.new("RGB", (width, height + band), paper)
    is_above = rng.random() < 0.6
    canvas.paste(picture, (0, band if is_above else 0))
    draw, lines = ImageDraw.Draw(canvas), 1 + int(rng.integers(0, 3))
    for line in range(lines):
        top = (0 if is_above else height) + line * band / lines
        _write(draw, (width * 0.04, top), draw_words(rng, 4), band / lines * 0.7, (0, 0, 0))
    return canvas


def shapes(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Discs, stars, scribbles and bars drawn over it."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture, "RGBA")
    width, height = picture.size
    for _ in range(1 + int(5 * strength)):
        reach = min(width, height) * rng.uniform(0.05, 0.1 + 0.15 * strength)
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        ink = (*draw_colour(rng), int(rng.integers(120, 256)))
        kind = int(rng.integers(4))
        if kind == 0:
            draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=ink)
        elif kind == 1:
            angles = rng.uniform(0, 2 * np.pi, 5)
            corners = np.stack([x + reach * np.cos(angles), y + reach * np.sin(angles)], axis=1)
            draw.polygon([(float(a), float(b)) for a, b in corners], fill=ink)
        elif kind == 2:
            stops = rng.normal((x, y), 2 * reach, (5, 2))
            draw.line([(float(a), float(b)) for a, b in stops], fill=ink, width=int(2 + reach / 5))
        else:
            draw.rectangle((x - 2 * reach, y - reach / 2, x + 2 * reach, y + reach / 2), fill=ink)
    return picture


def ticker(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """A broadcaster's banner and logo."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    width, height = picture.size
    high = height * (0.1 + 0.15 * strength * rng.random())
    top = height - high - rng.uniform(0, 0.1) * height
    draw.rectangle((0, top, width, top + high), fill=draw_colour(rng))
    banner = (width * 0.03, top + high * 0.15)
    _write(draw, banner, draw_words(rng, 5), high * 0.55, draw_colour(rng))
    side = 0.12 * width
    left = 0.0 if rng.random() < 0.5 else width - side
    draw.rectangle((left, 0, left + side, 0.7 * side), fill=draw_colour(rng))
    _write(draw, (left + 2, 2), draw_words(rng, 1), side * 0.3, draw_colour(rng))
    return picture


def phone(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """A screenshot of an app: a header, the picture, buttons and comments."""
    wide, high = 300, int(300 * rng.uniform(0.6, 0.9))
    colours = ((18, 18, 18), (235, 235, 235))
    paper, ink = colours if rng.random() < 0.5 else colours[::-1]
    above, below = int(40 + 40 * strength), int(40 + 130 * strength)
    canvas = Image.new("RGB", (wide, above + high + below), paper)
    draw = ImageDraw.Draw(canvas)
    canvas.paste(picture.resize((wide, high)), (0, above))
    draw.ellipse((8, above - 34, 36, above - 6), fill=draw_colour(rng))
    _write(draw, (44, above - 30), draw_words(rng, 2), 14, ink)
    foot = above + high
    for number in range(4):
        left = 10 + 34 * number
        draw.ellipse((left, foot + 8, left + 20, foot + 28), outline=ink, width=2)
    for number in range(below // 20 - 1):
        _write(draw, (10, foot + 34 + 18 * number), draw_words(rng, 6), 12, ink)
    return canvas


def collage(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """One of four pictures on a page, the largest of them at most."""
    width, height = picture.size
    canvas = Image.new("RGB", picture.size, (255, 255, 255))
    share = 0.6 - 0.15 * strength
    x, y = int(width * share), int(height * share)
    boxes = [(0, 0, x, y), (x, 0, width, y), (0, y, x, height), (x, y, width, height)]
    turned = ImageOps.mirror(other.rotate(180))
    for shown, box in zip(
        [picture, other, turned, crop(other, 0.9, rng, other)], boxes, strict=True
    ):
        size = (max(1, box[2] - box[0] - 3), max(1, box[3] - box[1] - 3))
        canvas.paste(shown.resize(size), box[:2])
    return canvas


def draw_words(rng: Rng, count: int) -> str:
    return " ".join(
        "".join(chr(int(each)) for each in rng.integers(97, 123, int(rng.integers(2, 9))))
        for _ in range(count)
    )


def _write(
    draw: ImageDraw.ImageDraw,
    place: tuple[float, float],
    words: str,
    high: float,
    ink: tuple[int, int, int],
) -> None:
    draw.text(place, words, fill=ink, font_size=max(8, int(high)))
