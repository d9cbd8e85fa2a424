"""Asking a server who it is: PostgreSQL or the broker, by the address that was set.

In: an address. Out: the server's name and version, or an error that says what is wrong with it.
"""

from __future__ import annotations

import psycopg2
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from retrieval.errors import BadSetting, ServiceUnavailable
from retrieval.settings import mask_password

_SECRETS = ("password", "sslpassword")  # as options of an address


def ask_database(url: str) -> str:
    """The server's name and version; ServiceUnavailable with the bare reason."""
    try:
        connection = psycopg2.connect(libpq_url(url, with_password=True), connect_timeout=5)
    except psycopg2.OperationalError as error:
        raise ServiceUnavailable(" ".join(str(error).split())) from error
    except psycopg2.ProgrammingError:  # its text may quote the password
        raise bad_database_url(url) from None
    version: str = connection.get_parameter_status("server_version")
    connection.close()
    return f"PostgreSQL {version}"


def ask_broker(url: str) -> str:
    """The server's name and version, asked the way Celery will connect to it."""
    try:
        import kombu  # most commands ask PostgreSQL alone

        broker = kombu.Connection(url, transport_options={"socket_connect_timeout": 5})
    except ValueError as error:
        raise BadSetting(
            f"VCL_BROKER_URL is {mask_password(url)!r} ({error}); use redis://:password@host:6379/0"
        ) from None
    with broker as connection:
        transport = connection.transport
        try:
            # Through the transport, since the connection itself tries twice with a pause of 2 s.
            channel = transport.create_channel(transport)
            facts = channel.client.info("server")
            channel.close()
        except (*transport.connection_errors, *transport.channel_errors, OSError) as error:
            raise ServiceUnavailable(str(error) or type(error).__name__) from error
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts['redis_version']}"


def libpq_url(url: str, *, with_password: bool) -> str:
    try:
        parts = make_url(url).set(drivername="postgresql")
    except (ArgumentError, ValueError):
        raise bad_database_url(url) from None
    if not with_password:
        parts = parts._replace(password=None).difference_update_query(_SECRETS)
    return parts.render_as_string(hide_password=False)


def bad_database_url(url: str) -> BadSetting:
    return BadSetting(
        f"VCL_DATABASE_URL is {mask_password(url)!r}; use postgresql://user:password@host/name"
    )
