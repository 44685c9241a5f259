"""Differences: complete, minimal, in order, and in the words of receipts."""

from __future__ import annotations

import pytest
from hypothesis import given

from unit.workspace.trees import directories, files, leaf, leaves, tree
from workseal_host.workspace.diff import Change, EntryState, diff
from workseal_host.workspace.manifest import iter_entries, listed_entries
from workseal_host.workspace.model import Directory, EntryType, Node
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest

UTF8_NAMES = (b"a", b"b", b"a.b", b"a-", b"\xc3\xa9")


def listing(tree_: Directory, scheme: DigestScheme) -> dict[bytes, tuple[EntryType, bytes]]:
    """Return path to state; of directories only that they are there."""
    return {path: _state(node) for path, node in listed_entries(tree_, scheme)}


def _state(node: Node | EntryState) -> tuple[EntryType, bytes]:
    return node.type, b"" if node.type is EntryType.DIRECTORY else node.digest


def apply(
    before: dict[bytes, tuple[EntryType, bytes]], changes: list[Change]
) -> dict[bytes, tuple[EntryType, bytes]]:
    """Do what the changes say, and check that they say the truth about before."""
    after = dict(before)
    for change in changes:
        there = after.pop(change.path, None)
        assert there == (None if change.before is None else _state(change.before))
        if change.after is not None:
            after[change.path] = _state(change.after)
    return after


@given(directories(leaves), directories(leaves))
def test_applying_the_diff_gives_the_later_listing(before: Directory, after: Directory) -> None:
    scheme = DigestScheme.WORKSEAL_TREE_1
    assert apply(listing(before, scheme), diff(before, after)) == listing(after, scheme)


@given(directories(files, names=UTF8_NAMES), directories(files, names=UTF8_NAMES))
def test_applying_the_diff_gives_the_later_listing_without_directories(
    before: Directory, after: Directory
) -> None:
    scheme = DigestScheme.NONOKA_1
    old, new = project(before, scheme), project(after, scheme)
    changes = diff(old, new, list_directories=False)
    assert apply(listing(old, scheme), changes) == listing(new, scheme)
    assert (not changes) == (workspace_digest(old, scheme) == workspace_digest(new, scheme))
    assert all(state.type is EntryType.FILE for c in changes for state in (c.before, c.after) if state)


@given(directories(leaves), directories(leaves))
def test_diff_is_empty_exactly_if_the_digests_are_equal(before: Directory, after: Directory) -> None:
    assert (not diff(before, after)) == (before.digest == after.digest)


@given(directories(leaves), directories(leaves))
def test_diff_is_sorted_and_names_a_path_once(before: Directory, after: Directory) -> None:
    paths = [change.path for change in diff(before, after)]
    assert paths == sorted(set(paths))


@given(directories(leaves), directories(leaves))
def test_diff_backwards_is_the_mirror_image(before: Directory, after: Directory) -> None:
    mirrored = {"created": "deleted", "deleted": "created", "modified": "modified"}
    forwards = [(mirrored[c.kind], c.path, c.after, c.before) for c in diff(before, after)]
    assert forwards == [(c.kind, c.path, c.before, c.after) for c in diff(after, before)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(tree(), tree(a=leaf("1")), ["created a"], id="created"),
        pytest.param(tree(a=leaf("1")), tree(), ["deleted a"], id="deleted"),
        pytest.param(tree(a=leaf("1")), tree(a=leaf("2")), ["modified a"], id="content"),
        pytest.param(
            tree(a=leaf("1")), tree(a=leaf("1", EntryType.EXECUTABLE)), ["modified a"], id="executable bit"
        ),
        pytest.param(tree(d=tree()), tree(d=tree(a=leaf("1"))), ["created d/a"], id="directory itself stays"),
        pytest.param(tree(), tree(d=tree(a=leaf("1"))), ["created d", "created d/a"], id="directory appears"),
        pytest.param(
            tree(d=tree(a=leaf("1"))), tree(), ["deleted d", "deleted d/a"], id="directory vanishes"
        ),
        pytest.param(
            tree(d=tree(a=leaf("1"))),
            tree(d=leaf("1")),
            ["modified d", "deleted d/a"],
            id="directory becomes file",
        ),
        pytest.param(
            tree(d=leaf("1")),
            tree(d=tree(a=leaf("1"))),
            ["modified d", "created d/a"],
            id="file becomes directory",
        ),
    ],
)
def test_words(before: Directory, after: Directory, expected: list[str]) -> None:
    assert [f"{change.kind} {change.path.decode()}" for change in diff(before, after)] == expected


def test_directory_that_becomes_a_file_where_directories_are_not_listed() -> None:
    changes = diff(tree(d=tree(a=leaf("1"))), tree(d=leaf("1")), list_directories=False)
    assert [(change.kind, change.path) for change in changes] == [("created", b"d"), ("deleted", b"d/a")]


def test_deep_difference_needs_no_stack() -> None:
    before, after = tree(f=leaf("1")), tree(f=leaf("2"))
    for _ in range(3000):
        before, after = tree(d=before), tree(d=after)
    assert [change.path for change in diff(before, after)] == [b"d/" * 3000 + b"f"]
    assert len(diff(before, tree())) == 3001


class _Counting(dict[bytes, Node]):
    """Entries that count how often they are looked at."""

    looks = 0

    def keys(self) -> object:  # type: ignore[override]
        self.looks += 1
        return super().keys()


def test_diff_does_not_descend_into_equal_directories() -> None:
    untouched = tree(x=leaf("1"))
    counting = _Counting(untouched.entries)
    object.__setattr__(untouched, "entries", counting)
    diff(tree(same=untouched, a=leaf("1")), tree(same=untouched, a=leaf("2")))
    assert counting.looks == 0


@given(directories(leaves))
def test_listing_is_sorted_by_raw_path(each: Directory) -> None:
    paths = [path for path, _ in iter_entries(each)]
    assert paths == sorted(set(paths))
