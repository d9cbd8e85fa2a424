"""`vcl policy`: rules for what happens with a match, and what they would have done.

In: rules. Out: policies, and a rehearsal on the segments that are stored.
"""

from __future__ import annotations

from typing import Annotated

import typer

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.claims import assets, rights, rulebook
from vcl_plugin.claims.policies import FIELDS, Policy, Rule
from vcl_plugin.claims.rehearsal import rehearse_policy
from vcl_plugin.cli.output import AsJson, by_territory, print_outcome, print_rows, say_expired
from vcl_plugin.cli.session import current_user, open_site
from vcl_plugin.cli.settling import follow_change

app = typer.Typer(help="What an owner wants done with a match.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the policy.")]


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
    as_json: AsJson = False,
) -> None:
    """Write a policy; one of that name gets the new rules, and undecided claims follow them."""
    policy = Policy(name, tuple(parse_rule(rule) for rule in rules))
    site = open_site()
    with transaction(site.database) as connection:
        version, change = rulebook.write_policy(connection, current_user(), policy)
    expired = follow_change(site, change)
    count = len(policy.rules)
    print_outcome(
        f"policy {name} has {count} rule{'' if count == 1 else 's'}{say_expired(expired)}",
        {"policy": name, "version": version, "rules": count, "expired_claims": expired},
        as_json,
    )


@app.command("list")
def list_(
    history: Annotated[
        bool, typer.Option("--history", help="Every version that a policy had.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """All policies, rule by rule, with who wrote them and when."""
    site = open_site()
    with transaction(site.database) as connection:
        rows = rights.list_policies(connection, history)
    if not as_json:
        rows = [{**row, "territories": row["territories"] or "all"} for row in rows]
    print_rows(rows, as_json, empty="no policies")


@app.command()
def assign(
    name: Name,
    asset: Annotated[str | None, typer.Option(help="An asset, by number or title.")] = None,
    owner: Annotated[str | None, typer.Option(help="All assets of this owner.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let an asset, or all assets of an owner, follow a policy; undecided claims do so at once."""
    if (asset is None) == (owner is None):
        raise Refused("say what follows the policy: either --asset or --owner")
    site = open_site()
    with transaction(site.database) as connection:
        asset_id = None if asset is None else assets.find_asset(connection, asset)
        change = rulebook.assign_policy(connection, current_user(), name, asset_id, owner)
    expired = follow_change(site, change)
    facts = {"policy": name, "asset": asset_id, "owner": owner, "expired_claims": expired}
    what = f"asset {asset_id} follows" if owner is None else f"all assets of {owner} follow"
    print_outcome(f"{what} {name}{say_expired(expired)}", facts, as_json)


@app.command("dry-run")
def dry_run(
    name: Name,
    asset: Annotated[str | None, typer.Option(help="Only this asset, by number or title.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only assets of this owner.")] = None,
    as_json: AsJson = False,
) -> None:
    """What would be claimed under a policy, from the segments that are stored; writes nothing."""
    site = open_site()
    with transaction(site.database) as connection:
        policy = rights.read_policy(connection, name)
        if owner is not None:
            rights.find_owner(connection, owner)
        asset_id = None if asset is None else assets.find_asset(connection, asset)
        rows = rehearse_policy(connection, policy, owner, asset_id)
    if not as_json:
        rows = [by_territory(row) for row in rows]
    print_rows(rows, as_json, empty=f"under {name} nothing would be claimed")


def parse_rule(rule: str) -> Rule:
    """`block seconds=30 in=DE,FR` as a rule."""
    action, *conditions = rule.split() or [""]
    values: dict[str, float] = {}
    territories: frozenset[str] = frozenset()
    seen: set[str] = set()
    for condition in conditions:
        key, separator, value = condition.partition("=")
        if key in seen:
            raise Refused(f"{key!r} stands twice in the rule {rule!r}; say it once")
        seen.add(key)
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
