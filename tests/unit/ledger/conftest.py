"""A ledger in a file, as the host uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from workseal_host.ledger.sqlite import SqliteLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger lies."""
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteLedger]:
    """A new ledger."""
    opened = await SqliteLedger.open(path)
    yield opened
    await opened.close()
