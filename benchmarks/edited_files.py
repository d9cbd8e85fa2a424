"""Do the ends hold on really edited files? `vcl localize` on uploads cut, edited and encoded here.

Run: python benchmarks/edited_files.py --videos DIR [--split test] [--min-score 0.5]

Every video of the split that lasts twelve seconds gives one upload an edit: ten seconds of another
video, a stretch of this one (plain, cropped, mirrored, sped up), ten more seconds of the other,
encoded anew as H.264. The command line is called with both files, and each end of the best segment
is compared with the cut. A split is a matter of the file's name, so `test` is what training and
the choice of thresholds never saw.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vcl_plugin.demo.footage import Clip, planted_segments, render_edit
from vcl_plugin.evaluation.sources import Source, find_videos

EDITS = {
    "plain": {},
    "cropped": {"crop": 0.2},
    "mirrored": {"is_mirrored": True},
    "sped-up": {"speed": 1.5},
}
FILLER = 10.0  # seconds of another video before and after
SHORTEST, LONGEST = 12, 20  # seconds of a video to be used, and of its stretch
FPS, SIZE = 25, (480, 360)
ALLOWED = 2.0  # seconds that an end may be off
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Upload:
    """A file whose truth is known."""

    edit: str
    reference: Path
    clips: tuple[Clip, ...]

    @property
    def truth(self) -> Box:
        ((_, segment),) = planted_segments(self.clips)
        return segment.box


def plan_uploads(sources: Sequence[Source]) -> list[Upload]:
    """One upload a video and edit, filled up with the next video of another group."""
    long_enough = [each for each in sources if each.seconds >= SHORTEST and each.path is not None]
    uploads = []
    for number, source in enumerate(long_enough):
        others = long_enough[number + 1 :] + long_enough[:number]
        filler = next(each for each in others if each.group != source.group)
        assert source.path is not None
        assert filler.path is not None
        start = float(source.seconds // 6)
        end = min(start + LONGEST, float(source.seconds * 5 // 6))
        around = Clip(filler.path, 0.0, min(FILLER, filler.seconds / 2), is_copy=False)
        after = replace(around, start=around.end, end=2 * around.end)
        for edit, options in EDITS.items():
            copied = Clip(source.path, start, end, **options)  # type: ignore[arg-type]
            uploads.append(Upload(edit, source.path, (around, copied, after)))
    return uploads


def localize_files(
    query: Path, reference: Path, method: str, options: Sequence[str] = ()
) -> list[tuple[Box, float]]:
    """What `vcl localize` prints of two files: boxes and scores."""
    command = [sys.executable, "-m", "vcl_plugin.cli", "localize", str(query), str(reference)]
    done = subprocess.run(
        [*command, "--method", method, *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"vcl localize failed: {done.stderr.strip()}")
    return read_segments(done.stdout)


def read_segments(text: str) -> list[tuple[Box, float]]:
    found = []
    for each in json.loads(text):
        box = (each["query_start"], each["reference_start"], each["query_end"])
        found.append(((*box, each["reference_end"]), each["score"]))
    return found


def worst_end(found: Sequence[tuple[Box, float]], truth: Box) -> float | None:
    """Seconds by which the worst of the four ends of the segment nearest to the truth is off."""
    distances = [
        max(abs(one - other) for one, other in zip(box, truth, strict=True)) for box, _ in found
    ]
    return min(distances, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--videos", type=Path, required=True, help="folder of footage")
    parser.add_argument("--split", default="test", help="train, val or test")
    parser.add_argument("--method", default="transvcl", help="localizer to ask")
    parser.add_argument(
        "--min-score", help="of `vcl localize`; the method's threshold if not given"
    )
    arguments = parser.parse_args()
    options = ["--min-score", arguments.min_score] if arguments.min_score else []
    sources = [each for each in find_videos(arguments.videos) if each.split == arguments.split]
    uploads = plan_uploads(sources)
    right = dict.fromkeys(EDITS, 0)
    print(f"{'video':24}{'edit':10}{'truth':>24}{'found':>28}{'off by':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for upload in uploads:
            path = render_edit(Path(folder) / "upload.mp4", upload.clips, FPS, SIZE)
            found = localize_files(path, upload.reference, arguments.method, options)
            off = worst_end(found, upload.truth)
            right[upload.edit] += off is not None and off <= ALLOWED
            boxes = "; ".join(" ".join(f"{side:.1f}" for side in box) for box, _ in found)
            truth = " ".join(f"{side:.1f}" for side in upload.truth)
            said = "nothing" if off is None else f"{off:.1f} s"
            name = upload.reference.name
            print(f"{name:23} {upload.edit:10}{truth:>24}{boxes:>28}{said:>8}", flush=True)
    each = len(uploads) // len(EDITS)
    print(f"all four ends within {ALLOWED:g} s, of {each} videos an edit:")
    print(", ".join(f"{edit} {count}" for edit, count in right.items()))


if __name__ == "__main__":
    main()
