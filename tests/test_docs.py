"""What the documents say is so: pages are generated, links lead somewhere, named modules exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from retrieval.settings import Settings, variable

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    if not path.name.startswith(".")
)
SOURCES = sorted(path for p in ("retrieval", "vcl_plugin") for path in (ROOT / p).rglob("*.py"))
ROOMS = sorted({path.parent.relative_to(ROOT).as_posix() for path in SOURCES})
# Whatever may name a document by its path.
NAMING = [
    path
    for pattern in ("*.py", "*.md", "*.toml", "Makefile", "*/**/*.py", "*/**/*.md", "*/**/*.toml")
    for path in sorted(ROOT.glob(pattern))
    if not path.relative_to(ROOT).parts[0].startswith((".", "demo-output", "build"))
]
MODULES = [
    path.relative_to(ROOT).as_posix()
    for path in SOURCES
    if path.name not in ("__init__.py", "__main__.py")
]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_what_the_code_says(page: str) -> None:
    committed = read(f"docs/reference/{page}")
    assert committed == generate.PAGES[page](), "run `python docs/generate.py`"


def test_every_reason_code_of_the_source_has_a_meaning_and_no_other_has() -> None:
    assert set(generate.CODES) == generate.reason_codes()
    assert set(generate.ANSWERS) == generate.answer_codes()
    assert set(generate.HELD) == generate.held_codes()


@pytest.mark.parametrize("name", [name for name, _ in generate.commands()])
def test_every_command_and_option_is_in_the_reference(name: str) -> None:
    page = read("docs/reference/cli.md")
    heading = re.search(rf"^## `{name}(?= |`).*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert heading is not None, f"docs/reference/cli.md has no {name}"
    options = [option for each in dict(generate.commands())[name].params for option in each.opts]
    missing = [
        option
        for option in options
        if option.startswith("-") and option != "--help" and f"`{option}`" not in heading[0]
    ]
    assert missing == []


@pytest.mark.parametrize("name", [each.name for each in fields(Settings)])
def test_every_setting_is_in_the_reference(name: str) -> None:
    assert f"`{variable(name)}`" in read("docs/reference/settings.md")


def drawn_rooms() -> set[str]:
    """The folders of the tree in docs/architecture.md, by their paths."""
    rooms: list[str] = []
    section = read("docs/architecture.md").split("## Folders")[1].split("\n## ")[0]
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)/ ", section, re.MULTILINE):
        depth = len(branch) // 4
        above = next((each for each in reversed(rooms) if each.count("/") == depth - 1), "")
        rooms.append(f"{above}/{name}" if depth else name)
    return set(rooms)


def test_the_architecture_draws_every_room_and_no_other() -> None:
    packages = {room for room in drawn_rooms() if room.startswith(("retrieval", "vcl_plugin"))}
    assert packages == set(ROOMS)
    assert [room for room in drawn_rooms() if not (ROOT / room).is_dir()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_no_module_that_is_gone(page: str) -> None:
    named = re.findall(r"\b((?:retrieval|vcl_plugin)/[\w/]+\.py)\b", read(page))
    dotted = re.findall(r"`((?:retrieval|vcl_plugin)\.[a-z_.]+)\.\w+\(?", read(page))
    gone = [name for name in named if not (ROOT / name).is_file()]
    gone += [
        name
        for name in dotted
        if not (ROOT / name.replace(".", "/")).is_dir()
        and not (ROOT / f"{name.replace('.', '/')}.py").is_file()
    ]
    assert gone == []


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(read(module)))
    assert docstring, f"{module} has no docstring"
    # Who calls a module changes without anybody opening it: such lines were false before long.
    assert not re.search(r"\b(Called|Used) by\b", docstring)


def anchors(path: Path) -> set[str]:
    """The names under which a page's headings can be linked."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_between_documents_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", read(page)):
        file, _, anchor = link.partition("#")
        target = (folder / file) if file else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page} links to {link}"


def test_a_document_that_is_named_by_its_path_exists() -> None:
    named = {
        (path.name, name)
        for path in NAMING
        for name in re.findall(r"\bdocs/[\w/-]+\.\w+", path.read_text(encoding="utf-8"))
    }
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("measurements/*.md")), ids=lambda page: page.stem)
def test_a_measurement_says_when_and_by_which_command_it_was_made(page: Path) -> None:
    head = page.read_text(encoding="utf-8").split("\n\n")[1].splitlines()
    assert head[0] == "| date | commit | command |"
    made = re.fullmatch(r"\| \d{4}-\d\d-\d\d \| [0-9a-f]{7,40} \| `([^`]*)` \|", head[2])
    assert made is not None, head[2]
    if made[1] == "make test":
        return
    made = re.match(r"python (-m )?([\w./]+)", made[1])
    assert made is not None, head[2]
    path = made[2].replace(".", "/") + ".py" if made[1] else made[2]
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_the_index_leads_to_every_page(page: str) -> None:
    folder = (ROOT / page).parent
    indexes = {DOCS / "README.md", folder / "README.md"} - {ROOT / page}
    targets = {
        (index.parent / link).resolve()
        for index in indexes
        if index.is_file()
        for link in re.findall(r"\]\(([^)#]+)", index.read_text(encoding="utf-8"))
    }
    assert page == "docs/README.md" or (ROOT / page).resolve() in targets


def test_the_readme_is_one_page() -> None:
    assert len(read("README.md").splitlines()) <= 120


def test_the_commands_in_the_readme_exist() -> None:
    named = set(re.findall(r"(?:^|`)(?:VCL_\S+ )*vcl ([a-z]+)", read("README.md"), re.MULTILINE))
    assert named
    assert named <= {name.split()[1] for name, _ in generate.commands()}


def test_every_harm_of_the_table_has_its_test() -> None:
    table = (ROOT / "docs/measurements/harms.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"`(test_\w+)`", table))
    assert named
    assert {each for each in named if f"def {each}(" not in sources} == set()
