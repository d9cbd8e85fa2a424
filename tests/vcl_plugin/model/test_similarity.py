"""Changes: what a frame adds to its scene, with nothing of other shots in it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from vcl_plugin.model.similarity import frame_changes


def random_frames(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 256, generator=generator), dim=1)


def test_changes_of_a_fixed_camera_agree_with_the_copy_and_with_no_other_moment():
    scene, passing = random_frames(1, 0), random_frames(40, 1)
    film = F.normalize(scene + 0.3 * passing, dim=1)
    copy = F.normalize(film[10:30] + 0.1 * random_frames(20, 2), dim=1)
    plain, changes = copy @ film.T, frame_changes(copy) @ frame_changes(film).T
    same = torch.arange(20), torch.arange(10, 30)
    assert float(plain.min()) > 0.8, "to the eye all moments are alike"
    assert float(changes[same].min()) > 0.6
    changes[same] = 0.0
    assert float(changes.max()) < 0.4


def test_another_shot_right_before_a_scene_leaves_its_changes_alone():
    film = F.normalize(random_frames(1, 0) + 0.3 * random_frames(30, 1), dim=1)
    after_a_cut = frame_changes(torch.cat([random_frames(10, 3), film]))[10:]
    # The first frames have lost neighbours, not gained wrong ones.
    assert float((after_a_cut * frame_changes(film)).sum(dim=1).min()) > 0.95


def test_frames_that_nothing_around_them_resembles_are_all_change():
    frames = random_frames(12, 4)
    torch.testing.assert_close(
        (frame_changes(frames) * frames).sum(dim=1), torch.ones(12), atol=0.02, rtol=0
    )


def test_a_photograph_has_no_change_and_one_frame_is_its_own():
    still = random_frames(1, 5).expand(20, -1)
    assert float(frame_changes(still).norm(dim=1).max()) < 0.6
    assert frame_changes(still[:1]).shape == (1, 256)
    assert torch.isfinite(frame_changes(torch.zeros(5, 256))).all()
