"""A ledger in a file, as the host uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ledger_kit import Reopen

from workseal_host.ledger.sqlite import SqliteLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger lies."""
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
async def reopen(path: Path) -> AsyncIterator[Reopen]:
    """Open the ledger once more; what is opened is closed with the test."""
    opened: list[SqliteLedger] = []

    async def open_again() -> SqliteLedger:
        opened.append(await SqliteLedger.open(path))
        return opened[-1]

    yield open_again
    for each in opened:
        await each.close()


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteLedger]:
    """A new ledger."""
    opened = await SqliteLedger.open(path)
    yield opened
    await opened.close()
