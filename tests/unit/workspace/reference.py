"""Both digest schemes a second time, written from their description alone.

Nothing of the code under test is used here. Plain and slow on purpose; recursion is
fine because test trees are shallow.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

BUILTIN = {
    ".git", ".nonoka", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", ".hypothesis", ".tox", ".nox", ".coverage", "coverage", "htmlcov",
}  # fmt: skip

CODES = {"file": b"f", "executable": b"x", "symlink": b"l", "unreadable": b"u"}


def raw(text: str) -> bytes:
    """Undo the escaped form of a path."""

    def one(match: re.Match[bytes]) -> bytes:
        return b"\\" if match[0] == b"\\\\" else bytes([int(match[0][2:], 16)])

    return re.sub(rb"\\\\|\\x[0-9a-f]{2}", one, text.encode())


def content_of(entry: dict[str, Any]) -> bytes:
    """Return what an entry of a vector is hashed by."""
    if "content_base64" in entry:
        return base64.b64decode(entry["content_base64"])
    if entry["type"] == "symlink":
        return raw(entry["target"])
    if entry["type"] == "unreadable":
        return str(entry["of"]).encode()
    if entry["type"] in ("fifo", "socket", "char", "block"):
        return str(entry["type"]).encode()
    return str(entry["content"]).encode()


def tree_object(tree: dict[bytes, Any]) -> bytes:
    """Return the object of a nested dict of (type code, digest) and further dicts."""
    body = b"workseal-tree/1\0"
    for name in sorted(tree):
        node = tree[name]
        code, digest = (b"d", tree_digest(node)) if isinstance(node, dict) else node
        body += code + name + b"\0" + digest
    return body


def tree_digest(tree: dict[bytes, Any]) -> bytes:
    """Return the digest of a nested dict."""
    return hashlib.sha256(tree_object(tree)).digest()


def nested(entries: list[dict[str, Any]]) -> dict[bytes, Any]:
    """Return the nested dict of the entries of a vector that count."""
    tree: dict[bytes, Any] = {}
    for entry in entries:
        if entry.get("counts", True) is False:
            continue
        *parents, name = raw(entry["path"]).split(b"/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        if entry["type"] == "directory":
            place.setdefault(name, {})
        else:
            place[name] = (CODES.get(entry["type"], b"o"), hashlib.sha256(content_of(entry)).digest())
    return tree


def nonoka_digest(files: dict[str, bytes]) -> str:
    """Return the hex digest of relative path to content, all names counted."""
    lines = [f"{path}\0{hashlib.sha256(content).hexdigest()}" for path, content in files.items()]
    lines.sort(
        key=lambda line: [
            int.from_bytes(line.encode("utf-16-be")[i : i + 2]) for i in range(0, 2 * len(line), 2)
        ]
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def disk_tree(path: bytes) -> dict[bytes, Any]:
    """Return the nested dict of a directory on disk, built-in names left out."""
    tree: dict[bytes, Any] = {}
    for name in os.listdir(path):
        if name.decode("utf-8", "replace") in BUILTIN:
            continue
        full = path + b"/" + name
        mode = os.lstat(full).st_mode
        if stat.S_ISDIR(mode):
            tree[name] = disk_tree(full)
        elif stat.S_ISLNK(mode):
            tree[name] = (b"l", hashlib.sha256(os.readlink(full)).digest())
        elif stat.S_ISREG(mode):
            digest = hashlib.sha256(Path(os.fsdecode(full)).read_bytes()).digest()
            tree[name] = (b"x" if mode & 0o100 else b"f", digest)
        else:
            word = b"fifo" if stat.S_ISFIFO(mode) else b"socket"
            tree[name] = (b"o", hashlib.sha256(word).digest())
    return tree


def plant(root: Path, entries: list[dict[str, Any]]) -> None:
    """Make the entries of a vector on disk, but for unreadable ones and devices."""
    for entry in entries:
        path = os.fsencode(root) + b"/" + raw(entry["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        match entry["type"]:
            case "directory":
                os.makedirs(path, exist_ok=True)
            case "symlink":
                os.symlink(raw(entry["target"]), path)
            case "fifo":
                os.mkfifo(path)
            case "socket":
                bind_socket(path)
            case _:
                Path(os.fsdecode(path)).write_bytes(content_of(entry))
                os.chmod(path, 0o755 if entry["type"] == "executable" else 0o644)


def bind_socket(path: bytes) -> None:
    """Leave a socket file behind."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)
