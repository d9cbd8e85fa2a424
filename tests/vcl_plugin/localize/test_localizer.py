"""The method `transvcl`: planted copies are found to the second, whatever their speed or length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retrieval.errors import BadDescriptors, BadSetting, MissingWeights
from vcl_plugin import load_localizer
from vcl_plugin.localize import reading
from vcl_plugin.localize.detection import TransVCLLocalizer
from vcl_plugin.localize.localizer import SHIPPED_READER, LineLocalizer
from vcl_plugin.model.checkpoint import save_transvcl
from vcl_plugin.model.config import SMALL
from vcl_plugin.model.reader import LineReader
from vcl_plugin.model.reader_file import ReaderFacts, open_reader, save_reader
from vcl_plugin.model.transvcl import TransVCL


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def film(seconds: float, seed: int, fps: int = 4) -> np.ndarray:
    """Shots of three to nine seconds, each drifting away from its first frame."""
    draw = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    while len(rows) < seconds * fps:
        length = int(draw.integers(3, 10)) * fps
        base, drift = draw.standard_normal((2, 256))
        rows += [base + 0.7 * drift * (k / length) for k in range(length)]
    return unit(np.array(rows[: int(seconds * fps)]))


def planted(
    q_start: int, r_start: int, length: int, speed: float = 1.0, is_reversed: bool = False,
    seconds: tuple[int, int] = (90, 140),
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """A copy under an edit that stays the same, in query seconds [q_start, q_start + length)."""
    draw = np.random.default_rng(5)
    source, query = film(seconds[1], 1), film(seconds[0], 2)[::4].copy()
    shown = r_start + (np.arange(length) + 0.5) * speed
    shown = shown[::-1] if is_reversed else shown
    edit = 0.35 * unit(draw.standard_normal((1, 256)))
    query[q_start : q_start + length] = unit(source[(shown * 4).astype(int)] + edit)
    return query, source[2::4]


@pytest.fixture(scope="module")
def localizer() -> LineLocalizer:
    return LineLocalizer(device="cpu")


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.6, 2.5])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_planted_copy_is_found_within_two_seconds(
    localizer: LineLocalizer, speed: float, is_reversed: bool
) -> None:
    (found,) = localizer.localize(*planted(20, 30, 40, speed, is_reversed))
    truth = (20, 30, 60, 30 + 40 * speed)
    assert max(abs(a - b) for a, b in zip(found.box, truth, strict=True)) <= 2
    assert found.is_reversed == is_reversed
    assert found.speed == pytest.approx(speed, rel=0.15)


def test_two_videos_that_share_nothing_have_no_segment(localizer: LineLocalizer) -> None:
    assert localizer.localize(film(200, 3)[::4], film(250, 4)[::4]) == []


def test_a_video_against_itself_is_one_segment(localizer: LineLocalizer) -> None:
    rows = film(120, 6)[::4]
    (found,) = localizer.localize(rows, rows)
    assert max(abs(a - b) for a, b in zip(found.box, (0, 0, 120, 120), strict=True)) <= 2


def test_a_long_pair_read_in_windows_has_the_same_segment(
    localizer: LineLocalizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = planted(60, 100, 180, seconds=(300, 320))
    whole = localizer.localize(*pair)
    monkeypatch.setattr(reading, "ONE_WINDOW", 0)
    (found,) = localizer.localize(*pair)
    assert max(abs(a - b) for a, b in zip(found.box, whole[0].box, strict=True)) <= 1


@pytest.mark.parametrize("frames", [1, 2, 3, 9])
def test_videos_of_a_few_frames_get_an_answer(localizer: LineLocalizer, frames: int) -> None:
    rows = film(frames, 7)[::4]
    for other in (rows, film(40, 8)[::4], np.zeros((5, 256), np.float32)):
        for found in localizer.localize(rows, other):
            assert found.query.end <= len(rows)
            assert found.reference.end <= len(other)


def test_a_still_of_two_hours_gets_an_answer(localizer: LineLocalizer) -> None:
    still = np.repeat(film(1, 9)[:1], 7200, axis=0)
    localizer.localize(still[:600], still)


def test_bad_arrays_and_settings_get_a_sentence(localizer: LineLocalizer) -> None:
    with pytest.raises(BadDescriptors, match="query has no frames"):
        localizer.localize(np.zeros((0, 256)), film(9, 1))
    with pytest.raises(BadDescriptors, match="reference 1 has shape"):
        localizer.localize_many(film(9, 1), [film(9, 1), film(9, 1)[:, :9]])
    with pytest.raises(BadSetting, match="min_score is 2"):
        LineLocalizer(min_score=2)


def test_scores_below_the_threshold_are_not_reported(localizer: LineLocalizer) -> None:
    pair = planted(20, 30, 40)
    assert LineLocalizer(min_score=1.0).localize(*pair) == []
    assert localizer.fingerprint != LineLocalizer(min_score=0.9).fingerprint


def test_weights_of_the_papers_network_make_its_detector(tmp_path: Path) -> None:
    save_transvcl(TransVCL(SMALL), tmp_path / "paper.safetensors")
    assert isinstance(load_localizer("transvcl", tmp_path / "paper.safetensors"), TransVCLLocalizer)
    assert isinstance(load_localizer("transvcl"), LineLocalizer)


def test_a_reader_is_read_as_it_was_written_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.safetensors"
    reader = LineReader()
    name = save_reader(reader, path, ReaderFacts(0.6, "known", {"steps": 3}))
    found, facts, digest = open_reader(path)
    assert (digest, facts.min_score, facts.descriptor) == (name, 0.6, "known")
    assert all((a == b).all() for a, b in zip(found.parameters(), reader.parameters(), strict=True))
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(MissingWeights, match="does not match its own fingerprint"):
        open_reader(path)
    with pytest.raises(MissingWeights, match="there is no weights file"):
        open_reader(tmp_path / "absent.safetensors")
    path.write_bytes(b"no weights")
    with pytest.raises(MissingWeights, match="no readable safetensors"):
        open_reader(path)


def test_shipped_weights_belong_to_the_shipped_descriptor() -> None:
    from retrieval import load_descriptor

    assert open_reader(SHIPPED_READER)[1].descriptor == load_descriptor("lite0").fingerprint.key
