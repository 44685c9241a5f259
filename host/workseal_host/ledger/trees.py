"""Stored trees: directory objects under their own digest.

A tree object is exactly the bytes that its digest is made of, so what is loaded
can be checked against its name, equal directories are stored once, and storing a
tree costs what changed in it: a directory that is stored has all below it stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workseal.errors import InvalidInputError
from workseal_host.errors import LedgerError, NotFoundError
from workseal_host.ledger.database import Connection
from workseal_host.workspace.model import (
    Directory,
    TreeEntry,
    leaf_from_code,
    make_directory,
    parse_tree_object,
    tree_object,
)

# Below the number of parameters that any SQLite accepts (999 in old ones).
_BATCH = 500
_MAX_KNOWN = 200_000


class TreeStore:
    """Which trees are stored, and how to store and load them."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._recent: list[Directory] = []

    async def store(self, db: Connection, tree: Directory) -> set[bytes]:
        """Store the directories of a tree that are not stored yet, within the caller's transaction.

        Returns:
            The digests that are stored if the transaction holds; give them to :meth:`committed` then.
        """
        stored: set[bytes] = set()
        level = [tree]
        while level:
            fresh = {
                each.digest: each
                for each in level
                if each.digest not in self._known and each.digest not in stored
            }
            present = await _present(db, list(fresh))
            new = [each for digest, each in fresh.items() if digest not in present]
            await db.run_many(
                "INSERT INTO trees VALUES (?, ?)", [(each.digest, tree_object(each)) for each in new]
            )
            stored.update(fresh)
            level = [node for each in new for node in each.entries.values() if isinstance(node, Directory)]
        return stored

    def committed(self, stored: set[bytes], tree: Directory) -> None:
        """Note that the transaction of a :meth:`store` holds."""
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        self._known |= stored
        self._recent = [tree, *(each for each in self._recent if each.digest != tree.digest)][:2]

    async def load(self, db: Connection, digest: bytes) -> Directory:
        """Load a stored tree, checking every object against its digest.

        Raises:
            NotFoundError: it is not stored.
            LedgerError: a part of it is missing or damaged.
        """
        for tree in self._recent:
            if tree.digest == digest:
                return tree
        objects = await _objects(db, digest)
        built: dict[bytes, Directory] = {}
        # Below before above: a directory was reached after every directory that it is in.
        for name in _bottom_up(digest, objects):
            built[name] = _rebuild(name, objects[name], built)
        return built[digest]


async def _present(db: Connection, digests: Sequence[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for part in _parts(digests):
        marks = ", ".join("?" * len(part))
        rows = await db.all(f"SELECT digest FROM trees WHERE digest IN ({marks})", part)  # noqa: S608 - marks
        found.update(bytes(row[0]) for row in rows)
    return found


def _parts(digests: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(digests), _BATCH):
        yield digests[start : start + _BATCH]


async def _objects(db: Connection, root: bytes) -> dict[bytes, list[TreeEntry]]:
    """Read every directory of a tree, a level at a time."""
    objects: dict[bytes, list[TreeEntry]] = {}
    level = [root]
    while level:
        for part in _parts(level):
            marks = ", ".join("?" * len(part))
            query = f"SELECT digest, body FROM trees WHERE digest IN ({marks})"  # noqa: S608 - only marks
            for digest, body in await db.all(query, part):
                objects[bytes(digest)] = _parsed(digest, body)
        _require(level, objects, root)
        below = {entry.digest for name in level for entry in objects[name] if entry.code == b"d"}
        level = [digest for digest in below if digest not in objects]
    return objects


def _require(level: Sequence[bytes], objects: dict[bytes, list[TreeEntry]], root: bytes) -> None:
    for digest in level:
        if digest in objects:
            continue
        if digest == root:
            raise NotFoundError(f"tree {digest.hex()} is not stored")
        raise _damaged(digest)


def _parsed(digest: bytes, body: bytes) -> list[TreeEntry]:
    try:
        return parse_tree_object(bytes(body))
    except InvalidInputError as error:
        raise _damaged(digest) from error


def _bottom_up(root: bytes, objects: dict[bytes, list[TreeEntry]]) -> Iterator[bytes]:
    done: set[bytes] = set()
    waiting = [(root, False)]
    while waiting:
        digest, below_done = waiting.pop()
        if digest in done:
            continue
        if below_done:
            done.add(digest)
            yield digest
            continue
        waiting.append((digest, True))
        waiting += [(entry.digest, False) for entry in objects[digest] if entry.code == b"d"]


def _rebuild(digest: bytes, entries: list[TreeEntry], built: dict[bytes, Directory]) -> Directory:
    try:
        directory = make_directory(
            (
                entry.name,
                built[entry.digest] if entry.code == b"d" else leaf_from_code(entry.code, entry.digest),
            )
            for entry in entries
        )
    except InvalidInputError as error:
        raise _damaged(digest) from error
    if directory.digest != digest:
        raise _damaged(digest)
    return directory


def _damaged(digest: bytes) -> LedgerError:
    return LedgerError(f"stored tree {digest.hex()} is damaged; restore the ledger from a backup")
