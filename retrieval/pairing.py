"""Two videos as a localizer is to see them: each by those of its views that suit the other.

In: what the store holds of a query and of its references. Out: descriptor arrays, or segments.
Called by whoever compares two videos: the worker, `vcl localize`, `vcl show`, `vcl why`.
"""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.describe.scenes import choose_aspects
from retrieval.describe.tracker import choose_views
from retrieval.plugins import Array, Localizer
from retrieval.records import Segment
from retrieval.store import StoredDescriptors


def match_rows(query: StoredDescriptors, reference: StoredDescriptors) -> tuple[Array, Array]:
    """Descriptors of both for this pair; the very arrays of the store where whole frames do best.

    Where a part of the query's pictures shows the reference, other aspects are left alone: who
    shows a film small does not also hide it.
    """
    rows = choose_views(query, reference.descriptors)
    if rows is not query.descriptors:
        return rows, reference.descriptors
    return choose_aspects(query, reference)


def localize_views(
    localizer: Localizer, query: StoredDescriptors, references: Sequence[StoredDescriptors]
) -> list[list[Segment]]:
    """`localize_many`, each pair as `match_rows` sees it."""
    found: list[list[Segment]] = [[] for _ in references]
    plain: dict[int, Array] = {}
    for number, reference in enumerate(references):
        rows, others = match_rows(query, reference)
        if rows is query.descriptors:
            plain[number] = others
        else:
            found[number] = localizer.localize(rows, others)
    if plain:
        many = localizer.localize_many(query.descriptors, list(plain.values()))
        for number, segments in zip(plain, many, strict=True):
            found[number] = segments
    return found
