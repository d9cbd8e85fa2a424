"""`/api/v1/policies`: what an owner wants done with a match, and what it would have done.

In: rules. Out: policies, claims that they would raise. Policies are the site's: everybody reads
them, and only a key without owners writes them; whoever manages an owner's assets assigns them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from retrieval.database import transaction
from retrieval.errors import Refused
from vcl_plugin.claims import assets, rights, rulebook
from vcl_plugin.claims.policies import Policy, Rule
from vcl_plugin.claims.rehearsal import rehearse_policy
from vcl_plugin.web.changing import Changed, follow
from vcl_plugin.web.keys import Viewer
from vcl_plugin.web.parameters import (
    After,
    Here,
    Limit,
    Manager,
    Name,
    Next,
    Number,
    Reader,
    SiteManager,
)
from vcl_plugin.web.routing import make_router

router = make_router("/policies", "policies")

Action = Literal["track", "monetize", "review", "block"]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class RuleBody(BaseModel):
    """An action, and the least that a match must be for it."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    min_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)
    min_query_share: Share = 0.0
    min_reference_share: Share = 0.0
    min_score: Share = 0.0
    territories: list[Annotated[str, Field(min_length=2, max_length=10)]] = Field(
        [], max_length=300, description="none: everywhere"
    )

    def as_rule(self) -> Rule:
        return Rule(**{**self.model_dump(), "territories": frozenset(self.territories)})


Rules = Annotated[list[RuleBody], Field(min_length=1, max_length=100)]


class RuleRow(RuleBody):
    model_config = ConfigDict(extra="ignore")

    policy: str
    version: int
    rule: int = Field(description="its place in the policy, from 1")
    author: str
    written_at: datetime


class RulePage(BaseModel):
    rules: list[RuleRow]
    next: Next


class PolicyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name
    rules: Rules


class Written(Changed):
    policy: str
    version: int


class PolicyAssignment(BaseModel):
    """What follows a policy: one asset, or all assets of an owner that have none of their own."""

    model_config = ConfigDict(extra="forbid")

    policy: Name
    asset_id: Number | None = None
    owner: Name | None = None


class TrialBody(BaseModel):
    """A policy that is written down, by its name, or rules that are not."""

    model_config = ConfigDict(extra="forbid")

    policy: Name | None = None
    rules: Rules | None = None
    asset_id: Number | None = None
    owner: Name | None = None


class TrialRow(BaseModel):
    """A claim that there would be."""

    owner: str
    asset: str
    query_id: str
    query: str
    action: Action
    actions: str
    territories: list[str]
    seconds: float
    claim_today: str | None = Field(description="status of the claim that there is")


@router.get("", response_model=RulePage)
def list_policies(
    viewer: Reader,
    site: Here,
    history: Annotated[bool, Query(description="every version that a policy had")] = False,
    limit: Limit = 200,
    after: After = None,
) -> Any:
    """Policies, rule by rule."""
    with transaction(site.database) as connection:
        page = rights.page_policies(connection, history, limit, after)
    return {"rules": page.rows, "next": page.next}


@router.post("", response_model=Written, status_code=201)
def write_policy(viewer: SiteManager, site: Here, body: PolicyBody) -> Any:
    """Write a policy; one of that name gets the new rules, and undecided claims follow them."""
    policy = Policy(body.name, tuple(each.as_rule() for each in body.rules))
    with transaction(site.database) as connection:
        version, change = rulebook.write_policy(connection, viewer.name, policy)
    return {**follow(site, viewer, change), "policy": body.name, "version": version}


@router.post("/assignments", response_model=Changed)
def assign_policy(viewer: Manager, site: Here, body: PolicyAssignment) -> Any:
    """Let an asset, or all assets of an owner, follow a policy; undecided claims do so at once."""
    if (body.asset_id is None) == (body.owner is None):
        raise Refused("name `asset_id` or `owner`, and not both", code="bad_arguments")
    with transaction(site.database) as connection:
        _check_reach(connection, viewer, body.asset_id, body.owner)
        change = rulebook.assign_policy(
            connection, viewer.name, body.policy, body.asset_id, body.owner
        )
    return follow(site, viewer, change)


@router.post("/dry-run", response_model=list[TrialRow])
def try_policy(viewer: Reader, site: Here, body: TrialBody) -> Any:
    """What would be claimed, from the segments that are stored; writes nothing."""
    if (body.policy is None) == (body.rules is None):
        raise Refused("name a `policy` or give `rules`, and not both", code="bad_arguments")
    with transaction(site.database) as connection:
        _check_reach(connection, viewer, body.asset_id, body.owner)
        if body.rules is not None:
            policy = Policy("trial", tuple(each.as_rule() for each in body.rules))
        else:
            policy = rights.read_policy(connection, str(body.policy))
        whose: list[str | None] = [body.owner]
        if body.owner is None and viewer.owners is not None:
            whose = [*sorted(viewer.owners)]
        return [
            row
            for each in whose
            for row in rehearse_policy(connection, policy, each, body.asset_id)
        ]


def _check_reach(
    connection: Connection, viewer: Viewer, asset_id: int | None, owner: str | None
) -> None:
    """What is named must be there, for this viewer."""
    if owner is not None:
        rights.require_owner(connection, owner, viewer.owners)
    if asset_id is not None:
        assets.require_asset(connection, asset_id, viewer.owners)
