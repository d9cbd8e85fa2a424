"""The cancellation of a search: it ends at once, and no pair is compared for it any more.

In: a search, and who ends it. Out: the search as it is then, one step of the caller's transaction.
Segments and claims that were found before stay, and so does the description of the upload.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from retrieval.errors import Moved
from retrieval.records import Search, SearchStatus
from retrieval.work import locks
from retrieval.work.searches import read_search


def cancel_search(connection: Connection, search_id: str, actor: str) -> Search:
    """End a search that is under way. One that is cancelled already stays so.

    Pairs that another search waits for too are compared for that one. Of the others, those that a
    worker holds lose their lease: it finds so before it records anything. `pairs_left` stays as it
    is and says how many were not compared.
    """
    search = read_search(connection, search_id)
    # Whoever plans the search opens its pairs under this lock, and looks whether it is cancelled.
    locks.take(connection, locks.Lock.PAIRS, search.query_id)
    # Pairs before searches: whoever finishes a pair locks them in that order.
    open_pairs = list(
        connection.execute(
            text("""
            SELECT pairs.id FROM pairs JOIN search_pairs ON pair_id = pairs.id
            WHERE search_id = :id AND pairs.status IN ('waiting', 'running')
            ORDER BY pairs.id FOR UPDATE OF pairs"""),
            {"id": search_id},
        ).scalars()
    )
    message = f"cancelled by {actor}"
    is_ended = connection.execute(
        text("""
        UPDATE searches SET status = 'cancelled', reason = 'cancelled', message = :message,
               finished_at = now(), leased_by = NULL, lease_until = NULL
        WHERE id = :id AND status IN ('waiting', 'running', 'localizing')"""),
        {"id": search_id, "message": message},
    ).rowcount
    if is_ended:
        connection.execute(
            text("""
            UPDATE pairs SET status = 'cancelled', reason = 'cancelled', message = :message,
                   finished_at = now(), leased_by = NULL, lease_until = NULL
            WHERE id = ANY(:pairs) AND NOT EXISTS (
                SELECT 1 FROM search_pairs JOIN searches ON searches.id = search_id
                WHERE pair_id = pairs.id
                  AND searches.status IN ('waiting', 'running', 'localizing'))"""),
            {"pairs": open_pairs, "message": message},
        )
    search = read_search(connection, search_id)
    if search.status != SearchStatus.CANCELLED:
        raise Moved(f"search {search_id} is {search.status} and cannot be cancelled any more")
    return search
