"""Fixtures for tests that run the pipeline in this process."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.engines import Bench


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A workspace with no engine on it yet."""
    # Nothing listens on a socket here, but its path must be one that could be.
    with tempfile.TemporaryDirectory(prefix="ws-") as runtime_dir:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
        made = Bench(tmp_path)
        yield made
        await made.close()
