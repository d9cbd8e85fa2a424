"""Edits that uploaders make to hide or adorn a copy, each a fixed, named recipe.

In: an RGB frame. Out: the edited frame, of any size.
A name always means the same pixels, so descriptors of edited frames can be kept.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

Frame = NDArray[np.uint8]
Edit = Callable[[Image.Image], Image.Image]


def crop(left: float, top: float, right: float, bottom: float) -> Edit:
    """Keep the part between the given fractions of the sides."""

    def apply(image: Image.Image) -> Image.Image:
        width, height = image.size
        return image.crop(
            (int(left * width), int(top * height), int(right * width), int(bottom * height))
        )

    return apply


def mirror(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def colour(
    brightness: float = 1.0, contrast: float = 1.0, saturation: float = 1.0, warmth: int = 0
) -> Edit:
    def apply(image: Image.Image) -> Image.Image:
        image = ImageEnhance.Brightness(image).enhance(brightness)
        image = ImageEnhance.Contrast(image).enhance(contrast)
        image = ImageEnhance.Color(image).enhance(saturation)
        if warmth:
            shifted = np.asarray(image, dtype=np.int16) + np.array([warmth, 0, -warmth])
            image = Image.fromarray(np.clip(shifted, 0, 255).astype(np.uint8))
        return image

    return apply


def blur(radius: float) -> Edit:
    return lambda image: image.filter(ImageFilter.GaussianBlur(radius))


def letterbox(horizontal: float, vertical: float) -> Edit:
    """Black bars whose widths are fractions of the picture's sides."""

    def apply(image: Image.Image) -> Image.Image:
        width, height = image.size
        dx, dy = int(horizontal * width), int(vertical * height)
        canvas = Image.new("RGB", (width + 2 * dx, height + 2 * dy))
        canvas.paste(image, (dx, dy))
        return canvas

    return apply


def caption(text: str, place: float) -> Edit:
    """Large outlined words across the picture; `place` is how far down they stand."""

    def apply(image: Image.Image) -> Image.Image:
        image = image.copy()
        font = ImageFont.load_default(size=max(image.height // 8, 8))
        ImageDraw.Draw(image).text(
            (image.width / 2, place * image.height),
            text,
            fill=(255, 240, 60),
            font=font,
            anchor="mm",
            stroke_width=2,
            stroke_fill=(0, 0, 0),
        )
        return image

    return apply


def stickers(seed: str) -> Edit:
    """Some opaque shapes, about an eighth of the picture."""

    def apply(image: Image.Image) -> Image.Image:
        draw = np.random.default_rng(zlib.crc32(seed.encode()))
        image = image.copy()
        brush = ImageDraw.Draw(image)
        for _ in range(4):
            side = 0.18 * min(image.size)
            x, y = draw.uniform(0, image.width - side), draw.uniform(0, image.height - side)
            fill = tuple(int(each) for each in draw.integers(0, 256, 3))
            shape = brush.ellipse if draw.random() < 0.5 else brush.rectangle
            shape((x, y, x + side, y + side), fill=fill)
        return image

    return apply


def inset(scale: float, x: float, y: float, seed: str) -> Edit:
    """Picture in picture: the copy is the small one, on a busy background of coloured stripes."""

    def apply(image: Image.Image) -> Image.Image:
        draw = np.random.default_rng(zlib.crc32(seed.encode()))
        stripes = draw.integers(0, 256, (5, 7, 3)).astype(np.uint8)
        canvas = Image.fromarray(stripes).resize(image.size, Image.Resampling.BICUBIC)
        small = image.resize((int(scale * image.width), int(scale * image.height)))
        canvas.paste(
            small, (int(x * (image.width - small.width)), int(y * (image.height - small.height)))
        )
        return canvas

    return apply


def reencode(scale: float, quality: int) -> Edit:
    """Scaled down and compressed hard, as after a few uploads."""

    def apply(image: Image.Image) -> Image.Image:
        small = image.resize((int(scale * image.width), int(scale * image.height)))
        packed = io.BytesIO()
        small.save(packed, "JPEG", quality=quality)
        return Image.open(packed).convert("RGB")

    return apply


def rotate(degrees: float) -> Edit:
    return lambda image: image.rotate(degrees, Image.Resampling.BILINEAR, expand=True)


def noise(strength: float) -> Edit:
    def apply(image: Image.Image) -> Image.Image:
        draw = np.random.default_rng(7)
        grain = draw.normal(0, strength, (image.height, image.width, 1))
        noisy = np.asarray(image, dtype=np.float32) + grain
        return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))

    return apply


EDITS: dict[str, tuple[Edit, ...]] = {
    "none": (),
    "crop-centre": (crop(0.12, 0.12, 0.88, 0.88),),
    "crop-corner": (crop(0.0, 0.0, 0.72, 0.72),),
    "crop-tall": (crop(0.25, 0.0, 0.75, 1.0),),
    "mirror": (mirror,),
    "bright": (colour(brightness=1.35, contrast=0.85),),
    "dark": (colour(brightness=0.55, contrast=1.2),),
    "grey": (colour(saturation=0.0),),
    "warm": (colour(saturation=1.5, warmth=28),),
    "blur": (blur(2.2),),
    "noise": (noise(28),),
    "caption": (caption("WATCH TILL THE END", 0.85),),
    "stickers": (stickers("one"),),
    "letterbox": (letterbox(0.0, 0.2),),
    "pillarbox": (letterbox(0.3, 0.0),),
    "inset": (inset(0.65, 0.5, 0.4, "a"),),
    "inset-small": (inset(0.5, 0.9, 0.1, "b"),),
    "reencode": (reencode(0.35, 18),),
    "rotate": (rotate(6),),
    "mirror-crop": (mirror, crop(0.1, 0.05, 0.85, 0.9)),
    "grey-letterbox": (colour(saturation=0.0), letterbox(0.0, 0.15)),
    "inset-mirror": (mirror, inset(0.7, 0.3, 0.3, "c")),
    "caption-reencode": (caption("FULL MOVIE HD", 0.12), reencode(0.4, 20)),
    "crop-warm-caption": (
        crop(0.1, 0.1, 0.92, 0.92),
        colour(saturation=1.4, warmth=-24),
        caption("PART 2", 0.9),
    ),
    "everything": (
        mirror,
        crop(0.06, 0.06, 0.94, 0.94),
        colour(contrast=1.3),
        stickers("two"),
        reencode(0.45, 25),
    ),
}


def edit_frame(frame: Frame, name: str) -> Frame:
    """The frame after the edit of that name; "none" gives the frame itself.

    >>> edit_frame(np.zeros((90, 120, 3), np.uint8), "letterbox").shape
    (126, 120, 3)
    """
    if not EDITS[name]:
        return frame
    image = Image.fromarray(frame)
    for step in EDITS[name]:
        image = step(image)
    return np.asarray(image)
