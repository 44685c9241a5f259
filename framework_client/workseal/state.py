"""Where Workseal keeps its state on this machine.

The state directory lies outside every workspace. Client and host agree on its
layout: pins and the record of what was verified for the client, key ring, token
and one directory per workspace for the host.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from workseal.errors import InvalidInputError, StoreError

ENVIRONMENT_VARIABLE: Final = "WORKSEAL_STATE_DIR"
#: Longest socket path that every supported platform takes, in bytes. macOS takes 103.
MAX_SOCKET_PATH_BYTES: Final = 107


def state_dir(
    explicit: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Return the state directory: the argument, the environment's, or the default.

    Args:
        explicit: what the user gave (``--state-dir``).
        environ: the environment; the process's own by default.

    Raises:
        InvalidInputError: there is no home directory to put it in.
    """
    env = os.environ if environ is None else environ
    if explicit is not None and os.fspath(explicit):
        return Path(explicit).absolute()
    if given := env.get(ENVIRONMENT_VARIABLE):
        return Path(given).absolute()
    base = env.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "workseal"
    try:
        return Path.home() / ".local" / "state" / "workseal"
    except RuntimeError as error:
        raise InvalidInputError(
            f"there is no home directory: give --state-dir or set {ENVIRONMENT_VARIABLE}", field="state-dir"
        ) from error


def as_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return a path that a caller gave, as it stands.

    Args:
        value: text or a path; ``~`` is not expanded.
        name: its field, for the message.

    Raises:
        InvalidInputError: it is neither, or empty.
    """
    if (
        not isinstance(value, str | os.PathLike)
        or not isinstance(os.fspath(value), str)
        or not os.fspath(value)
    ):
        raise InvalidInputError(f"{name} must be the path of a directory, as text or a Path", field=name)
    return Path(value)


def workspace_key(real_path: bytes) -> str:
    """Return the name of a workspace's state: the first 32 hex digits of SHA-256 of its real path."""
    return hashlib.sha256(real_path).hexdigest()[:32]


def workspace_state_dir(state: Path, real_path: bytes) -> Path:
    """Return the directory of one workspace below the state directory."""
    return state / "workspaces" / workspace_key(real_path)


def socket_path(
    state: Path,
    real_path: bytes,
    explicit: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Return the path of a host's socket.

    Args:
        state: the state directory.
        real_path: the real path of the workspace.
        explicit: what the user gave (``--socket``).
        environ: the environment; the process's own by default.

    Raises:
        InvalidInputError: the path is too long for a socket.
    """
    env = os.environ if environ is None else environ
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if given := (os.fspath(explicit) if explicit is not None else env.get("WORKSEAL_SOCKET", "")):
        path = Path(given).absolute()
    elif os.path.isabs(runtime) and os.path.isdir(runtime):
        path = Path(runtime) / "workseal" / f"{workspace_key(real_path)}.sock"
    else:
        path = state / "sockets" / f"{workspace_key(real_path)}.sock"
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise InvalidInputError(
            f"socket path of {length} bytes, where {MAX_SOCKET_PATH_BYTES} fit: "
            f"give a shorter one with --socket or WORKSEAL_SOCKET ({path})",
            field="socket",
        )
    return path


def make_private_dir(path: Path) -> None:
    """Make a directory of mode 0700 and its parents, whatever the umask.

    A directory that was there is made private as well, its parents are left alone.

    Raises:
        StoreError: it cannot be made, or is no directory of this user.
    """
    try:
        if not path.parent.exists():
            make_private_dir(path.parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
            raise StoreError(f"{path} is shared, or not a directory of this user: name another one")
        os.chmod(path, 0o700)
    except OSError as error:
        raise StoreError(f"cannot make the private directory {path}: {error.strerror}") from error


def write_private_file(path: Path, data: bytes) -> None:
    """Replace a file of mode 0600 in one step, durably.

    Args:
        path: in an existing directory.
        data: the whole new content.

    Raises:
        StoreError: it cannot be written; the old content is still there.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file of mode 0600, made where it is missing.

    Raises:
        StoreError: the lock file cannot be opened.
    """
    import fcntl  # noqa: PLC0415 - absent on Windows, where importing the client must still work

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreError(f"cannot open the lock {path}: {error.strerror}") from error
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
