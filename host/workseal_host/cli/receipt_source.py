"""Where receipts are read from: a running host, or the ledger itself where none runs.

A host is the only writer of its ledger. Reading beside one is safe (WAL), needs no
lock, and changes nothing: receipts can be audited when the host is gone for good.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workseal.errors import HostUnreachableError
from workseal_host.cli.locate import NoHostError, ledger_directory, locate
from workseal_host.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Entry:
    """One chain entry as the source delivers it: not verified.

    Attributes:
        envelope: the signed bytes.
        sequence: where the source says that it stands.
        kind: ``tool-execution`` or ``key-rotation``, as the source says.
    """

    envelope: bytes
    sequence: int
    kind: str


class ReceiptSource(Protocol):
    """Receipts of one workspace.

    Attributes:
        workspace_id: the workspace that they must be of.
    """

    workspace_id: str

    async def head_sequence(self) -> int:
        """Return the sequence of the newest entry; 0 where there is none."""

    def entries(self, *, after_sequence: int, session_id: str) -> AsyncIterator[Entry]:
        """Iterate over the current chain, in order of sequence."""

    async def receipt(self, name: str) -> Entry:
        """Return one entry, named by its sequence or by the SHA-256 of its payload.

        Raises:
            NotFoundError: there is none.
        """

    async def changes(self, name: str, digest: str) -> bytes:
        """Return the full change list of a receipt, whose hex SHA-256 must be ``digest``."""


def _absolute(workspace: Path) -> str:
    return os.path.realpath(workspace)


@asynccontextmanager
async def open_source(state: Path, workspace: Path, socket_file: str | None) -> AsyncIterator[ReceiptSource]:
    """Open the receipts of a workspace.

    Args:
        state: the state directory.
        workspace: the workspace, or a directory in it.
        socket_file: a host's socket; None to look for the host, and else for the ledger.

    Raises:
        NotFoundError: there is neither a host nor a ledger.
        HostUnreachableError: there is no ledger, and what should be a host does not answer.
    """
    try:
        located = locate(state, workspace, socket_file)
        located.check()
    except HostUnreachableError as error:
        directory = None if socket_file else ledger_directory(state, workspace)
        if directory is None:
            if isinstance(error, NoHostError):
                raise NotFoundError(f"there are no receipts of {_absolute(workspace)}") from error
            raise
        from workseal_host.cli.ledger_source import open_ledger  # noqa: PLC0415 - only where it is needed

        async with open_ledger(directory) as ledger:
            yield ledger
        return
    from workseal_host.cli.host_source import open_host  # noqa: PLC0415 - gRPC, only where it is needed

    async with open_host(located) as host:
        yield host


def by_name(name: str) -> tuple[int, str]:
    """Return a sequence (or 0) and a payload digest (or nothing) from what a user wrote.

    Raises:
        NotFoundError: it names no receipt.
    """
    if name.isascii() and name.isdigit() and len(name) < 16 and int(name) > 0:
        return int(name), ""
    digest = name.removeprefix("sha256:")
    if len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        return 0, digest
    raise NotFoundError("a receipt is named by its sequence, or by the SHA-256 of its payload")
