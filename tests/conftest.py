"""Fixtures that all tests share."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import Command
from support.daemon import Daemon, DaemonFactory

# Started by nohup, or in the background of a script, the tests would hand ignored signals on to every process
# that must hear them.
for _number, _handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace."""
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[DaemonFactory]:
    """Make hosts; every one is ended with the test."""
    made: list[Daemon] = []

    def make(workspace: Path, **how: object) -> Daemon:
        daemon = Daemon(workspace, how.pop("state", tmp_path / "state"), **how)  # type: ignore[arg-type]
        made.append(daemon)
        return daemon.start()

    yield make
    for daemon in made:
        daemon.remove()


@pytest.fixture
def daemon(daemons: DaemonFactory, workspace: Path) -> Daemon:
    """A host on an empty workspace."""
    return daemons(workspace)


@pytest.fixture
def workseal(tmp_path: Path) -> Iterator[Command]:
    """The command line, in an environment of the test's own."""
    runtime_dir = Path(tempfile.mkdtemp(prefix="ws-"))
    yield Command(tmp_path, runtime_dir)
    shutil.rmtree(runtime_dir, ignore_errors=True)
