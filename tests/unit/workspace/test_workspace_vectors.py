"""The golden vectors of both schemes, read by the code under test and by the reference."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from unit.workspace import make_vectors, reference
from workseal_host.workspace.model import (
    Directory,
    EntryType,
    leaf_from_code,
    make_directory,
    parse_tree_object,
    tree_object,
)
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner
from workseal_host.workspace.scheme import DigestScheme, project, workspace_digest

VECTORS = Path(__file__).resolve().parents[3] / "proto" / "vectors" / "digest"
TREE = json.loads((VECTORS / "workseal-tree-1.json").read_text())["trees"]
NONOKA = json.loads((VECTORS / "nonoka-1.json").read_text())["trees"]

each_tree = pytest.mark.parametrize("vector", TREE, ids=[vector["name"] for vector in TREE])
each_nonoka = pytest.mark.parametrize("vector", NONOKA, ids=[vector["name"] for vector in NONOKA])
# Not every user can make the others; those vectors are checked from their entries.
PLANTED = [v for v in TREE if not {"char", "block", "unreadable"} & {entry["type"] for entry in v["entries"]}]


def build(nested: dict[bytes, Any]) -> Directory:
    return make_directory(
        (name, build(node) if isinstance(node, dict) else leaf_from_code(*node))
        for name, node in nested.items()
    )


def test_vector_file_is_what_the_reference_makes() -> None:
    assert (VECTORS / "workseal-tree-1.json").read_text() == make_vectors.text()


def test_vectors_cover_every_type() -> None:
    assert {entry["type"] for vector in TREE for entry in vector["entries"]} == {
        word.value for word in EntryType
    }


@each_tree
def test_tree_vector_from_entries(vector: dict[str, Any]) -> None:
    tree = build(reference.nested(vector["entries"]))
    assert tree.digest.hex() == vector["digest"]
    assert tree_object(tree) == base64.b64decode(vector["object"])


@each_tree
def test_tree_vector_object_parses_back(vector: dict[str, Any]) -> None:
    tree = build(reference.nested(vector["entries"]))
    entries = parse_tree_object(base64.b64decode(vector["object"]))
    assert [(e.name, e.code, e.digest) for e in entries] == [
        (name, node.type.code, node.digest) for name, node in tree.entries.items()
    ]


@pytest.mark.parametrize("vector", PLANTED, ids=[vector["name"] for vector in PLANTED])
def test_tree_vector_from_disk(vector: dict[str, Any], tmp_path: Path) -> None:
    reference.plant(tmp_path, vector["entries"])
    with WorkspaceRoot.open(tmp_path) as root:
        assert Scanner(root).scan().tree.digest.hex() == vector["digest"]


@each_nonoka
def test_nonoka_vector_by_the_reference(vector: dict[str, Any]) -> None:
    kept = {
        file["path"]: file["content"].encode()
        for file in vector["files"]
        if not reference.BUILTIN & set(file["path"].split("/"))
    }
    assert reference.nonoka_digest(kept) == vector["digest"]


@each_nonoka
def test_nonoka_vector_from_disk(vector: dict[str, Any], tmp_path: Path) -> None:
    reference.plant(
        tmp_path, [file | {"type": "file", "path": _escape(file["path"])} for file in vector["files"]]
    )
    with WorkspaceRoot.open(tmp_path) as root:
        tree = Scanner(root).scan(builtin_only=True).tree
    assert workspace_digest(tree, DigestScheme.NONOKA_1).hex() == vector["digest"]
    projected = project(tree, DigestScheme.NONOKA_1)
    assert workspace_digest(projected, DigestScheme.NONOKA_1).hex() == vector["digest"]


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace("\n", "\\x0a")
