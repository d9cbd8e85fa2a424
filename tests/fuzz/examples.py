"""What the fuzzers share: how many examples each tries, spoilt files, any JSON.

In: FUZZ_EXAMPLES, which `run` sets; without it a moment's worth, for `make test`.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

fuzzed = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

texts = st.one_of(
    st.text(),
    st.text(st.characters(codec=None, categories=("Cs", "Cc", "Cf", "Zl", "Zp")), max_size=8),
    st.sampled_from(["a\0b", "\udc80", "\u202eab", "=1+1", "'; --", "<b>", "{{x}}", "../..", "-"]),
)
numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 1 << 63, 5e-324, 1e308])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=12,
)


@st.composite
def spoilt(draw: st.DrawFn, content: bytes) -> bytes:
    """The file with some bytes changed, cut out, put in or missing at its end."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.one_of(st.integers(0, min(200, len(data))), st.integers(0, len(data))))
        match draw(st.sampled_from(["flip", "cut", "insert", "end", "number"])):
            case "flip" if place < len(data):
                data[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[place : place + draw(st.integers(1, 64))]
            case "insert":
                data[place:place] = draw(st.binary(min_size=1, max_size=16))
            case "number":
                data[place : place + 8] = draw(
                    st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"99999999"])
                )
            case _:
                del data[place:]
    return bytes(data)
