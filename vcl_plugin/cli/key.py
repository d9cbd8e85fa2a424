"""`vcl key`: keys of the API and the desk.

In: names, roles, owners. Out: a key that is shown once; a list of those that there are.
"""

from __future__ import annotations

from typing import Annotated

import typer

from retrieval.database import transaction
from vcl_plugin.cli.output import AsJson, print_json, print_outcome, print_rows, stderr
from vcl_plugin.cli.session import current_user, open_site
from vcl_plugin.web import keys

app = typer.Typer(help="Keys of the API and the desk.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Who has the key; histories name them so.")]


@app.command()
def add(
    name: Name,
    role: Annotated[str, typer.Option("--role", help=f"One of {', '.join(keys.ROLES)}.")],
    owner: Annotated[
        list[str] | None, typer.Option("--owner", help="Only what is this owner's; repeat it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it once; only a digest of it is kept."""
    site = open_site()
    with transaction(site.database) as connection:
        key = keys.add_key(connection, name, role, current_user(), owner or None)
    if as_json:
        print_json({"name": name, "role": role, "owners": owner or None, "key": key})
        return
    print(key)
    stderr.print("keep it: it is shown this once", markup=False)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Every key, its role and owners, and when it was used last."""
    site = open_site()
    with transaction(site.database) as connection:
        rows = keys.list_keys(connection)
    print_rows(rows, as_json, empty="no keys yet; make one with `vcl key add NAME --role manager`")


@app.command()
def revoke(name: Name, as_json: AsJson = False) -> None:
    """Let a key open nothing any more."""
    site = open_site()
    with transaction(site.database) as connection:
        keys.revoke_key(connection, name)
    print_outcome(f"the key of {name} opens nothing any more", {"revoked": name}, as_json)
