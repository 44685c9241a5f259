"""Other ways to the same directory: the mount table, and what else shows a directory that is to be hidden.

A directory can be visible at several places (bind mounts, one file system mounted twice). Hiding one
place alone hides nothing, so :func:`aliases` finds the others. Linux only; elsewhere there is no table.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_MOUNTINFO = "/proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table.

    Args:
        device: ``major:minor`` of the file system.
        root: the directory of the file system that is mounted.
        point: where it is mounted.
    """

    device: bytes
    root: bytes
    point: bytes


def parse_mounts(table: bytes) -> list[Mount]:
    """Parse the text of ``/proc/self/mountinfo`` (proc(5)), in mount order."""
    mounts = []
    for line in table.splitlines():
        fields = line.split(b" ")
        if len(fields) >= 5:
            mounts.append(Mount(fields[2], _unescape(fields[3]), _unescape(fields[4])))
    return mounts


def read_mounts() -> list[Mount]:
    """Return the mounts that this process sees; none where the system has no table."""
    try:
        with open(_MOUNTINFO, "rb") as file:
            return parse_mounts(file.read())
    except OSError:
        return []


def is_beneath(path: bytes, directory: bytes) -> bool:
    """Return whether a normal absolute path is ``directory`` or below it, component by component."""
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def aliases(path: bytes, mounts: list[Mount]) -> list[bytes]:
    """Return the other places where the directory ``path`` may be seen.

    Args:
        path: real path of the directory.
        mounts: the mount table, in mount order.

    Returns:
        Candidate paths; whether one exists and is the same directory is for the caller to see.
    """
    # The last mount at the longest mount point is the one that is seen there.
    holder = max(
        (item for item in enumerate(mounts) if is_beneath(path, item[1].point)),
        key=lambda item: (len(item[1].point), item[0]),
        default=None,
    )
    if holder is None:
        return []
    mount = holder[1]
    inner = _join(mount.root, _below(path, mount.point))
    found = []
    for other in mounts:
        if other.device == mount.device and is_beneath(inner, other.root):
            candidate = _join(other.point, _below(inner, other.root))
            if candidate != path:
                found.append(candidate)
    return found


def other_places(path: bytes) -> list[bytes]:
    """Return the other paths at which the directory ``path`` really is visible now."""
    status = os.stat(path)
    found = []
    for candidate in aliases(path, read_mounts()):
        try:
            other = os.stat(candidate)
        except OSError:
            continue
        if (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino):
            found.append(os.path.realpath(candidate))
    return sorted(set(found) - {path})


def _below(path: bytes, directory: bytes) -> bytes:
    return path[len(directory.rstrip(b"/")) :].lstrip(b"/")


def _join(directory: bytes, rest: bytes) -> bytes:
    return directory.rstrip(b"/") + b"/" + rest if rest else directory


def _unescape(field: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match.group(1), 8)]), field)
