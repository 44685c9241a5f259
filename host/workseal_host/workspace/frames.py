"""The directories that a walk is in, and their descriptors.

Only the innermost directories are kept open, so that the depth of a tree is not
bounded by the number of descriptors. A directory that was closed is opened again on
the way back, and taken only if it is the very same directory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from workseal_host.workspace.ignore import RuleChain
from workseal_host.workspace.model import Node
from workseal_host.workspace.statcache import StatIdentity

MAX_OPEN: Final = 64

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Per name: inode number and whether it is a directory, as the listing says.
Listing = dict[bytes, tuple[int, bool]]


@dataclass(slots=True)
class Frame:
    """A directory that is being walked.

    Attributes:
        path: raw path; empty for the root.
        fd: descriptor, -1 while it is closed to save descriptors.
        identity: of the directory when it was opened.
        outer: the rules that its own rules file is added to.
        chain: the rules that hold in it.
        listing: what was listed last.
        nodes: what was found so far.
        waiting: subdirectories still to walk.
        missing: names that were listed but not there.
        rounds: how often it was listed again and differed.
        given_up: whether it will not be listed again.
    """

    path: bytes
    fd: int
    identity: StatIdentity
    outer: RuleChain
    chain: RuleChain
    listing: Listing = field(default_factory=dict)
    nodes: dict[bytes, Node] = field(default_factory=dict)
    waiting: list[bytes] = field(default_factory=list)
    missing: set[bytes] = field(default_factory=set)
    rounds: int = 0
    given_up: bool = False

    def join(self, name: bytes) -> bytes:
        """Return the raw path of an entry."""
        return self.path + b"/" + name if self.path else name

    @property
    def name(self) -> bytes:
        """The raw name within its directory."""
        return self.path.rpartition(b"/")[2]

    def close(self) -> None:
        """Close the descriptor, for now or for good."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def save_descriptors(stack: list[Frame]) -> None:
    """Close the directory that the newest one pushed out of the window; never the root."""
    if len(stack) > MAX_OPEN + 1:
        stack[-MAX_OPEN - 1].close()


def reopen(stack: list[Frame], child: Frame) -> None:
    """Open the innermost directory again; leaves it closed if it is no longer where it was.

    Args:
        stack: from the root, which is open, to the directory.
        child: the directory below it that the walk comes back from; open or not.
    """
    parent = stack[-1]
    if child.fd >= 0:
        parent.fd = _open_same(b"..", child.fd, parent.identity)
    if parent.fd >= 0:
        return
    nearest = max(index for index, frame in enumerate(stack) if frame.fd >= 0)
    fd = os.dup(stack[nearest].fd)
    for frame in stack[nearest + 1 :]:
        below = _open_same(frame.name, fd, frame.identity)
        os.close(fd)
        fd = below
        if fd < 0:
            return
    parent.fd = fd


def _open_same(name: bytes, parent_fd: int, identity: StatIdentity) -> int:
    """Open a directory if it is the expected one; else return -1."""
    try:
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except OSError:
        return -1
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) == (identity.device, identity.inode):
        return fd
    os.close(fd)
    return -1
