"""Edits of a picture's tones and detail: recoloured, blurred, noisy, coded poorly.

In: an RGB picture, a strength in [0, 1], a random generator, another picture (unused here).
Out: an RGB picture of the same size. `edits` lists them.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from retrieval.describe.fitting.reshaping import Picture, Rng, draw_colour


def grey(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    toned = ImageOps.grayscale(picture).convert("RGB")
    return ImageEnhance.Contrast(toned).enhance(1 + strength * rng.uniform(-0.5, 0.6))


def recolour(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Brightness, contrast, saturation and hue, all at once."""
    picture = ImageEnhance.Brightness(picture).enhance(1 + strength * rng.uniform(-0.55, 0.7))
    picture = ImageEnhance.Contrast(picture).enhance(1 + strength * rng.uniform(-0.5, 0.8))
    picture = ImageEnhance.Color(picture).enhance(1 + strength * rng.uniform(-0.8, 1.2))
    hue, saturation, value = picture.convert("HSV").split()
    shift = int(strength * rng.uniform(-40, 40))
    hue = hue.point(lambda each: (each + shift) % 256)
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def blur(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    return picture.filter(ImageFilter.GaussianBlur((0.003 + 0.017 * strength) * min(picture.size)))


def noise(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    width, height = picture.size
    grain = rng.normal(0, 4 + 46 * strength, (height, width, 3 if rng.random() < 0.5 else 1))
    return Image.fromarray(np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8))


def compress(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Scaled down and coded poorly, as a chat program does."""
    width, height = picture.size
    share = 1 - 0.7 * strength
    small = picture.resize((max(8, int(width * share)), max(8, int(height * share))))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=int(45 - 38 * strength))
    return Image.open(buffer).convert("RGB").resize(picture.size, Image.Resampling.BILINEAR)


def gamma(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """A tone curve, at times one a channel, and a cast."""
    light = np.asarray(picture, np.float32) / 255
    curves = rng.uniform(-0.9, 0.9, 3 if rng.random() < 0.5 else 1)
    light = light ** np.exp(curves * strength)
    cast = 1 - 0.4 * strength * rng.random(3)
    light = light * cast if rng.random() < 0.5 else 1 - (1 - light) * cast
    return Image.fromarray((np.clip(light, 0, 1) * 255).astype(np.uint8))


def tint(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Behind half-transparent colour, even or stronger towards one side."""
    opacity = 0.1 + 0.4 * strength
    mask = Image.new("L", picture.size, 255)
    if rng.random() < 0.5:
        mask = Image.linear_gradient("L").resize(picture.size)
    mask = mask.point(lambda each: int(each * opacity))
    return Image.composite(Image.new("RGB", picture.size, draw_colour(rng)), picture, mask)


def thumbnail(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Very small, then enlarged and sharpened."""
    width, height = picture.size
    share = 0.5 - 0.32 * strength
    small = picture.resize((max(24, int(width * share)), max(24, int(height * share))))
    large = small.resize(picture.size, Image.Resampling.BICUBIC)
    return large.filter(ImageFilter.UnsharpMask(2, int(150 * rng.random()), 0))


def pixelate(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    side = int(64 - 36 * strength)
    small = picture.resize((side, side), Image.Resampling.BOX)
    return small.resize(picture.size, Image.Resampling.NEAREST)


def posterize(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Few shades, at times with the bright ones inverted."""
    few = ImageOps.posterize(picture, int(3 - round(1.2 * strength)))
    return ImageOps.solarize(few, 128 + int(60 * (1 - strength))) if rng.random() < 0.4 else few
