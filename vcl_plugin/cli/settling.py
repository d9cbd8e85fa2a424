"""Uploads brought in line with a changed rule, with a bar for whoever waits.

In: a change of a rule that is committed. Out: claims that expired by it.
"""

from __future__ import annotations

from vcl_plugin.claims.changes import settle_change, settle_left
from vcl_plugin.cli.output import progress
from vcl_plugin.cli.session import Site


def follow_change(site: Site, change_id: int) -> list[int]:
    """Settle all uploads that a change touches, and what a command that died has left."""
    with progress() as bar:
        task = bar.add_task("settling uploads", total=1)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(1, total))

        expired = settle_change(site.database, change_id, show)
        bar.update(task, description="settling uploads that an earlier command has left")
        settle_left(site.database, report=show)
    return expired
