"""Writes the golden vectors of ``workseal-tree/1``, by the reference implementation alone.

Run ``python tests/unit/workspace/make_vectors.py``; a test compares the file with what this makes.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from unit.workspace import reference  # noqa: E402

TARGET = ROOT / "proto" / "vectors" / "digest" / "workseal-tree-1.json"

ABOUT = (
    "Trees and their workseal-tree/1 digests. Paths and link targets are in the escaped form. Entries with "
    "counts=false lie in the tree and are ignored. `object` is the root's tree object in base64."
)


def file(path: str, content: str = "", **more: Any) -> dict[str, Any]:
    return {"path": path, "type": "file", "content": content, **more}


def entry(path: str, word: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "type": word, **more}


TREES: list[tuple[str, list[dict[str, Any]]]] = [
    ("empty", []),
    ("one file", [file("a.txt", "hello\n")]),
    ("empty file", [file("a.txt")]),
    ("binary content", [entry("bin", "file", content_base64=base64.b64encode(bytes(range(256))).decode())]),
    ("executable", [entry("a.txt", "executable", content="hello\n")]),
    ("symlink", [entry("l", "symlink", target="../..")]),
    ("dangling symlink with a name that is not UTF-8", [entry("l", "symlink", target="no\\xffwhere")]),
    ("empty directory", [entry("d", "directory")]),
    ("nested empty directories", [entry("d/e/f", "directory")]),
    ("fifo", [entry("p", "fifo")]),
    ("socket", [entry("s", "socket")]),
    ("character device", [entry("c", "char")]),
    ("block device", [entry("b", "block")]),
    ("unreadable file", [entry("u", "unreadable", of="file")]),
    ("unreadable directory", [entry("u", "unreadable", of="directory")]),
    (
        "one name under a directory and beside it",
        [file("a/b", "1"), file("a.b", "2"), file("a-b", "3"), file("a0", "4")],
    ),
    (
        "order of raw bytes",
        [file("B"), file("a"), file("_"), file("\U0001f600"), file("\ufffd"), file("\ue000")],
    ),
    ("composed and decomposed", [file("\u00e9", "1"), file("e\u0301", "2")]),
    ("name that is not UTF-8", [file("bad-\\xff.txt", "x"), file("bad-\\xfe.txt", "x")]),
    (
        "controls and a backslash in names",
        [file("new\\x0aline", "x"), file("tab\\x09", "y"), file("back\\\\slash", "z")],
    ),
    ("same content twice", [file("a/x", "1"), file("b/x", "1")]),
    (
        "built-in names at any depth and of any type",
        [
            file("src/main.py", "print(1)\n"),
            file("src/__pycache__/main.pyc", "x", counts=False),
            file("node_modules/m/i.js", "x", counts=False),
            file("pkg/coverage", "x", counts=False),
            file("pkg/coverage.txt", "kept"),
            entry("pkg/venv", "symlink", target="/opt/venv", counts=False),
            file(".git", "gitdir: elsewhere\n", counts=False),
            file(".gitignore", "src\n"),
        ],
    ),
    (
        "rules files count, what they ignore does not",
        [
            file(".worksealignore", "*.log\nbuild\n!keep.log\n!coverage\n"),
            file("a.log", "x", counts=False),
            file("keep.log", "kept"),
            file("build/keep.log", "x", counts=False),
            file("coverage/index.html", "kept"),
            file("sub/.worksealignore", "!a.log\n"),
            file("sub/a.log", "kept"),
            file("sub/b.log", "x", counts=False),
        ],
    ),
]


def vectors() -> dict[str, Any]:
    """Return the content of the vector file."""
    trees = []
    for name, entries in TREES:
        tree = reference.nested(entries)
        trees.append(
            {
                "name": name,
                "entries": entries,
                "object": base64.b64encode(reference.tree_object(tree)).decode(),
                "digest": reference.tree_digest(tree).hex(),
            }
        )
    return {"scheme": "workseal-tree/1", "about": ABOUT, "trees": trees}


def text() -> str:
    """Return the vector file."""
    return json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
