"""Every choice of the network, in one frozen record with two presets.

In: nothing. Out: `TransVCLConfig`, `PAPER` (what the authors released) and `SMALL` (what we train).
Read by each block of `model/`, written into every checkpoint, compared by nobody else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True)
class TransVCLConfig:
    """The defaults are the authors' release, because their checkpoints carry no config.

    Where paper and release differ, the field's comment says what the paper has. Sizes that the
    authors' file fixes (256 dimensions, 8 heads, one self and one cross layer) are fields only
    where something else can be trained.
    """

    # Sequence (eq. 1)
    dimension: int = 256
    max_frames: int = 1200  # longest side of one map; longer videos are tiled
    feature_scale: float = 1.0  # unit features are multiplied by this before everything else
    encoding_scale: float = 1 / 16  # weight of the temporal encoding; paper: 1; 0 switches it off
    has_shared_token: bool = True  # paper: one class token for each side
    has_encoded_token: bool = False  # paper: the token is a position of the sequence too
    token_start: Literal["learned", "mean"] = "learned"  # "mean": plus the mean of the frames

    # Feature enhancement (eq. 2, 3)
    attention: Literal["linear", "full", "none"] = "linear"  # "none": no enhancement, no layers
    heads: int = 8
    has_symmetric_cross: bool = False  # paper: yes; release: the reference sees the updated query
    norm2_start: float = 1.0  # initial weight of the last norm; near 0 a layer starts as identity

    # Similarity (eq. 5)
    temperature: float = 0.1
    divides_by_dimension: bool = True  # paper: S = <f, f> / temperature, without the 256
    counts_padding: bool = True  # paper: no; release: max_frames - n cells of logit 0 in each sum

    # Video-level head (eq. 4)
    video_head: Literal["tokens", "tokens+map"] = "tokens"  # "+map": peaks of the map beside them

    # Detector (YOLOX)
    map_size: int = 640  # the map is resized to map_size x map_size
    map_resize: Literal["nearest", "max"] = "nearest"  # "max" keeps thin diagonals of long videos
    # One channel is repeated three times. "cosine" is the frames' own similarity, without softmax:
    # with attention "none" the paper's basic localization model. "change" is the similarity of what
    # each frame adds to its scene: in front of a fixed camera, only there does a copy draw a line.
    detector_input: Literal["map", "cosine", "map+sqrt+cosine", "map+sqrt+cosine+change"] = "map"
    depth: float = 0.33
    width: float = 0.5

    def __post_init__(self) -> None:
        if self.dimension % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.dimension} dimensions")
        if self.dimension % 2:
            raise ValueError(f"dimension {self.dimension} must be even for the sine encoding")
        if self.map_size < 32 or self.map_size % 32:
            raise ValueError(f"map_size {self.map_size} must be a multiple of 32, the last stride")
        if self.max_frames < 2:
            raise ValueError(f"max_frames {self.max_frames} must be at least 2")
        if not self.temperature > 0:
            raise ValueError(f"temperature {self.temperature} must be positive")

    @property
    def logit_scale(self) -> float:
        """What an inner product of two enhanced frames is multiplied with to be a map logit."""
        divisor = self.dimension if self.divides_by_dimension else 1
        return 1.0 / (self.temperature * divisor)

    @property
    def channels(self) -> int:
        """Of the detector's picture, as its stem takes it."""
        return 4 if self.detector_input == "map+sqrt+cosine+change" else 3

    @property
    def anchors(self) -> int:
        """Rows of the detector's output: one a cell at strides 8, 16 and 32."""
        return sum((self.map_size // stride) ** 2 for stride in (8, 16, 32))

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TransVCLConfig:
        """Raises ValueError for a field that this version does not know."""
        values: dict[str, Any] = json.loads(text)
        unknown = sorted(set(values) - {each.name for each in fields(cls)})
        if unknown:
            raise ValueError(f"config field {unknown[0]!r} is unknown to this version")
        return cls(**values)


PAPER = TransVCLConfig()

# What trials on made-up pairs taught: unit features leave the map flat under the release's start,
# so frames are scaled to length 16 (logit = cosine / 0.1) and enhancement starts as the identity;
# the detector learns faster when it also sees the root of the map and the plain cosine. Before a
# fixed camera all three are one bright block; what changes from frame to frame still draws a line.
SMALL = TransVCLConfig(
    feature_scale=16.0,
    encoding_scale=0.25,  # norm 2.8 beside frames of norm 16: visible to attention, not to the map
    token_start="mean",
    norm2_start=0.1,
    video_head="tokens+map",
    map_size=320,
    map_resize="max",
    detector_input="map+sqrt+cosine+change",
    width=0.25,
)

PRESETS = {"paper": PAPER, "small": SMALL}
