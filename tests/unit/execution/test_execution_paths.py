"""The form of path arguments."""

from __future__ import annotations

import pytest

from workseal_host.errors import ArgumentsError
from workseal_host.execution.paths import parse_directory, parse_path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        ".",
        "..",
        "a\0b",
        "x" * 5000,
        "a\ud800",
    ],
    ids=lambda path: repr(path[:8]),
)
def test_a_path_that_is_not_plainly_beneath_the_root_is_refused(path: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        parse_path(path, field="/path")
    assert caught.value.field == "/path"


@pytest.mark.parametrize(
    "path", ["a", "a/b.txt", "...", "..a", "a b", "\u00e9", "-rf", "a\\b", "~"], ids=repr
)
def test_any_other_name_is_taken_as_it_is(path: str) -> None:
    assert parse_path(path, field="/path") == path.encode()


@pytest.mark.parametrize(
    ("path", "parts"),
    [("", ()), (".", ()), ("a/b", ("a", "b")), ("./a//b/", ("a", "b"))],
    ids=["empty", "dot", "plain", "untidy"],
)
def test_a_working_directory_is_split(path: str, parts: tuple[str, ...]) -> None:
    assert parse_directory(path, field="/cwd") == parts


@pytest.mark.parametrize("path", ["/", "/tmp", "..", "a/../..", "a\0"], ids=repr)
def test_a_working_directory_outside_is_refused(path: str) -> None:
    with pytest.raises(ArgumentsError):
        parse_directory(path, field="/cwd")
