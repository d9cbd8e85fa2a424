"""What the documents say is so: commands run, SQL runs, every module has its line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("retrieval", "vcl_plugin")
    for path in (ROOT / package).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_line_in_the_architecture(module: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"`{module}`" in text, f"docs/architecture.md does not name {module}"


def test_the_architecture_names_no_module_that_is_gone() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:retrieval|vcl_plugin)/[\w/]+\.py)`", text)
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8")))
    assert docstring, f"{module} has no docstring"


@pytest.mark.parametrize("page", ["README.md", *(p.name for p in (ROOT / "docs").glob("*.md"))])
def test_links_between_documents_lead_somewhere(page: str) -> None:
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    links = re.findall(r"\]\(((?!http|#)[^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
