"""Where a host keeps its things, and the lock that makes them its own.

One ``flock`` per workspace guards ledger, cache and socket, and one per socket
guards its path; they are taken before anything is opened or bound, and the
kernel gives them back when the host dies, however it dies. Hosts of overlapping
workspaces exclude each other: two daemons would see each other's changes as the
tool's. Nothing is made or changed before it is known to lie outside the workspace.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
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
from workseal_host.errors import ConfigError, HostError
from workseal_host.workspace.root import WorkspaceRoot

_ID_BYTES = 16
_STATE_LOCK = "workspaces.lock"
_WORKSPACE_ID = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[\x21-\x7e]{16,4096}")


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


def take_place(
    state: Path, root: WorkspaceRoot, *, socket_file: str | None = None, listens: bool = True
) -> Place:
    """Make and lock the place of a workspace's host.

    Args:
        state: the state directory.
        root: the opened workspace.
        socket_file: where to listen; None for the default.
        listens: whether the host will listen at all.

    Raises:
        AlreadyRunningError: another host holds it, or a workspace that overlaps it.
        ConfigError: state or socket would lie inside the workspace, or their paths cannot be used.
    """
    try:
        return _take_place(state, root, socket_file, listens)
    except (InvalidInputError, StoreError) as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}; name another place") from error


def planned_private_dirs(state: Path, real_path: bytes, socket_file: str | None = None) -> tuple[Path, ...]:
    """Return what :meth:`Place.private_dirs` of a host would be; nothing is made or looked at.

    Args:
        state: the state directory.
        real_path: the real path of the workspace.
        socket_file: where the host would listen; None for the default.

    Raises:
        ConfigError: the socket's path is too long.
    """
    real_state = Path(os.path.realpath(state))
    try:
        return real_state, socket_path(real_state, real_path, socket_file).parent
    except InvalidInputError as error:
        raise ConfigError(str(error)) from error


def _take_place(state: Path, root: WorkspaceRoot, socket_file: str | None, listens: bool) -> Place:
    _refuse_inside(state, root, "the state directory", "--state-dir")
    make_private_dir(state)
    state = Path(os.path.realpath(state))
    if is_inside(root.path, os.fsencode(state)):
        raise ConfigError(
            f"the workspace lies inside the state directory {state}: name another one with --state-dir"
        )
    directory = workspace_state_dir(state, root.path)
    listening = _socket_place(state, root, socket_file) if listens else directory / "no-socket"
    for path in (directory.parent, directory):
        make_private_dir(path)
    with exclusive_lock(state / _STATE_LOCK), ExitStack() as undo:
        lock_fd = _lock(
            directory / "lock", "another host already serves this workspace; use it, or stop it first"
        )
        undo.callback(os.close, lock_fd)
        _lock_root(root)
        _refuse_overlap(state, directory, root)
        write_private_file(directory / "root", root.path)
        workspace_id = _workspace_id(directory)
        _ensure_token(state / "token")
        undo.pop_all()
    return Place(state, directory, listening, workspace_id, lock_fd)


def _socket_place(state: Path, root: WorkspaceRoot, explicit: str | None) -> Path:
    """Return where the host listens: in a directory that only this user can enter, and tools never see."""
    listening = socket_path(state, root.path, explicit)
    _refuse_inside(listening.parent, root, "the socket", "--socket")
    is_default = False
    with suppress(InvalidInputError):
        # The default may be too long for a socket: that is why another one was named.
        is_default = listening == socket_path(state, root.path, environ=_without_socket(os.environ))
    if is_default or not listening.parent.exists():
        make_private_dir(listening.parent)
    found = os.stat(listening.parent)
    # Tools see nothing of this directory, and other users must not reach the socket.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{listening.parent} is open to others: put the socket into a directory of mode 0700 of its own"
        )
    return listening


def _without_socket(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name != "WORKSEAL_SOCKET"}


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
            f"{what} {path} lies inside the workspace, where tools can write: name another with {option}"
        )


def _lock_root(root: WorkspaceRoot) -> None:
    """Lock the directory itself too: a host with another state directory must not serve it beside this one.

    The lock goes with ``root``'s descriptor. It writes nothing; where the file system has no such locks,
    the state directory's own lock is all there is.
    """
    try:
        fcntl.flock(root.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AlreadyRunningError(
            "the workspace's directory is locked: a host with another state directory serves it (use that, or"
            " stop it first), or another program holds a lock on it"
        ) from None
    except OSError as error:
        import structlog  # noqa: PLC0415 - slow to load, and this file is also read to find a host

        log = structlog.get_logger("workseal.place")
        log.warning("the workspace itself cannot be locked", error=str(error.strerror))


def _lock(path: Path, held: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunningError(held) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_held(directory: Path) -> bool:
    """Tell whether a live host holds the place of a workspace."""
    if not (directory / "lock").exists():
        return False
    # Looking takes the lock for a moment: a host that starts just then must not find it taken.
    with exclusive_lock(directory.parent.parent / _STATE_LOCK):
        return _is_held(directory)


def _is_held(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
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
        if other == directory or not _is_held(other):
            continue
        other_root = (other / "root").read_bytes()
        if not os.path.isdir(other_root):
            continue
        if is_inside(other_root, root.path) or is_inside(root.path, other_root):
            raise AlreadyRunningError(
                f"a host serves {escape_path(other_root)}, which overlaps this workspace; stop it first"
            )


def _workspace_id(directory: Path) -> str:
    path = directory / "workspace-id"
    try:
        workspace_id = path.read_text().strip()
    except FileNotFoundError:
        workspace_id = secrets.token_hex(_ID_BYTES)
        write_private_file(path, workspace_id.encode() + b"\n")
    if not _WORKSPACE_ID.fullmatch(workspace_id):
        raise ConfigError(
            f"{path} holds no workspace id: put it back, or move {directory} away to start anew"
        )
    return workspace_id


def _ensure_token(path: Path) -> None:
    if not path.exists():
        write_private_file(path, secrets.token_urlsafe(32).encode() + b"\n")
    os.chmod(path, 0o600)
    read_token(path)


def read_token(path: Path) -> str:
    """Return the token that every call needs.

    Raises:
        ConfigError: the file cannot be read, or holds none; an empty token would be no token at all.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        token = ""
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{path} holds no token of 16 or more printable characters: remove it to get a new one"
        )
    return token


def claim_socket(path: Path) -> int:
    """Make a socket's path free, and keep other hosts from it: gRPC would silently take over a live one.

    Returns:
        A descriptor that holds the path's lock; open for as long as the host listens there.

    Raises:
        AlreadyRunningError: somebody listens there.
        ConfigError: what is there is no socket, or belongs to somebody else; it was left alone.
    """
    held = f"another host already listens on {path}; name another path with --socket"
    try:
        descriptor = _lock(path.with_name(f"{path.name}.lock"), held)
    except OSError as error:
        raise ConfigError(f"cannot use {error.filename}: {error.strerror}; name another --socket") from error
    try:
        _clear_stale_socket(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _clear_stale_socket(path: Path) -> None:
    """Remove a socket that nobody listens on; leave everything else alone."""
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
        except PermissionError as error:
            raise ConfigError(
                f"{path} belongs to somebody else; it was left alone, name another path with --socket"
            ) from error
        except OSError:
            pass  # a full backlog, or another kind of socket: somebody holds it
    raise AlreadyRunningError(f"somebody already listens on {path}; name another path with --socket")
