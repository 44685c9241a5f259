"""What the file tools do to files: beneath the root, durable, and with no other file in sight.

Invariants: every path is opened one component at a time through no link; no temporary file ever appears
in the workspace; an existing file keeps its inode, mode, owner and hard links; file and directory are
fsynced; on a failure the old content is put back, or the error says that it could not be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from workseal.paths import escape_path
from workseal_host.errors import HostError, PathEscapesError
from workseal_host.workspace.root import WorkspaceRoot, open_beneath, open_parent, split_path

MAX_FILE_BYTES = 64 * 1024 * 1024
_DIRECTORY_MODE = 0o755
_NO_TEMPORARY_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class FileOperationError(HostError):
    """A file tool did not do what it was asked to; the message is for the model."""


@contextlib.contextmanager
def explained(path: bytes) -> Iterator[None]:
    """Turn the system's errors about ``path`` into errors for the model."""
    try:
        yield
    except PathEscapesError as error:
        raise FileOperationError(str(error)) from error
    except OSError as error:
        raise FileOperationError(f"{escape_path(path)}: {error.strerror or error}") from error


def read_file(root: WorkspaceRoot, path: bytes, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file.

    Args:
        root: the workspace.
        path: raw relative path.
        limit: size in bytes from which on the file is refused.

    Raises:
        FileOperationError: there is no such file, it is not a regular one, or it is too large.
    """
    with explained(path):
        # open_beneath adds O_NONBLOCK: a FIFO must not hang the host.
        descriptor = open_beneath(root, path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            _require_regular(descriptor, path)
            data = file.read(limit + 1)
    if len(data) > limit:
        raise FileOperationError(f"{escape_path(path)} is larger than {limit} bytes")
    return data


def write_existing(
    root: WorkspaceRoot, path: bytes, content: bytes, *, executable: bool | None = None
) -> None:
    """Replace the content of a regular file in place.

    Args:
        root: the workspace.
        path: raw relative path.
        content: the new content.
        executable: set or clear the execute permissions; None leaves them.

    Raises:
        FileOperationError: nothing was changed, unless the message says so.
    """
    with explained(path):
        descriptor = open_beneath(root, path, os.O_RDWR)
        try:
            status = _require_regular(descriptor, path)
            _replace_content(descriptor, path, status.st_size, content)
            if executable is not None:
                _set_executable(descriptor, executable)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def create_file(
    root: WorkspaceRoot,
    path: bytes,
    content: bytes,
    *,
    executable: bool = False,
    create_directories: bool = True,
) -> list[bytes]:
    """Create a regular file, complete from the first moment that it has a name.

    Args:
        root: the workspace.
        path: raw relative path at which there is nothing.
        content: its content.
        executable: mode 0755 instead of 0644, less the umask, but never less than the owner's part.
        create_directories: create the directories on the way that are missing.

    Returns:
        The directories that were created.

    Raises:
        FileOperationError: nothing was changed.
    """
    with explained(path):
        created = make_directories(root, path) if create_directories else []
        try:
            parent, name = open_parent(root, path)
            try:
                _create_at(parent, name, content, 0o755 if executable else 0o644)
                _sync_directory(parent)
            finally:
                os.close(parent)
        except (OSError, PathEscapesError):
            _remove_directories(root, created)
            raise
    return created


def delete_file(root: WorkspaceRoot, path: bytes) -> None:
    """Delete a regular file or a symlink (the link itself).

    Raises:
        FileOperationError: there is none; nothing was changed.
    """
    with explained(path):
        parent, name = open_parent(root, path)
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise FileOperationError(f"{escape_path(path)} is neither a regular file nor a symlink")
            os.unlink(name, dir_fd=parent)
            _sync_directory(parent)
        finally:
            os.close(parent)


def entry_mode(root: WorkspaceRoot, path: bytes) -> int | None:
    """Return the ``st_mode`` of what is at a path, links not followed; None where there is nothing.

    Raises:
        FileOperationError: the way there leads through a link or a file.
    """
    with explained(path):
        try:
            parent, name = open_parent(root, path)
        except FileNotFoundError:
            return None
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)


def make_directories(root: WorkspaceRoot, path: bytes) -> list[bytes]:
    """Create the missing directories on the way to a path.

    Returns:
        Those that were created, outermost first.

    Raises:
        OSError: as ``os.mkdir``; none of them is left then.
        PathEscapesError: the way leads through a link or a file; none of them is left then.
    """
    created: list[bytes] = []
    names = split_path(path)
    try:
        for count in range(1, len(names)):
            prefix = b"/".join(names[:count])
            parent, name = open_parent(root, prefix)
            try:
                os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
                created.append(prefix)
                _sync_directory(parent)
            except FileExistsError:
                pass  # whether it is a directory shows when the next component is opened through it
            finally:
                os.close(parent)
    except (OSError, PathEscapesError):
        _remove_directories(root, created)
        raise
    return created


def _remove_directories(root: WorkspaceRoot, created: list[bytes]) -> None:
    for path in reversed(created):
        with contextlib.suppress(OSError, PathEscapesError):
            parent, name = open_parent(root, path)
            try:
                os.rmdir(name, dir_fd=parent)
            finally:
                os.close(parent)


def _require_regular(descriptor: int, path: bytes) -> os.stat_result:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise FileOperationError(f"{escape_path(path)} is {kind}")
    return status


def _replace_content(descriptor: int, path: bytes, old_size: int, content: bytes) -> None:
    old = _read_all(descriptor, old_size) if old_size <= MAX_FILE_BYTES else None
    try:
        _reserve(descriptor, old_size, len(content))
        _write_all(descriptor, content)
        os.ftruncate(descriptor, len(content))
    except OSError as error:
        if old is None or not _put_back(descriptor, old):
            raise FileOperationError(
                f"{escape_path(path)}: {error.strerror}, and the old content could not be put back: "
                "the file is damaged"
            ) from error
        raise


def _reserve(descriptor: int, old_size: int, size: int) -> None:
    """Find out that the disk is full before anything is overwritten, where the file system can tell."""
    if size > old_size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, old_size, size - old_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise


def _put_back(descriptor: int, old: bytes) -> bool:
    try:
        _write_all(descriptor, old)
        os.ftruncate(descriptor, len(old))
        os.fsync(descriptor)
    except OSError:
        return False
    return True


def _read_all(descriptor: int, size: int) -> bytes:
    parts = []
    offset = 0
    while offset < size and (part := os.pread(descriptor, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    offset = 0
    while offset < len(view):
        offset += os.pwrite(descriptor, view[offset:], offset)


def _create_at(parent: int, name: bytes, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(b".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=parent)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_TEMPORARY_FILES:
            raise
        _create_named(parent, name, content, mode)
        return
    try:
        _fill(descriptor, content, mode)
        # The link fails with EEXIST where something got the name meanwhile: nothing is ever replaced.
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=parent, follow_symlinks=True)
    finally:
        os.close(descriptor)


def _create_named(parent: int, name: bytes, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=parent)
    try:
        _fill(descriptor, content, mode)
    except OSError:
        os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)


def _fill(descriptor: int, content: bytes, mode: int) -> None:
    _write_all(descriptor, content)
    # The owner's part decides the entry's type, so no umask may take it away.
    os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | (mode & stat.S_IRWXU))
    os.fsync(descriptor)


def _set_executable(descriptor: int, executable: bool) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    # Whoever may read it may execute it, the owner always.
    wanted = mode | stat.S_IXUSR | ((mode & 0o044) >> 2) if executable else mode & ~0o111
    if wanted != mode:
        os.fchmod(descriptor, wanted)


def _sync_directory(parent: int) -> None:
    """Make names durable; a directory that may be searched but not read cannot be synced."""
    try:
        # open_parent's descriptor is O_PATH, which fsync refuses.
        descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
