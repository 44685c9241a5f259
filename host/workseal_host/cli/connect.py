"""Finding the host of a workspace, and talking to it from the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from workseal.client import HostClient
from workseal.errors import HostUnreachableError
from workseal.state import socket_path, workspace_state_dir
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore
from workseal_host.attestation.keyring import KeyRing
from workseal_host.place import is_held


@dataclass(frozen=True, slots=True)
class Located:
    """A host that seems to run.

    Attributes:
        root: real path of its workspace.
        socket: where it listens.
        token_file: the file with its token.
        directory: its own state directory.
    """

    root: Path
    socket: Path
    token_file: Path
    directory: Path

    def client(self) -> HostClient:
        """Return a client for it, not yet connected."""
        return HostClient(self.socket, token_file=self.token_file)


def locate(state: Path, workspace: Path, socket_file: str | None = None) -> Located:
    """Find the host that serves a directory, or one of those above it.

    Raises:
        HostUnreachableError: none does.
    """
    here = Path(os.path.realpath(workspace))
    for root in (here, *here.parents):
        directory = workspace_state_dir(state, os.fsencode(root))
        if is_held(directory):
            socket = _socket_of(directory) or socket_path(state, os.fsencode(root), socket_file)
            return Located(root, Path(socket_file) if socket_file else socket, state / "token", directory)
    raise HostUnreachableError(f"no host serves {here}; start one with `workseal serve --workspace {here}`")


def _socket_of(directory: Path) -> Path | None:
    try:
        return Path(os.fsdecode((directory / "socket").read_bytes()))
    except FileNotFoundError:
        return None


def own_keys(state: Path) -> MemoryTrustStore:
    """Return the keys of this state directory's own ring as pins.

    Whoever can read the ring is the user of the host: its keys need no pinning by hand.
    """
    return MemoryTrustStore(TrustState(pins=tuple(Pin(key.public) for key in KeyRing.load(state).keys)))
