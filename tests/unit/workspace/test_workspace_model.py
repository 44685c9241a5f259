"""Trees, their byte form, and what of a malformed form is refused."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given

from unit.workspace.trees import directories, leaf, leaves, tree
from workseal.errors import InvalidInputError
from workseal_host.workspace.model import (
    TREE_HEADER,
    Directory,
    EntryType,
    count_entries,
    iter_directories,
    leaf_from_code,
    lookup,
    make_directory,
    parse_tree_object,
    tree_object,
)

DIGEST = hashlib.sha256(b"x").digest()


@given(directories(leaves))
def test_every_directory_is_rebuilt_from_its_object(each: Directory) -> None:
    for directory in iter_directories(each):
        rebuilt = make_directory(
            (name, directory.entries[name] if code == b"d" else leaf_from_code(code, digest))
            for code, name, digest in parse_tree_object(tree_object(directory))
        )
        assert rebuilt == directory
        assert dict(rebuilt.entries) == dict(directory.entries)


@given(directories(leaves))
def test_entries_are_in_order_of_raw_bytes(each: Directory) -> None:
    assert list(each.entries) == sorted(each.entries)


def test_directories_are_equal_by_digest_alone() -> None:
    assert tree(a=leaf("1"), b=leaf("2")) == tree(b=leaf("2"), a=leaf("1"))
    assert tree(a=leaf("1")) != tree(a=leaf("2"))


def test_entries_cannot_be_changed_under_a_digest() -> None:
    with pytest.raises(TypeError):
        tree(a=leaf("1")).entries[b"a"] = leaf("2")  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (b"d/e/f", leaf("1")),
        (b"d", tree(e=tree(f=leaf("1")))),
        (b"d/x", None),
        (b"d/e/f/g", None),
        (b"x/y", None),
    ],
)
def test_lookup(path: bytes, found: object) -> None:
    assert lookup(tree(d=tree(e=tree(f=leaf("1")))), path) == found


def test_lookup_of_nothing_is_the_directory_itself() -> None:
    each = tree(a=leaf("1"))
    assert lookup(each, b"") is each


def test_count_leaves_out_the_root() -> None:
    assert count_entries(tree(d=tree(e=tree(f=leaf("1"))), g=leaf("2"))) == 4


def test_deep_tree_needs_no_stack() -> None:
    each = tree()
    for _ in range(5000):
        each = tree(d=each)
    assert count_entries(each) == 5000
    assert lookup(each, b"/".join([b"d"] * 5000)) == tree()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"fa\0" + DIGEST[:-1], "cut off"),
        (b"fa", "cut off"),
        (b"f", "cut off"),
        (b"qa\0" + DIGEST, "unknown type"),
        (b"f\0" + DIGEST, "impossible name"),
        (b"fa/b\0" + DIGEST, "impossible name"),
        (b"f..\0" + DIGEST, "impossible name"),
        (b"f.\0" + DIGEST, "impossible name"),
        (b"fb\0" + DIGEST + b"fa\0" + DIGEST, "not sorted"),
        (b"fa\0" + DIGEST + b"xa\0" + DIGEST, "not sorted"),
    ],
)
def test_malformed_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_tree_object(TREE_HEADER + body)


def test_object_without_header_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="header"):
        parse_tree_object(b"workseal-tree/2\0")


@pytest.mark.parametrize("code", [b"o", b"u"])
def test_unknown_word_is_refused(code: bytes) -> None:
    with pytest.raises(InvalidInputError, match="no known word"):
        leaf_from_code(code, DIGEST)


def test_type_words_are_fixed() -> None:
    assert [word.value for word in EntryType] == [
        "file", "executable", "symlink", "directory", "fifo", "socket", "char", "block", "unreadable",
    ]  # fmt: skip
