"""The root is one directory, whatever its path is called; nothing opens outside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from workseal_host.errors import PathEscapesError, RootReplacedError, WorkspaceError
from workseal_host.workspace.root import WorkspaceRoot, open_beneath, open_parent


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "w"
    path.mkdir()
    return path


def read(root: WorkspaceRoot, path: bytes) -> bytes:
    with os.fdopen(open_beneath(root, path, os.O_RDONLY), "rb") as file:
        return file.read()


@pytest.mark.parametrize("spelling", ["{0}", "{0}/", "{0}/.", "{0}//", "{0}/../w", "{0}-link"])
def test_f43_spellings_of_one_directory_are_one_root(spelling: str, workspace: Path) -> None:
    Path(f"{workspace}-link").symlink_to(workspace)
    with WorkspaceRoot.open(spelling.format(workspace)) as root:
        assert root.path == os.fsencode(workspace.resolve())
        assert (root.device, root.inode) == (workspace.stat().st_dev, workspace.stat().st_ino)


@pytest.mark.parametrize("path", [b"../w-evil/f", b"../w/../w-evil/f", b"a/../../w-evil/f"])
def test_f43_sibling_with_the_same_prefix_is_not_reached(path: bytes, workspace: Path) -> None:
    evil = Path(f"{workspace}-evil")
    evil.mkdir()
    (evil / "f").write_text("secret")
    (workspace / "a").mkdir()
    with WorkspaceRoot.open(workspace) as root, pytest.raises(PathEscapesError):
        open_beneath(root, path, os.O_RDONLY)


@pytest.mark.parametrize("path", [b"", b"/", b"/etc/passwd", b".", b"..", b"a//b", b"a/", b"a/./b", b"a\0b"])
def test_impossible_path_is_refused(path: bytes, workspace: Path) -> None:
    with WorkspaceRoot.open(workspace) as root, pytest.raises(PathEscapesError) as caught:
        open_beneath(root, path, os.O_RDONLY)
    assert caught.value.path == path


@pytest.mark.parametrize("path", [b"link", b"dir/f", b"dangling", b"loop", b"file/f"])
def test_f42_link_or_file_in_the_way_is_refused(path: bytes, workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    (workspace / "link").symlink_to(outside / "f")
    (workspace / "dir").symlink_to(outside)
    (workspace / "dangling").symlink_to("nowhere")
    (workspace / "loop").symlink_to("loop")
    (workspace / "file").write_text("x")
    with WorkspaceRoot.open(workspace) as root, pytest.raises(PathEscapesError):
        open_beneath(root, path, os.O_RDONLY)


def test_file_is_read_and_made_below_the_root(workspace: Path) -> None:
    (workspace / "d").mkdir()
    with WorkspaceRoot.open(workspace) as root:
        os.close(open_beneath(root, b"d/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        assert read(root, b"d/new") == b""
    assert stat.S_IMODE((workspace / "d" / "new").stat().st_mode) == 0o600


def test_missing_file_is_an_ordinary_error(workspace: Path) -> None:
    with WorkspaceRoot.open(workspace) as root:
        for path in (b"nothing", b"no/thing"):
            with pytest.raises(FileNotFoundError):
                open_beneath(root, path, os.O_RDONLY)


@pytest.mark.timeout(10)
def test_fifo_in_the_way_does_not_hang(workspace: Path) -> None:
    os.mkfifo(workspace / "p")
    with WorkspaceRoot.open(workspace) as root:
        fd = open_beneath(root, b"p", os.O_RDONLY)
        assert stat.S_ISFIFO(os.fstat(fd).st_mode)
        os.close(fd)


def test_parent_is_opened_for_a_name_that_does_not_exist(workspace: Path) -> None:
    (workspace / "d").mkdir()
    with WorkspaceRoot.open(workspace) as root:
        fd, name = open_parent(root, b"d/new")
        assert name == b"new"
        assert os.fstat(fd).st_ino == (workspace / "d").stat().st_ino
        os.close(fd)


def test_no_descriptor_is_left_behind(workspace: Path) -> None:
    (workspace / "a" / "b").mkdir(parents=True)
    with WorkspaceRoot.open(workspace) as root:
        before = set(os.listdir("/dev/fd"))
        for path in (b"a/b/c", b"a/x/c", b"a/b"):
            try:
                os.close(open_beneath(root, path, os.O_RDONLY))
            except OSError:
                continue
        assert set(os.listdir("/dev/fd")) == before


def test_replaced_root_is_noticed(workspace: Path) -> None:
    with WorkspaceRoot.open(workspace) as root:
        root.check()
        workspace.rename(workspace.parent / "old")
        with pytest.raises(RootReplacedError, match="is gone"):
            root.check()
        workspace.mkdir()
        with pytest.raises(RootReplacedError, match="another directory"):
            root.check()


def test_root_replaced_by_a_link_to_itself_is_noticed(workspace: Path) -> None:
    with WorkspaceRoot.open(workspace) as root:
        workspace.rename(workspace.parent / "old")
        workspace.symlink_to(workspace.parent / "old")
        with pytest.raises(RootReplacedError):
            root.check()


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_no_such_directory_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkspaceError, match="cannot open the workspace"):
        WorkspaceRoot.open(tmp_path / name)


def test_closing_twice_is_harmless(workspace: Path) -> None:
    root = WorkspaceRoot.open(workspace)
    root.close()
    root.close()


def test_directory_below_is_opened_for_listing(workspace: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("x")
    with WorkspaceRoot.open(workspace) as root:
        for path, names in ((b"", ["d"]), (b"d", ["f"])):
            fd = root.open_dir(path)
            assert os.listdir(fd) == names
            os.close(fd)


def test_an_empty_name_is_not_the_current_directory(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)

    with pytest.raises(WorkspaceError, match="empty"):
        WorkspaceRoot.open(b"")
