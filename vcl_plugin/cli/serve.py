"""`vcl serve`: the API and the desk over HTTP.

In: where to listen. Out: a server until it is stopped.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.cli.output import stderr
from vcl_plugin.cli.session import open_engine
from vcl_plugin.web.keys import count_keys
from vcl_plugin.webhooks.courier import running_courier


def serve(
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen on; others than this machine's need keys."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port.")] = 8080,
) -> None:
    """Serve the API and the desk until stopped (docs/how-to/serve.md)."""
    try:
        import uvicorn

        from vcl_plugin.web.app import create_app
    except ImportError as error:
        raise Refused(
            f"the server is not installed ({error}); run `pip install -c constraints.txt '.[web]'`",
            code="missing_web",
        ) from None
    engine = open_engine()
    with transaction(engine.database) as connection:
        keys = count_keys(connection)
    if not keys and not is_local(host):
        raise Refused(
            f"nobody has a key, so nothing is served on {host}; make one first with "
            "`vcl key add NAME --role manager`"
        )
    if not keys:
        stderr.print("nobody has a key yet; make one: vcl key add NAME --role manager")
    stderr.print(f"serving on http://{host}:{port}, until Ctrl-C")
    with running_courier(engine.database, engine.settings.webhook_private):
        uvicorn.run(
            create_app(engine),
            host=host,
            port=port,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=10,
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches that address.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
