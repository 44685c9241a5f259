"""What a scan may cost: no tool can make the host read for ever.

A sparse file of terabytes is one system call away and would take hours to hash. A
file above the limit counts as unreadable, which the receipt lists; a scan that
takes too long, or is told to stop, observes nothing at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from workseal.paths import escape_path
from workseal_host.errors import WorkspaceError

DEFAULT_MAX_FILE_BYTES: Final = 16 * 1024**3
DEFAULT_SCAN_TIMEOUT_S: Final = 300.0


@dataclass(slots=True)
class ScanCounts:
    """What scans have met so far; written by the scanning thread, read by whoever shows it."""

    files: int = 0
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The limits of every scan of one workspace.

    Args:
        max_file_bytes: a larger file is not read, by its apparent size.
        timeout_s: how long one scan may take, in seconds.
        stopped: set to end the scan that runs, and every later one.
        clock: monotonic clock in seconds.
        counts: how far the scans have come.
    """

    max_file_bytes: int
    timeout_s: float
    stopped: threading.Event
    clock: Callable[[], float] = time.monotonic
    counts: ScanCounts = field(default_factory=ScanCounts)

    @classmethod
    def of(
        cls, *, max_file_bytes: int = DEFAULT_MAX_FILE_BYTES, timeout_s: float = DEFAULT_SCAN_TIMEOUT_S
    ) -> ScanLimits:
        """Return limits that nothing has stopped yet."""
        return cls(max_file_bytes, timeout_s, threading.Event())

    def start(self) -> Progress:
        """Return the progress of a scan that begins now."""
        return Progress(self, self.clock() + self.timeout_s)


@dataclass(frozen=True, slots=True)
class Progress:
    """One scan on its way."""

    limits: ScanLimits
    until: float

    def met_file(self) -> None:
        """Count a file that was read, or known without."""
        self.limits.counts.files += 1

    def read(self, size: int, path: bytes) -> None:
        """Count bytes that were read, and go on or not.

        Raises:
            WorkspaceError: the scan is to stop.
        """
        self.limits.counts.read_bytes += size
        self.check(path)

    def check(self, path: bytes) -> None:
        """Go on, or not.

        Args:
            path: what is being read, for the message.

        Raises:
            WorkspaceError: the scan is to stop.
        """
        if self.limits.stopped.is_set():
            raise WorkspaceError("the scan was stopped, because the host is stopping", path=path)
        if self.limits.clock() > self.until:
            raise WorkspaceError(
                f"the scan took longer than {self.limits.timeout_s:g} s and was at"
                f" {escape_path(path) or '.'}: remove or ignore what is large, or raise scan_timeout_s",
                path=path,
            )
