"""What a scan may remember of the scans before it.

A digest is remembered under the *stat identity* of the file that was read: device,
inode, type and mode, size, mtime and ctime. Paths and ignore rules are no part
of it, so a change of rules cannot make an entry wrong. What is stored is only what
the racily-clean rule allows: a file that was touched shortly before, or during, the
scan that read it could be touched again without its times showing it.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Final, NamedTuple, Protocol

_SECOND_NS: Final = 1_000_000_000
# Several ticks of the slowest kernel clock that stamps files (100 Hz).
SLACK_NS: Final = 50_000_000
# For file systems that keep whole seconds: their times end in nine zeros.
WHOLE_SECOND_SLACK_NS: Final = 2 * _SECOND_NS


class StatIdentity(NamedTuple):
    """What proves a file unchanged, if its file system's clock behaves; times in ns."""

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> StatIdentity:
        """Return the identity of a stat result."""
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )

    @property
    def executable(self) -> bool:
        """Whether the owner may execute the file."""
        return bool(self.mode & stat.S_IXUSR)


class StatCache(Protocol):
    """Digests of files by stat identity. Used by one scan at a time."""

    def begin(self) -> None:
        """Start a scan."""

    def get(self, identity: StatIdentity) -> bytes | None:
        """Return the digest that was stored under an identity, if any."""

    def put(self, identity: StatIdentity, digest: bytes) -> None:
        """Store a digest; the scanner has applied the racily-clean rule."""

    def finish(self) -> None:
        """End a scan that went through: what it neither got nor put may be dropped."""


class MemoryStatCache:
    """A cache that lives as long as the process, bounded by the size of the workspace."""

    def __init__(self) -> None:
        self._known: dict[StatIdentity, bytes] = {}
        self._used: dict[StatIdentity, bytes] = {}

    def begin(self) -> None:
        """Start a scan; what an abandoned one stored is kept."""
        self._known |= self._used
        self._used = {}

    def get(self, identity: StatIdentity) -> bytes | None:
        """Return the digest that was stored under an identity, if any."""
        digest = self._used.get(identity) or self._known.get(identity)
        if digest is not None:
            self._used[identity] = digest
        return digest

    def put(self, identity: StatIdentity, digest: bytes) -> None:
        """Store a digest."""
        self._used[identity] = digest

    def finish(self) -> None:
        """Drop what the scan did not meet."""
        self._known = self._used
        self._used = {}


def file_clock_ns() -> int:
    """Return the time as the kernel stamps files with it, in ns since the epoch."""
    clock = getattr(time, "CLOCK_REALTIME_COARSE", None)
    return time.time_ns() if clock is None else time.clock_gettime_ns(clock)


def is_quiet_since(identity: StatIdentity, scan_start_ns: int) -> bool:
    """Return whether an entry was last touched safely before a scan started.

    Args:
        identity: as it was when the scan read the entry.
        scan_start_ns: :func:`file_clock_ns` at the start of that scan.
    """
    slack_ns = WHOLE_SECOND_SLACK_NS if identity.ctime_ns % _SECOND_NS == 0 else SLACK_NS
    return max(identity.mtime_ns, identity.ctime_ns) < scan_start_ns - slack_ns
