"""Receipts from a running host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workseal.client import HostClient
from workseal.errors import HostError as AnsweredError
from workseal.results import Selector
from workseal_host.cli.connect import client_of
from workseal_host.cli.locate import Located
from workseal_host.cli.receipt_source import Entry, by_name
from workseal_host.errors import NotFoundError

_PAGE_SIZE = 200


class HostSource:
    """A :class:`~workseal_host.cli.receipt_source.ReceiptSource` over a client."""

    def __init__(self, client: HostClient, workspace_id: str) -> None:
        self._client = client
        self.workspace_id = workspace_id

    async def head_sequence(self) -> int:
        """Ask the host where its chain ends."""
        return (await self._client.host_info()).head_sequence

    async def entries(self, *, after_sequence: int, session_id: str) -> AsyncIterator[Entry]:
        """Fetch the chain page by page."""
        pages = self._client.receipts(
            after_sequence=after_sequence, session_id=session_id, page_size=_PAGE_SIZE
        )
        async for entry in pages:
            yield Entry(entry.envelope, entry.sequence, entry.kind)

    async def receipt(self, name: str) -> Entry:
        """Fetch one entry."""
        try:
            found = await self._client.receipt(_selector(name))
        except AnsweredError as error:
            if error.code == "NOT_FOUND":
                raise NotFoundError(f"there is no receipt {name}") from error
            raise
        return Entry(found.envelope, found.sequence, "")

    async def changes(self, name: str, digest: str) -> bytes:
        """Fetch the full change list."""
        return await self._client.changes(_selector(name), expected_digest=digest)


@asynccontextmanager
async def open_host(located: Located) -> AsyncIterator[HostSource]:
    """Connect to a host."""
    async with client_of(located) as client:
        yield HostSource(client, await client.workspace_id())


def _selector(name: str) -> Selector:
    sequence, digest = by_name(name)
    return Selector(sequence=sequence) if sequence else Selector(payload_digest=digest)
