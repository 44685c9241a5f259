"""Finding the host of a workspace. Imports no gRPC."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from workseal.errors import HostUnreachableError
from workseal.state import workspace_state_dir
from workseal_host.place import is_held

_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Located:
    """A host that seems to run.

    Attributes:
        root: real path of its workspace; None where only its socket is known.
        socket: where it listens.
        token_file: the file with its token.
    """

    root: Path | None
    socket: Path
    token_file: Path

    def check(self) -> None:
        """Fail at once where nobody listens: retrying is for hosts that were there.

        Raises:
            HostUnreachableError: nobody does.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            try:
                probe.connect(os.fspath(self.socket))
            except OSError as error:
                raise HostUnreachableError(
                    f"nobody answers on {self.socket} ({error.strerror or error}); "
                    "start a host with `workseal serve`, or name another socket with --socket"
                ) from error


class NotServingError(HostUnreachableError):
    """Somebody holds the workspace without serving it: a `workseal run`, or a host that is starting."""


class NoHostError(HostUnreachableError):
    """Nobody holds the directory, or one above it."""


def locate(state: Path, workspace: Path, socket_file: str | None = None) -> Located:
    """Find the host of a directory: by its socket, or the one that serves it or a directory above it.

    Raises:
        NotServingError: its workspace is held, but not served.
        NoHostError: no host serves it.
    """
    if socket_file:
        return Located(None, Path(socket_file).absolute(), state / "token")
    found = locate_held(state, workspace)
    if found is None:
        here = os.path.realpath(workspace)
        raise NoHostError(f"no host serves {here}; start one with `workseal serve --workspace {here}`")
    return found


def locate_held(state: Path, workspace: Path) -> Located | None:
    """Return the host that holds a directory or one above it; None where none does.

    Raises:
        NotServingError: its workspace is held, but not served.
    """
    for root in _upwards(workspace):
        directory = workspace_state_dir(state, os.fsencode(root))
        if not is_held(directory):
            continue
        listening = _socket_of(directory)
        if listening is None:
            raise NotServingError(
                f"{root} is held by another `workseal run`, or by a host that is starting: "
                "try again when it is done"
            )
        return Located(root, listening, state / "token")
    return None


def ledger_directory(state: Path, workspace: Path) -> Path | None:
    """Return the state directory of the workspace that a directory is, or lies in; None where it has none."""
    for root in _upwards(workspace):
        directory = workspace_state_dir(state, os.fsencode(root))
        if (directory / "ledger.sqlite3").exists():
            return directory
    return None


def _upwards(workspace: Path) -> tuple[Path, ...]:
    here = Path(os.path.realpath(workspace))
    return here, *here.parents


def _socket_of(directory: Path) -> Path | None:
    try:
        return Path(os.fsdecode((directory / "socket").read_bytes()))
    except FileNotFoundError:
        return None
