"""Writing a result into a file that the user named.

Invariants: a regular file is replaced in one step or left as it was; what is no
regular file (a FIFO, ``/dev/fd/3``) is written to and never replaced; where the name
leads is settled before anything runs, so that no tool can lead it elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workseal.errors import InvalidInputError, StoreError
from workseal_host.place import is_inside

_OWN_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/([0-9]+))")
_DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that the user named, and where that led when it was found.

    Attributes:
        path: the name as it was given, for messages.
        resolved: the file itself, its links followed.
        parent_fd: the directory that it is put into, held open; -1 for what is no regular file.
        identity: device and inode of what is no regular file; None for one of our own descriptors.
    """

    path: Path
    resolved: Path
    parent_fd: int = -1
    identity: tuple[int, int] | None = None

    @classmethod
    def find(cls, path: Path) -> OutputFile:
        """Find out, before anything runs, where a file would be written and whether it could be.

        Raises:
            InvalidInputError: it could not.
        """
        if os.fspath(path) == "-":
            raise InvalidInputError(
                "stdout has its own use here: name a file (/dev/fd/3 will do)", field="file"
            )
        if path.is_dir():
            raise InvalidInputError(f"{path} is a directory: name a file", field="file")
        resolved = Path(os.path.realpath(path))
        special = _is_special(path)
        target = path if special else resolved.parent
        if not os.access(target, os.W_OK):
            what = "is not writable" if target.exists() else "does not exist"
            raise InvalidInputError(f"cannot write {path}: {target} {what}", field="file")
        try:
            if special:
                is_own = _own_descriptor(path) is not None
                return cls(path, resolved, identity=None if is_own else _identity(os.stat(path)))
            return cls(path, resolved, os.open(target, _DIRECTORY_FLAGS))
        except OSError as error:
            raise InvalidInputError(f"cannot write {path}: {error.strerror}", field="file") from error

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all. To be done once.

        Raises:
            StoreError: it could not be written; a file that was there is as it was.
        """
        try:
            if self.parent_fd < 0:
                _write_into(self.path, self.identity, data)
                return
            try:
                _replace(self.parent_fd, self.resolved.name, data)
            finally:
                os.close(self.parent_fd)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    def lies_inside(self, root: str | bytes | Path) -> bool:
        """Tell whether the file lies in a directory, by identity and not by name."""
        with suppress(OSError):
            return is_inside(os.fsencode(self.resolved.parent), os.fsencode(root))
        return False


def _is_special(path: Path) -> bool:
    # A descriptor may lead to a regular file: replacing that would leave its holder with the old one.
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _own_descriptor(path: Path) -> int | None:
    own = _OWN_DESCRIPTOR.fullmatch(os.path.abspath(path))
    return None if own is None else {"stdout": 1, "stderr": 2}.get(own[1]) or int(own[2])


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _write_into(path: Path, identity: tuple[int, int] | None, data: bytes) -> None:
    own = _own_descriptor(path)
    if own is not None:
        # Opened by its name, a descriptor of a regular file would begin at its start again.
        _write_all(own, data)
        return
    # Looked at before it is opened: what was swapped in may be a FIFO that nobody reads.
    _require_same(path, identity, os.stat(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _require_same(path, identity, os.fstat(descriptor))
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _require_same(path: Path, identity: tuple[int, int] | None, status: os.stat_result) -> None:
    if _identity(status) != identity:
        raise StoreError(f"cannot write {path}: it is not what it was when the call began")


def _replace(parent_fd: int, name: str, data: bytes) -> None:
    # By the directory that was opened before the tool ran, and over whatever bears the name now: a link
    # or FIFO that a tool put there is replaced, and leads nowhere.
    temporary = f".{name[:64]}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666, dir_fd=parent_fd)
    try:
        try:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent_fd)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
