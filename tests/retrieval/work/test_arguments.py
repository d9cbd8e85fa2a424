"""A task gets arguments of the types it names, or its sender's mistake becomes a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval.errors import Refused
from retrieval.work.arguments import MOST_IDS, read_arguments


def register(
    video_id: str, descriptors: str, title: str | None = None, is_reference: bool = False
) -> None: ...


def localize(query_id: str, reference_ids: list[str], search_id: str | None = None) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (["v", "/a.npy"], {}, {"video_id": "v", "descriptors": "/a.npy"}),
        ([42], {"descriptors": "/a"}, {"video_id": "42", "descriptors": "/a"}),
        (["v", "/a"], {"title": None}, {"video_id": "v", "descriptors": "/a", "title": None}),
        (
            ["\u202e'\"\n;--", "/a"],
            {"title": "x" * 10_000},
            {"video_id": "\u202e'\"\n;--", "descriptors": "/a", "title": "x" * 10_000},
        ),
    ],
)
def test_what_fits_is_bound_by_name(
    args: list[Any], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert read_arguments(register, args, kwargs) == expected


def test_ids_are_a_list_also_when_there_is_one() -> None:
    for given, ids in ((["a", 7], ["a", "7"]), ("abc", ["abc"]), (7, ["7"]), ([], [])):
        found = read_arguments(localize, ["q", given], {})
        assert found == {"query_id": "q", "reference_ids": ids}


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        ([], {}, "missing a required argument: 'video_id'"),
        (["v", "/a", "t", True, 5], {}, "too many positional arguments"),
        (["v", "/a"], {"colour": "red"}, "unexpected keyword argument 'colour'"),
        (["v"], {"video_id": "w", "descriptors": "/a"}, "multiple values for argument 'video_id'"),
        ([None, "/a"], {}, "video_id is None"),
        ([True, "/a"], {}, "video_id is True"),
        ([1.5, "/a"], {}, "video_id is 1.5"),
        (["", "/a"], {}, "video_id is empty"),
        ([{"a": 1}, "/a"], {}, "video_id is a dict of 1"),
        (["v" * 1001, "/a"], {}, "video_id has 1001 bytes"),
        (["é" * 501, "/a"], {}, "video_id has 1002 bytes"),
        (["a\0b", "/a"], {}, r"video_id is 'a\x00b'; PostgreSQL keeps no NUL"),
        (["\udc80", "/a"], {}, r"video_id is '\udc80', which is no valid Unicode"),
        ([10**5000, "/a"], {}, "video_id is a number of over a hundred digits"),
        (["v", 5], {}, "descriptors is 5; it must be a string"),
        (["v", "/a"], {"title": ["x"]}, "title is a list of 1"),
        (["v", "/a"], {"is_reference": "false"}, "is_reference is 'false'; it must be true or"),
        (["v", "/a"], {"is_reference": None}, "is_reference is None"),
    ],
)
def test_what_does_not_fit_is_named(args: list[Any], kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        read_arguments(register, args, kwargs)
    assert sentence in str(caught.value)
    assert caught.value.code == "bad_arguments"
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable(), "nothing in it moves a cursor or starts a line"


@pytest.mark.parametrize(
    ("reference_ids", "sentence"),
    [
        ({"a": 1}, "reference_ids is a dict of 1; it must be a list of ids"),
        (None, "reference_ids is None"),
        (["a", None], "reference_ids[1] is None"),
        ([["a"]], "reference_ids[0] is a list of 1"),
        (["x"] * (MOST_IDS + 1), f"reference_ids holds {MOST_IDS + 1} ids; send at most"),
    ],
)
def test_a_list_of_ids_holds_ids_and_not_too_many(reference_ids: Any, sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        read_arguments(localize, ["q", reference_ids], {})
    assert sentence in str(caught.value)
