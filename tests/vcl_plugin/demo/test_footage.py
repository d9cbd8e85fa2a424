"""Rendered footage: deterministic, moving, and edited as its truth says."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from vcl_plugin.demo.footage import Clip, planted_segments, render_edit, render_reference

SIZE = (160, 120)


def decode(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames).astype(np.float32)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("footage")
    return render_reference(folder / "reference.mp4", seed=3, seconds=12, size=SIZE)


def test_the_same_seed_gives_the_same_film(reference: Path, tmp_path: Path) -> None:
    again = render_reference(tmp_path / "again.mp4", seed=3, seconds=12, size=SIZE)
    other = render_reference(tmp_path / "other.mp4", seed=4, seconds=12, size=SIZE)
    assert again.read_bytes() == reference.read_bytes()
    assert other.read_bytes() != reference.read_bytes()


def test_a_film_has_the_asked_length_and_moves_every_second(reference: Path) -> None:
    frames = decode(reference)
    assert frames.shape == (120, SIZE[1], SIZE[0], 3)
    seconds = frames[5::10]
    change = np.abs(np.diff(seconds, axis=0)).mean(axis=(1, 2, 3))
    assert change.min() > 8, "a second looks like the one before it"
    assert seconds.std(axis=(1, 2, 3)).min() > 15, "a second is nearly flat"


def test_planted_segments_follow_each_other_in_the_query() -> None:
    a, b, filler = Path("a.mp4"), Path("b.mp4"), Path("filler.mp4")
    clips = [
        Clip(filler, 0, 5, is_copy=False),
        Clip(a, 10, 25, speed=1.5),
        Clip(b, 3, 9, is_reversed=True),
    ]
    (first_source, first), (second_source, second) = planted_segments(clips)
    assert (first_source, second_source) == (a, b)
    assert first.box == (5, 10, 15, 25)
    assert first.speed == 1.5
    assert second.box == (15, 3, 21, 9)
    assert second.is_reversed


def test_a_plain_cut_shows_the_frames_of_its_source(reference: Path, tmp_path: Path) -> None:
    edit = render_edit(tmp_path / "cut.mp4", [Clip(reference, 4, 8)], size=SIZE)
    difference = np.abs(decode(edit) - decode(reference)[40:80]).mean()
    assert difference < 6


def test_a_reversed_mirrored_clip_runs_backwards_and_flipped(
    reference: Path, tmp_path: Path
) -> None:
    clip = Clip(reference, 4, 8, is_mirrored=True, is_reversed=True)
    edit = render_edit(tmp_path / "turned.mp4", [clip], size=SIZE)
    expected = decode(reference)[40:80][::-1, :, ::-1]
    assert np.abs(decode(edit) - expected).mean() < 6


def test_a_faster_clip_is_shorter_and_keeps_its_ends(reference: Path, tmp_path: Path) -> None:
    edit = decode(
        render_edit(tmp_path / "fast.mp4", [Clip(reference, 2, 11, speed=1.5)], size=SIZE)
    )
    source = decode(reference)
    assert len(edit) == 60
    assert np.abs(edit[30] - source[20 + 45]).mean() < 12


def test_a_low_bitrate_makes_a_smaller_file(reference: Path, tmp_path: Path) -> None:
    plain = render_edit(tmp_path / "plain.mp4", [Clip(reference, 0, 6, crop=0.2)], size=SIZE)
    poor = render_edit(
        tmp_path / "poor.mp4", [Clip(reference, 0, 6, crop=0.2)], size=SIZE, bitrate=30_000
    )
    assert poor.stat().st_size < 0.75 * plain.stat().st_size


def test_an_impossible_clip_is_refused() -> None:
    with pytest.raises(ValueError, match="before it starts"):
        Clip(Path("a.mp4"), 5, 5)
    with pytest.raises(ValueError, match="crop"):
        Clip(Path("a.mp4"), 0, 5, crop=1.0)
