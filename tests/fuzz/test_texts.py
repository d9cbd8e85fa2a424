"""Texts and messages: what goes out is escaped, what comes in is checked, secrets are masked."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from retrieval.errors import BadSetting, Refused
from retrieval.settings import Settings, load_settings, mask_password, variable
from retrieval.work.arguments import ID_BYTES, read_arguments
from tests.fuzz.examples import fuzzed, scalars, texts, values
from vcl_plugin.reports import cells, reports


class Cells(HTMLParser):
    """The tags of a page and the texts of its cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def read_page(rows: list[list[Any]]) -> Cells:
    report = reports.Report("claims_open", ["asset", "owner"], rows)
    page = Cells()
    page.feed(reports.write_html(report))
    page.close()
    return page


@fuzzed
@given(st.lists(st.tuples(texts, scalars), min_size=1, max_size=3))
@example([("<script>alert(1)</script>", "\u202e")])
@example([("</td></tr></table><img src=x onerror=alert(1)>", 0)])
def test_a_report_holds_its_texts_and_no_other_tag(rows: list[tuple[str, Any]]) -> None:
    page = read_page([list(row) for row in rows])
    plain = read_page([["x", "y"] for _ in rows])
    assert page.tags == plain.tags
    expected = [cells.shown(value).split() for row in rows for value in row]
    assert [cell.split() for cell in page.cells] == expected


@fuzzed
@given(texts)
def test_what_is_shown_acts_on_no_terminal(text: str) -> None:
    seen = cells.visible(text)
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in seen)
    assert not set(seen) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    assert cells.visible(seen) == seen
    seen.encode()


@fuzzed
@given(texts)
@example("\r")  # once two rows: the writer does not quote it
@example("a\r=1+1")
def test_a_csv_holds_the_text_and_no_formula(text: str) -> None:
    assume("\0" not in text)
    report = reports.Report("claims_open", ["asset"], [[text]])
    [_, *rows] = csv.reader(io.StringIO(reports.write_csv(report), newline=""))
    assert len(rows) == 1 or not text
    [cell] = rows[0] if rows and rows[0] else [""]
    kept = text.replace("\r\n", "\n").replace("\r", "\n")
    assert _take_out_marks(cell, kept) == ""
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def _take_out_marks(cell: str, kept: str) -> str:
    """What is left of a cell without the text that it holds: at most marks, each before a sign that
    would begin a formula or before the white space in front of one."""
    left, place = "", 0
    for number, each in enumerate(cell):
        if place < len(kept) and each == kept[place]:
            place += 1
        elif each == "'" and re.match(r"'(\s*[=+\-@＝＋－＠]|[\t\n])", cell[number:]):
            continue
        else:
            left += each
    return left + kept[place:]


def register(
    video_id: str, fingerprint: str, title: str | None = None, is_reference: bool = False
) -> None: ...


def localize(query_id: str, reference_ids: list[str], search_id: str | None = None) -> None: ...


@fuzzed
@given(
    st.sampled_from([register, localize]),
    st.lists(values, max_size=5),
    st.dictionaries(
        st.one_of(st.sampled_from(["video_id", "title", "reference_ids", "is_reference"]), texts),
        values,
        max_size=4,
    ),
)
def test_arguments_are_of_their_types_or_refused(
    task: Any, args: list[Any], kwargs: dict[str, Any]
) -> None:
    try:
        found = read_arguments(task, args, kwargs)
    except Refused as error:
        assert error.code == "bad_arguments"
        assert str(error).isprintable()
        assert len(str(error)) < 300
        return
    for name, value in found.items():
        for each in value if isinstance(value, list) else [value]:
            assert each is None or isinstance(each, str | bool)
            if isinstance(each, str):
                assert "\0" not in each
                assert len(each.encode()) <= (ID_BYTES if "id" in name else 20_000)


@fuzzed
@given(st.sampled_from([*Settings.__dataclass_fields__]), texts)
def test_any_value_of_a_setting_is_taken_or_refused(name: str, value: str) -> None:
    assume("\0" not in value)  # no environment holds one
    try:
        settings = load_settings({variable(name): value})
    except BadSetting as error:
        assert variable(name) in str(error)
        return
    assert isinstance(settings, Settings)


@fuzzed
@given(st.text(min_size=6), st.sampled_from(["postgresql://ana:{}@db/vcl", "redis://:{}@h:1/0"]))
@example("s3cret/with@slash", "postgresql://ana:{}@db/vcl")
@example("new\nline@x:y", "postgresql://ana:{}@db/vcl")
def test_a_password_is_masked_whatever_it_holds(password: str, address: str) -> None:
    url = address.format(password)
    assume(password not in address.format("***") and password not in "***@db/vcl")
    assert password not in mask_password(url)


@fuzzed
@given(values)
def test_json_for_programs_is_always_json(value: Any) -> None:
    rows = [[value if isinstance(value, str | int | bool | None) else str(value)]]
    written = reports.write_json(reports.Report("claims_open", ["asset"], rows))
    assert json.loads(written) == [{"asset": rows[0][0]}]
