"""What a tool may know of the workspace before it runs: the tree as scanned, and what is ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import Directory, Node, lookup
from workseal_host.workspace.root import WorkspaceRoot


class WorkspaceView(Protocol):
    """The before-state of a workspace, as far as tools need it."""

    @property
    def root(self) -> WorkspaceRoot:
        """The root, for reading the present content."""
        ...

    def lookup(self, path: bytes) -> EntryState | None:
        """Return the state of a raw path in the before-tree; None where there is nothing."""
        ...

    def is_ignored(self, path: bytes, is_dir: bool) -> bool:
        """Return whether a path whose parents are not ignored is ignored."""
        ...


class TreeView:
    """A :class:`WorkspaceView` over a scanned tree.

    Args:
        root: the workspace's root.
        tree: the tree before the call.
        is_ignored: the ignore rules in force before the call.
    """

    def __init__(
        self, root: WorkspaceRoot, tree: Directory, is_ignored: Callable[[bytes, bool], bool]
    ) -> None:
        self._root = root
        self._tree = tree
        self._is_ignored = is_ignored

    @property
    def root(self) -> WorkspaceRoot:
        """The root, for reading the present content."""
        return self._root

    def lookup(self, path: bytes) -> EntryState | None:
        """Return the state of a raw path in the before-tree; None where there is nothing."""
        node: Node | None = lookup(self._tree, path)
        return None if node is None else EntryState(node.type, node.digest)

    def is_ignored(self, path: bytes, is_dir: bool) -> bool:
        """Return whether a path whose parents are not ignored is ignored."""
        return self._is_ignored(path, is_dir)


def ignored_part(view: WorkspaceView, path: bytes) -> bytes | None:
    """Return the first component path of ``path`` that is ignored; None where nothing is."""
    parts = path.split(b"/")
    for count in range(1, len(parts) + 1):
        prefix = b"/".join(parts[:count])
        if view.is_ignored(prefix, count < len(parts)):
            return prefix
    return None
