"""The two digest schemes, and what each of them sees of a tree.

``workseal-tree/1`` is the tree's own digest. ``nonoka/1`` is the digest of the
nonoka framework's own host: a sorted list of regular files. Both are written out
in ``docs/digest.md``. Digests of different schemes are never compared. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum

from workseal.paths import escape_path
from workseal_host.errors import DigestSchemeError
from workseal_host.workspace.model import Directory, EntryType, Leaf, Node


class DigestScheme(StrEnum):
    """Names of the schemes, as in receipts."""

    WORKSEAL_TREE_1 = "workseal-tree/1"
    NONOKA_1 = "nonoka/1"


def project(tree: Directory, scheme: DigestScheme) -> Directory:
    """Return what a scheme sees of a tree.

    Args:
        tree: as it was scanned.
        scheme: ``workseal-tree/1`` sees everything; ``nonoka/1`` sees regular files, executable or not, and
            the directories that hold one.

    Raises:
        DigestSchemeError: something in the tree has no form under the scheme: under ``nonoka/1`` an entry
            that could not be read, or a file whose path is not UTF-8.
    """
    if scheme is DigestScheme.WORKSEAL_TREE_1:
        return tree
    done: dict[int, Directory] = {}
    stack: list[tuple[bytes, Directory, bool]] = [(b"", tree, False)]
    while stack:
        path, directory, children_done = stack.pop()
        if children_done:
            done[id(directory)] = _project_directory(path, directory, done)
            continue
        stack.append((path, directory, True))
        stack.extend(
            (_join(path, name), node, False)
            for name, node in directory.entries.items()
            if isinstance(node, Directory)
        )
    return done[id(tree)]


def _project_directory(path: bytes, directory: Directory, done: dict[int, Directory]) -> Directory:
    kept: dict[bytes, Node] = {}
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            projected = done[id(node)]
            if projected.entries:
                kept[name] = projected
        elif node.type is EntryType.UNREADABLE:
            raise _no_form(
                _join(path, name), "could not be read: give the host the right to read it, or ignore it"
            )
        elif node.type in (EntryType.FILE, EntryType.EXECUTABLE):
            kept[name] = Leaf(EntryType.FILE, node.digest)
    for name in kept:
        _check_name(_join(path, name), name)
    return Directory(kept)


def _check_name(path: bytes, name: bytes) -> None:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _no_form(path, "has a name that is not UTF-8: rename it, or use workseal-tree/1") from error


def _no_form(path: bytes, why: str) -> DigestSchemeError:
    return DigestSchemeError(f"nonoka/1 has no form for {escape_path(path)}, which {why}", path=path)


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def workspace_digest(tree: Directory, scheme: DigestScheme) -> bytes:
    """Return the digest of a workspace under a scheme.

    Args:
        tree: as it was scanned, or already projected onto the scheme.

    Returns:
        32 bytes of SHA-256.

    Raises:
        DigestSchemeError: as :func:`project`.
    """
    if scheme is DigestScheme.WORKSEAL_TREE_1:
        return tree.digest
    # JavaScript compares strings by UTF-16 code unit, so U+1F600 comes before U+FFFD.
    files = sorted(_files(project(tree, scheme)), key=lambda each: each[0].encode("utf-16-be"))
    lines = "\n".join(f"{path}\0{digest.hex()}" for path, digest in files)
    return hashlib.sha256(lines.encode("utf-8")).digest()


def _files(tree: Directory) -> Iterator[tuple[str, bytes]]:
    stack = [("", tree)]
    while stack:
        prefix, directory = stack.pop()
        for name, node in directory.entries.items():
            path = prefix + name.decode("utf-8")
            if isinstance(node, Directory):
                stack.append((path + "/", node))
            else:
                yield path, node.digest
