"""`vcl metrics`: the state of a site for Prometheus, printed once or served.

In: a port. Out: metrics in Prometheus' text format. It observes and starts nothing.
"""

from __future__ import annotations

from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from retrieval.errors import Refused
from retrieval.settings import load_settings
from retrieval.site.metrics import MEASURES, SiteCollector
from vcl_plugin.cli.output import AsJson, print_json, stderr
from vcl_plugin.reports.metrics import MEASURES as PLUGIN_MEASURES


def metrics(
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=0, max=65535, help="Serve them here; 0: any free port."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Print metrics once, or serve them to Prometheus until stopped (docs/how-to/operate.md)."""
    registry = CollectorRegistry()
    registry.register(SiteCollector(load_settings(), (*MEASURES, *PLUGIN_MEASURES)))
    if port is not None:
        _serve(registry, host, port)
    elif as_json:
        print_json(
            [
                {"name": sample.name, "labels": sample.labels, "value": sample.value}
                for family in registry.collect()
                for sample in family.samples
            ]
        )
    else:
        print(generate_latest(registry).decode(), end="")


def _serve(registry: CollectorRegistry, host: str, port: int) -> None:
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise Refused(
            f"metrics cannot be served on {host}:{port} ({error.strerror}); choose another --port"
        ) from None
    stderr.print(f"metrics on http://{host}:{server.server_port}/metrics, until Ctrl-C")
    thread.join()
