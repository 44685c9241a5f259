"""The tree of a workspace, and its form as bytes.

A tree is made of :class:`Leaf` and :class:`Directory`. Both are immutable, and a
directory's digest is computed when it is made, so a digest can never belong to
other entries. Pure: nothing here touches a file.

The byte form is ``workseal-tree/1``, written out in ``docs/digest.md``. All
functions are iterative: a tree may be thousands of levels deep.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from workseal.errors import InvalidInputError

TREE_HEADER: Final = b"workseal-tree/1\0"
DIGEST_BYTES: Final = 32


class EntryType(StrEnum):
    """What an entry is; the words are those of receipts and manifests."""

    FILE = "file"
    EXECUTABLE = "executable"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    FIFO = "fifo"
    SOCKET = "socket"
    CHAR = "char"
    BLOCK = "block"
    UNREADABLE = "unreadable"

    @property
    def code(self) -> bytes:
        """The type byte in a tree object."""
        return _CODES[self]


_CODES: Final[Mapping[EntryType, bytes]] = {
    EntryType.FILE: b"f",
    EntryType.EXECUTABLE: b"x",
    EntryType.SYMLINK: b"l",
    EntryType.DIRECTORY: b"d",
    EntryType.FIFO: b"o",
    EntryType.SOCKET: b"o",
    EntryType.CHAR: b"o",
    EntryType.BLOCK: b"o",
    EntryType.UNREADABLE: b"u",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """An entry without entries of its own.

    Args:
        type: anything but ``DIRECTORY``.
        digest: 32 bytes of SHA-256: of the content, of the link text, or of the word that ``o`` and ``u``
            entries are hashed by.
    """

    type: EntryType
    digest: bytes


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory; equal to another one exactly if their digests are equal.

    Args:
        entries: raw name to node. Kept in order of the raw names.
    """

    entries: Mapping[bytes, Node] = field(compare=False, repr=False)
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", MappingProxyType(dict(sorted(self.entries.items()))))
        object.__setattr__(self, "digest", hashlib.sha256(tree_object(self)).digest())

    @property
    def type(self) -> EntryType:
        """Always ``DIRECTORY``."""
        return EntryType.DIRECTORY


Node = Leaf | Directory


def special_leaf(entry_type: EntryType) -> Leaf:
    """Return the leaf of a FIFO, socket or device, which is hashed by its word alone."""
    return _SPECIAL[entry_type]


def unreadable_leaf(what: EntryType) -> Leaf:
    """Return the leaf of a file or directory that could not be read.

    Args:
        what: ``DIRECTORY`` for a directory, any other type for a file.
    """
    return _UNREADABLE_DIRECTORY if what is EntryType.DIRECTORY else _UNREADABLE_FILE


def _word_leaf(entry_type: EntryType, word: str) -> Leaf:
    return Leaf(entry_type, hashlib.sha256(word.encode()).digest())


_SPECIAL: Final = {
    entry_type: _word_leaf(entry_type, entry_type.value)
    for entry_type in (EntryType.FIFO, EntryType.SOCKET, EntryType.CHAR, EntryType.BLOCK)
}
_UNREADABLE_FILE: Final = _word_leaf(EntryType.UNREADABLE, "file")
_UNREADABLE_DIRECTORY: Final = _word_leaf(EntryType.UNREADABLE, "directory")
_BY_WORD: Final = {
    (leaf.type.code, leaf.digest): leaf
    for leaf in (*_SPECIAL.values(), _UNREADABLE_FILE, _UNREADABLE_DIRECTORY)
}
_BY_CODE: Final = {
    entry_type.code: entry_type for entry_type in (EntryType.FILE, EntryType.EXECUTABLE, EntryType.SYMLINK)
}


class TreeEntry(NamedTuple):
    """One entry of a tree object: type byte, raw name, 32-byte digest."""

    code: bytes
    name: bytes
    digest: bytes


def leaf_from_code(code: bytes, digest: bytes) -> Leaf:
    """Return the leaf of a tree object's entry.

    Args:
        code: the type byte; not that of a directory.
        digest: 32 bytes; of ``o`` and ``u`` entries it tells which word they are hashed by.

    Raises:
        InvalidInputError: no leaf has that code and digest.
    """
    if (entry_type := _BY_CODE.get(code)) is not None:
        return Leaf(entry_type, digest)
    if (leaf := _BY_WORD.get((code, digest))) is not None:
        return leaf
    raise InvalidInputError(f"an entry of type {code!r} has the digest of no known word")


def tree_object(directory: Directory) -> bytes:
    """Return the byte form that a directory's digest is the SHA-256 of."""
    parts = [TREE_HEADER]
    for name, node in directory.entries.items():
        parts += (node.type.code, name, b"\0", node.digest)
    return b"".join(parts)


def parse_tree_object(data: bytes) -> list[TreeEntry]:
    """Read a tree object back.

    Args:
        data: what :func:`tree_object` made.

    Raises:
        InvalidInputError: the bytes are not exactly the form of some directory.
    """
    if not data.startswith(TREE_HEADER):
        raise InvalidInputError("not a workseal-tree/1 object: the header is missing")
    entries: list[TreeEntry] = []
    position = len(TREE_HEADER)
    while position < len(data):
        end_of_name = data.find(b"\0", position + 1)
        end = end_of_name + 1 + DIGEST_BYTES
        if end_of_name < 0 or end > len(data):
            raise InvalidInputError(f"tree object is cut off in the entry at byte {position}")
        entry = TreeEntry(
            data[position : position + 1], data[position + 1 : end_of_name], data[end_of_name + 1 : end]
        )
        _check_entry(entry, entries[-1].name if entries else b"")
        entries.append(entry)
        position = end
    return entries


def _check_entry(entry: TreeEntry, previous_name: bytes) -> None:
    if entry.code not in _CODES.values():
        raise InvalidInputError(f"tree object has an entry of unknown type {entry.code!r}")
    if entry.name in (b"", b".", b"..") or b"/" in entry.name:
        raise InvalidInputError(f"tree object has an impossible name {entry.name!r}")
    if entry.name <= previous_name:
        raise InvalidInputError(f"tree object is not sorted at {entry.name!r}")


def make_directory(entries: Iterable[tuple[bytes, Node]]) -> Directory:
    """Return the directory of some (raw name, node) pairs, in any order."""
    return Directory(dict(entries))


def iter_directories(tree: Directory) -> Iterator[Directory]:
    """Yield the tree and every directory below it, in no particular order, each as often as it occurs."""
    stack = [tree]
    while stack:
        directory = stack.pop()
        yield directory
        stack.extend(node for node in directory.entries.values() if isinstance(node, Directory))


def count_entries(directory: Directory) -> int:
    """Return how many entries are below a directory, itself not counted."""
    return sum(len(each.entries) for each in iter_directories(directory))


def lookup(directory: Directory, path: bytes) -> Node | None:
    """Return the node at a path below a directory, or None.

    Args:
        directory: where the path starts.
        path: components joined by ``/``; empty for the directory itself.
    """
    node: Node | None = directory
    for name in path.split(b"/") if path else ():
        if not isinstance(node, Directory):
            return None
        node = node.entries.get(name)
    return node
