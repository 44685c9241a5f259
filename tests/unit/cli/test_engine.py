"""Putting a host together, and taking it apart again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from workseal_host.config import HostConfig
from workseal_host.engine import Engine, isolation_of, open_engine
from workseal_host.errors import ConfigError, HostError, LedgerError, WorkspaceError
from workseal_host.place import is_held

NO_ISOLATION = replace(HostConfig.default(), isolation="none")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory whose sockets lie in a short place, as they must."""
    runtime_dir = tempfile.mkdtemp(prefix="ws-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
    monkeypatch.delenv("WORKSEAL_SOCKET", raising=False)
    yield tmp_path / "s"
    shutil.rmtree(runtime_dir)


async def opened(workspace: Path, state: Path, config: HostConfig = NO_ISOLATION) -> Engine:
    return await open_engine(workspace, state=state, config=config)


async def test_it_holds_the_workspace_until_it_is_closed(workspace: Path, state: Path) -> None:
    engine = await opened(workspace, state)
    directory = engine.place.directory
    held = is_held(directory)
    with pytest.raises(HostError, match="already serves"):
        await opened(workspace, state)
    await engine.close()

    assert (held, is_held(directory)) == (True, False)


async def test_where_a_former_host_listened_is_forgotten(workspace: Path, state: Path) -> None:
    engine = await opened(workspace, state)
    stale = engine.place.directory / "socket"
    stale.write_bytes(b"/run/gone.sock")
    await engine.close()

    await (await opened(workspace, state)).close()

    assert not stale.exists()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda engine: engine.place.ledger.write_bytes(b"x" * 8192), id="ledger"),
        pytest.param(
            lambda engine: (engine.place.state / "keys" / "ring.json").write_bytes(b"x"), id="key-ring"
        ),
    ],
)
async def test_a_start_that_fails_leaves_nothing_locked(workspace: Path, state: Path, damage) -> None:
    engine = await opened(workspace, state)
    await engine.close()
    damage(engine)

    with pytest.raises(HostError):
        await opened(workspace, state)

    assert not is_held(engine.place.directory)


async def test_a_ledger_that_cannot_be_closed_keeps_nothing_locked(
    workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await opened(workspace, state)
    close = engine.ledger.close

    async def failing() -> None:
        await close()
        raise LedgerError("x")

    monkeypatch.setattr(engine.ledger, "close", failing)
    with pytest.raises(LedgerError):
        await engine.close()

    assert not is_held(engine.place.directory)


async def test_a_workspace_that_is_not_there_is_refused(tmp_path: Path, state: Path) -> None:
    with pytest.raises(WorkspaceError):
        await opened(tmp_path / "nope", state)


async def test_state_in_the_workspace_is_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="--state-dir"):
        await open_engine(workspace, state=workspace / "s", config=NO_ISOLATION)

    assert list(workspace.iterdir()) == []


def test_tools_see_neither_the_hosts_directories_nor_its_configuration(tmp_path: Path) -> None:
    config = replace(NO_ISOLATION, source=str(tmp_path / "config" / "workseal.toml"))

    isolation = isolation_of(config, (tmp_path / "state",))

    assert isolation.masked_dirs == (bytes(tmp_path / "state"),)
    assert isolation.masked_files == (bytes(tmp_path / "config" / "workseal.toml"),)
