"""Every choice of a training run, in one frozen record read from a TOML file.

In: a path and `key=value` overrides. Out: a `Recipe` whose folders exist and whose numbers fit.
Every other module of `training/` takes the part of it that it needs.
"""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from retrieval.errors import BadSetting, NotFound
from vcl_plugin.evaluation.composition import NEGATIVES
from vcl_plugin.model.config import PRESETS, TransVCLConfig

Supervision = Literal["full", "semi", "weak"]


@dataclass(frozen=True)
class Data:
    """What is learnt from: pairs made on the fly, folders of VCSL's layout, or both."""

    geometry: tuple[Path, ...] = ()  # label files whose copies give made-up pairs their shape
    images: Path | None = None
    videos: Path | None = None
    bank: Path | None = None  # where descriptors of their frames are kept
    descriptor: str | None = None
    edits_per_source: int = 4  # of all edits, how many each source is embedded under
    pairs: int = 0  # made-up pairs to draw once and repeat; 0: every pair is new
    copy_share: float = 0.6  # of made-up pairs; the others hold no copy
    negatives: tuple[str, ...] = NEGATIVES  # kinds of those; one named twice comes twice as often
    max_frames: int = 500
    folders: tuple[Path, ...] = ()  # pairs with boxes
    weak_folders: tuple[Path, ...] = ()  # pairs of which only "copy or not" is known
    unlabelled_folders: tuple[Path, ...] = ()
    label_fraction: float = 1.0  # share of pairs that keep their boxes; the rest are weak or bare


@dataclass(frozen=True)
class Augment:
    """Chances, unless said otherwise, that a pair is changed before it is learnt from."""

    geometry: float = 0.7  # scaled in time, cropped, boxes shortened or added
    reversal: float = 0.12  # the whole reference runs backwards
    swap: float = 0.2  # query and reference change places, so that either may be the edited one
    frame_drop: float = 0.2
    same_scene: float = 0.25  # both videos show some scenes that neither copied
    still: float = 0.0  # most scenes of a made-up pair hardly move, as in front of a fixed camera
    noise: float = 0.08  # length of the noise on a unit descriptor, at most; no chance
    offset: float = 0.0  # one vector added to all frames: descriptors whose cosines start above 0
    rotation: float = 0.0  # the feature space turned: weights that fit any descriptor


@dataclass(frozen=True)
class Loss:
    """Weights of the terms. The comments say where paper and release differ."""

    box: float = 5.0  # lambda of the paper
    objectness: float = 1.0
    classes: float = 1.0  # one class: the paper leaves this term out, the release has it
    video: float = 1.0  # paper: 1; release: 0.01 times the sum over the batch
    video_reduction: Literal["mean", "sum"] = "mean"
    token: float = 0.1  # contrastive term on the class token after the self layer; neither has it
    token_temperature: float = 0.07
    token_queue: int = 256  # tokens of earlier references that a query is contrasted with
    box_form: Literal["square", "plain"] = "square"  # release: 1 - IoU^2; paper: 1 - IoU
    centre_radius: float = 2.5  # in cells; release: 5
    unlabelled: float = 0.5  # lambda_u: weight of pairs without boxes


@dataclass(frozen=True)
class Pseudo:
    """How a teacher labels pairs that have no boxes (schedules `semi` and `weak`)."""

    teacher: Path | None = None  # weights; none: the run trains its own on the labelled pairs first
    teacher_steps: int = 0
    min_confidence: float = 0.7
    infer_negatives: bool = False  # whether a pair in which the teacher saw nothing is no copy
    min_negative_confidence: float = 0.9  # it saw nothing: every score lies below 1 - this
    min_teacher_recall: float = 0.95  # measured on validation; below it no negative is inferred
    labelled_share: float = 0.5  # of the pairs of a step; few labels are soon learnt by heart


@dataclass(frozen=True)
class Loop:
    supervision: Supervision = "full"
    steps: int = 10_000
    batch: int = 8  # paper: 64
    optimizer: Literal["sgd", "adamw"] = "adamw"  # paper: SGD, momentum 0.9
    rate: float = 1e-3  # paper: 0.01 with SGD
    encoder_rate: float = 0.3  # times `rate`, for the layers before the map
    decay: float = 5e-4
    warmup: int = 300
    final_rate: float = 0.02  # times `rate`, where the cosine ends
    bypass: int = 0  # first steps without the encoder: the detector learns to read the map
    clip: float = 10.0
    ema: float = 0.998
    seed: int = 0
    precision: Literal["float32", "mixed"] = "float32"  # mixed: bfloat16 on CUDA
    device: str = "cpu"
    threads: int = 1
    checkpoint_seconds: float = 180.0


@dataclass(frozen=True)
class Validation:
    folder: Path | None = None
    every: int = 1000  # steps
    pairs: int = 0  # the first so many pairs only; 0: all


@dataclass(frozen=True)
class Recipe:
    """One training run. `model` holds fields of `TransVCLConfig` that differ from the preset."""

    name: str = "transvcl"
    preset: str = "small"
    start: Path | None = None  # weights to go on from
    model: Mapping[str, Any] = field(default_factory=dict)
    data: Data = Data()
    augment: Augment = Augment()
    loss: Loss = Loss()
    pseudo: Pseudo = Pseudo()
    loop: Loop = Loop()
    validation: Validation = Validation()

    @property
    def network(self) -> TransVCLConfig:
        """The network to train."""
        if self.preset not in PRESETS:
            raise BadSetting(f"preset is {self.preset!r}; there are {', '.join(PRESETS)}")
        try:
            return replace(PRESETS[self.preset], **self.model)
        except (TypeError, ValueError) as reason:
            raise BadSetting(f"[model] cannot be used: {reason}") from None

    def check(self) -> None:
        """Fail now for what would fail in an hour: missing folders, impossible numbers."""
        _ = self.network
        for where, path in _named_paths(self):
            if where != "data.bank" and not path.exists():
                raise NotFound(f"{where} is {path}, which does not exist; correct the recipe")
        data, loop = self.data, self.loop
        if not (data.geometry or data.folders):
            raise BadSetting("the recipe names no data: set data.geometry or data.folders")
        if data.geometry and not (data.images and data.videos and data.bank):
            raise BadSetting("data.geometry needs data.images, data.videos and data.bank beside it")
        for where, share in (
            ("data.copy_share", data.copy_share),
            ("data.label_fraction", data.label_fraction),
            *((f"augment.{each.name}", getattr(self.augment, each.name)) for each in _chances()),
            ("loop.ema", loop.ema),
            ("pseudo.min_confidence", self.pseudo.min_confidence),
            ("pseudo.labelled_share", self.pseudo.labelled_share),
        ):
            if not 0 <= share <= 1:
                raise BadSetting(f"{where} is {share}; it must lie within 0 and 1")
        for where, count in (("loop.steps", loop.steps), ("loop.batch", loop.batch)):
            if count < 1:
                raise BadSetting(f"{where} is {count}; it must be at least 1")
        unknown = sorted(set(data.negatives) - set(NEGATIVES))
        if unknown or not data.negatives:
            raise BadSetting(
                f"data.negatives is {list(data.negatives)}; name some of {', '.join(NEGATIVES)}"
            )
        if data.label_fraction < 1 and not (data.pairs or data.folders):
            raise BadSetting("data.label_fraction needs a fixed set: set data.pairs or folders")
        if loop.supervision != "full" and not (
            data.label_fraction < 1 or data.weak_folders or data.unlabelled_folders
        ):
            raise BadSetting(
                f"loop.supervision is {loop.supervision!r} but every pair has boxes; set "
                f"data.label_fraction, data.weak_folders or data.unlabelled_folders"
            )

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, for the run folder and the weights file."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a TOML file, `section.key=value` overrides laid over it, checked."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise NotFound(f"the recipe {path} cannot be read ({reason.strerror})") from None
    except tomllib.TOMLDecodeError as reason:
        raise BadSetting(f"{path} is no TOML: {reason}") from None
    for each in overrides:
        _override(content, each)
    recipe: Recipe = _build(Recipe, content, "")
    recipe.check()
    return recipe


def _override(content: dict[str, Any], text: str) -> None:
    key, separator, value = text.partition("=")
    if not separator:
        raise BadSetting(f"override {text!r} is not of the form section.key=value")
    *sections, last = key.strip().split(".")
    place = content
    for section in sections:
        place = place.setdefault(section, {})
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value  # a bare word is text


def _build(kind: type, values: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise BadSetting(
            f"{where}{unknown[0]} is no choice of a recipe; there are {', '.join(sorted(hints))}"
        )
    built = {name: _read(hints[name], each, f"{where}{name}") for name, each in values.items()}
    return kind(**built)


def _read(kind: Any, value: Any, where: str) -> Any:
    """A TOML value as the type of its field, or an error that names the field."""
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return _build(kind, value, f"{where}.")
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in inner:
            raise BadSetting(f"{where} is {value!r}; use one of {', '.join(map(str, inner))}")
        return value
    if origin in (Union, types.UnionType):
        return _read(next(each for each in inner if each is not type(None)), value, where)
    if origin is tuple:
        listed = value if isinstance(value, list) else [value]
        return tuple(_read(inner[0], each, where) for each in listed)
    if origin is not None:
        return dict(value)
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadSetting(f"{where} is {value!r}; it must be a {kind.__name__}")
    return value


def _named_paths(record: Any, where: str = "") -> list[tuple[str, Path]]:
    found = []
    for each in fields(record):
        value = getattr(record, each.name)
        name = f"{where}{each.name}"
        if is_dataclass(value):
            found += _named_paths(value, f"{name}.")
        elif isinstance(value, Path):
            found.append((name, value))
        elif isinstance(value, tuple):
            found += [(name, part) for part in value if isinstance(part, Path)]
    return found


def _chances() -> tuple[Any, ...]:
    return tuple(each for each in fields(Augment) if each.name != "noise")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
