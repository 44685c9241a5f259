"""Receipts from the ledger of a workspace that no host serves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from workseal_host.cli.receipt_source import Entry, by_name
from workseal_host.errors import LedgerError, NotFoundError
from workseal_host.ledger.model import ReceiptRow
from workseal_host.ledger.sqlite import SqliteLedger

_PAGE_SIZE = 200


class LedgerSource:
    """A :class:`~workseal_host.cli.receipt_source.ReceiptSource` over a ledger that is only read."""

    def __init__(self, ledger: SqliteLedger, workspace_id: str) -> None:
        self._ledger = ledger
        self.workspace_id = workspace_id

    async def head_sequence(self) -> int:
        """Read where the chain ends."""
        return (await self._ledger.head()).sequence

    async def entries(self, *, after_sequence: int, session_id: str) -> AsyncIterator[Entry]:
        """Read the chain page by page."""
        cursor = after_sequence
        while rows := await self._ledger.receipts(
            after_sequence=cursor, limit=_PAGE_SIZE, session_id=session_id
        ):
            for row in rows:
                yield Entry(row.envelope, row.sequence, row.kind)
            cursor = rows[-1].sequence

    async def receipt(self, name: str) -> Entry:
        """Read one entry."""
        row = await self._row(name)
        return Entry(row.envelope, row.sequence, row.kind)

    async def changes(self, name: str, digest: str) -> bytes:
        """Read the full change list; who asked proves it."""
        del digest
        return b"".join([part async for part in self._ledger.changes(await self._row(name))])

    async def _row(self, name: str) -> ReceiptRow:
        sequence, digest = by_name(name)
        try:
            return await self._ledger.receipt(sequence=sequence, payload_digest=digest)
        except NotFoundError:
            raise NotFoundError(f"there is no receipt {name}") from None


@asynccontextmanager
async def open_ledger(directory: Path) -> AsyncIterator[LedgerSource]:
    """Open the ledger in a workspace's state directory, to read it.

    Raises:
        LedgerError: it cannot be read.
    """
    try:
        workspace_id = (directory / "workspace-id").read_text().strip()
    except OSError as error:
        raise LedgerError(f"cannot read {error.filename}: {error.strerror}") from error
    ledger = await SqliteLedger.open_to_read(directory / "ledger.sqlite3")
    try:
        yield LedgerSource(ledger, workspace_id)
    finally:
        await ledger.close()
