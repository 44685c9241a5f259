"""Finding the host of a directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from workseal.errors import HostUnreachableError
from workseal.state import workspace_state_dir
from workseal_host.cli.locate import NotServingError, ledger_directory, locate, locate_held


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory."""
    return tmp_path / "state"


@pytest.fixture
def held(state: Path, workspace: Path) -> Iterator[Path]:
    """The directory of a workspace that somebody holds without a socket."""
    directory = workspace_state_dir(state, os.fsencode(workspace))
    directory.mkdir(parents=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield directory
    os.close(descriptor)


def test_no_host(state: Path, workspace: Path) -> None:
    with pytest.raises(HostUnreachableError, match="workseal serve"):
        locate(state, workspace)


def test_a_host_is_found_from_a_directory_below(state: Path, workspace: Path, held: Path) -> None:
    (held / "socket").write_bytes(b"/run/x.sock")
    (workspace / "a" / "b").mkdir(parents=True)

    located = locate(state, workspace / "a" / "b")

    assert (located.root, located.socket) == (workspace, Path("/run/x.sock"))


def test_a_host_that_is_gone_is_not_found(state: Path, workspace: Path) -> None:
    directory = workspace_state_dir(state, os.fsencode(workspace))
    directory.mkdir(parents=True)
    (directory / "lock").touch()
    (directory / "socket").write_bytes(b"/run/x.sock")

    assert locate_held(state, workspace) is None


def test_who_holds_without_serving_is_said_to(state: Path, workspace: Path, held: Path) -> None:
    with pytest.raises(NotServingError, match="another `workseal run`"):
        locate(state, workspace)


def test_a_named_socket_needs_no_lock(state: Path, workspace: Path) -> None:
    assert locate(state, workspace, "/run/y.sock").socket == Path("/run/y.sock")


def test_nobody_on_a_socket_is_known_at_once(state: Path, workspace: Path) -> None:
    with pytest.raises(HostUnreachableError, match="--socket"):
        locate(state, workspace, "/run/nobody.sock").check()


def test_a_ledger_is_found_from_a_directory_below(state: Path, workspace: Path) -> None:
    directory = workspace_state_dir(state, os.fsencode(workspace))
    directory.mkdir(parents=True)
    (directory / "ledger.sqlite3").touch()
    (workspace / "a").mkdir()

    assert ledger_directory(state, workspace / "a") == directory
    assert ledger_directory(state, workspace.parent) is None
