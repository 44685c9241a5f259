from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_kit import Connect

from fakes.host import TOKEN, FakeHost, Serving
from workseal.client import HostClient
from workseal.retry import RetryPolicy


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
async def serving(host: FakeHost, tmp_path: Path) -> AsyncIterator[Serving]:
    async with Serving(host, str(tmp_path / "h.sock")) as serving:
        yield serving


@pytest.fixture
def connect(serving: Serving) -> Connect:
    def make(target: str | None = None, **options: object) -> HostClient:
        options.setdefault("retry", RetryPolicy(max_attempts=6, initial_s=0.01, max_s=0.2))
        return HostClient(target or serving.socket, token=TOKEN, **options)  # type: ignore[arg-type]

    return make
