"""Which file systems have clocks that can prove a file unchanged.

On a local disk every write moves ctime by this kernel's clock, also a write through
a memory map that has ended. On a network file system another machine's clock stamps,
caches may answer stat, or ctime does not exist. On tmpfs a write through a map leaves
the times as they were. On all but the known file systems a scan therefore reads
everything. Unknown means no: also where there is no ``/proc`` to ask.
"""

from __future__ import annotations

import os
import re
from typing import Final

BEHAVING_FILE_SYSTEMS: Final = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay"))
_MOUNT_ID: Final = re.compile(rb"^mnt_id:\s*(\d+)$", re.MULTILINE)


def parse_mountinfo(data: bytes) -> dict[int, str]:
    """Return mount id to file system type, from the text of ``/proc/self/mountinfo`` (proc(5))."""
    types: dict[int, str] = {}
    for line in data.splitlines():
        fields = line.split(b" ")
        if b"-" in fields[6:]:
            types[int(fields[0])] = fields[fields.index(b"-", 6) + 1].decode("ascii", "replace")
    return types


def file_system_type(fd: int) -> str:
    """Return the type of the file system of an open descriptor; empty if it cannot be told.

    Device numbers would not do: subvolumes and layers have numbers that no mount table lists.
    """
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as info, open("/proc/self/mountinfo", "rb") as mounts:
            found = _MOUNT_ID.search(info.read())
            return "" if found is None else parse_mountinfo(mounts.read()).get(int(found[1]), "")
    except OSError:
        return ""


class ClockTrust:
    """Answers for one scan, by device number: may a stat identity prove a file unchanged there?"""

    def __init__(self) -> None:
        self._by_device: dict[int, bool] = {}

    def of_directory(self, fd: int, device: int) -> bool:
        """Return the answer for the file system of an open directory."""
        if device not in self._by_device:
            self._by_device[device] = file_system_type(fd) in BEHAVING_FILE_SYSTEMS
        return self._by_device[device]

    def of_entry(self, parent_fd: int, name: bytes, device: int) -> bool:
        """Return the answer for an entry, which may be a mount point of its own."""
        if device not in self._by_device:
            self._by_device[device] = _entry_is_trusted(parent_fd, name)
        return self._by_device[device]

    @property
    def any_trusted(self) -> bool:
        """Whether a stat could prove anything at all in what was met so far."""
        return any(self._by_device.values())


def _entry_is_trusted(parent_fd: int, name: bytes) -> bool:
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    except (OSError, AttributeError):
        return False
    try:
        return file_system_type(fd) in BEHAVING_FILE_SYSTEMS
    finally:
        os.close(fd)
