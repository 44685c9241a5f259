"""What bubblewrap is asked for, and the other places where a directory is visible."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.daemon import requires
from workseal_host.errors import IsolationError
from workseal_host.execution import isolation as module
from workseal_host.execution.isolation import SUPERVISOR, Isolation, detect
from workseal_host.execution.mounts import aliases, is_beneath, parse_mounts

TABLE = rb"""1 0 8:1 / / rw - ext4 /dev/a rw
2 1 8:2 / /home rw - ext4 /dev/b rw
3 1 8:2 /user /mnt/my\040home rw - ext4 /dev/b rw
4 1 8:1 /var/lib /srv/lib rw - ext4 /dev/a rw
"""


def mounts_of(isolation: Isolation, root: Path) -> list[str]:
    return [os.fsdecode(item) for item in isolation.wrap(["true"], root=os.fsencode(root))]


@pytest.mark.parametrize(
    ("path", "other"),
    [
        pytest.param(b"/home/user/state", [b"/mnt/my home/state"], id="seen-through-a-bind-mount"),
        pytest.param(b"/mnt/my home/state", [b"/home/user/state"], id="and-back"),
        pytest.param(b"/var/lib/x", [b"/srv/lib/x"], id="root-file-system"),
        pytest.param(b"/home/other", [], id="not-part-of-the-bind-mount"),
    ],
)
def test_aliases(path: bytes, other: list[bytes]) -> None:
    assert aliases(path, parse_mounts(TABLE)) == other


def test_a_sibling_with_the_same_prefix_is_not_beneath() -> None:
    assert not is_beneath(b"/w-evil", b"/w")


def test_masks_come_after_a_workspace_that_holds_them(tmp_path: Path) -> None:
    state = tmp_path / "w" / "state"
    state.mkdir(parents=True)
    options = mounts_of(Isolation("bubblewrap", "bwrap", (os.fsencode(state),)), tmp_path / "w")
    assert options.index(str(tmp_path / "w")) < options.index(str(state))


def test_masks_come_before_a_workspace_that_lies_in_them(tmp_path: Path) -> None:
    work = tmp_path / "state" / "w"
    work.mkdir(parents=True)
    options = mounts_of(Isolation("bubblewrap", "bwrap", (os.fsencode(tmp_path / "state"),)), work)
    assert options.index(str(tmp_path / "state")) < options.index(str(work))


def test_a_masked_directory_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    isolation = Isolation("bubblewrap", "bwrap", (os.fsencode(tmp_path / "none"),))
    assert str(tmp_path / "none") not in mounts_of(isolation, tmp_path)


def test_the_state_directory_as_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationError):
        mounts_of(Isolation("bubblewrap", "bwrap", (os.fsencode(tmp_path),)), tmp_path)


def test_a_writable_path_in_a_masked_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationError):
        detect("none", masked_dirs=[str(tmp_path)], writable_paths=[str(tmp_path / "x")])


@pytest.mark.parametrize("exists", [True, False], ids=["there", "not-there-yet"])
def test_a_writable_path_that_holds_a_masked_directory_is_refused(tmp_path: Path, exists: bool) -> None:
    masked = tmp_path / "state" / "workseal"
    if exists:
        masked.mkdir(parents=True)
    with pytest.raises(IsolationError, match="replace"):
        detect("none", masked_dirs=[str(masked)], writable_paths=[str(tmp_path)])


def test_masks_are_real_paths(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = detect("none", masked_dirs=[str(tmp_path / "link")])
    assert found.masked_dirs == (os.fsencode(tmp_path / "real"),)


@pytest.mark.parametrize(
    "script", ["exit 1", "echo no permissions >&2; exit 1"], ids=["silent", "with-a-reason"]
)
def test_bubblewrap_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert detect("auto").kind == "none"
    with pytest.raises(IsolationError, match="install bubblewrap"):
        detect("bubblewrap")


@pytest.mark.parametrize(
    ("kind", "network", "writable", "confined"),
    [
        pytest.param("bubblewrap", False, (), True, id="confined"),
        pytest.param("bubblewrap", True, (), False, id="network"),
        pytest.param("bubblewrap", False, (b"/cache",), False, id="writable-path"),
        pytest.param("none", False, (), False, id="none"),
    ],
)
def test_enforces_confinement(kind: str, network: bool, writable: tuple[bytes, ...], confined: bool) -> None:
    isolation = Isolation(kind, "bwrap", (), writable)  # type: ignore[arg-type]
    assert isolation.enforces_confinement(network=network) is confined


@requires("bwrap")
def test_a_sandbox_in_which_nothing_can_start_is_found_before_the_first_call(tmp_path: Path) -> None:
    package = os.path.dirname(os.path.dirname(SUPERVISOR))
    isolation = detect("bubblewrap", masked_dirs=[package])
    with pytest.raises(IsolationError, match="no tool can start"):
        isolation.check_start(os.fsencode(tmp_path))
    detect("bubblewrap").check_start(os.fsencode(tmp_path))
