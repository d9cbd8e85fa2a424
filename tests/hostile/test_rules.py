"""Rules that keep hostile data data: read from the source, so that no new line forgets them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("retrieval", "vcl_plugin", "migrations")
    for path in (ROOT / folder).rglob("*.py")
)
# SQL that is put together, by file: each expression can only have values that stand in our own
# source (names of tables, constant clauses). What a caller gives is always a bound parameter.
COMPOSED = {
    "migrations/versions/0004_policies.py": {"codes"},  # ISO 3166, from a constant of the file
    # Constants of the files, and what they put into one another.
    "migrations/versions/0012_uploads.py": {"TABLES + VIEWS", "EARLIER_VIEWS"},
    "migrations/versions/0013_reports.py": {
        "SEGMENTS.format(or_replace='OR REPLACE', seconds=SECONDS)",
        "SEGMENTS.format(or_replace='', seconds='')",
        "CONFLICTS.format(is_unseen=BY_COVERAGE)",
        "CONFLICTS.format(is_unseen=BY_EXISTENCE)",
        "RECOUNT.format(spans='segments.query_span')",
        "RECOUNT.format(spans='infringing_spans(segments.reference_id, segments.query_span, "
        "segments.reference_span, segments.is_reversed)')",
    },
    # A member of the enum, or ValueError; the clauses are constants of the file.
    "retrieval/work/leases.py": {
        "Table(table)",
        "table",
        "GIVEN_UP[table]",
        "_STOPPED",
        "_HOLDERS",
    },
    "retrieval/database.py": {"quoted"},  # names of tables that the database gave
    "retrieval/work/pairs.py": {"_COLUMNS"},
    "retrieval/work/locks.py": {"names", "mode", "wait"},  # of the enum, with a digit; constants
    "migrations/versions/0023_store_keys.py": {"OWN"},  # a constant of the file
    "migrations/versions/0021_turns.py": {"table"},  # constants of the file
    "retrieval/work/outdated.py": {"_OUTDATED"},
    "vcl_plugin/claims/guard.py": {"ASKED"},  # a constant of retrieval/work/pairs.py
    "retrieval/work/searches.py": {"_OUTCOME", "_COLUMNS"},  # constants of the file
    "retrieval/site/metrics.py": {"measure.sql"},  # constants of the two metrics modules
    "retrieval/work/sweeper.py": {
        "table",
        "only",
        "_UNSENT[message.task]",
    },  # called with constants
    "vcl_plugin/claims/claims.py": {"_CLAIM_ROW"},
    # Constants of the file, and the columns of its own table of orders.
    "vcl_plugin/claims/queue.py": {
        "_MEANT",
        "_TABLES",
        "_COLUMNS",
        "order.column",
        "order.kind",
        "direction",
        "comparison",
    },
    "vcl_plugin/claims/holdings.py": {"_ASSET"},  # a constant of the file
    "migrations/versions/0018_web.py": {"CLAIMS", "ACCESS", "WEBHOOKS"},
    "vcl_plugin/cli/services.py": {"_RATE"},
    # Names of views, checked against REPORTS, and columns of the file's own tables.
    "vcl_plugin/reports/reports.py": {"name", "statement", "where", "_ORDER[name]", "most"},
    "vcl_plugin/claims/rights.py": {"table", "column"},  # two constant choices in the same function
}
SQL_CALLS = {"text", "exec_driver_sql", "execute", "executemany"}


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def composed_sql(source: Path) -> Iterator[str]:
    """Every expression whose value becomes part of a statement."""
    uses_sql = "sqlalchemy" in source.read_text(encoding="utf-8") or "op.execute" in (
        source.read_text(encoding="utf-8")
    )
    for name, call in calls(source):
        if not uses_sql or name.split(".")[-1] not in SQL_CALLS or not call.args:
            continue
        statement = call.args[0]
        if isinstance(statement, ast.Constant) or (
            isinstance(statement, ast.Call) and ast.unparse(statement.func) == "text"
        ):
            continue  # constant, or looked at as the call of `text` that it is
        if isinstance(statement, ast.JoinedStr):
            for part in statement.values:
                if isinstance(part, ast.FormattedValue):
                    yield ast.unparse(part.value)
        elif name != "connection.execute" or not isinstance(statement, ast.Name):
            yield ast.unparse(statement)  # a name given to `execute` was made by `text`


@pytest.mark.parametrize("path", SOURCES, ids=names(SOURCES))
def test_statements_are_constant_but_for_a_closed_list_of_names(path: Path) -> None:
    allowed = COMPOSED.get(path.relative_to(ROOT).as_posix(), set())
    assert set(composed_sql(path)) - allowed == set(), (
        "a value in a statement must be a bound parameter; a name of our own goes on the list"
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('import sqlalchemy\ntext(f"SELECT {x}")', {"x"}),
        ('import sqlalchemy\ntext("SELECT " + x)', {"'SELECT ' + x"}),
        ('import sqlalchemy\ntext("SELECT %s" % x)', {"'SELECT %s' % x"}),
        ('import sqlalchemy\nc.exec_driver_sql("SELECT {}".format(x))', {"'SELECT {}'.format(x)"}),
        ('import sqlalchemy\ncursor.execute(f"SELECT {x.y}")', {"x.y"}),
        ('import sqlalchemy\nconnection.execute(text("SELECT :x"), {"x": x})', set()),
    ],
)
def test_every_way_to_compose_a_statement_is_seen(
    source: str, found: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert set(composed_sql(path)) == found


def keyword(call: ast.Call, name: str) -> object:
    for each in call.keywords:
        if each.arg == name and isinstance(each.value, ast.Constant):
            return each.value.value
    return None


@pytest.mark.parametrize("path", SOURCES, ids=names(SOURCES))
def test_nothing_from_outside_is_run_as_code(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (
            node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")]
        )
    }
    assert not imported & {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "yaml"}
    for name, call in calls(path):
        line = f"{where}:{call.lineno}"
        assert name not in ("eval", "exec", "compile", "os.system", "os.popen"), line
        assert keyword(call, "shell") is not True, line
        if name == "torch.load":
            assert keyword(call, "weights_only") is True, line
        if name in ("torch.jit.load", "jit.load"):  # SSCD is published as nothing else
            assert where == "retrieval/describe/sscd.py", line
        if name in ("np.load", "numpy.load", "np.lib.format.read_array"):
            assert keyword(call, "allow_pickle") in (False, None), line
        if name.endswith("urlopen") or name.startswith(("requests.", "httpx.")):
            assert where == "retrieval/describe/downloads.py", line  # weights, by checksum
        if name.split(".")[-1] == "Markup":  # what it is given is not escaped
            choices = [call.args[0]]
            if isinstance(call.args[0], ast.IfExp):
                choices = [call.args[0].body, call.args[0].orelse]
            assert all(isinstance(each, ast.Constant) for each in choices), line
