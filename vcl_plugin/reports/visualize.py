"""Pictures of a pair: its similarity maps, what was found in them, and where the network looked.

In: descriptors or ready maps, segments, and frames for the margins. Out: a matplotlib figure.
Needs the extra `train` (matplotlib).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import Refused
from retrieval.records import Segment
from vcl_plugin.reports.attention import Attention, Map

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Frame = NDArray[np.uint8]
INK, FAINT = "#1f2430", "#8b93a5"
FOUND, BACKWARDS, TRUE = "#19e3c2", "#ffb627", "#ffffff"
QUERY_COLOUR, REFERENCE_COLOUR, TOKEN_COLOUR = "#3a6ea5", "#b5476b", "#d7263d"
STRONGEST_ARCS = 60


@dataclass(frozen=True)
class Picture:
    """All that is drawn of a pair. Only the cosine map is needed."""

    cosine: Map
    enhanced: Map | None = None
    attention: Attention | None = None
    found: Sequence[Segment] = ()
    truth: Sequence[Sequence[float]] = ()
    query_frames: Sequence[Frame] = ()
    reference_frames: Sequence[Frame] = ()
    query_name: str = "query"
    reference_name: str = "reference"
    facts: dict[str, str] = field(default_factory=dict)


def draw_pair(picture: Picture) -> Figure:
    """The pair as one figure: maps with boxes, frames along both axes, attention where known."""
    sheet = _Sheet(picture)
    maps = [("frame similarity", picture.cosine)]
    if picture.enhanced is not None:
        # A dual softmax spans many powers of ten; its root shows the weak matches too.
        maps.append(("after enhancement (square root)", np.sqrt(np.maximum(picture.enhanced, 0))))
    if len(picture.query_frames):
        _draw_strip(sheet.query_strip(), picture.query_frames, is_upright=True)
    for place, (title, similarity) in enumerate(maps):
        axes = sheet.map(place)
        _draw_map(axes, similarity, picture)
        top = axes
        if len(picture.reference_frames):
            top = sheet.reference_strip(place)
            _draw_strip(top, picture.reference_frames, is_upright=False)
        top.set_title(title, loc="left", fontsize=10, color=INK, pad=5)
        if place == 0:
            axes.set_ylabel(f"{picture.query_name} (seconds)", fontsize=9, color=INK)
        else:
            axes.tick_params(labelleft=False)
        if picture.attention is not None and place == len(maps) - 1:
            _draw_token(sheet.token(place, axes), picture.attention, picture)
            axes.tick_params(labelbottom=False)
            axes.set_xlabel("")
    if picture.attention is not None:
        _draw_arcs(sheet.map(len(maps)), picture.attention, picture)
    _write_head(sheet, picture)
    return sheet.figure


class _Sheet:
    """Where everything stands, in inches, so that frames and maps keep their size whatever else
    is drawn."""

    SIDE, GAP, STRIP, TOKEN, LABELS = 5.0, 0.4, 0.8, 0.9, 0.75
    LEFT, RIGHT, HEAD, TITLE, BOTTOM = 0.3, 0.3, 0.85, 0.3, 0.6

    def __init__(self, picture: Picture) -> None:
        panels = 1 + (picture.enhanced is not None) + (picture.attention is not None)
        self.left = self.LEFT + self.LABELS
        if len(picture.query_frames):
            self.left += self.STRIP
        self.bottom = self.BOTTOM
        if picture.attention is not None:
            self.bottom += self.TOKEN + 0.1
        self.width = self.left + panels * self.SIDE + (panels - 1) * self.GAP + self.RIGHT
        self.height = self.bottom + self.SIDE + self.TITLE + self.HEAD
        if len(picture.reference_frames):
            self.height += self.STRIP + 0.06
        self.figure: Figure = figure_class()(figsize=(self.width, self.height), facecolor="white")

    def map(self, place: int) -> Axes:
        return self._add(self._x(place), self.bottom, self.SIDE, self.SIDE)

    def query_strip(self) -> Axes:
        return self._add(self.LEFT, self.bottom, self.STRIP, self.SIDE)

    def reference_strip(self, place: int) -> Axes:
        return self._add(self._x(place), self.bottom + self.SIDE + 0.06, self.SIDE, self.STRIP)

    def token(self, place: int, axes: Axes) -> Axes:
        return self._add(self._x(place), self.BOTTOM, self.SIDE, self.TOKEN, sharex=axes)

    def _x(self, place: int) -> float:
        return self.left + place * (self.SIDE + self.GAP)

    def _add(self, x: float, y: float, width: float, height: float, **options: Any) -> Axes:
        place = (x / self.width, y / self.height, width / self.width, height / self.height)
        axes: Axes = self.figure.add_axes(place, **options)
        return axes


def save_pair(picture: Picture, path: Path, dpi: int = 130) -> None:
    """Draw and write; the format follows the file's ending (png, pdf, svg)."""
    figure = draw_pair(picture)
    figure.savefig(path, dpi=dpi)


def figure_class() -> Any:
    """The figure of matplotlib, or the sentence that it is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Refused(
            "drawing needs matplotlib; install it with `pip install vcl-plugin[train]`",
            code="missing_matplotlib",
        ) from None
    return Figure


def _draw_map(axes: Axes, similarity: Map, picture: Picture) -> None:
    from matplotlib.patheffects import withStroke

    rows, columns = similarity.shape
    # Boxes must stand out: the darkest tenth and the brightest thousandth of cells say little.
    low, high = np.percentile(similarity, [10, 99.9])
    axes.imshow(
        similarity,
        cmap="magma",
        vmin=float(low),
        vmax=float(max(high, low + 1e-6)),
        extent=(0, columns, rows, 0),
        aspect="auto",
        interpolation="nearest",
    )
    for box in picture.truth:
        _draw_box(axes, box, TRUE, "--", 1.4)
    for segment in picture.found:
        colour = BACKWARDS if segment.is_reversed else FOUND
        _draw_box(axes, segment.box, colour, "-", 1.8)
        q_start, r_start, _, r_end = segment.box
        is_right = r_start > 0.85 * columns
        axes.annotate(
            _caption(segment),
            (r_end if is_right else r_start, q_start),
            xytext=(0, 3 if q_start > 0.06 * rows else -11),
            textcoords="offset points",
            ha="right" if is_right else "left",
            color=colour,
            fontsize=8,
            fontweight="bold",
            path_effects=[withStroke(linewidth=2, foreground="#000000b0")],
        )
    axes.set_xlabel(f"{picture.reference_name} (seconds)", fontsize=9, color=INK)
    axes.tick_params(colors=FAINT, labelsize=8, length=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_box(axes: Axes, box: Sequence[float], colour: str, style: str, thickness: float) -> None:
    from matplotlib.patches import Rectangle

    q_start, r_start, q_end, r_end = box
    axes.add_patch(
        Rectangle(
            (r_start, q_start),
            r_end - r_start,
            q_end - q_start,
            fill=False,
            edgecolor=colour,
            linestyle=style,
            linewidth=thickness,
        )
    )


def _caption(segment: Segment) -> str:
    words = [f"{segment.score:.2f}"]
    if abs(segment.speed - 1) > 0.08:
        words.append(f"×{segment.speed:.2g}")
    if segment.is_reversed:
        words.append("reversed")
    return " ".join(words)


def _draw_strip(axes: Axes, frames: Sequence[Frame], is_upright: bool) -> None:
    """Frames side by side, each cut to its cell so that none is distorted."""
    axes.set_axis_off()
    box = axes.get_window_extent()
    count = len(frames)
    cell = (box.width, box.height / count) if is_upright else (box.width / count, box.height)
    for number, frame in enumerate(frames):
        cut = _cut_to(frame, cell[0] / max(cell[1], 1e-6))
        span = (number + 0.02, number + 0.98)
        extent = (0, 1, span[1], span[0]) if is_upright else (span[0], span[1], 1, 0)
        axes.imshow(cut, extent=extent, aspect="auto", interpolation="bilinear")
    axes.set_xlim((0, 1) if is_upright else (0, count))
    axes.set_ylim((count, 0) if is_upright else (1, 0))


def _cut_to(frame: Frame, ratio: float) -> Frame:
    """The middle of a frame with the given width-to-height ratio.

    >>> _cut_to(np.zeros((100, 400, 3), np.uint8), 2.0).shape
    (100, 200, 3)
    """
    height, width = frame.shape[:2]
    if width > ratio * height:
        kept = max(int(ratio * height), 1)
        start = (width - kept) // 2
        return frame[:, start : start + kept]
    kept = max(int(width / ratio), 1)
    start = (height - kept) // 2
    return frame[start : start + kept]


def _draw_token(axes: Axes, attention: Attention, picture: Picture) -> None:
    token = attention.token
    seconds = np.arange(len(token)) + 0.5
    for box in picture.truth or [segment.box for segment in picture.found]:
        axes.axvspan(box[1], box[3], color="#f0e6d6", linewidth=0)
    axes.fill_between(
        seconds, token, float(token.min()), color=TOKEN_COLOUR, alpha=0.15, linewidth=0
    )
    axes.plot(seconds, token, color=TOKEN_COLOUR, linewidth=1.2)
    axes.set_yticks([])
    axes.set_xlabel(f"{picture.reference_name} (seconds)", fontsize=9, color=INK)
    axes.set_ylabel(
        "class\ntoken", fontsize=8, color=TOKEN_COLOUR, rotation=0, ha="right", va="center"
    )
    axes.tick_params(colors=FAINT, labelsize=8, length=2)
    for name in ("top", "right", "left"):
        axes.spines[name].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)


def _draw_arcs(axes: Axes, attention: Attention, picture: Picture) -> None:
    """Query on the left, reference on the right; arcs within each, lines across, the strongest
    ones only, thicker where stronger."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    n, m = attention.cross.shape
    axes.set_xlim(-0.75, 1.75)
    axes.set_ylim(1.02, -0.02)
    axes.set_title("attention within and across", loc="left", fontsize=10, color=INK, pad=16)
    axes.set_axis_off()

    def add(vertices: list[tuple[float, float]], colour: str, strength: float) -> None:
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
        axes.add_patch(
            PathPatch(
                Curve(vertices, codes),
                fill=False,
                edgecolor=colour,
                linewidth=0.3 + 2.2 * strength,
                alpha=0.15 + 0.6 * strength,
                capstyle="round",
            )
        )

    for weights, x, bend, colour, count in (
        (attention.query, 0.0, -1.0, QUERY_COLOUR, n),
        (attention.reference, 1.0, 1.0, REFERENCE_COLOUR, m),
    ):
        for i, j, strength in _strongest(weights, min_apart=max(count // 20, 1)):
            start, end = (i + 0.5) / count, (j + 0.5) / count
            reach = x + bend * (0.12 + 0.75 * abs(end - start))
            add([(x, start), (reach, start), (reach, end), (x, end)], colour, strength)
    for i, j, strength in _strongest(attention.cross):
        start, end = (i + 0.5) / n, (j + 0.5) / m
        add([(0, start), (0.4, start), (0.6, end), (1, end)], INK, strength)
    for x, colour, name, seconds in (
        (0.0, QUERY_COLOUR, picture.query_name, n),
        (1.0, REFERENCE_COLOUR, picture.reference_name, m),
    ):
        axes.plot([x, x], [0, 1], color=colour, linewidth=4, solid_capstyle="round")
        side = "right" if x == 0 else "left"
        shift = -0.04 if x == 0 else 0.04
        axes.text(x + shift, -0.015, f"{name} 0 s", fontsize=7, color=colour, ha=side, va="bottom")
        axes.text(x + shift, 1.015, f"{seconds} s", fontsize=7, color=colour, ha=side, va="top")


def _strongest(weights: Map, min_apart: int = 0) -> list[tuple[int, int, float]]:
    """The strongest cells `(row, column, strength)`, weakest first; 1 is the strongest of all.

    What a row gives to a column beyond what every row gives it: a frame that all look at is drawn
    once, by the rows that look at it most.
    """
    excess = weights - weights.mean(axis=0, keepdims=True)
    if min_apart:
        rows, columns = np.indices(weights.shape)
        excess = np.where(np.abs(rows - columns) >= min_apart, excess, -np.inf)
    order = np.argsort(excess, axis=None)[-STRONGEST_ARCS:]
    top = float(excess.ravel()[order[-1]]) if len(order) else 0.0
    if not np.isfinite(top) or top <= 0:
        return []
    cells = [divmod(int(place), weights.shape[1]) for place in order if excess.ravel()[place] > 0]
    return [(i, j, float(excess[i, j]) / top) for i, j in cells]


def _write_head(sheet: _Sheet, picture: Picture) -> None:
    def write(inches_down: float, text: str, **style: Any) -> None:
        x, y = sheet.LEFT / sheet.width, 1 - inches_down / sheet.height
        sheet.figure.text(x, y, text, va="center", **style)

    names = f"{picture.query_name}  →  {picture.reference_name}"
    write(0.32, names, fontsize=14, fontweight="bold", color=INK)
    count = len(picture.found)
    words = [f"{count} copied segment{'s' * (count != 1)} found"]
    words += [f"{name} {value}" for name, value in picture.facts.items()]
    if len(picture.truth):
        words.append("dashed: the truth")
    write(0.62, "  ·  ".join(words), fontsize=9, color=FAINT)
