"""Edits that copies get: one picture in, the same picture cropped, framed, drowned or spoilt out.

In: an RGB picture, a strength in [0, 1], a random generator, another picture to mix in.
Out: an RGB picture. Called by the head's fitting and by the descriptor benchmark, never in service.
Strength 0 is barely visible, 1 is as far as people go; the benchmark judges at strengths that the
fitting never saw (`HELD_OUT`).
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

Picture = Image.Image
Rng = np.random.Generator
Edit = Callable[[Picture, float, Rng, Picture], Picture]

HELD_OUT = ((0.40, 0.50), (0.80, 0.90))


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


def combine(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Two or three lighter edits one after the other."""
    names = [name for name in EDITS if name not in ("combine", "inset", "split_screen")]
    for name in rng.choice(names, 2 + int(rng.random() < 0.5), replace=False):
        picture = EDITS[str(name)](picture, 0.6 * strength, rng, other)
    return picture


EDITS: dict[str, Edit] = {
    "mirror": mirror,
    "crop": crop,
    "letterbox": letterbox,
    "blurred_frame": blurred_frame,
    "grey": grey,
    "recolour": recolour,
    "blur": blur,
    "noise": noise,
    "compress": compress,
    "rotate": rotate,
    "perspective": perspective,
    "caption": caption,
    "sticker": sticker,
    "blend": blend,
    "split_screen": split_screen,
    "combine": combine,
    "inset": inset,
}


def draw_strength(rng: Rng, held_out: bool) -> float:
    """A strength for judging (held out) or for fitting (never held out)."""
    while True:
        strength = float(rng.random())
        if any(low <= strength <= high for low, high in HELD_OUT) == held_out:
            return strength
