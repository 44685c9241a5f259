"""The root of a workspace, held by descriptor, and paths below it.

A root is resolved once and from then on named by (device, inode). Nothing here
decides by comparing path strings: a path below the root is opened one component
at a time, without following links, so neither a sibling with the same prefix nor
a link swapped in meanwhile leads outside.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType

from workseal.paths import escape_path
from workseal_host.errors import PathEscapesError, RootReplacedError, WorkspaceError

# Enough to reach what is below a directory that may be searched but not read.
_DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALWAYS_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR)


class WorkspaceRoot:
    """An open workspace.

    Attributes:
        path: real path, raw bytes; for messages and for starting processes in.
        device: device number of the root directory.
        inode: inode number of the root directory.
        fd: descriptor of the root directory, open until :meth:`close`.
    """

    def __init__(self, path: bytes, fd: int) -> None:
        """Take over an open directory; use :meth:`open` instead."""
        status = os.fstat(fd)
        self.path = path
        self.device = status.st_dev
        self.inode = status.st_ino
        self.fd = fd

    @classmethod
    def open(cls, path: str | bytes | os.PathLike[str]) -> WorkspaceRoot:
        """Resolve and open a workspace.

        Args:
            path: the directory; links, ``.``, ``..`` and trailing slashes are resolved here and never again.

        Raises:
            WorkspaceError: there is no such directory, or it may not be read.
        """
        given = os.fsencode(path)
        if not given:
            # realpath would make it the current directory: the digest of an unset variable is no digest.
            raise WorkspaceError("the workspace's name is empty; name a directory")
        real = os.path.realpath(given)
        try:
            fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(
                f"cannot open the workspace {escape_path(real)}: {error.strerror}; name a readable directory"
            ) from error
        return cls(real, fd)

    @property
    def path_text(self) -> str:
        """The real path in the escaped form."""
        return escape_path(self.path)

    def check(self) -> None:
        """Make sure that the path still names the directory that was opened.

        Raises:
            RootReplacedError: it does not.
        """
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            raise self._replaced(f"is gone ({error.strerror})") from error
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            raise self._replaced("is another directory now")

    def _replaced(self, what: str) -> RootReplacedError:
        return RootReplacedError(
            f"the workspace {self.path_text} {what}; stop this host and start it on the new one"
        )

    def open_dir(self, path: bytes = b"") -> int:
        """Open a directory below the root for listing.

        Args:
            path: raw relative path; empty for the root.

        Returns:
            A descriptor of its own, to be closed by the caller.

        Raises:
            PathEscapesError: as :func:`open_beneath`.
            OSError: as ``os.open``.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if not path:
            return os.open(b".", flags, dir_fd=self.fd)
        return open_beneath(self, path, flags)

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> WorkspaceRoot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def split_path(path: bytes) -> list[bytes]:
    """Return the components of a relative path.

    Raises:
        PathEscapesError: the path is empty, absolute, or has an empty, ``.`` or ``..`` component or a NUL.
    """
    names = path.split(b"/")
    if b"\0" in path or any(name in (b"", b".", b"..") for name in names):
        raise PathEscapesError(
            f"{escape_path(path)!r} is not a path below the workspace: write it relative to the root, "
            "without empty components, '.' or '..'",
            path=path,
        )
    return names


def open_parent(root: WorkspaceRoot, path: bytes) -> tuple[int, bytes]:
    """Open the directory that holds a path, following no link.

    Args:
        root: the workspace.
        path: raw relative path; its last component need not exist.

    Returns:
        A descriptor to pass as ``dir_fd``, to be closed by the caller, and the last component.

    Raises:
        PathEscapesError: the path leads through a link or a file, or is not below the root.
        OSError: as ``os.open``, such as FileNotFoundError.
    """
    *parents, last = split_path(path)
    fd = os.open(b".", _DIRECTORY_FLAGS, dir_fd=root.fd)
    for name in parents:
        try:
            below = os.open(name, _DIRECTORY_FLAGS, dir_fd=fd)
        except OSError as error:
            if error.errno in _LINK_ERRORS:
                raise _through_link(path) from error
            raise
        finally:
            os.close(fd)
        fd = below
    return fd, last


def open_beneath(root: WorkspaceRoot, path: bytes, flags: int, mode: int = 0o666) -> int:
    """Open a path below the root, following no link, not even a last one.

    Args:
        root: the workspace.
        path: raw relative path.
        flags: as for ``os.open``; ``O_NOFOLLOW``, ``O_CLOEXEC``, ``O_NOCTTY`` and ``O_NONBLOCK`` are
            added, so that a FIFO in the way cannot hang the host. Check with ``fstat`` what it is.
        mode: permissions of a created file, before the umask.

    Returns:
        A descriptor, to be closed by the caller.

    Raises:
        PathEscapesError: the path leads through a link, or is not below the root.
        OSError: as ``os.open``.
    """
    parent, name = open_parent(root, path)
    try:
        return os.open(name, flags | _ALWAYS_FLAGS, mode, dir_fd=parent)
    except OSError as error:
        if error.errno in _LINK_ERRORS and _is_link(parent, name):
            raise _through_link(path) from error
        raise
    finally:
        os.close(parent)


def _is_link(parent: int, name: bytes) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _through_link(path: bytes) -> PathEscapesError:
    return PathEscapesError(
        f"{escape_path(path)!r} leads through a link or a file: name the path without links", path=path
    )
