"""The quick way to canonical JSON gives what the reference implementation gives."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from workseal.canonical import canonical_json
from workseal.errors import InvalidJsonError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_equal_to_the_reference(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [2**53, -(2**53), float("nan"), float("inf"), "\ud800", {"\ud800": 1}, {1: 2}, object(), {"a": b"x"}],
    ids=repr,
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(InvalidJsonError):
        canonical_json(value)
