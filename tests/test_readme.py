"""Every command of the README, run word for word; `make test` is what runs this."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("VCL_")}


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(command: list[str], home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT if home is None else ENVIRONMENT | {"VCL_HOME": str(home)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def demo() -> str:
    first, second = blocks("README.md", "sh")[0].split("\n")[:2]
    assert (first, second) == ("make demo", "make test")
    return run(["make", "demo"]).stdout


@pytest.fixture(scope="module")
def used_home(demo: str) -> Iterator[Path]:
    """The home in which the commands under "Use it" were run, in their order, beside a worker."""
    home = Path(tempfile.mkdtemp(prefix="vcl-readme-"))
    home.chmod(0o711)
    commands = "".join(blocks("README.md", "sh")[1:])
    script = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n" + commands
    try:
        run(["bash", "-c", script], home)
        yield home
    finally:
        run([str(BIN / "vcl"), "down"], home)


def test_make_demo_finds_every_planted_copy_and_claims_nothing_else(demo: str) -> None:
    verdicts = re.findall(r"[✓✗].*", demo)
    assert len(verdicts) == 7
    assert all(verdict.startswith("✓") for verdict in verdicts), demo


def test_the_demo_leaves_a_page_of_evidence(demo: str) -> None:
    page = (ROOT / "demo-output" / "evidence.html").read_text(encoding="utf-8")
    assert page.count("<section") == demo.count("potential")


def test_the_commands_under_use_it_run(used_home: Path) -> None:
    claims = run([str(BIN / "vcl"), "claims", "list", "--json"], used_home)
    assert [claim["status"] for claim in json.loads(claims.stdout)] == ["active"]


def test_the_python_of_the_readme_runs(used_home: Path, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(blocks("README.md", "python")[0], encoding="utf-8")
    # What it enqueues is done by a worker, as under "Use it".
    beside = f"trap 'kill $(jobs -p); wait' EXIT\n{BIN}/vcl worker &\n{sys.executable} {script}"
    printed = run(["bash", "-c", beside], used_home).stdout
    assert re.search(r"^done\nHarbour 0\.0 2[34]", printed, re.MULTILINE), printed
    query, reference = (
        tuple(map(float, ends))
        for ends in re.findall(r"Span\(start=(.+?), end=(.+?)\)", printed)[:2]
    )
    assert query == pytest.approx((0.0, 24.0), abs=1.0)
    assert reference == pytest.approx((12.0, 36.0), abs=1.0)


@pytest.mark.parametrize("document", ["README.md", "docs/reference/sql.md"])
def test_the_sql_runs_word_for_word_in_psql(document: str, demo: str, tmp_path: Path) -> None:
    home = ROOT / "demo-output" / "home"
    queries = blocks(document, "sql")
    assert queries
    try:
        for number, query in enumerate(queries):
            file = tmp_path / f"{number}.sql"
            file.write_text(query, encoding="utf-8")
            run([str(BIN / "vcl"), "psql", "--set", "ON_ERROR_STOP=1", "--file", str(file)], home)
    finally:
        run([str(BIN / "vcl"), "down"], home)
