"""Everything in a workspace but directories: from a name to a leaf.

This is where a stat may stand for a read, and where it is decided what the cache may
keep: only what held still, on a clock that behaves, and not racily clean.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from workseal.paths import escape_path
from workseal_host.errors import WorkspaceError
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.limits import Progress
from workseal_host.workspace.model import EntryType, Leaf, special_leaf, unreadable_leaf
from workseal_host.workspace.mounts import ClockTrust
from workseal_host.workspace.reading import EntryChangedError, Hash, hash_file
from workseal_host.workspace.statcache import StatCache, StatIdentity, is_quiet_since

_SPECIAL_TYPES: Final = {
    stat.S_IFIFO: EntryType.FIFO,
    stat.S_IFSOCK: EntryType.SOCKET,
    stat.S_IFCHR: EntryType.CHAR,
    stat.S_IFBLK: EntryType.BLOCK,
}


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """How to walk.

    Args:
        policy: rules to go by; None to read the rules on the way.
        config: the configured patterns, where rules are read on the way.
        cache: where digests are kept.
        use_cache: whether a stat may stand for a read; if not, the cache is only filled.
        rules_only: whether to read nothing but rules files.
        new_hash: makes the hash of file contents and link texts.
        start_ns: the file clock at the start of the scan.
        progress: says whether to go on; None for a walk without limits.
    """

    policy: IgnorePolicy | None
    config: tuple[str, ...]
    cache: StatCache
    use_cache: bool
    rules_only: bool = False
    new_hash: Callable[[], Hash] = hashlib.sha256
    start_ns: int = 0
    progress: Progress | None = None

    def tick(self, path: bytes) -> None:
        """Go on, or not.

        Raises:
            WorkspaceError: the scan is to stop.
        """
        if self.progress is not None:
            self.progress.check(path)

    def met_file(self) -> None:
        """Count a file, for who watches."""
        if self.progress is not None:
            self.progress.met_file()

    def read(self, size: int, path: bytes) -> None:
        """Count bytes that were read, and go on or not.

        Raises:
            WorkspaceError: the scan is to stop.
        """
        if self.progress is not None:
            self.progress.read(size, path)

    def is_too_large(self, size: int) -> bool:
        """Return whether a file of that size is not to be read."""
        return self.progress is not None and size > self.progress.limits.max_file_bytes


class LeafReader:
    """Reads leaves for one walk.

    Attributes:
        trust: what is known of the clocks that were met.
        unreadable: raw paths that could not be read.
        unstable: raw paths that would not hold still.
    """

    def __init__(self, options: WalkOptions) -> None:
        self._options = options
        self.trust = ClockTrust()
        self.unreadable: set[bytes] = set()
        self.unstable: set[bytes] = set()

    def read(self, parent_fd: int, path: bytes, name: bytes, status: os.stat_result) -> Leaf:
        """Return the leaf of an entry that is no directory.

        Args:
            parent_fd: descriptor of its directory.
            path: its raw path below the root.
            name: its raw name.
            status: of the entry itself, taken just now.

        Raises:
            EntryChangedError: it is of another type by now.
            WorkspaceError: it is of a type that has no form.
            OSError: it is gone, or cannot be read for another reason than a lack of rights.
        """
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFREG:
            return self._file(parent_fd, path, name, StatIdentity.of(status))
        if kind == stat.S_IFLNK:
            return Leaf(EntryType.SYMLINK, self.hash(_read_link(parent_fd, name)))
        if kind in _SPECIAL_TYPES:
            return special_leaf(_SPECIAL_TYPES[kind])
        raise WorkspaceError(f"{escape_path(path)} is of a type unknown here: remove or ignore it", path=path)

    def _file(self, parent_fd: int, path: bytes, name: bytes, identity: StatIdentity) -> Leaf:
        trusted = self.trust.of_entry(parent_fd, name, identity.device)
        if self._options.use_cache and trusted:
            known = self._options.cache.get(identity)
            if known is not None:
                self._options.met_file()
                return _file_leaf(identity, known)
        if self._options.is_too_large(identity.size):
            self.unreadable.add(path)
            return unreadable_leaf(EntryType.FILE)
        try:
            reading = hash_file(
                parent_fd, name, self._options.new_hash, lambda size: self._options.read(size, path)
            )
        except PermissionError:
            self.unreadable.add(path)
            return unreadable_leaf(EntryType.FILE)
        self._options.met_file()
        if not reading.settled:
            self.unstable.add(path)
        elif trusted and is_quiet_since(reading.identity, self._options.start_ns):
            self._options.cache.put(reading.identity, reading.digest)
        return _file_leaf(reading.identity, reading.digest)

    def hash(self, data: bytes) -> bytes:
        """Return the digest of some bytes."""
        content = self._options.new_hash()
        content.update(data)
        return content.digest()


def _file_leaf(identity: StatIdentity, digest: bytes) -> Leaf:
    return Leaf(EntryType.EXECUTABLE if identity.executable else EntryType.FILE, digest)


def _read_link(parent_fd: int, name: bytes) -> bytes:
    try:
        return os.readlink(name, dir_fd=parent_fd)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise EntryChangedError from error
        raise
