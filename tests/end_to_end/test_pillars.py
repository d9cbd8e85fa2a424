"""A film that stands between black bars is the film."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from retrieval.describe.descriptors import load_descriptor
from retrieval.description import describe_video
from retrieval.pairing import localize_views
from retrieval.plugins import load_localizer
from retrieval.settings import Settings
from vcl_plugin.demo.footage import render_reference, write_video

FPS, TALL, WIDE = 10, (270, 480), (854, 480)


def stand_between_pillars(film: Path) -> Iterator[np.ndarray]:
    left = (WIDE[0] - TALL[0]) // 2
    with av.open(str(film)) as container:
        for frame in container.decode(video=0):
            picture = np.zeros((WIDE[1], WIDE[0], 3), np.uint8)
            picture[:, left : left + TALL[0]] = frame.to_ndarray(format="rgb24")
            yield picture


@pytest.mark.parametrize("seed", [3, 4])
def test_a_tall_film_between_pillars_is_found(tmp_path: Path, seed: int) -> None:
    settings = Settings(home=tmp_path / "home")
    film = render_reference(tmp_path / "tall.mp4", seed, 20, FPS, TALL)
    upload = tmp_path / "wide.mp4"
    write_video(upload, stand_between_pillars(film), FPS, WIDE)
    descriptor = load_descriptor(settings.descriptor)
    asked, known = (describe_video(str(each), descriptor, settings)[0] for each in (upload, film))
    (found,) = localize_views(load_localizer("transvcl"), asked, [known])[0]
    assert found.query.overlap(found.reference) >= 18
