"""Similarity pattern detection: the detector on the map of the frames as they came.

In: descriptor arrays of any length. Out: `Segment`s, as from `TransVCLLocalizer`.
Loaded by the name "spd". It is the paper's "basic localization model": TransVCL whose feature
enhancement is bypassed, so what TransVCL gains over it is what attention is worth (Jiang et al.,
"Learning segment similarity and alignment in large-scale content based video retrieval", ACM
Multimedia 2021).
"""

from __future__ import annotations

from pathlib import Path

from retrieval.errors import MissingWeights
from vcl_plugin.localize.detection import TransVCLLocalizer

SHIPPED_WEIGHTS = Path(__file__).parents[1] / "weights" / "spd-small.safetensors"


class SimilarityPatternDetector(TransVCLLocalizer):
    """Localizer `spd`. Its weights are those of a `TransVCLConfig` with `attention="none"`; all
    else is TransVCL's. The shipped weights were trained on the plain cosine map."""

    name = "spd"

    def __init__(
        self,
        weights: str | Path | None = None,
        device: str = "auto",
        *,
        min_score: float | None = None,
        batch_frames: int = 20_000,
        runtime: str = "auto",
    ) -> None:
        path = Path(weights) if weights is not None else SHIPPED_WEIGHTS
        if weights is None and not path.is_file():
            raise MissingWeights(
                f"this installation ships no weights for spd ({path.name} is absent); pass "
                f"weights=PATH of a network trained with attention none"
            )
        super().__init__(
            path, device, min_score=min_score, batch_frames=batch_frames, runtime=runtime
        )
        if self.network.config.attention != "none":
            raise MissingWeights(
                f"{path} was trained with {self.network.config.attention} attention; it is for "
                f"`transvcl`, and spd takes a network trained with attention none"
            )
        self.fingerprint = self.fingerprint.replace("transvcl", self.name, 1)
