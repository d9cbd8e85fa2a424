"""Edits that copies get, by name: what a descriptor is fitted on, and what it is only judged on.

In: an RGB picture, a strength in [0, 1], a random generator, another picture to mix in.
Out: an RGB picture. Strength 0 is barely visible, 1 is as far as people go. Judging uses strengths
that the fitting never saw (`HELD_OUT`), and edits that it never saw at all (`NEVER_FITTED`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retrieval.describe.fitting import overlaying, reshaping, spoiling
from retrieval.describe.fitting.reshaping import Picture, Rng

Edit = Callable[[Picture, float, Rng, Picture], Picture]

HELD_OUT = ((0.40, 0.50), (0.80, 0.90))
LONGEST_SIDE = 384  # of a picture within a chain: some edits enlarge


def combine(picture: Picture, strength: float, rng: Rng, other: Picture) -> Picture:
    """Two or three lighter edits one after the other."""
    count = 2 + int(rng.random() < 0.5)
    return chain(picture, count, lambda: 0.6 * strength, rng, other, COMBINED)


def chain(
    picture: Picture,
    count: int,
    draw: Callable[[], float],
    rng: Rng,
    other: Picture,
    names: Sequence[str],
) -> Picture:
    """`count` different edits of those names one after the other, each of a strength as drawn."""
    for name in rng.choice(list(names), count, replace=False):
        picture = EDITS[str(name)](picture, draw(), rng, other)
        if max(picture.size) > LONGEST_SIDE:
            picture = picture.copy()
            picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return picture


EDITS: dict[str, Edit] = {
    "mirror": reshaping.mirror,
    "crop": reshaping.crop,
    "letterbox": reshaping.letterbox,
    "blurred_frame": reshaping.blurred_frame,
    "rotate": reshaping.rotate,
    "perspective": reshaping.perspective,
    "pad": reshaping.pad,
    "stretch": reshaping.stretch,
    "slice_crop": reshaping.slice_crop,
    "turn": reshaping.turn,
    "grey": spoiling.grey,
    "recolour": spoiling.recolour,
    "blur": spoiling.blur,
    "noise": spoiling.noise,
    "compress": spoiling.compress,
    "gamma": spoiling.gamma,
    "tint": spoiling.tint,
    "thumbnail": spoiling.thumbnail,
    "caption": overlaying.caption,
    "meme": overlaying.meme,
    "shapes": overlaying.shapes,
    "ticker": overlaying.ticker,
    "sticker": overlaying.sticker,
    "blend": overlaying.blend,
    "split_screen": overlaying.split_screen,
    "inset": overlaying.inset,
    "combine": combine,
}
NEVER_FITTED: dict[str, Edit] = {
    "lens": reshaping.lens,
    "pixelate": spoiling.pixelate,
    "posterize": spoiling.posterize,
    "phone": overlaying.phone,
    "collage": overlaying.collage,
}
# Edits after which another picture is seen too.
MIXING = ("sticker", "blend", "split_screen", "inset", "combine", "collage")
COMBINED = tuple(n for n in EDITS if n not in ("combine", "inset", "split_screen", "turn"))


def draw_strength(rng: Rng, held_out: bool) -> float:
    """A strength for judging (held out) or for fitting (never held out)."""
    while True:
        strength = float(rng.random())
        if any(low <= strength <= high for low, high in HELD_OUT) == held_out:
            return strength
