"""What a localize worker does with a batch of pairs: lease, compare, record.

In: a query id and reference ids. Out: segments, claims and finished pairs in PostgreSQL.
Holds one localizer a process. Knows no Celery.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from retrieval.database import transaction
from retrieval.engine import RetrievalEngine
from retrieval.errors import (
    BadDescriptors,
    FingerprintMismatch,
    MissingFile,
    NotFound,
    Refused,
    RetrievalError,
    ServiceUnavailable,
)
from retrieval.pairing import localize_views
from retrieval.records import Candidate, Pair, Segment, VideoStatus
from retrieval.store import StoredDescriptors
from retrieval.work import catalogue, handover, leases, pairs, searches, unsettled
from retrieval.work.leases import Table
from vcl_plugin.claims.guard import is_low_information
from vcl_plugin.claims.segments import Outcome, record_segments
from vcl_plugin.claims.settlement import settle_claims

log = logging.getLogger(__name__)

# Trying again does not mend these; the pair is set aside at once. A missing file may come back.
HOPELESS = (BadDescriptors, FingerprintMismatch, NotFound)
# A localizer that nobody used for so many leases is gone, and what waits for it is ours.
GONE_LEASES = 10
NOTHING = StoredDescriptors(np.zeros((0, 256), np.float32), np.zeros(0, bool), None)


# Of so many different pairs in a row that fail, the process is to blame and not the pairs.
MOST_FAILURES = 3
# A made-up video that any localizer can compare with itself.
_NOISE = np.random.default_rng(19).standard_normal((8, 256)).astype(np.float32)
CONTROL = _NOISE / np.linalg.norm(_NOISE, axis=1, keepdims=True)


class IllProcess(Exception):
    """This process can compare nothing any more: its GPU is gone, its memory spoilt."""


@dataclass(frozen=True)
class Batch:
    """Pairs of one query and one kind of descriptors that one holder has leased."""

    holder: str
    pairs: list[Pair]


@dataclass(frozen=True)
class Loaded:
    """Those pairs of a batch whose descriptors could be read, and what was away for the others."""

    pairs: list[Pair]
    query: StoredDescriptors
    references: list[StoredDescriptors]
    away: ServiceUnavailable | None


class LocalizeWorker:
    """Localizes leased pairs with the engine's localizer; counts what its process fails at."""

    def __init__(self, engine: RetrievalEngine) -> None:
        self.failed: set[int] = set()  # pairs, since one succeeded
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
            known = pairs.count_pairs(connection, search_id, reference_ids)
            if reference_ids and known == len(reference_ids):
                return
            catalogue.note_unregistered(connection, [query_id, *reference_ids])
            searches.create_search(connection, query_id, search_id)
            query = catalogue.read_video(connection, query_id)
            fingerprint = fingerprint or catalogue.newest_fingerprint(connection, query_id)
            if (
                query.status == VideoStatus.FAILED
                or fingerprint is None
                or catalogue.find_descriptors(connection, query_id, fingerprint) is None
            ):
                kind = f" of {fingerprint}" if fingerprint else ""
                searches.fail_search(
                    connection,
                    search_id,
                    query.reason or "no_descriptors",
                    query.message or f"video {query_id!r} has no descriptors{kind}",
                )
                return
            method = pairs.Method(self.engine.localizer.fingerprint, fingerprint)
            candidates = [
                Candidate(query_id, reference_id, rank, 0.0)
                for rank, reference_id in enumerate(reference_ids, start=1)
            ]
            pairs.open_pairs(connection, search_id, candidates, method)

    def localize(self, query_id: str, groups: Sequence[Sequence[str]]) -> int:
        """Localize those of the pairs that wait; returns how many were done.

        Each group of references fits one batch. Without any the query's claims are settled: it was
        compared before, but the same file may have come from another uploader.
        """
        if not groups:
            with transaction(self.database) as connection:
                asked_at = unsettled.read_asking(connection, query_id)
                settle_claims(connection, query_id)
                unsettled.forget(connection, query_id, asked_at)
        done, away = 0, None
        for group in groups:
            for batch in self._lease(query_id, group):
                seconds, ids = self.settings.lease_seconds, [pair.id for pair in batch.pairs]
                held = self.database, Table.PAIRS, ids, batch.holder, seconds
                with leases.heartbeat(*held), leases.unless_away(*held):
                    loaded = self._load(batch)
                    done += self._localize_batch(batch, loaded)
                away = loaded.away or away
        if away is not None:
            raise away  # the message tries again what was put off
        return done

    def _localize_batch(self, batch: Batch, loaded: Loaded) -> int:
        ready, query, references = loaded.pairs, loaded.query, loaded.references
        if not ready:
            return 0
        started = time.monotonic()
        try:
            found = localize_views(self.engine.localizer, query, references)
        except ServiceUnavailable:
            raise
        except Exception:
            # One pair of the batch is bad: find out which by taking them one at a time.
            with self._unless_ill(batch):
                return sum(
                    self._localize_alone(pair, query, reference, batch.holder)
                    for pair, reference in zip(ready, references, strict=True)
                )
        self.failed.clear()
        share = (time.monotonic() - started) / len(ready)
        return sum(
            self._record(pair, query, segments, share, batch.holder)
            for pair, segments in zip(ready, found, strict=True)
        )

    def _lease(self, query_id: str, reference_ids: Sequence[str]) -> Iterator[Batch]:
        """Take the pairs that wait for our localizer; a batch compares descriptors of one kind."""
        holder = leases.new_holder()
        model = self.engine.localizer.fingerprint
        seconds, most = self.settings.lease_seconds, self.settings.max_attempts
        asked = query_id, reference_ids, model
        with transaction(self.database) as connection:
            ours = pairs.lease_pairs(connection, *asked, holder, seconds, most)
            others = handover.pass_on(connection, *asked)
        if others:
            with transaction(self.database) as connection:
                adopted = handover.adopt_orphans(connection, *asked, GONE_LEASES * seconds)
            log.info("left query=%s pairs=%d adopted=%d", query_id, others - adopted, adopted)
        for kind in dict.fromkeys(pair.fingerprint for pair in ours):
            yield Batch(holder, [pair for pair in ours if pair.fingerprint == kind])

    def _load(self, batch: Batch) -> Loaded:
        """Descriptors of the query and of each reference; the attempt of a pair without ends."""
        stored: dict[str, StoredDescriptors] = {}
        ready: list[Pair] = []
        away = None
        for pair in batch.pairs:
            try:
                for video_id in (pair.query_id, pair.reference_id):
                    if video_id not in stored:
                        stored[video_id] = self._descriptors(video_id, pair.fingerprint)
            except ServiceUnavailable as error:
                away = error
                told = batch.holder, error.code, str(error)
                with transaction(self.database) as connection:
                    leases.put_off(connection, Table.PAIRS, pair.id, *told)
            except RetrievalError as error:
                self._end_attempt(pair, error, batch.holder)
            else:
                ready.append(pair)
        references = [stored[pair.reference_id] for pair in ready]
        return Loaded(ready, stored.get(batch.pairs[0].query_id, NOTHING), references, away)

    def _descriptors(self, video_id: str, fingerprint: str) -> StoredDescriptors:
        with transaction(self.database) as connection:
            path = catalogue.find_descriptors(connection, video_id, fingerprint)
            video = catalogue.read_video(connection, video_id)
        if video.status == VideoStatus.FAILED:
            raise NotFound(str(video.message), code=video.reason)
        if path is None:
            raise FingerprintMismatch(
                f"video {video_id!r} has no descriptors of {fingerprint}; ingest it again"
            )
        try:
            return self.engine.store.read(path, fingerprint)
        except MissingFile as error:
            if not self.engine.describe_again(video_id, fingerprint):
                raise
            raise ServiceUnavailable(
                f"{error}; video {video_id!r} is described again", code="described_again"
            ) from error

    def _localize_alone(
        self,
        pair: Pair,
        query: StoredDescriptors,
        reference: StoredDescriptors,
        holder: str,
    ) -> bool:
        started = time.monotonic()
        try:
            [segments] = localize_views(self.engine.localizer, query, [reference])
        except ServiceUnavailable:
            raise
        except Exception as error:
            self._end_attempt(pair, error, holder)  # counts: it may be what made the process ill
            self._blame(pair, error)
            return False
        self.failed.clear()
        return self._record(pair, query, segments, time.monotonic() - started, holder)

    def _blame(self, pair: Pair, error: Exception) -> None:
        """The pair, unless others fail as well: then the process is to blame, and ends."""
        if isinstance(error, RetrievalError):
            return
        self.failed.add(pair.id)
        self.check_process()
        if len(self.failed) >= MOST_FAILURES:
            raise IllProcess(f"{len(self.failed)} pairs in a row failed ({error!r})") from error

    def check_process(self) -> None:
        """Raise IllProcess if not even a made-up pair can be compared."""
        try:
            self.engine.localizer.localize(CONTROL, CONTROL)
        except Exception as error:
            raise IllProcess(f"not even a made-up pair can be compared ({error!r})") from error

    @contextmanager
    def _unless_ill(self, batch: Batch) -> Iterator[None]:
        """If the process is ill, what it still holds waits for another one, and loses nothing."""
        try:
            yield
        except IllProcess as illness:
            message = f"the process {batch.holder} ended itself: {illness}"
            with transaction(self.database) as connection:
                for pair in batch.pairs:
                    leases.give_back(
                        connection,
                        Table.PAIRS,
                        pair.id,
                        batch.holder,
                        "worker_ill",
                        message,
                        counts=False,
                    )
            raise

    def _record(
        self,
        pair: Pair,
        query: StoredDescriptors,
        segments: Sequence[Segment],
        seconds: float,
        holder: str,
    ) -> bool:
        """Result, claim and count in one transaction: all of it is there, or none."""
        is_empty = [is_low_information(each, query.low_information) for each in segments]
        model = self.engine.localizer.fingerprint
        try:
            with transaction(self.database) as connection:
                if not leases.holds(connection, Table.PAIRS, pair.id, holder):
                    log.warning(
                        "localize pair=%d is not ours any more: another has it, or nobody wants it",
                        pair.id,
                    )
                    return False
                outcome = Outcome(segments, is_empty, model, holder, seconds)
                if record_segments(connection, pair, outcome) is not None and segments:
                    settle_claims(connection, pair.query_id)
                pairs.finish_pair(connection, pair.id, holder)
        except (SQLAlchemyError, Refused) as error:  # what the database refuses, if it is there
            self._end_attempt(pair, error, holder)
            return False
        return True

    def _end_attempt(self, pair: Pair, error: Exception, holder: str) -> None:
        """The pair waits for its next attempt, or is set aside where that would not help."""
        log.error("failed pair=%d", pair.id, exc_info=error)
        is_ours = isinstance(error, RetrievalError)
        code = error.code if isinstance(error, RetrievalError) else "localizer_failed"
        message = str(error) if is_ours else f"{type(error).__name__}: {error}"
        with transaction(self.database) as connection:
            if isinstance(error, HOPELESS) and not isinstance(error, MissingFile):
                pairs.quarantine_pair(connection, pair.id, holder, code, message)
            else:
                leases.give_back(connection, Table.PAIRS, pair.id, holder, code, message)
