"""Reading one file so that its hash is that of something which was really there.

A file is hashed from one open descriptor with its stat taken before and after. If
the two differ it is read again, a bounded number of times.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from workseal_host.workspace.statcache import StatIdentity

BLOCK_BYTES: Final = 256 * 1024
MAX_READS: Final = 4

# O_NONBLOCK: a FIFO swapped in after the stat must not hang the host.
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_OTHER_TYPE_ERRORS: Final = (
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
)


class EntryChangedError(Exception):
    """The entry is no longer of the type it was listed as: look again."""


class Hash(Protocol):
    """What is used of a hashlib object."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """Return the digest of all bytes added."""


class Reading(NamedTuple):
    """What one read of a file gave.

    Attributes:
        digest: of the content; if not settled, of no more bytes than the file had when it was opened.
        identity: stat identity of the descriptor that was read, before the read.
        settled: whether the file held still meanwhile.
    """

    digest: bytes
    identity: StatIdentity
    settled: bool


def open_file(parent_fd: int, name: bytes) -> tuple[int, StatIdentity]:
    """Open a regular file for reading.

    Raises:
        EntryChangedError: it is no regular file.
        FileNotFoundError: it is gone.
        PermissionError: it may not be read.
    """
    try:
        fd = os.open(name, FILE_FLAGS, dir_fd=parent_fd)
    except OSError as error:
        if error.errno in _OTHER_TYPE_ERRORS:
            raise EntryChangedError from error
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise EntryChangedError
    return fd, StatIdentity.of(status)


def hash_file(
    parent_fd: int, name: bytes, new_hash: Callable[[], Hash], tick: Callable[[int], None] = lambda _: None
) -> Reading:
    """Read a file until it holds still, at most ``MAX_READS`` times.

    Args:
        parent_fd: descriptor of its directory.
        name: its raw name.
        new_hash: makes an empty hash.
        tick: called with the size of each block that was read; what it raises ends the reading.

    Raises:
        EntryChangedError: it is no regular file.
        FileNotFoundError: it is gone.
        PermissionError: it may not be read.
    """
    for _ in range(MAX_READS):
        reading = _read_once(parent_fd, name, new_hash(), tick)
        if reading.settled:
            break
    return reading


def _read_once(
    parent_fd: int, name: bytes, content: Hash, tick: Callable[[int], None] = lambda _: None
) -> Reading:
    fd, identity = open_file(parent_fd, name)
    try:
        complete = _feed(fd, identity.size, content, tick)
        settled = complete and StatIdentity.of(os.fstat(fd)) == identity
        return Reading(content.digest(), identity, settled)
    finally:
        os.close(fd)


def _feed(fd: int, size: int, content: Hash, tick: Callable[[int], None]) -> bool:
    """Hash up to the end of the file; return False if it grows, which might never end."""
    done = 0
    while block := os.read(fd, BLOCK_BYTES):
        if done + len(block) > size and os.fstat(fd).st_size != size:
            content.update(block[: max(0, size - done)])
            return False
        content.update(block)
        done += len(block)
        tick(len(block))
    return True


def read_small(parent_fd: int, name: bytes, max_bytes: int) -> bytes | None:
    """Return the content of a small file that holds still; None if it is larger than ``max_bytes``.

    Raises:
        EntryChangedError: it is no regular file, or it does not hold still.
        FileNotFoundError: it is gone.
        PermissionError: it may not be read.
    """
    for _ in range(MAX_READS):
        collected = _Collected(max_bytes)
        reading = _read_once(parent_fd, name, collected)
        if reading.identity.size > max_bytes or len(collected.data) > max_bytes:
            return None
        if reading.settled:
            return bytes(collected.data)
    raise EntryChangedError


class _Collected:
    """Keeps bytes in place of hashing them, one more than allowed at most."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.data = bytearray()

    def update(self, data: bytes, /) -> None:
        self.data += data[: self._max_bytes + 1 - len(self.data)]

    def digest(self) -> bytes:
        return b""
