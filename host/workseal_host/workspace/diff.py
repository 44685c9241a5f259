"""What changed between two trees.

The comparison descends only where digests differ, so it costs what the change
costs. Directories are listed only when they themselves appear or vanish; a change
of type is one ``modified``, plus what is created or deleted below the path. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from workseal_host.workspace.manifest import iter_entries
from workseal_host.workspace.model import Directory, EntryType, Node

ChangeKind = Literal["created", "modified", "deleted"]


@dataclass(frozen=True, slots=True)
class EntryState:
    """What one path is.

    Args:
        type: type of the entry.
        digest: 32 bytes: content, link text, word or tree object, by type.
    """

    type: EntryType
    digest: bytes

    @classmethod
    def of(cls, node: Node | None) -> EntryState | None:
        """Return the state of a node, None for none."""
        return None if node is None else cls(node.type, node.digest)


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs.

    Args:
        kind: on which side the path is.
        path: raw path below the root.
        before: None exactly if created.
        after: None exactly if deleted.
    """

    kind: ChangeKind
    path: bytes
    before: EntryState | None
    after: EntryState | None


def diff(before: Directory, after: Directory, *, list_directories: bool = True) -> list[Change]:
    """Return what leads from one tree to another.

    Args:
        before: the earlier tree.
        after: the later tree, projected onto the same scheme.
        list_directories: False for schemes that know no directories; then a directory that turns into a file
            is what was deleted below it and one created file.

    Returns:
        Changes sorted by raw path bytes; empty exactly if the trees hold the same listed entries.
    """
    changes: list[Change] = []
    stack: list[tuple[bytes, Directory, Directory]] = [(b"", before, after)]
    while stack:
        prefix, old, new = stack.pop()
        if old.digest == new.digest:
            continue
        for name in old.entries.keys() | new.entries.keys():
            old_node, new_node = old.entries.get(name), new.entries.get(name)
            path = prefix + name
            if isinstance(old_node, Directory) and isinstance(new_node, Directory):
                stack.append((path + b"/", old_node, new_node))
            elif old_node != new_node:
                changes += _replaced(path, old_node, new_node, list_directories)
    return sorted(changes, key=lambda change: change.path)


def _replaced(path: bytes, old: Node | None, new: Node | None, list_directories: bool) -> Iterable[Change]:
    """Yield the change at a path of which at most one side is a directory, and those below it."""
    for node, kind in ((old, "deleted"), (new, "created")):
        if isinstance(node, Directory):
            for below, each in iter_entries(node):
                if list_directories or not isinstance(each, Directory):
                    yield _one_sided(kind, path + b"/" + below, each)
    if not list_directories:
        old = None if isinstance(old, Directory) else old
        new = None if isinstance(new, Directory) else new
    if old is not None and new is not None:
        yield Change("modified", path, EntryState.of(old), EntryState.of(new))
    elif old is not None:
        yield _one_sided("deleted", path, old)
    elif new is not None:
        yield _one_sided("created", path, new)


def _one_sided(kind: str, path: bytes, node: Node) -> Change:
    state = EntryState.of(node)
    return Change("created", path, None, state) if kind == "created" else Change("deleted", path, state, None)
