"""Decisions about claims: many at once, tried before they are made, taken back within a minute.

In: what a person decides about which claims, and whose claims they may touch. Out: an outcome for
each claim. Every status is changed by `claims`, which writes the event. Notes and assignments are
beside the status and change none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

from retrieval.database import transaction
from retrieval.errors import Moved, NotFound, Refused, RetrievalError
from vcl_plugin.claims.claims import ENGINE, REASONS, check_decision, move_claim, read_claim
from vcl_plugin.claims.queue import missing_claim, read_queued, require_claim
from vcl_plugin.claims.release import release_and_exclude
from vcl_plugin.claims.settlement import find_matching_uploads, settle_again
from vcl_plugin.claims.turns import take_references

UNDO_SECONDS = 60.0
BATCH = 200  # claims decided in one transaction
# What a person can do, and the status that it leads to.
VERBS = {
    "confirm": "active",
    "dispute": "disputed",
    "uphold": "upheld",
    "release": "released",
    "exclude": "released",  # release, and let the footage claim nothing any more
}


@dataclass(frozen=True)
class Decision:
    """What a person decides about a claim. A release says why."""

    verb: str
    actor: str
    reason: str | None = None
    note: str | None = None
    expected: str | None = None  # the status in which the claim was seen

    def __post_init__(self) -> None:
        if self.verb not in VERBS:
            raise Refused(
                f"{self.verb!r} is no decision; use one of {', '.join(VERBS)}", code="bad_decision"
            )
        if self.status == "released" and self.reason is None:
            raise Refused(
                f"a release needs a reason: one of {', '.join(REASONS)}", code="reason_missing"
            )
        if self.reason is not None and self.reason not in REASONS:
            raise Refused(
                f"{self.reason!r} is no reason for a claim; use one of {', '.join(REASONS)}",
                code="bad_decision",
            )

    @property
    def status(self) -> str:
        return VERBS[self.verb]


@dataclass(frozen=True)
class Outcome:
    """What became of one claim: its status now, or why it was left as it is."""

    claim_id: int
    status: str | None  # None: there is no such claim
    is_changed: bool
    reason: str | None = None
    message: str | None = None
    released_with_it: Sequence[int] = ()


@dataclass(frozen=True)
class Undoable:
    """What somebody decided last, in one go, and how many seconds are left to take it back."""

    claim_ids: Sequence[int]
    status: str
    reason: str | None
    seconds_left: float


def decide(
    connection: Connection,
    claim_id: int,
    decision: Decision,
    owners: Collection[str] | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Decide one claim, or only look whether it may be decided so; raises if it may not."""
    require_claim(connection, claim_id, owners)
    if decision.verb == "exclude" and not dry_run:
        _check_expected(connection, claim_id, decision)
        siblings = release_and_exclude(
            connection, claim_id, decision.actor, decision.reason, decision.note
        )
        return Outcome(claim_id, "released", True, released_with_it=siblings)
    current = check_decision(connection, claim_id, decision.status, decision.actor, decision.reason)
    if decision.expected is not None and decision.expected != current:
        raise _moved(claim_id, decision.expected, current)
    if not dry_run:
        move_claim(
            connection,
            claim_id,
            current,
            decision.status,
            decision.actor,
            decision.reason,
            decision.note,
        )
    return Outcome(claim_id, decision.status, True)


def decide_many(
    database: Engine,
    claim_ids: Iterable[int],
    decision: Decision,
    owners: Collection[str] | None = None,
    dry_run: bool = False,
) -> list[Outcome]:
    """Decide claims, each as if it were alone: one that may not be decided so hinders no other.

    In the order of their numbers, some in a transaction. `exclude` takes a transaction each, since
    it locks the references of the claim first.
    """
    ids = sorted(set(claim_ids))
    batch = 1 if decision.verb == "exclude" else BATCH
    outcomes: list[Outcome] = []
    for start in range(0, len(ids), batch):
        with transaction(database) as connection:
            for claim_id in ids[start : start + batch]:
                try:
                    # What is written before a refusal goes with it.
                    with connection.begin_nested():
                        outcomes.append(decide(connection, claim_id, decision, owners, dry_run))
                except (Refused, NotFound) as error:
                    outcomes.append(_refusal(connection, claim_id, error, owners))
    return outcomes


def undo_decision(
    connection: Connection, claim_id: int, actor: str, owners: Collection[str] | None = None
) -> Outcome:
    """Take back the last decision about a claim, within a minute and by whoever made it.

    The history keeps both. Allowances and exclusions that came with it go, and siblings that were
    released with it come back.
    """
    require_claim(connection, claim_id, owners)
    references = list(
        connection.execute(
            text("SELECT DISTINCT video_id FROM reference_exclusions WHERE claim_id = :claim"),
            {"claim": claim_id},
        ).scalars()
    )
    take_references(connection, references)
    uploads = find_matching_uploads(connection, references) if references else []
    event = _last_event(connection, claim_id)
    if event is None:
        raise missing_claim(claim_id)
    if event.actor == ENGINE or event.undoes is not None or event.from_status == event.to_status:
        raise Refused(f"claim {claim_id} has no decision to take back", code="nothing_to_undo")
    if event.actor != actor:
        raise Refused(
            f"the last decision about claim {claim_id} is {event.actor}'s; nobody else takes it "
            "back",
            code="nothing_to_undo",
        )
    if event.age > UNDO_SECONDS:
        raise Refused(
            f"the last decision about claim {claim_id} is {event.age:.0f} seconds old; it can be "
            f"taken back for {UNDO_SECONDS:g} seconds. Decide it anew instead",
            code="too_late",
        )
    _take_back(connection, claim_id, event, actor)
    connection.execute(
        text("""
        DELETE FROM reference_exclusions WHERE claim_id = :claim AND created_at = :at
           AND actor = :actor"""),
        {"claim": claim_id, "at": event.at, "actor": actor},
    )
    siblings = connection.execute(
        text("""
        SELECT claim_id FROM claim_events
        WHERE led_by = :claim AND at = :at AND actor = :actor ORDER BY claim_id"""),
        {"claim": claim_id, "at": event.at, "actor": actor},
    )
    for sibling in list(siblings.scalars()):
        last = _last_event(connection, sibling)
        if last is not None and last.led_by == claim_id and last.at == event.at:
            _take_back(connection, sibling, last, actor)
    if uploads:
        settle_again(connection, uploads)
    return Outcome(claim_id, str(event.from_status), True)


def find_undoable(connection: Connection, actor: str) -> Undoable | None:
    """The last decision of somebody, about one claim or many, while it can be taken back."""
    rows = connection.execute(
        text("""
        WITH recent AS (
            SELECT claim_events.* FROM claim_events
            JOIN claim_decisions ON claim_decisions.id = claim_events.id
            WHERE claim_events.at > now() - :seconds * interval '1 second'
              AND claim_events.actor = :actor
              AND claim_events.led_by IS NULL
              AND claim_events.from_status <> claim_events.to_status)
        SELECT claim_id, to_status, reason,
               :seconds - extract(epoch FROM now() - at)::float AS seconds_left
        FROM recent WHERE at = (SELECT max(at) FROM recent) ORDER BY claim_id"""),
        {"actor": actor, "seconds": UNDO_SECONDS},
    ).all()
    if not rows:
        return None
    first = rows[0]
    ids = [int(row.claim_id) for row in rows]
    return Undoable(ids, first.to_status, first.reason, float(first.seconds_left))


def undo_last(
    connection: Connection, actor: str, owners: Collection[str] | None = None
) -> list[Outcome]:
    """Take back what somebody decided last, in one go; raises if nothing can be taken back."""
    found = find_undoable(connection, actor)
    if found is None:
        raise Refused(
            f"there is no decision of the last {UNDO_SECONDS:g} seconds to take back",
            code="nothing_to_undo",
        )
    return [undo_decision(connection, each, actor, owners) for each in found.claim_ids]


def add_note(
    connection: Connection,
    claim_id: int,
    author: str,
    note: str,
    owners: Collection[str] | None = None,
) -> None:
    """Write a remark on a claim; its status stays."""
    if not note.strip():
        raise Refused("a note must not be empty", code="bad_decision")
    read_queued(connection, claim_id, owners)
    connection.execute(
        text("INSERT INTO claim_notes (claim_id, author, note) VALUES (:claim, :author, :note)"),
        {"claim": claim_id, "author": author, "note": note},
    )


def assign_claims(
    connection: Connection,
    claim_ids: Collection[int],
    assignee: str | None,
    actor: str,
    owners: Collection[str] | None = None,
) -> None:
    """Say who looks at claims; None: nobody. Each gets a note of it."""
    for claim_id in sorted(set(claim_ids)):
        read_queued(connection, claim_id, owners)
        connection.execute(
            text("UPDATE claims SET assignee = :assignee WHERE id = :id"),
            {"id": claim_id, "assignee": assignee},
        )
        said = f"assigned to {assignee}" if assignee else "assigned to nobody"
        add_note(connection, claim_id, actor, said)


def read_history(
    connection: Connection, claim_id: int, owners: Collection[str] | None = None
) -> dict[str, Any]:
    """A claim with its segments, uploads and events, and the notes on it."""
    row = read_queued(connection, claim_id, owners)
    notes = connection.execute(
        text("SELECT id, at, author, note FROM claim_notes WHERE claim_id = :id ORDER BY id"),
        {"id": claim_id},
    )
    found = read_claim(connection, claim_id)
    return {**found, **row, "notes": [dict(each) for each in notes.mappings()]}


def _last_event(connection: Connection, claim_id: int) -> Any:
    """The last event of a claim whose row is locked, and how many seconds ago it was."""
    connection.execute(text("SELECT 1 FROM claims WHERE id = :id FOR UPDATE"), {"id": claim_id})
    return connection.execute(
        text("""
        SELECT id, at, actor, from_status, to_status, undoes, led_by,
               extract(epoch FROM now() - at)::float AS age
        FROM claim_events WHERE claim_id = :id ORDER BY id DESC LIMIT 1"""),
        {"id": claim_id},
    ).first()


def _take_back(connection: Connection, claim_id: int, event: Any, actor: str) -> None:
    """Move a claim to where it was before an event, with the reason that it had then."""
    earlier = connection.execute(
        text("""
        SELECT reason FROM claim_events WHERE claim_id = :claim AND id < :event
        ORDER BY id DESC LIMIT 1"""),
        {"claim": claim_id, "event": event.id},
    ).scalar()
    connection.execute(
        text("""
        DELETE FROM allowances USING claims, claim_uploads
        WHERE claims.id = :claim AND claim_uploads.claim_id = claims.id
          AND allowances.upload_id = claim_uploads.upload_id
          AND allowances.asset_id = claims.asset_id AND allowances.created_at = :at
          AND allowances.actor = :actor"""),
        {"claim": claim_id, "at": event.at, "actor": event.actor},
    )
    move_claim(
        connection,
        claim_id,
        event.to_status,
        event.from_status,
        actor,
        earlier,
        f"took back: {event.to_status}",
        undoes=event.id,
    )


def _check_expected(connection: Connection, claim_id: int, decision: Decision) -> None:
    """Before the references are locked; the status is looked at once more under its lock."""
    if decision.expected is None:
        return
    current = read_queued(connection, claim_id)["status"]
    if current != decision.expected:
        raise _moved(claim_id, decision.expected, current)


def _moved(claim_id: int, expected: str, current: str) -> Moved:
    return Moved(
        f"claim {claim_id} is {current} by now, not {expected}; look at it again", code="moved"
    )


def _refusal(
    connection: Connection, claim_id: int, error: RetrievalError, owners: Collection[str] | None
) -> Outcome:
    status = None
    if not isinstance(error, NotFound):
        status = str(read_queued(connection, claim_id, owners)["status"])
    return Outcome(claim_id, status, False, error.code, str(error))
