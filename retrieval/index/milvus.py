"""An index in Milvus: one for all processes and machines, past what one of them can hold.

In: VCL_INDEX_URL, pooled vectors. Out: the nearest of them to a query's vectors.
A collection behind an alias holds the vectors; a small one beside it says how far the log of
changes was read.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient, MilvusException

from retrieval.errors import BadSetting, FingerprintMismatch, RetrievalError, ServiceUnavailable
from retrieval.index.index import Hits, Position
from retrieval.plugins import Array, Pooled
from retrieval.settings import mask_password

POSITIONS = "vcl_positions"
ROWS_A_CALL = 1000
# What Milvus allows for the neighbours of one query, and for one text.
MOST_NEIGHBOURS = 16_384
LONGEST_TEXT = 65_535


class MilvusIndex:
    """Vectors in a Milvus collection; every process searches it, one at a time writes."""

    is_shared = True

    def __init__(self, url: str, key: str, dimension: int = 256) -> None:
        self.key = key
        self.dimension = dimension
        self._url = url
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        self._alias = f"vcl_{re.sub(r'[^A-Za-z0-9]', '_', key)[:100]}_{digest}"
        # The collection that this object reads and writes: the one that is served, whichever that
        # is at the moment, or one that is being made beside it.
        self._name = self._alias
        with self._told():
            self._client = MilvusClient(**connection_of(url))
            self._make_positions()
            if self._served() is None:
                self._make_first()
            self._client.load_collection(self._alias)

    @property
    def position(self) -> Position:
        with self._told():
            rows = self._client.get(POSITIONS, [self._collection()], output_fields=["position"])
        return Position(**json.loads(rows[0]["position"])) if rows else Position()

    @property
    def vectors(self) -> int:
        return self._count("place >= 0")

    def __len__(self) -> int:
        return self._count("place == 0")

    def __contains__(self, video_id: str) -> bool:
        return self._count(f'owner == "{_owner(video_id)}"') > 0

    def add(self, video_id: str, pooled: Pooled) -> None:
        if pooled.vectors.shape[1] != self.dimension:
            raise FingerprintMismatch(
                f"the index holds vectors of {self.dimension} dimensions, video {video_id!r} "
                f"has {pooled.vectors.shape[1]}; run `vcl index build`"
            )
        owner, count = _owner(video_id), len(pooled.vectors)
        rows = [
            {
                "id": f"{owner}:{place}",
                "owner": owner,
                "video": video_id,
                "place": place,
                "start": float(pooled.spans[place, 0]),
                "stop": float(pooled.spans[place, 1]),
                "vector": np.ascontiguousarray(pooled.vectors[place], dtype=np.float32),
            }
            for place in range(count)
        ]
        with self._told():
            # New rows take the place of the old ones, then what is left of those goes: a search
            # in between misses nothing.
            for first in range(0, count, ROWS_A_CALL):
                self._client.upsert(self._collection(), rows[first : first + ROWS_A_CALL])
            self._client.delete(
                self._collection(), filter=f'owner == "{owner}" and place >= {count}'
            )

    def remove(self, video_id: str) -> None:
        with self._told():
            self._client.delete(self._collection(), filter=f'owner == "{_owner(video_id)}"')

    def commit(self, position: Position) -> None:
        text = json.dumps(asdict(position))
        if len(text) > LONGEST_TEXT:
            raise RetrievalError(
                f"{len(position.unreadable)} videos cannot be read, too many to remember in "
                "Milvus; bring their files back, or take them out with `vcl reference remove`"
            )
        with self._told():
            self._client.upsert(
                POSITIONS, [{"id": self._collection(), "position": text, "vector": [0.0, 0.0]}]
            )

    def search(self, vectors: Array, k: int, without: str | None = None) -> Hits:
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        others = "" if without is None else f'owner != "{_owner(without)}"'
        with self._told():
            found = self._client.search(
                self._name,
                data=list(queries),
                limit=min(k, MOST_NEIGHBOURS),
                filter=others,
                output_fields=["video", "start", "stop"],
                consistency_level="Strong",  # a removed video is gone at once
            )
        width = max((len(row) for row in found), default=0)
        scores: NDArray[np.float32] = np.full((len(queries), width), -np.inf, dtype=np.float32)
        numbers: NDArray[np.int64] = np.full((len(queries), width), -1, dtype=np.int64)
        spans: NDArray[np.float32] = np.zeros((len(queries), width, 2), dtype=np.float32)
        known: dict[str, int] = {}
        for line, row in enumerate(found):
            for place, hit in enumerate(row):
                entity = hit["entity"]
                scores[line, place] = hit["distance"]
                numbers[line, place] = known.setdefault(entity["video"], len(known))
                spans[line, place] = entity["start"], entity["stop"]
        return Hits(scores, numbers, spans, list(known))

    def begin_anew(self) -> MilvusIndex:
        """An empty index beside this one, to be filled while this one is searched.

        Called by one process at a time: what an earlier one left half made is dropped.
        """
        anew = copy(self)
        with self._told():
            self._drop_unserved()
            anew._name = self._make_collection()
        return anew

    def serve(self) -> None:
        """Take the place of the index that is searched: all move to this one in one step."""
        with self._told():
            self._client.alter_alias(collection_name=self._name, alias=self._alias)
            self._drop_unserved()
        self._name = self._alias

    def facts(self) -> dict[str, Any]:
        return {
            "kind": "milvus",
            "url": mask_password(self._url),
            "milvus_collection": self._collection(),
        }

    def _collection(self) -> str:
        """The collection itself, where an alias would not do."""
        return str(self._served()) if self._name == self._alias else self._name

    def _served(self) -> str | None:
        """The collection behind the alias."""
        with suppress(MilvusException):
            return str(self._client.describe_alias(self._alias)["collection_name"])
        return None

    def _count(self, condition: str) -> int:
        with self._told():
            rows = self._client.query(
                self._name,
                filter=condition,
                output_fields=["count(*)"],
                consistency_level="Strong",
            )
        return int(rows[0]["count(*)"])

    def _make_first(self) -> None:
        name = self._make_collection()
        try:
            self._client.create_alias(collection_name=name, alias=self._alias)
        except MilvusException:
            if self._served() is None:
                raise
            self._client.drop_collection(name)  # another process was first

    def _make_collection(self) -> str:
        name = f"{self._alias}_{uuid.uuid4().hex[:8]}"
        schema = MilvusClient.create_schema(auto_id=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=100)
        # Ids of videos may hold any character; their hash needs no quoting in a condition.
        schema.add_field("owner", DataType.VARCHAR, max_length=64)
        schema.add_field("video", DataType.VARCHAR, max_length=LONGEST_TEXT)
        schema.add_field("place", DataType.INT64)
        schema.add_field("start", DataType.FLOAT)
        schema.add_field("stop", DataType.FLOAT)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dimension)
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
        indexes.add_index("owner", index_type="INVERTED")
        self._client.create_collection(
            name, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        return name

    def _make_positions(self) -> None:
        if not self._client.has_collection(POSITIONS):
            schema = MilvusClient.create_schema(auto_id=False)
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=255)
            schema.add_field("position", DataType.VARCHAR, max_length=LONGEST_TEXT)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # Milvus wants one
            indexes = MilvusClient.prepare_index_params()
            indexes.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
            with suppress(MilvusException):  # another process may make it at this moment
                self._client.create_collection(
                    POSITIONS, schema=schema, index_params=indexes, consistency_level="Strong"
                )
        self._client.load_collection(POSITIONS)

    def _drop_unserved(self) -> None:
        """Collections of this key that the alias left, or that a killed builder did."""
        served = self._served()
        pattern = re.compile(rf"{self._alias}_[0-9a-f]{{8}}")
        for name in self._client.list_collections():
            if pattern.fullmatch(name) and name != served:
                self._client.drop_collection(name)
                self._client.delete(POSITIONS, ids=[name])

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except MilvusException as error:
            raise ServiceUnavailable(
                f"Milvus at {mask_password(self._url)} does not do what it is asked "
                f"({error.message}); start it, or correct VCL_INDEX_URL"
            ) from error


def connection_of(url: str) -> dict[str, Any]:
    """What MilvusClient needs to connect there.

    >>> connection_of("milvus://ana:secret@vectors:19530/videos")["uri"]
    'http://vectors:19530'
    """
    parts = urlsplit(url)
    if not parts.scheme and url.endswith(".db"):
        return {"uri": url}
    if parts.scheme not in ("milvus", "milvus+tls") or not parts.hostname:
        raise BadSetting(
            f"VCL_INDEX_URL is {mask_password(url)!r}; use milvus://user:password@host:19530, "
            "milvus+tls://…, or the path of a milvus-lite file that ends in .db"
        )
    scheme = "https" if parts.scheme == "milvus+tls" else "http"
    known: dict[str, Any] = {"uri": f"{scheme}://{parts.hostname}:{parts.port or 19530}"}
    if parts.username:
        known["user"] = unquote(parts.username)
        known["password"] = unquote(parts.password or "")
    if parts.path.strip("/"):
        known["db_name"] = parts.path.strip("/")
    return known


def _owner(video_id: str) -> str:
    return hashlib.sha256(video_id.encode()).hexdigest()
