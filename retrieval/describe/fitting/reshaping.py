"""Edits of a picture's shape: cut, framed, turned, bent.

In: an RGB picture, a strength in [0, 1], a random generator, another picture (unused by most).
Out: an RGB picture. `edits` lists them.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Picture = Image.Image
Rng = np.random.Generator


def mirror(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    return crop(ImageOps.mirror(picture), 0.3 * strength, rng, other)


def crop(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Keeps from all down to half of each side, anywhere in the picture."""
    share = rng.uniform(0.95, 1.0) - 0.45 * strength
    width, height = picture.size
    wide, high = width * share, height * share
    left, top = rng.uniform(0, width - wide), rng.uniform(0, height - high)
    return picture.crop((int(left), int(top), int(left + wide), int(top + high)))


def letterbox(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Bars above and below, or left and right, over up to two fifths of the picture."""
    bars = 0.08 + 0.32 * strength
    width, height = picture.size
    is_wide = rng.random() < 0.6
    size = (width, int(height * (1 - bars))) if is_wide else (int(width * (1 - bars)), height)
    colour = (
        tuple(int(each) for each in rng.integers(0, 256, 3)) if rng.random() < 0.3 else (0, 0, 0)
    )
    canvas = Image.new("RGB", picture.size, colour)
    canvas.paste(picture.resize(size), ((width - size[0]) // 2, (height - size[1]) // 2))
    return canvas


def blurred_frame(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """The picture small before a blurred, larger self: how wide films are made tall."""
    width, height = picture.size
    share = 0.85 - 0.4 * strength
    backdrop = crop(picture, 0.8, rng, other).resize(picture.size)
    backdrop = backdrop.filter(ImageFilter.GaussianBlur(0.05 * width))
    size = (width, int(height * share)) if rng.random() < 0.5 else (int(width * share), height)
    backdrop.paste(picture.resize(size), ((width - size[0]) // 2, (height - size[1]) // 2))
    return backdrop


def rotate(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    angle = (3 + 22 * strength) * rng.choice([-1, 1])
    return picture.rotate(angle, Image.Resampling.BILINEAR, expand=bool(rng.random() < 0.5))


def perspective(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """A screen filmed from the side: a bent rectangle, a little of the room, dimmer light."""
    width, height = picture.size
    reach = (0.03 + 0.17 * strength) * np.array([width, height])
    corners = np.array([(0, 0), (0, height), (width, height), (width, 0)], float)
    source = corners + rng.uniform(-1, 0.4, (4, 2)) * reach * np.sign(
        corners - corners.mean(axis=0)
    )
    bent = picture.transform(
        picture.size, Image.Transform.QUAD, tuple(source.ravel()), Image.Resampling.BILINEAR
    )
    return ImageEnhance.Brightness(bent).enhance(1 - 0.3 * strength * rng.random())


def pad(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Smaller, anywhere on a ground of one colour or of noise."""
    width, height = picture.size
    shares = 1 - (0.1 + 0.45 * strength) * rng.random(2) ** 0.5
    size = (max(16, int(width * shares[0])), max(16, int(height * shares[1])))
    canvas = Image.new("RGB", picture.size, draw_colour(rng))
    if rng.random() < 0.2:
        canvas = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    place = (int(rng.integers(0, width - size[0] + 1)), int(rng.integers(0, height - size[1] + 1)))
    canvas.paste(picture.resize(size), place)
    return canvas


def stretch(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Another aspect ratio, then cut; stretching alone would be undone by squashing."""
    width, height = picture.size
    factor = np.exp(rng.uniform(-0.5, 0.5) * strength)
    stretched = picture.resize((max(16, int(width * factor)), max(16, int(height / factor))))
    return crop(stretched, 0.5 * strength, rng, other)


def slice_crop(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Cut along one side only: a portrait from a landscape."""
    width, height = picture.size
    shares = [1 - rng.uniform(0.2, 0.35 + 0.25 * strength), 1 - rng.uniform(0, 0.15)]
    wide, high = shares if rng.random() < 0.5 else shares[::-1]
    left, top = rng.uniform(0, width * (1 - wide)), rng.uniform(0, height * (1 - high))
    return picture.crop((int(left), int(top), int(left + wide * width), int(top + high * height)))


def turn(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """On its side or upside down."""
    return picture.rotate(90 * int(rng.integers(1, 4)), expand=True)


def lens(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Bent as by a wide or a long lens."""
    pixels = np.asarray(picture)
    height, width = pixels.shape[:2]
    down, across = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    bend = (0.15 + 0.35 * strength) * rng.choice([-1, 1])
    factor = (1 + bend * (across**2 + down**2)) / (1 + max(bend, 0.0))
    rows = np.clip((down * factor + 1) / 2 * (height - 1), 0, height - 1).astype(int)
    columns = np.clip((across * factor + 1) / 2 * (width - 1), 0, width - 1).astype(int)
    return Image.fromarray(pixels[rows, columns])


def draw_colour(rng: Rng) -> tuple[int, int, int]:
    red, green, blue = (int(each) for each in rng.integers(0, 256, 3))
    return red, green, blue
