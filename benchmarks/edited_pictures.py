"""Edited pictures to judge descriptors with: ours, another maker's, or a folder made beforehand.

In: originals, and who edits them. Out: for each original its edited pictures, by the name of the
edit; the same arguments give the same pictures, whichever original is asked for first.

A maker is a Python file with `EDITS`, a list of names, and `edit_picture(picture, name, rng,
other)`, where `rng` is a `random.Random` and `other` a picture that may be mixed in. A folder made
beforehand holds `originals/NAME.jpg` and `edited/EDIT/NAME.jpg`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from retrieval.describe.fitting.edits import EDITS, MIXING, NEVER_FITTED, draw_strength
from retrieval.describe.fitting.material import Source

NOBODY = -1
PICTURES = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True)
class Edited:
    """One edited picture, whose it is, and whose picture was mixed in, if anyone's."""

    owner: int
    kind: str
    picture: Image.Image
    other: int = NOBODY


class Editor(Protocol):
    """`key` names all that its pictures depend on; `kinds` are its edits in order."""

    key: str
    kinds: tuple[str, ...]

    def edit(self, sources: Sequence[Source], owner: int) -> list[Edited]:
        """The picture of `sources[owner]` under every edit."""
        ...


class OurEdits:
    """Edits that the fit knows at strengths that it never saw, and five that it never saw."""

    kinds = (*EDITS, *NEVER_FITTED)

    def __init__(self, seed: int) -> None:
        self.seed, self.key = seed, f"ours-{seed}"

    def edit(self, sources: Sequence[Source], owner: int) -> list[Edited]:
        rng = np.random.default_rng((self.seed, owner))
        original = sources[owner].picture
        edited = []
        for kind, edit in {**EDITS, **NEVER_FITTED}.items():
            other = (owner + 1 + int(rng.integers(len(sources) - 1))) % len(sources)
            strength = draw_strength(rng, held_out=True)
            picture = edit(original, strength, rng, sources[other].picture)
            edited.append(Edited(owner, kind, picture, other if kind in MIXING else NOBODY))
        return edited


class MakersEdits:
    """Edits of a Python file of somebody else's, which is run: give one that you trust."""

    def __init__(self, path: Path, seed: int) -> None:
        spec = importlib.util.spec_from_file_location("maker", path)
        if spec is None or spec.loader is None or not path.is_file():
            sys.exit(f"{path} is no Python file; give one with EDITS and edit_picture")
        self._maker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._maker)
        missing = [name for name in ("EDITS", "edit_picture") if not hasattr(self._maker, name)]
        if missing:
            sys.exit(f"{path} has no {' and no '.join(missing)}; see {Path(__file__).name}")
        self.seed = seed
        self.kinds = tuple(str(each) for each in self._maker.EDITS)
        self.key = f"{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}-{seed}"

    def edit(self, sources: Sequence[Source], owner: int) -> list[Edited]:
        rng = random.Random(f"{self.seed}/{owner}")
        original, edited = sources[owner].picture, []
        for kind in self.kinds:
            other = (owner + 1 + rng.randrange(len(sources) - 1)) % len(sources)
            picture = self._maker.edit_picture(original, kind, rng, sources[other].picture)
            # Which of its edits mix pictures is not known: finding `other` is never a mistake.
            edited.append(Edited(owner, kind, picture.convert("RGB"), other))
        return edited


class PreparedFolder:
    """Pictures that were edited beforehand, by hand or by any program."""

    def __init__(self, folder: Path) -> None:
        self._edited: dict[str, dict[str, Path]] = {}
        for path in _list_pictures(folder / "edited"):
            self._edited.setdefault(path.parent.name, {})[path.stem] = path
        if not self._edited:
            sys.exit(f"{folder} holds no pictures like edited/EDIT/NAME.jpg")
        self.originals = _list_pictures(folder / "originals")
        self.kinds = tuple(sorted(self._edited))
        names = sorted(str(each) for by_name in self._edited.values() for each in by_name.values())
        self.key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]

    def read_sources(self) -> list[Source]:
        return [
            Source.from_picture(path.stem, 0.0, Image.open(path).convert("RGB"), is_film=False)
            for path in self.originals
        ]

    def edit(self, sources: Sequence[Source], owner: int) -> list[Edited]:
        paths = {kind: self._edited[kind].get(sources[owner].name) for kind in self.kinds}
        return [
            Edited(owner, kind, Image.open(path).convert("RGB"))
            for kind, path in paths.items()
            if path is not None
        ]


def _list_pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
