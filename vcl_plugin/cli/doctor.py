"""`vcl doctor`: is this installation well, and what to do if not.

In: the settings. Out: a line a part; exit code 1 if any of them is not well.
"""

from __future__ import annotations

import dataclasses

import typer
from rich.markup import escape

from retrieval.settings import load_settings
from retrieval.site.doctor import examine
from vcl_plugin.cli.output import AsJson, print_json, stderr, stdout


def doctor(as_json: AsJson = False) -> None:
    """Check Python, services, schema, workers, weights, device and disk; say what to do."""
    findings = []
    for finding in examine(load_settings()):  # line by line: some parts take seconds
        findings.append(finding)
        if as_json:
            continue
        mark = "[green]✓[/]" if finding.is_well else "[bold red]✗[/]"
        stdout.print(f"{mark} {finding.part:12} {escape(finding.found)}", soft_wrap=True)
        if not finding.is_well:
            stdout.print(f"  {'':12} → {escape(finding.advice)}", soft_wrap=True)
    ill = [finding for finding in findings if not finding.is_well]
    if as_json:
        print_json([{**dataclasses.asdict(each), "is_well": each.is_well} for each in findings])
    elif ill:
        verb = "needs" if len(ill) == 1 else "need"
        stderr.print(f"{len(ill)} of {len(findings)} parts {verb} you")
    if ill:
        raise typer.Exit(1)
