"""Whether a change of the code left every segment as it was, to the last digit.

Run: python benchmarks/same_segments.py write FILE --folder PAIRS --films FILMS   (before)
     python benchmarks/same_segments.py check FILE --folder PAIRS --films FILMS   (after)

PAIRS is a folder that `vcl evaluate` reads: its first pairs are localized as arrays. FILMS is a
folder of video files: each is compared with the next one as a search would, views and all.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from retrieval.pairing import localize_views
from retrieval.plugins import load_localizer
from retrieval.settings import load_settings
from vcl_plugin.cli.localize import read_input
from vcl_plugin.evaluation.folder import Folder

METHODS = ("transvcl", "tn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("write", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--films", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=45)
    parser.add_argument("--film-pairs", type=int, default=15)
    options = parser.parse_args()
    found = localize_all(options)
    if options.verb == "write":
        options.file.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{len(found)} pairs written, {sum(map(len, found.values()))} segments")
        return
    before = json.loads(options.file.read_text(encoding="utf-8"))
    changed = [name for name in before | found if before.get(name) != found.get(name)]
    for name in changed:
        print(f"{name}:\n  before {before.get(name)}\n  now    {found.get(name)}")
    print(f"{len(before) - len(changed)} of {len(before)} pairs have the segments they had")
    sys.exit(bool(changed))


def localize_all(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    folder = Folder(options.folder)
    settings = load_settings()
    films = sorted(path for path in options.films.iterdir() if path.suffix in (".mp4", ".webm"))
    described = [read_input(path, settings) for path in islice(films, options.film_pairs + 1)]
    for method in METHODS:
        localizer = load_localizer(method)
        for pair in islice(folder.pairs, options.pairs):
            ids = pair.query_id, pair.reference_id
            segments = localizer.localize(*map(folder.load_features, ids))
            found[f"{method} {ids}"] = [each.as_dict() for each in segments]
        for number, (query, reference) in enumerate(pairwise(described)):
            [segments] = localize_views(localizer, query, [reference])
            found[f"{method} film {number}"] = [each.as_dict() for each in segments]
    return found


if __name__ == "__main__":
    main()
