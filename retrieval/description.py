"""A video file described: its frames become descriptors while they are decoded.

In: a path, a descriptor and limits. Out: descriptors as the store keeps them, and the duration.
Needs no database, so `vcl localize` describes a file exactly as a search does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval.describe.descriptors import Descriptor
from retrieval.describe.pictures import flag_low_information
from retrieval.describe.scenes import SceneWatcher
from retrieval.describe.tracker import PartTracker
from retrieval.describe.views import join_views
from retrieval.errors import BadVideo
from retrieval.media.video import read_frames
from retrieval.settings import Settings
from retrieval.store import StoredDescriptors


def describe_video(
    path: Path,
    descriptor: Descriptor,
    settings: Settings,
    on_frames: Callable[[int, float | None], None] = lambda done, total: None,
) -> tuple[StoredDescriptors, float]:
    """Descriptors of a file as the store keeps them, and its duration; needs no database.

    Frames are described as they are decoded, so memory does not grow with the film's length. They
    are also watched for parts and for scenes in front of a fixed camera, whose views are described.
    A film of more frames than `VCL_MAX_FRAMES` is refused: half of it described would pass for all.
    """
    parts, scenes = PartTracker(descriptor), SceneWatcher(descriptor)
    vectors: list[NDArray[np.float32]] = []
    flags: list[NDArray[np.bool_]] = []
    done = 0
    with read_frames(
        path,
        size=descriptor.frame_size,
        max_frames=settings.max_frames + 1,
        timeout=settings.decode_timeout,
        must_confine=settings.require_confinement,
    ) as reader:
        for _, frames in reader:
            done += len(frames)
            if done > settings.max_frames:
                raise BadVideo(
                    f"{path} has more than {settings.max_frames} frames at one a second; raise "
                    "VCL_MAX_FRAMES or cut the film into shorter ones",
                    code="too_long",
                )
            vectors.append(descriptor.embed(frames))
            flags.append(flag_low_information(frames))
            parts.watch(frames)
            scenes.watch(frames, vectors[-1], flags[-1])
            on_frames(done, reader.info.duration)
    described = StoredDescriptors(
        np.concatenate(vectors),
        np.concatenate(flags),
        descriptor.fingerprint.key,
        join_views([parts.finish(), scenes.finish()]),
    )
    return described, _length(reader.seconds, done)


def _length(seconds: float | None, frames: int) -> float:
    """How long a video is by what was decoded of it, one frame a second.

    What its container declares may be anything: less than nothing, or thirty years.
    """
    if seconds is not None and abs(seconds - frames) <= 1.0:
        return seconds
    return float(frames)
