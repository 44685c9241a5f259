"""Where a host keeps its things, and the lock that makes them its own.

One ``flock`` per workspace guards ledger, cache and socket; it is taken before
anything is opened or bound, and the kernel gives it back when the host dies,
however it dies. Hosts of overlapping workspaces exclude each other: two daemons
would see each other's changes as the tool's.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from workseal.errors import InvalidInputError, StoreError
from workseal.paths import escape_path
from workseal.state import (
    exclusive_lock,
    make_private_dir,
    socket_path,
    workspace_state_dir,
    write_private_file,
)
from workseal_host.errors import BusyError, ConfigError, HostError
from workseal_host.workspace.root import WorkspaceRoot

_ID_BYTES = 16


class AlreadyRunningError(HostError):
    """Another host serves this workspace, or one that overlaps it."""


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one host.

    Attributes:
        state: the state directory of the user.
        directory: this workspace's own directory below it.
        socket: where the host listens.
        workspace_id: random 128-bit id of the workspace, hex, made with ``directory``.
        lock_fd: descriptor that holds the lock; open for as long as the host lives.
    """

    state: Path
    directory: Path
    socket: Path
    workspace_id: str
    lock_fd: int

    @property
    def ledger(self) -> Path:
        """The ledger's database file."""
        return self.directory / "ledger.sqlite3"

    @property
    def token_file(self) -> Path:
        """The file with the token that every call needs."""
        return self.state / "token"

    @property
    def public_key_file(self) -> Path:
        """The current public key as PEM, for display and for pinning by hand."""
        return self.directory / "public-key.pem"

    def private_dirs(self) -> tuple[Path, ...]:
        """Return the directories that no tool may see."""
        return self.state, self.socket.parent

    def release(self) -> None:
        """Give the lock back."""
        os.close(self.lock_fd)


def take_place(state: Path, root: WorkspaceRoot, *, socket_file: str | None = None) -> Place:
    """Make and lock the place of a workspace's host.

    Args:
        state: the state directory.
        root: the opened workspace.
        socket_file: where to listen; None for the default.

    Raises:
        AlreadyRunningError: another host holds it, or a workspace that overlaps it.
        ConfigError: state or socket would lie inside the workspace, or their paths cannot be used.
    """
    try:
        make_private_dir(state)
        state = Path(os.path.realpath(state))
        _refuse_inside(state, root, "the state directory", "--state-dir")
        directory = workspace_state_dir(state, root.path)
        for path in (directory.parent, directory):
            make_private_dir(path)
        listening = socket_path(state, root.path, socket_file)
        if socket_file is None:
            make_private_dir(listening.parent)
        _refuse_inside(listening.parent, root, "the socket", "--socket")
        with exclusive_lock(state / "workspaces.lock"):
            lock_fd = _lock(directory)
            try:
                _refuse_overlap(state, directory, root)
                (directory / "root").write_bytes(root.path)
                workspace_id = _workspace_id(directory)
                _ensure_token(state / "token")
            except BaseException:
                os.close(lock_fd)
                raise
    except (InvalidInputError, StoreError) as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}") from error
    return Place(state, directory, listening, workspace_id, lock_fd)


def is_inside(path: bytes, root: bytes) -> bool:
    """Tell whether a directory is another one, or lies in it, by identity and not by name."""
    target = os.stat(root)
    current = os.path.realpath(path)
    while True:
        try:
            found = os.stat(current)
            if (found.st_dev, found.st_ino) == (target.st_dev, target.st_ino):
                return True
        except FileNotFoundError:
            pass
        above = os.path.dirname(current)
        if above == current:
            return False
        current = above


def _refuse_inside(path: Path, root: WorkspaceRoot, what: str, option: str) -> None:
    if is_inside(os.fsencode(path), root.path):
        raise ConfigError(
            f"{what} {path} lies inside the workspace, where tools can write it: name another place with {option}"
        )


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunningError(
            "another host already serves this workspace; use it, or stop it first"
        ) from None
    return descriptor


def is_held(directory: Path) -> bool:
    """Tell whether a live host holds the place of a workspace."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _refuse_overlap(state: Path, directory: Path, root: WorkspaceRoot) -> None:
    for other in (state / "workspaces").iterdir():
        if other == directory or not is_held(other):
            continue
        other_root = (other / "root").read_bytes()
        if not os.path.isdir(other_root):
            continue
        if is_inside(other_root, root.path) or is_inside(root.path, other_root):
            raise AlreadyRunningError(
                f"a host already serves {escape_path(other_root)}, which overlaps this workspace; stop it first"
            )


def _workspace_id(directory: Path) -> str:
    path = directory / "workspace-id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        workspace_id = secrets.token_hex(_ID_BYTES)
        write_private_file(path, workspace_id.encode() + b"\n")
        return workspace_id


def _ensure_token(path: Path) -> None:
    if not path.exists():
        write_private_file(path, secrets.token_urlsafe(32).encode() + b"\n")
    os.chmod(path, 0o600)


def clear_stale_socket(path: Path) -> None:
    """Remove a socket that nobody listens on; leave everything else alone.

    Raises:
        AlreadyRunningError: somebody listens there.
        ConfigError: the path is not a socket.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is not a socket; it was left alone, name another path with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise BusyError(f"cannot tell whether somebody listens on {path}: {error.strerror}") from error
    raise AlreadyRunningError(f"somebody already listens on {path}; name another path with --socket")
