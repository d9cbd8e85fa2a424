"""`vcl policy`: rules for what happens with a match, and what they would have done.

In: rules. Out: policies, and a rehearsal on the segments that are stored.
"""

from __future__ import annotations

from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin import assets, rights
from vcl_plugin.cli.output import print_rows, stderr
from vcl_plugin.cli.services import AsJson
from vcl_plugin.cli.session import open_engine
from vcl_plugin.policies import Policy, Rule
from vcl_plugin.settlement import rehearse_policy

app = typer.Typer(help="What an owner wants done with a match.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the policy.")]
FIELDS = {
    "seconds": "min_seconds",
    "query-share": "min_query_share",
    "reference-share": "min_reference_share",
    "score": "min_score",
}


@app.command()
def add(
    name: Name,
    rules: Annotated[
        list[str],
        typer.Option(
            "--rule",
            "-r",
            help='An action and what it takes, e.g. "block seconds=30 score=0.5 in=DE,FR" or '
            '"track". Fields: seconds, query-share, reference-share, score, in. Repeat it.',
        ),
    ],
) -> None:
    """Write a policy; one of that name gets the new rules."""
    policy = Policy(name, tuple(parse_rule(rule) for rule in rules))
    engine = open_engine()
    with transaction(engine.database) as connection:
        rights.add_policy(connection, policy)
    stderr.print(f"policy {name} has {len(policy.rules)} rules", markup=False)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """All policies, rule by rule."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        rows = rights.list_policies(connection)
    print_rows(rows, as_json, empty="no policies")


@app.command()
def assign(
    name: Name,
    asset: Annotated[str | None, typer.Option(help="An asset, by number or title.")] = None,
    owner: Annotated[str | None, typer.Option(help="All assets of this owner.")] = None,
) -> None:
    """Let an asset, or all assets of an owner, follow a policy from now on."""
    if (asset is None) == (owner is None):
        raise Refused("say what follows the policy: either --asset or --owner")
    engine = open_engine()
    with transaction(engine.database) as connection:
        asset_id = None if asset is None else assets.find_asset(connection, asset)
        rights.assign_policy(connection, name, asset_id, owner)
    stderr.print(f"{asset or owner} follows {name}", markup=False)


@app.command("dry-run")
def dry_run(name: Name, as_json: AsJson = False) -> None:
    """What would be claimed under a policy, from the segments that are stored; writes nothing."""
    engine = open_engine()
    with transaction(engine.database) as connection:
        rows = rehearse_policy(connection, rights.read_policy(connection, name))
    print_rows(rows, as_json, empty=f"under {name} nothing would be claimed")


def parse_rule(rule: str) -> Rule:
    """`block seconds=30 in=DE,FR` as a rule."""
    action, *conditions = rule.split() or [""]
    values: dict[str, float] = {}
    territories: frozenset[str] = frozenset()
    for condition in conditions:
        key, separator, value = condition.partition("=")
        if key == "in" and value:
            territories = frozenset(value.split(","))
            continue
        if not separator or key not in FIELDS:
            known = ", ".join([*FIELDS, "in"])
            raise Refused(f"{condition!r} in the rule {rule!r} is none of {known}")
        try:
            values[FIELDS[key]] = float(value)
        except ValueError:
            raise Refused(f"{value!r} in the rule {rule!r} is no number") from None
    return Rule(action, territories=territories, **values)
