"""Stored trees: directory objects under their own digest.

A tree object is exactly the bytes that its digest is made of, so what is loaded
can be checked against its name, equal directories are stored once, and storing a
tree costs what changed in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import aiosqlite

from workseal_host.errors import LedgerError, NotFoundError
from workseal_host.workspace.model import (
    Directory,
    TreeEntry,
    leaf_from_code,
    make_directory,
    parse_tree_object,
    tree_object,
)


def _new_directories(tree: Directory, known: set[bytes]) -> Iterator[Directory]:
    waiting = [tree]
    seen: set[bytes] = set()
    while waiting:
        directory = waiting.pop()
        if directory.digest in known or directory.digest in seen:
            continue
        seen.add(directory.digest)
        yield directory
        waiting.extend(node for node in directory.entries.values() if isinstance(node, Directory))


async def store_tree(db: aiosqlite.Connection, tree: Directory, known: set[bytes]) -> set[bytes]:
    """Store the directories of a tree that are not stored yet, within the caller's transaction.

    Args:
        db: connection with a transaction under way.
        tree: what to store.
        known: digests that are known to be stored, with all below them.

    Returns:
        The digests that were stored; add them to ``known`` once the transaction holds.
    """
    rows = [(directory.digest, tree_object(directory)) for directory in _new_directories(tree, known)]
    await db.executemany("INSERT OR IGNORE INTO trees VALUES (?, ?)", rows)
    return {digest for digest, _ in rows}


async def _body(db: aiosqlite.Connection, digest: bytes) -> bytes:
    async with db.execute("SELECT body FROM trees WHERE digest = ?", (digest,)) as cursor:
        row = await cursor.fetchone()
    if row is None:
        raise NotFoundError(f"tree {digest.hex()} is not stored")
    return bytes(row[0])


async def load_tree(db: aiosqlite.Connection, digest: bytes) -> Directory:
    """Load a stored tree, checking every object against its digest.

    Raises:
        NotFoundError: a part of it is not stored.
        LedgerError: a part of it is damaged.
    """
    entries: dict[bytes, list[TreeEntry]] = {}
    built: dict[bytes, Directory] = {}
    waiting = [digest]
    while waiting:
        name = waiting[-1]
        if name not in entries:
            entries[name] = parse_tree_object(await _body(db, name))
            waiting.extend(entry.digest for entry in entries[name] if entry.code == b"d")
            continue
        waiting.pop()
        if name not in built:
            built[name] = _rebuild(name, entries[name], built)
    return built[digest]


def _rebuild(digest: bytes, entries: list[TreeEntry], built: dict[bytes, Directory]) -> Directory:
    directory = make_directory(
        (entry.name, built[entry.digest] if entry.code == b"d" else leaf_from_code(entry.code, entry.digest))
        for entry in entries
    )
    if directory.digest != digest:
        raise LedgerError(f"stored tree {digest.hex()} is damaged; restore the ledger from a backup")
    return directory
