"""The file tools: what they do, what they predict, and that both are the same."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.toolbox import Toolbox, text
from workseal_host.errors import ArgumentsError
from workseal_host.execution import files
from workseal_host.execution.file_tool import run_to_end
from workseal_host.execution.registry import Prediction
from workseal_host.workspace.diff import Change


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    box = Toolbox(tmp_path)
    (box.path / "a.txt").write_text("one two one\n")
    (box.path / "run.sh").write_text("#!/bin/sh\n")
    (box.path / "run.sh").chmod(0o755)
    (box.path / "raw.bin").write_bytes(b"x\xff\xfey\n")
    (box.path / "dir").mkdir()
    (box.path / "dir" / "inner.txt").write_text("inner\n")
    (box.path / "link").symlink_to("a.txt")
    (box.path / "dirlink").symlink_to("dir")
    os.mkfifo(box.path / "fifo")
    return box


@pytest.fixture(params=[0o022, 0o077, 0o777], ids=["umask-022", "umask-077", "umask-777"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def as_pairs(changes: Prediction | list[Change] | None) -> list[tuple[Any, ...]]:
    return sorted((change.path, change.before, change.after) for change in changes or [])


CHANGES = [
    pytest.param("write_file", {"path": "new.txt", "content": "x"}, id="create"),
    pytest.param("write_file", {"path": "p/q/new.txt", "content": "x"}, id="create-with-directories"),
    pytest.param(
        "write_file", {"path": "new.sh", "content": "x", "executable": True}, id="create-executable"
    ),
    pytest.param("write_file", {"path": "a.txt", "content": "other"}, id="overwrite"),
    pytest.param("write_file", {"path": "a.txt", "content": ""}, id="empty"),
    pytest.param(
        "write_file", {"path": "a.txt", "content": "one two one\n", "executable": True}, id="only-type"
    ),
    pytest.param("write_file", {"path": "run.sh", "content": "x"}, id="keeps-executable"),
    pytest.param(
        "write_file", {"path": "run.sh", "content": "x", "executable": False}, id="drops-executable"
    ),
    pytest.param("write_file", {"path": "dir/inner.txt", "content": "gr\u00fc\u00df\u20ac"}, id="non-ascii"),
    pytest.param("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "2"}, id="edit"),
    pytest.param(
        "edit_file",
        {"path": "a.txt", "old_string": "one", "new_string": "1", "replace_all": True},
        id="edit-all",
    ),
    pytest.param("edit_file", {"path": "raw.bin", "old_string": "y", "new_string": "z"}, id="edit-non-utf8"),
    pytest.param(
        "search_and_replace", {"path": "a.txt", "pattern": "one", "replacement": r"\1"}, id="literal"
    ),
    pytest.param(
        "search_and_replace",
        {"path": "a.txt", "pattern": r"(\w+) two", "replacement": r"\1 2", "regex": True},
        id="regex",
    ),
    pytest.param(
        "search_and_replace",
        {"path": "raw.bin", "pattern": "[xy]", "replacement": "_", "regex": True},
        id="regex-non-utf8",
    ),
    pytest.param("delete_file", {"path": "a.txt"}, id="delete"),
    pytest.param("delete_file", {"path": "link"}, id="delete-link"),
    pytest.param("delete_file", {"path": "dir/inner.txt"}, id="delete-inner"),
]

FAILURES = [
    pytest.param("write_file", {"path": "dir", "content": "x"}, id="write-directory"),
    pytest.param("write_file", {"path": "link", "content": "x"}, id="write-link"),
    pytest.param("write_file", {"path": "dirlink/x", "content": "x"}, id="write-through-link"),
    pytest.param("write_file", {"path": "a.txt/x", "content": "x"}, id="write-below-file"),
    pytest.param("write_file", {"path": "fifo", "content": "x"}, id="write-fifo"),
    pytest.param(
        "write_file", {"path": "p/q", "content": "x", "create_directories": False}, id="no-directory"
    ),
    pytest.param("edit_file", {"path": "a.txt", "old_string": "one", "new_string": "1"}, id="edit-ambiguous"),
    pytest.param(
        "edit_file", {"path": "a.txt", "old_string": "none", "new_string": "1"}, id="edit-not-found"
    ),
    pytest.param("edit_file", {"path": "none", "old_string": "a", "new_string": "b"}, id="edit-no-file"),
    pytest.param("edit_file", {"path": "link", "old_string": "two", "new_string": "b"}, id="edit-link"),
    pytest.param("edit_file", {"path": "fifo", "old_string": "two", "new_string": "b"}, id="edit-fifo"),
    pytest.param("search_and_replace", {"path": "a.txt", "pattern": "x", "replacement": "y"}, id="no-match"),
    pytest.param(
        "search_and_replace",
        {"path": "a.txt", "pattern": "(", "replacement": "y", "regex": True},
        id="bad-regex",
    ),
    pytest.param("delete_file", {"path": "dir"}, id="delete-directory"),
    pytest.param("delete_file", {"path": "fifo"}, id="delete-fifo"),
    pytest.param("delete_file", {"path": "none"}, id="delete-nothing"),
    pytest.param("delete_file", {"path": "dirlink/inner.txt"}, id="delete-through-link"),
    pytest.param("read_file", {"path": "link"}, id="read-link"),
    pytest.param("read_file", {"path": "fifo"}, id="read-fifo"),
    pytest.param("read_file", {"path": "dir"}, id="read-directory"),
    pytest.param("read_file", {"path": "none"}, id="read-nothing"),
    pytest.param("read_file", {"path": "a.txt", "offset": 9}, id="read-behind-the-end"),
]


@pytest.mark.parametrize(("name", "arguments"), CHANGES)
async def test_what_is_predicted_is_what_happens(box: Toolbox, name: str, arguments: dict[str, Any]) -> None:
    prediction, seen, result = await box.predicted_and_seen(name, arguments)
    assert (result.exit_code, bool(seen)) == (0, True), text(result)
    assert as_pairs(prediction) == as_pairs(seen)


@pytest.mark.parametrize(("name", "arguments"), FAILURES)
async def test_a_failure_changes_nothing_and_predicts_nothing(
    box: Toolbox, name: str, arguments: dict[str, Any]
) -> None:
    prediction, seen, result = await box.predicted_and_seen(name, arguments)
    assert (seen, result.exit_code) == ([], 1)
    assert all(effect.before == effect.after for effect in prediction)
    assert text(result).strip()


async def test_no_umask_decides_the_type_of_what_is_created(box: Toolbox, umask: int) -> None:
    for executable in (False, True):
        arguments = {"path": f"new-{executable}", "content": "x", "executable": executable}
        prediction, seen, _ = await box.predicted_and_seen("write_file", arguments)
        assert as_pairs(prediction) == as_pairs(seen)
        mode = stat.S_IMODE((box.path / f"new-{executable}").stat().st_mode)
        assert mode & 0o077 & umask == 0


@pytest.mark.parametrize("name", ["write_file", "edit_file", "search_and_replace", "delete_file"])
async def test_an_ignored_path_is_refused_before_anything_happens(box: Toolbox, name: str) -> None:
    (box.path / "node_modules").mkdir()
    target = box.path / "node_modules" / "x"
    target.write_text("old")
    arguments = {
        "write_file": {"content": "new"},
        "edit_file": {"old_string": "old", "new_string": "new"},
        "search_and_replace": {"pattern": "old", "replacement": "new"},
        "delete_file": {},
    }[name] | {"path": "node_modules/x"}
    with pytest.raises(ArgumentsError):
        box.registry.get(name).predict(arguments, box.view())
    with pytest.raises(ArgumentsError):
        await box.run(name, arguments, view=box.view())
    assert target.read_text() == "old"


async def test_overwriting_keeps_inode_mode_and_hard_links(box: Toolbox) -> None:
    path = box.path / "run.sh"
    os.link(path, box.path / "second")
    path.chmod(0o741)
    before = path.stat()
    await box.run("write_file", {"path": "run.sh", "content": "new"})
    after = path.stat()
    assert (before.st_ino, before.st_mode, after.st_nlink) == (after.st_ino, after.st_mode, 2)
    assert (box.path / "second").read_text() == "new"


async def test_no_name_but_the_target_ever_appears(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[set[str]] = []
    write_all = files._write_all

    def observed(descriptor: int, content: bytes) -> None:
        write_all(descriptor, content)
        names.append(set(os.listdir(box.path)))

    before = set(os.listdir(box.path))
    monkeypatch.setattr(files, "_write_all", observed)
    await box.run("write_file", {"path": "new.txt", "content": "x" * 100_000})
    assert names == [before]


async def test_a_file_system_without_nameless_files_works_too(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real_open(path, flags, *rest, **options)

    monkeypatch.setattr(files.os, "open", refuse)
    result = await box.run("write_file", {"path": "p/new.txt", "content": "x", "executable": True})
    assert result.exit_code == 0
    assert (box.path / "p" / "new.txt").stat().st_mode & stat.S_IXUSR


class TestDiskFull:
    """Writes that fail half-way."""

    @pytest.fixture
    def full(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Let every write of new content stop after three bytes."""
        real_write = os.pwrite
        written: list[int] = []

        def pwrite(descriptor: int, data: Any, offset: int) -> int:
            if bytes(data[:3]) == b"NEW"[: len(data[:3])]:
                written.append(real_write(descriptor, data[:3], offset))
                raise OSError(errno.ENOSPC, "No space left on device")
            return real_write(descriptor, data, offset)

        monkeypatch.setattr(files.os, "pwrite", pwrite)
        return written

    async def test_the_old_content_is_put_back(self, box: Toolbox, full: list[int]) -> None:
        result = await box.run("write_file", {"path": "a.txt", "content": "NEW content"})
        assert (result.exit_code, bool(full)) == (1, True)
        assert "No space left" in text(result)
        assert (box.path / "a.txt").read_text() == "one two one\n"

    async def test_a_new_file_and_its_directories_are_gone(self, box: Toolbox, full: list[int]) -> None:
        before = box.scan().tree.digest
        result = await box.run("write_file", {"path": "p/q/new", "content": "NEW content"})
        assert result.exit_code == 1
        assert box.scan().tree.digest == before

    async def test_damage_that_cannot_be_mended_is_named(
        self, box: Toolbox, full: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "_put_back", lambda *_: False)
        result = await box.run("write_file", {"path": "a.txt", "content": "NEW content"})
        assert "damaged" in text(result)


async def test_space_is_reserved_before_anything_is_overwritten(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "posix_fallocate", no_space)
    result = await box.run("write_file", {"path": "a.txt", "content": "x" * 100})
    assert result.exit_code == 1
    assert (box.path / "a.txt").read_text() == "one two one\n"


def test_a_file_that_changed_since_the_scan_is_not_predicted(box: Toolbox) -> None:
    view = box.view()
    (box.path / "a.txt").write_text("two, meanwhile")
    arguments = {"path": "a.txt", "old_string": "two", "new_string": "2"}
    assert box.registry.get("edit_file").predict(arguments, view) is None


async def test_a_cancelled_caller_waits_for_the_write() -> None:
    import asyncio
    import threading

    started, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go.wait(10)
        done.set()

    task = asyncio.create_task(run_to_end(work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_an_equal_replacement_is_refused(box: Toolbox) -> None:
    with pytest.raises(ArgumentsError):
        await box.run("edit_file", {"path": "a.txt", "old_string": "two", "new_string": "two"})


class TestReadFile:
    """What ``read_file`` shows."""

    async def test_the_whole_file(self, box: Toolbox) -> None:
        assert text(await box.run("read_file", {"path": "a.txt"})) == "one two one\n"

    async def test_a_part_names_what_is_left(self, box: Toolbox) -> None:
        (box.path / "n").write_text("".join(f"{number}\n" for number in range(1, 11)))
        shown = text(await box.run("read_file", {"path": "n", "offset": 3, "limit": 2}))
        assert shown == "3\n4\n[lines 3 to 4 of 10; go on with offset 5]\n"

    async def test_bytes_that_are_not_utf8_are_named(self, box: Toolbox) -> None:
        shown = text(await box.run("read_file", {"path": "raw.bin"}))
        assert shown.startswith("x\ufffd\ufffdy\n")
        assert "not valid UTF-8" in shown

    async def test_an_endless_line_is_cut_between_characters(self, box: Toolbox) -> None:
        (box.path / "n").write_text("\u20ac" * 200_000)
        shown = text(await box.run("read_file", {"path": "n"}))
        assert "\ufffd" not in shown
        assert "is cut after" in shown
        assert len(shown.encode()) < 300_000

    async def test_an_empty_file(self, box: Toolbox) -> None:
        (box.path / "n").touch()
        assert text(await box.run("read_file", {"path": "n"})) == ""

    async def test_a_file_that_is_too_large_is_refused_unread(self, box: Toolbox) -> None:
        with (box.path / "n").open("wb") as file:
            file.truncate(files.MAX_FILE_BYTES + 1)
        assert "larger than" in text(await box.run("read_file", {"path": "n"}))
