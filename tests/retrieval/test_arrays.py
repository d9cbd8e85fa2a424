"""The door for descriptors: what is converted, what is refused, and with which words."""

import numpy as np
import pytest

from retrieval.arrays import as_descriptors
from retrieval.errors import BadDescriptors


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_other_number_types_become_float32(dtype):
    found = as_descriptors(np.ones((3, 256), dtype))
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


def test_a_strided_array_becomes_contiguous_with_the_same_values():
    wide = np.random.default_rng(0).standard_normal((10, 512)).astype(np.float32)
    found = as_descriptors(wide[::-2, ::2])
    assert found.flags.c_contiguous
    assert (found == wide[::-2, ::2]).all()


def test_a_good_array_is_not_copied():
    array = np.zeros((4, 256), np.float32)
    assert np.shares_memory(as_descriptors(array), array)


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (np.zeros((0, 256), np.float32), "no_frames", "reference 7 has no frames"),
        ([], "no_frames", "has no frames"),
        (np.zeros((5, 128), np.float32), "wrong_dimension", r"\(5, 128\)"),
        (np.zeros(256, np.float32), "wrong_dimension", r"\(256,\)"),
        (np.zeros((2, 5, 256), np.float32), "wrong_dimension", r"\(2, 5, 256\)"),
        (np.full((2, 256), np.inf), "not_finite", "inf at frame 0, dimension 0"),
        (np.full((2, 256), 1e300), "not_finite", "inf"),
        (np.array([["a"] * 256]), "not_an_array", "instead of numbers"),
        ([[1.0], [1.0, 2.0]], "not_an_array", "no array of descriptors"),
        (None, "not_an_array", "instead of numbers"),
        (3.0, "wrong_dimension", r"\(\)"),
    ],
)
def test_what_cannot_be_descriptors_is_refused_with_a_sentence(array, code, words):
    with pytest.raises(BadDescriptors, match=words) as refused:
        as_descriptors(array, "reference 7")
    assert refused.value.code == code


def test_a_nan_is_named_by_its_frame():
    array = np.zeros((9, 256), np.float32)
    array[6, 40] = np.nan
    with pytest.raises(BadDescriptors, match="nan at frame 6, dimension 40"):
        as_descriptors(array)
