"""The desk's colours can be read: WCAG's contrast AA, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vcl_plugin.web.desk

STYLE = Path(vcl_plugin.web.desk.__file__).parent / "static" / "desk.css"
LEAST = 4.5  # for text of normal size
READ = (
    *(("ink", "paper"), ("ink", "wash"), ("ink", "tint"), ("wash", "ink")),
    *(("muted", "paper"), ("muted", "wash"), ("muted", "sunk"), ("muted", "tint")),
    *(("accent", "paper"), ("accent", "wash"), ("on-accent", "accent")),
    *((name, f"{name}-soft") for name in ("good", "bad", "warn", "cool")),
    *(("upload", "wash"), ("reference", "wash"), ("copy", "paper")),
)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("letters", "ground"), READ)
def test_letters_stand_out_from_their_ground(theme: int, letters: str, ground: str) -> None:
    block = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    darker, lighter = sorted((luminance(colours[letters]), luminance(colours[ground])))
    assert (lighter + 0.05) / (darker + 0.05) >= LEAST
