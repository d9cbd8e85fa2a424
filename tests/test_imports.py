"""The house rules that a reader cannot see in one file: who imports whom, who reads VCL_*."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOST = [*(ROOT / "retrieval").rglob("*.py"), *(ROOT / "migrations").rglob("*.py")]
GUEST = list((ROOT / "vcl_plugin").rglob("*.py"))


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def imported_packages(source: str) -> Iterator[str]:
    """The top package of every import, also of those made by a call with a fixed name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func).split(".")[-1]
            name = node.args[0]
            if function in ("import_module", "__import__") and isinstance(name, ast.Constant):
                yield str(name.value).split(".")[0]


def environment_keys(source: str) -> Iterator[ast.expr]:
    """Every key that is read from the environment; a call whose value is dropped reads nothing."""
    tree = ast.parse(source)
    dropped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if _is_environment(node.value):
                yield node.slice
        elif isinstance(node, ast.Compare) and _is_environment(node.comparators[-1]):
            yield node.left
        elif isinstance(node, ast.Call) and node.args and id(node) not in dropped:
            function = node.func
            is_lookup = isinstance(function, ast.Attribute) and _is_environment(function.value)
            if is_lookup or ast.unparse(function).split(".")[-1] == "getenv":
                yield node.args[0]


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


def reads_a_setting(source: str) -> bool:
    """Whether a key is a VCL_* name, or is computed in a source that holds such a name."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    has_name = any(re.fullmatch(r"VCL_[A-Z_]*", text) for text in texts)
    return any(
        key.value.startswith("VCL_")
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
        else has_name
        for key in environment_keys(source)
    )


@pytest.mark.parametrize("path", HOST, ids=names(HOST))
def test_the_engine_never_imports_the_plugin(path: Path) -> None:
    assert "vcl_plugin" not in set(imported_packages(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", HOST + GUEST, ids=names(HOST + GUEST))
def test_only_the_settings_read_vcl_variables(path: Path) -> None:
    is_settings = path == ROOT / "retrieval" / "settings.py"
    assert reads_a_setting(path.read_text(encoding="utf-8")) == is_settings


@pytest.mark.parametrize(
    "source",
    [
        "import vcl_plugin",
        "from vcl_plugin.model import TransVCL",
        "def late():\n    from vcl_plugin import claims",
        "import importlib\nimportlib.import_module('vcl_plugin.tasks')",
    ],
)
def test_every_way_to_import_the_plugin_is_seen(source: str) -> None:
    assert "vcl_plugin" in set(imported_packages(source))


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['VCL_HOME']",
        "home = os.environ.get('VCL_HOME', '')",
        "home = os.environ.setdefault('VCL_HOME', '')",
        "home = os.getenv('VCL_HOME')",
        "from os import environ\nvalue = environ.get(f'VCL_{name}')",
        "'VCL_HOME' in os.environ",
        "HOME = 'VCL_HOME'\nos.environ[HOME]",
    ],
)
def test_every_way_to_read_a_setting_is_seen(source: str) -> None:
    assert reads_a_setting(source)


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['OMP_NUM_THREADS']",
        "os.environ['VCL_HOME'] = home",
        "os.environ.setdefault('VCL_HOME', home)",
        "dict(os.environ)",
        "{name: os.environ[name] for name in ('PATH', 'LANG')}",
        "language = os.getenv('LANG') or 'set VCL_HOME to a folder'",
    ],
)
def test_other_uses_of_the_environment_are_free(source: str) -> None:
    assert not reads_a_setting(source)


@pytest.mark.parametrize(
    "path",
    [
        name
        for name in names(HOST + GUEST)
        if not name.startswith(("retrieval/work/", "migrations/"))
    ],
)
def test_only_the_work_room_writes_sql_on_pairs(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.findall(r"\b(?:FROM|JOIN|UPDATE|INTO) pairs\b", source) == []
