"""What a localize worker does with a batch of pairs: lease, compare, record.

In: a query id and reference ids. Out: segments, claims and finished pairs in PostgreSQL.
Called by the localize task; holds one localizer a process. Knows no Celery.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from sqlalchemy import text

from retrieval import catalogue, leases, searches
from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import BadDescriptors, FingerprintMismatch, NotFound
from retrieval.plugins import Array
from retrieval.records import Pair, Segment
from vcl_plugin.claims import raise_claims
from vcl_plugin.segments import LeasedPair, Outcome, record_segments

log = logging.getLogger(__name__)

# Trying again does not mend these; the pair is set aside at once.
HOPELESS = (BadDescriptors, FingerprintMismatch, NotFound)


class LocalizeWorker:
    """Localizes leased pairs with the engine's localizer."""

    def __init__(self, engine: RetrievalEngine) -> None:
        self.engine = engine
        self.database = engine.database
        self.settings = engine.settings

    def open(
        self, search_id: str, query_id: str, reference_ids: Sequence[str], fingerprint: str | None
    ) -> None:
        """Open the search and its pairs for a caller that planned none; a known search is left.

        An id that nobody registered becomes a failed video, so that the caller finds the reason in
        the rows it waits for.
        """
        with transaction(self.database) as connection:
            if searches.count_pairs(connection, search_id, reference_ids) == len(reference_ids):
                return
            for video_id in (query_id, *reference_ids):
                catalogue.note_unregistered(connection, video_id)
            searches.create_search(connection, query_id, search_id)
            fingerprint = fingerprint or catalogue.newest_fingerprint(connection, query_id)
            if fingerprint is None:
                video = catalogue.read_video(connection, query_id)
                searches.fail_search(
                    connection,
                    search_id,
                    video["reason"] or "no_descriptors",
                    video["message"] or f"video {query_id!r} has no descriptors",
                )
                return
            method = searches.Method(self.engine.localizer.fingerprint, fingerprint)
            pairs = [
                Pair(query_id, reference_id, rank, 0.0)
                for rank, reference_id in enumerate(dict.fromkeys(reference_ids), start=1)
            ]
            searches.open_pairs(connection, search_id, pairs, method)

    def localize(self, query_id: str, reference_ids: Sequence[str]) -> int:
        """Localize those of the pairs that wait; returns how many were done."""
        holder = leases.new_holder()
        pairs = self._lease(query_id, reference_ids, holder)
        if not pairs:
            return 0
        with leases.heartbeat(
            self.database,
            "pairs",
            [pair.id for pair in pairs],
            holder,
            self.settings.lease_seconds,
        ):
            ready, arrays = self._load(pairs, holder)
            if not ready:
                return 0
            started = time.monotonic()
            try:
                found = self.engine.localizer.localize_many(arrays[0], arrays[1:])
            except Exception:
                # One pair of the batch is bad: find out which by taking them one at a time.
                return sum(
                    self._localize_alone(pair, arrays[0], array, holder)
                    for pair, array in zip(ready, arrays[1:], strict=True)
                )
            seconds = (time.monotonic() - started) / len(ready)
            for pair, segments in zip(ready, found, strict=True):
                self._record(pair, segments, seconds, holder)
        return len(ready)

    def _lease(self, query_id: str, reference_ids: Sequence[str], holder: str) -> list[LeasedPair]:
        with transaction(self.database) as connection:
            rows = connection.execute(
                text("""
                SELECT id, query_id, reference_id, fingerprint FROM pairs
                WHERE query_id = :query AND reference_id = ANY(:references) AND model = :model
                  AND status IN ('waiting', 'running') ORDER BY id"""),
                {
                    "query": query_id,
                    "references": list(reference_ids),
                    "model": self.engine.localizer.fingerprint,
                },
            ).all()
            taken = set(
                leases.acquire(
                    connection,
                    "pairs",
                    [row.id for row in rows],
                    holder,
                    self.settings.lease_seconds,
                )
            )
        leased = [LeasedPair(*row) for row in rows if row.id in taken]
        # One batch compares descriptors of one kind; pairs of another kind are swept up singly.
        return [pair for pair in leased if pair.fingerprint == leased[0].fingerprint]

    def _load(
        self, pairs: Sequence[LeasedPair], holder: str
    ) -> tuple[list[LeasedPair], list[Array]]:
        """Descriptors of the query, then of each reference; pairs without them are set aside."""
        arrays: dict[str, Array] = {}
        ready: list[LeasedPair] = []
        for pair in pairs:
            try:
                for video_id in (pair.query_id, pair.reference_id):
                    if video_id not in arrays:
                        arrays[video_id] = self._descriptors(video_id, pair.fingerprint)
            except HOPELESS as error:
                with transaction(self.database) as connection:
                    searches.quarantine_pair(connection, pair.id, error.code, str(error))
                continue
            ready.append(pair)
        if not ready:
            return [], []
        return ready, [arrays[ready[0].query_id], *(arrays[each.reference_id] for each in ready)]

    def _descriptors(self, video_id: str, fingerprint: str) -> Array:
        with transaction(self.database) as connection:
            path = catalogue.find_descriptors(connection, video_id, fingerprint)
            video = catalogue.read_video(connection, video_id)
        if video["status"] == "failed":
            raise NotFound(video["message"], code=video["reason"])
        if path is None:
            raise FingerprintMismatch(
                f"video {video_id!r} has no descriptors of {fingerprint}; ingest it again"
            )
        return self.engine.store.read(path).descriptors

    def _localize_alone(
        self, pair: LeasedPair, query: Array, reference: Array, holder: str
    ) -> bool:
        started = time.monotonic()
        try:
            segments = self.engine.localizer.localize(query, reference)
        except Exception as error:
            log.exception("localize pair=%d failed", pair.id)
            code = getattr(error, "code", "localizer_failed")
            message = f"{type(error).__name__}: {error}"
            with transaction(self.database) as connection:
                if isinstance(error, HOPELESS):
                    searches.quarantine_pair(connection, pair.id, code, message)
                else:
                    leases.give_back(connection, "pairs", pair.id, holder, code, message)
            return False
        self._record(pair, segments, time.monotonic() - started, holder)
        return True

    def _record(
        self, pair: LeasedPair, segments: Sequence[Segment], seconds: float, holder: str
    ) -> None:
        """Result, claim and count in one transaction: all of it is there, or none."""
        with transaction(self.database) as connection:
            if not leases.holds(connection, "pairs", pair.id, holder):
                log.warning("localize pair=%d lost its lease; another worker has it", pair.id)
                return
            outcome = Outcome(segments, self.engine.localizer.fingerprint, holder, seconds)
            run_id = record_segments(connection, pair, outcome)
            if run_id is not None:
                raise_claims(
                    connection,
                    run_id,
                    self.settings.min_claim_score,
                    self.settings.min_claim_seconds,
                )
            searches.finish_pair(connection, pair.id, holder)
