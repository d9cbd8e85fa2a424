"""The story on one screen: a file becomes descriptors, descriptors become candidates.

In: settings and a database. Out: ready videos, and searches planned into pairs.
Knows no Celery. What is left to do for others comes back as `Message`s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from sqlalchemy import Connection, Engine

from retrieval.database import transaction
from retrieval.describe.descriptors import Descriptor, load_descriptor
from retrieval.description import describe_video
from retrieval.errors import BadDescriptors, BadVideo, RetrievalError
from retrieval.identity import StoreIdentity
from retrieval.index.candidates import find_copies, propose_pairs
from retrieval.index.index import Index
from retrieval.index.pooling import pool_query
from retrieval.index.replica import Replica
from retrieval.media.roots import confine_path
from retrieval.media.video import hash_file
from retrieval.plugins import Localizer, Pooled, Pooler, load_localizer, load_pooler
from retrieval.records import Candidate, Video, VideoStatus
from retrieval.settings import Settings
from retrieval.store import Store, StoredDescriptors
from retrieval.work import catalogue, changes, leases, outdated, pairs, searches, unsettled
from retrieval.work.leases import Table
from retrieval.work.messages import (
    LOCALIZE,
    RESCAN,
    SEARCH,
    Message,
    group_references,
    localize_messages,
)

log = logging.getLogger(__name__)


class RetrievalEngine:
    """Ingest and search; one a process, because the model and the index live in it."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self.settings = settings
        self.database = database
        self.identity = StoreIdentity(database, settings.store_dir, settings.mode)
        self.store = Store(settings.store_dir, settings.roots, self.identity.check, settings.mode)
        self.unseen = outdated.Unseen(database)

    @cached_property
    def descriptor(self) -> Descriptor:
        return load_descriptor(self.settings.descriptor)

    @cached_property
    def pooler(self) -> Pooler:
        return load_pooler(self.settings.pooler)

    @cached_property
    def localizer(self) -> Localizer:
        return load_localizer(self.settings.localizer, weights=self.settings.weights or None)

    @cached_property
    def references(self) -> Replica:
        return self._replica(changes.REFERENCES)

    @cached_property
    def uploads(self) -> Replica:
        return self._replica(changes.UPLOADS)

    @property
    def index_key(self) -> str:
        return self.references.key

    @property
    def method(self) -> pairs.Method:
        return pairs.Method(self.localizer.fingerprint, self.descriptor.fingerprint.key)

    def _replica(self, collection: str) -> Replica:
        return Replica(
            collection,
            self.descriptor.fingerprint.key,
            self.pooler,
            self.database,
            self.store,
            self.settings,
        )

    def load(self) -> None:
        """Load what the first task would otherwise wait for."""
        log.info("loaded %s and %s", self.localizer.fingerprint, self.index_key)
        self.refresh_index()

    def register(
        self, path: Path, title: str | None = None, content_hash: str | None = None
    ) -> str:
        """A row for that file, found by its content; decoding is a later step."""
        target = confine_path(path, self.settings.roots)
        digest = content_hash or hash_file(target)
        with transaction(self.database) as connection:
            return catalogue.register_file(connection, path.absolute(), digest, title)

    def ingest(self, video_id: str, wait: bool = True) -> Video:
        """Decode, describe, store; returns the video, `ready` or `failed` with its reason.

        If another worker has the video, wait for it: its result is ours too. An attempt that
        failed for no fault of the video's leaves it `waiting`.
        """
        holder = leases.new_holder()
        seconds, most = self.settings.lease_seconds, self.settings.max_attempts
        while True:
            with transaction(self.database) as connection:
                video = catalogue.read_video(connection, video_id)
                if video.status == VideoStatus.READY:
                    if self.is_described(connection, video_id):
                        return video
                    if video.path is None:
                        return self._not_ours(video)
                    catalogue.reopen(connection, video_id)
                elif video.status == VideoStatus.FAILED:
                    return video
                taken = leases.acquire(connection, Table.VIDEOS, [video_id], holder, seconds, most)
                if not taken:
                    # Of one that has no attempt left nobody is to wait for the next sweep.
                    leases.give_up(connection, Table.VIDEOS, most)
            if taken:
                break
            if not wait:
                return video
            time.sleep(0.2)
        with leases.attempt(self.database, Table.VIDEOS, video_id, holder, seconds):
            self._describe(video, holder)
        with transaction(self.database) as connection:
            video = catalogue.read_video(connection, video_id)
            if video.status == VideoStatus.READY and not self.is_described(connection, video_id):
                return replace(video, status=VideoStatus.FAILED)  # for us; others can use it
            return video

    def plan(self, search_id: str) -> list[Message]:
        """Find the candidates of a search and open a pair for each; returns the work to send."""
        holder = leases.new_holder()
        seconds, most = self.settings.lease_seconds, self.settings.max_attempts
        with transaction(self.database) as connection:
            if not leases.acquire(connection, Table.SEARCHES, [search_id], holder, seconds, most):
                return []  # planned already, another worker is at it, or it used its attempts
            query_id = searches.read_search(connection, search_id).query_id
        with leases.attempt(self.database, Table.SEARCHES, search_id, holder, seconds):
            return self._plan(search_id, query_id)
        return []  # the attempt failed; the sweeper sends the search again

    def refresh_index(self) -> Index:
        return self.references.refresh()

    def build_index(self) -> Index:
        """Make both indexes anew from the store; returns that of the references."""
        self.uploads.build()
        return self.references.build()

    def welcome(self, reference_id: str) -> Iterator[Message]:
        """What a new reference sets off: a look into old uploads if that is set, and a search of
        it against all others, whose owners should know of footage they share.

        Each message is to be sent before the next is asked for. The search is a row, which the
        sweeper sends if the broker does not take it; no row stands for the rescan. So the search is
        written last, and says to a second attempt that the rescan is on its way.
        """
        with transaction(self.database) as connection:
            if searches.was_searched_as_reference(connection, reference_id):
                return
        if self.settings.rescan_new:
            yield Message(RESCAN, {"reference_id": reference_id})
        with transaction(self.database) as connection:
            search_id = searches.create_search(connection, reference_id)
        yield Message(SEARCH, {"search_id": search_id})

    def rescan(self, reference_id: str) -> list[Message]:
        """Look for a reference in the uploads that were searched before; nothing is decoded again.

        All that plainly copy it, and the `top_k` nearest others; asked again, the next nearest.
        Each upload that was not compared with it gets a search of its own, with this one pair.
        """
        pooled = pool_query(self.pooler, self.read_descriptors(reference_id))
        with transaction(self.database) as connection:
            known = pairs.list_compared(connection, reference_id, self.method)
        near = [
            each
            for each in self._near_uploads(reference_id, pooled, len(known))
            if each.reference_id not in known
        ]
        messages: list[Message] = []
        for found in near:
            upload_id = found.reference_id
            candidate = Candidate(upload_id, reference_id, rank=1, score=found.score)
            with transaction(self.database) as connection:
                search_id = searches.create_search(connection, upload_id)
                waiting = pairs.open_pairs(connection, search_id, [candidate], self.method)
            messages += self.localize_messages(search_id, upload_id, waiting)
        return messages

    def _near_uploads(self, reference_id: str, pooled: Pooled, beyond: int) -> list[Candidate]:
        """Each upload that may hold the reference, once: the nearest, and every plain copy."""
        index, settings = self.uploads.refresh(), self.settings
        copies = find_copies(index, reference_id, pooled)
        reach = settings.top_k + beyond
        others = propose_pairs(index, reference_id, pooled, reach, settings.min_candidate_score)
        return list({each.reference_id: each for each in [*others, *copies]}.values())

    def localize_messages(
        self, search_id: str, query_id: str, reference_ids: Sequence[str]
    ) -> list[Message]:
        """The pairs of a search that wait, in messages small enough that workers share them."""
        return localize_messages(search_id, query_id, self.group_references(reference_ids))

    def group_references(self, reference_ids: Sequence[str]) -> list[list[str]]:
        """The references in groups that fit one batch, bounded in number and in frames."""
        with transaction(self.database) as connection:
            frames = catalogue.count_frames(connection, reference_ids)
        return group_references(reference_ids, frames, self.settings.batch_frames)

    def _plan(self, search_id: str, query_id: str) -> list[Message]:
        query = self.ingest(query_id)
        if query.status == VideoStatus.FAILED:
            self._fail(search_id, str(query.reason), str(query.message))
            return []
        if query.status != VideoStatus.READY:
            raise RetrievalError(str(query.message), code=query.reason)
        index = self.refresh_index()
        if not len(index):
            unseen = self.unseen.describe(self.descriptor.fingerprint.key)
            nothing = "no reference is ready to be searched; add one with `vcl reference add`"
            self._fail(search_id, "empty_index", unseen or nothing)
            return []
        pooled = pool_query(self.pooler, self.read_descriptors(query_id))
        candidates = propose_pairs(
            index, query_id, pooled, self.settings.top_k, self.settings.min_candidate_score
        )
        with transaction(self.database) as connection:
            # First the remarks: references left out decide how a search ends.
            for code, message in self._remarks(query):
                searches.annotate_search(connection, search_id, code, message)
            waiting = pairs.open_pairs(connection, search_id, candidates, self.method)
            # Compared before: nothing to do but to judge it by today's rules and uploader.
            is_known = len(waiting) < len(candidates)
            if is_known:
                unsettled.note(connection, query_id)
        messages = self.localize_messages(search_id, query_id, waiting)
        if is_known:
            messages.append(Message(LOCALIZE, {"query_id": query_id, "reference_ids": []}))
        return messages

    def _remarks(self, query: Video) -> Iterator[tuple[str, str]]:
        """What the searcher should know of a search that goes on; the last is the one kept."""
        if query.is_reference:
            yield (
                "query_is_reference",
                f"{query.title!r} is itself a reference; it was compared with the others",
            )
        left_out = self.references.unreadable
        if left_out:
            yield (
                "references_unreadable",
                f"{len(left_out)} references were left out because the worker cannot read their "
                f"descriptors, the first is {next(iter(left_out))}; see its log",
            )
        if unseen := self.unseen.describe(self.descriptor.fingerprint.key):
            yield "references_outdated", unseen

    def is_described(self, connection: Connection, video_id: str) -> bool:
        """Whether the video has descriptors of our kind, and their file is still there."""
        key = self.descriptor.fingerprint.key
        path = catalogue.find_descriptors(connection, video_id, key)
        return path is not None and self.store.has(path)

    def describe_again(self, video_id: str, fingerprint: str) -> bool:
        """Have a video described whose descriptors are lost; False where that cannot be done here.

        Its film must be reachable, and the descriptors of our own kind.
        """
        with transaction(self.database) as connection:
            video = catalogue.read_video(connection, video_id)
            is_ours = fingerprint == self.descriptor.fingerprint.key and video.path is not None
            if not is_ours or video.status == VideoStatus.FAILED:
                return False
            if video.status == VideoStatus.READY:
                if not Path(str(video.path)).is_file():
                    return False
                log.warning("the descriptors of video %s are lost; it is described again", video_id)
                catalogue.reopen(connection, video_id)
        return True

    def _not_ours(self, video: Video) -> Video:
        """The video as this engine sees it: ready for others, but not to be described here."""
        return replace(
            video,
            status=VideoStatus.FAILED,
            reason="no_descriptors",
            message=f"video {video.id!r} was registered without a file, and has no readable "
            f"descriptors of {self.descriptor.fingerprint.key}; register those",
        )

    def read_descriptors(self, video_id: str) -> StoredDescriptors:
        key = self.descriptor.fingerprint.key
        with transaction(self.database) as connection:
            path = catalogue.find_descriptors(connection, video_id, key)
        if path is None:
            raise BadVideo(f"video {video_id!r} has no descriptors yet", code="no_frames")
        return self.store.read(path, key)

    def _describe(self, video: Video, holder: str) -> None:
        """Describe a leased video: it becomes ready, or failed by a fault of its own."""
        key = self.descriptor.fingerprint.key
        try:
            path = confine_path(str(video.path), self.settings.roots)
            if hash_file(path) != video.content_hash:
                raise BadVideo(
                    f"{video.path} holds another video than when it was registered; "
                    "register it again",
                    code="changed",
                )
            described, duration = describe_video(path, self.descriptor, self.settings)
            stored = self.store.write(
                video.id,
                key,
                described.descriptors,
                described.low_information,
                described.views,
            )
        except (BadVideo, BadDescriptors) as error:
            with transaction(self.database) as connection:
                catalogue.fail_ingest(connection, video.id, error.code, str(error), holder, key)
            return
        with transaction(self.database) as connection:
            shape = described.descriptors.shape
            catalogue.record_descriptors(connection, video.id, key, stored, *shape)
            catalogue.finish_ingest(connection, video.id, duration, holder)

    def _fail(self, search_id: str, code: str, message: str) -> None:
        with transaction(self.database) as connection:
            searches.fail_search(connection, search_id, code, message)
