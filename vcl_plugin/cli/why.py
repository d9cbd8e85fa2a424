"""`vcl why`: how far an upload and a reference got with each other, and what stopped them.

In: two videos, by id, title or path. Out: one sentence on stdout, or JSON.
"""

from __future__ import annotations

from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.work.catalogue import find_video
from vcl_plugin.cli.output import AsJson, print_json, stdout
from vcl_plugin.cli.session import open_engine
from vcl_plugin.reports.inquiry import explain_pair


def why(
    query: Annotated[str, typer.Argument(help="The upload: its id, title or path.")],
    reference: Annotated[str, typer.Argument(help="The reference: its id, title or path.")],
    as_json: AsJson = False,
) -> None:
    """Say why an upload is, or is not, claimed for a reference."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        videos = [find_video(connection, each) for each in (query, reference)]
    answer = explain_pair(engine, *videos)
    if as_json:
        print_json(answer.as_dict())
    else:
        stdout.print(f"{answer.sentence} ({answer.code})", markup=False, soft_wrap=True)
