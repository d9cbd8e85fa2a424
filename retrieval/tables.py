"""The engine's tables as the code sees them; migrations/ is what makes them.

In: nothing. Out: mapped classes. Called by every module that reads or writes the engine's rows;
a test compares them with what the migrations create.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, DateTime, Double, ForeignKey, Identity, Text
from sqlalchemy.orm import Mapped, mapped_column

from retrieval.database import Base

Timestamp = DateTime(timezone=True)


class Leased:
    """Columns of a row that stands for work: who holds it, until when, for which time."""

    attempts: Mapped[int] = mapped_column(server_default="0")
    leased_by: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[datetime | None] = mapped_column(Timestamp)
    sent_at: Mapped[datetime | None] = mapped_column(Timestamp)
    status: Mapped[str] = mapped_column(Text, server_default="waiting")
    reason: Mapped[str | None] = mapped_column(Text)
    message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default="now()")


class Video(Leased, Base):
    __tablename__ = "videos"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    content_hash: Mapped[str | None] = mapped_column(Text, unique=True)
    path: Mapped[str | None] = mapped_column(Text)
    title: Mapped[str] = mapped_column(Text)
    duration: Mapped[float | None] = mapped_column(Double)
    is_reference: Mapped[bool] = mapped_column(server_default="false")


class DescriptorSet(Base):
    __tablename__ = "descriptor_sets"

    video_id: Mapped[str] = mapped_column(
        ForeignKey("videos.id", ondelete="CASCADE"), primary_key=True
    )
    fingerprint: Mapped[str] = mapped_column(Text, primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    frames: Mapped[int]
    dimension: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default="now()")


class ReferenceChange(Base):
    __tablename__ = "reference_changes"

    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    video_id: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Timestamp, server_default="now()")


class Search(Leased, Base):
    __tablename__ = "searches"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("videos.id"))
    pairs_total: Mapped[int] = mapped_column(server_default="0")
    pairs_left: Mapped[int] = mapped_column(server_default="0")
    finished_at: Mapped[datetime | None] = mapped_column(Timestamp)


class PairRow(Leased, Base):
    __tablename__ = "pairs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("videos.id"))
    reference_id: Mapped[str] = mapped_column(ForeignKey("videos.id"))
    model: Mapped[str] = mapped_column(Text)
    settings_digest: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(Text)
    finished_at: Mapped[datetime | None] = mapped_column(Timestamp)


class SearchPair(Base):
    __tablename__ = "search_pairs"

    search_id: Mapped[str] = mapped_column(
        ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True
    )
    pair_id: Mapped[int] = mapped_column(
        ForeignKey("pairs.id", ondelete="CASCADE"), primary_key=True
    )
    rank: Mapped[int]
    score: Mapped[float | None] = mapped_column(Double)
