"""Regular expressions of a caller: bounded in time and size, lossless for other bytes."""

from __future__ import annotations

import time

import pytest

from workseal_host.execution.files import FileOperationError
from workseal_host.execution.regex import replace_regex


def test_a_pattern_of_exponential_time_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(FileOperationError, match="took longer"):
        replace_regex(b"a" * 40 + b"!", "(a+)+$", "x", timeout_s=0.5)
    assert time.monotonic() - started < 5


def test_a_result_that_explodes_is_refused() -> None:
    with pytest.raises(FileOperationError, match="too large"):
        replace_regex(b"x" * 100_000, "", "y" * 10_000)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [("(", ""), ("a", r"\2"), ("a", r"\g<none>")],
    ids=["pattern", "group", "name"],
)
def test_what_is_not_valid_is_named(pattern: str, replacement: str) -> None:
    with pytest.raises(FileOperationError, match="not a valid"):
        replace_regex(b"aaa", pattern, replacement)


def test_bytes_that_are_not_utf8_survive() -> None:
    assert replace_regex(b"\xff a \xfe\n", "a", "\u00e4") == (
        "\udcff \u00e4 \udcfe\n".encode("utf-8", "surrogateescape"),
        1,
    )


def test_count_limits_the_replacements() -> None:
    assert replace_regex(b"aaa", "a", "b", 2) == (b"bba", 2)
