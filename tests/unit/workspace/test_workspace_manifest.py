"""Saved manifests: read back to the same tree, or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from unit.workspace.trees import directories, files, leaf, leaves, tree
from workseal.errors import InvalidInputError
from workseal_host.workspace.manifest import (
    ManifestHeader,
    count_listed,
    parse_digest,
    read_manifest,
    write_manifest,
)
from workseal_host.workspace.model import Directory, EntryType, special_leaf
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest

POLICY_DIGEST = "ab" * 32
UTF8_NAMES = (b"a", b"b", b"a.b", b"a-", b"\xc3\xa9", b"a\nb")


def header_of(each: Directory, scheme: DigestScheme) -> ManifestHeader:
    return ManifestHeader(
        scheme, workspace_digest(each, scheme), POLICY_DIGEST, count_listed(each, scheme), (b"u\xff",)
    )


def saved(each: Directory, scheme: DigestScheme = DigestScheme.WORKSEAL_TREE_1) -> list[bytes]:
    return [line.encode() + b"\n" for line in write_manifest(header_of(each, scheme), each)]


SAMPLE = tree(a=leaf("1"), d=tree(e=tree(f=leaf("2", EntryType.EXECUTABLE)), p=special_leaf(EntryType.FIFO)))


@given(directories(leaves))
def test_manifest_round_trips(each: Directory) -> None:
    manifest = read_manifest(saved(each))
    assert manifest.tree == each
    assert manifest.header == header_of(each, DigestScheme.WORKSEAL_TREE_1)


@given(directories(files, names=UTF8_NAMES))
def test_nonoka_manifest_round_trips(each: Directory) -> None:
    projected = project(each, DigestScheme.NONOKA_1)
    manifest = read_manifest(saved(projected, DigestScheme.NONOKA_1))
    assert manifest.tree == projected
    assert manifest.header.entries == len(saved(projected, DigestScheme.NONOKA_1)) - 1


def test_nonoka_manifest_lists_no_directories() -> None:
    lines = saved(project(tree(d=tree(a=leaf("1"))), DigestScheme.NONOKA_1), DigestScheme.NONOKA_1)
    assert [json.loads(line)["path"] for line in lines[1:]] == ["d/a"]


@pytest.mark.parametrize("dropped", range(1, 6))
def test_manifest_with_a_line_missing_is_refused(dropped: int) -> None:
    lines = saved(SAMPLE)
    with pytest.raises(InvalidInputError):
        read_manifest(lines[:dropped] + lines[dropped + 1 :])


@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        pytest.param(0, b"workseal-manifest/1", b"workseal-manifest/2", id="form"),
        pytest.param(0, b"workseal-tree/1", b"workseal-tree/2", id="scheme"),
        pytest.param(0, b"workseal-tree/1", b"nonoka/1", id="other scheme"),
        pytest.param(0, b'"entries": 5', b'"entries": 6', id="count"),
        pytest.param(0, b'"entries": 5', b'"entries": "5"', id="count that is text"),
        pytest.param(0, b'"sha256:', b'"sha512:', id="digest form"),
        pytest.param(0, b'"unstable": []', b'"unstable": "x"', id="list that is text"),
        pytest.param(1, b'"a"', b'"b"', id="renamed"),
        pytest.param(1, b'"a"', b'"../a"', id="dots"),
        pytest.param(1, b'"a"', b'"/a"', id="absolute"),
        pytest.param(1, b'"a"', b'"zz"', id="out of order"),
        pytest.param(1, b'"a"', b'"\\\\q"', id="bad escape"),
        pytest.param(1, b'"file"', b'"executable"', id="type"),
        pytest.param(1, b'"file"', b'"fifo"', id="type without its word"),
        pytest.param(1, b'"file"', b'"door"', id="unknown type"),
        pytest.param(1, b'"sha256": "', b'"sha256": "A', id="hex"),
        pytest.param(1, b'"path"', b'"Path"', id="key"),
        pytest.param(3, b'"d/e"', b'"d/g"', id="parent not listed"),
        pytest.param(2, b"}", b"", id="not JSON"),
    ],
)
def test_edited_manifest_is_refused(number: int, old: bytes, new: bytes) -> None:
    lines = saved(SAMPLE)
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new, 1)
    with pytest.raises(InvalidInputError):
        read_manifest(lines)


def test_edited_directory_digest_is_refused() -> None:
    lines = saved(SAMPLE)
    line = json.loads(lines[2])
    lines[2] = json.dumps(line | {"sha256": "00" * 32}).encode()
    with pytest.raises(InvalidInputError, match="do not add up"):
        read_manifest(lines)


def test_nonoka_manifest_with_a_file_as_directory_is_refused() -> None:
    lines = saved(tree(a=leaf("1"), b=leaf("2")), DigestScheme.NONOKA_1)
    lines[2] = lines[2].replace(b'"b"', b'"a/b"')
    with pytest.raises(InvalidInputError, match="file and as a directory"):
        read_manifest(lines)


def test_empty_input_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        read_manifest([])


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64, None, 5]
)
def test_malformed_digest_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_digest(text)
