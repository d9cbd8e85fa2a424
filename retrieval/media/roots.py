"""Media roots: the folders in which every path from outside must lie, links followed.

In: a path as a caller gave it, and the roots of the settings. Out: where it really leads, or the
refusal. Asked wherever a path of others is opened: to register or describe a file, for descriptors
and for thumbnails.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from retrieval.errors import BadVideo, RetrievalError


def confine_path(
    path: str | Path, roots: Sequence[Path], refusal: type[RetrievalError] = BadVideo
) -> Path:
    """`path` itself where there are no roots; else its target, which must lie in one of them.

    What lies outside is refused alike whether it exists or not, so that nobody learns which.
    """
    if not roots:
        return Path(path)
    try:
        target = Path(path).resolve()
        is_inside = any(target.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL, a name beyond measure
        is_inside = False
    if not is_inside:
        raise refusal(
            f"{path} does not lie in one of the media roots; move it there, or name its folder in "
            "VCL_MEDIA_ROOTS",
            code="outside_media_roots",
        )
    return target
