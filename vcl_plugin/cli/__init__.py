"""The command `vcl`: one file a group of commands, errors as sentences, results on stdout."""

from __future__ import annotations

import io
import sys

import typer

from retrieval.errors import RetrievalError
from vcl_plugin.cli import (
    benchmark,
    catalogue,
    claims,
    doctor,
    evaluate,
    index,
    ingest,
    metrics,
    policy,
    report,
    search,
    services,
    show,
    train,
    why,
    worker,
)
from vcl_plugin.cli.output import complain

app = typer.Typer(
    name="vcl",
    help="Find copied video: search uploads, localize copied seconds, report claims.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(services.up)
app.command()(services.down)
app.command()(services.status)
app.command()(doctor.doctor)
app.command()(metrics.metrics)
app.command()(services.config)
app.command()(services.migrate)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    services.psql
)
app.command()(worker.worker)
app.command()(ingest.ingest)
app.command()(search.search)
app.command()(search.rescan)
app.command()(search.localize)
app.command()(why.why)
app.command()(show.show)
app.command()(evaluate.evaluate)
app.command()(train.train)
app.command()(train.finish)
app.command()(report.report)
app.command()(report.demo)
app.add_typer(catalogue.asset, name="asset")
app.add_typer(catalogue.reference, name="reference")
app.add_typer(index.app, name="index")
app.add_typer(claims.app, name="claims")
app.add_typer(policy.app, name="policy")
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(train.dataset, name="dataset")


def main() -> None:
    """Exit code 0: done; 1: failed, with the reason on stderr; 2: wrong usage."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may be no valid Unicode. In JSON, the escape that is written is right, too.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except RetrievalError as error:
        complain(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
