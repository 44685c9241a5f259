"""Files that the user names for results."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from workseal.errors import InvalidInputError, StoreError
from workseal_host.cli.output_file import OutputFile


def test_a_new_file_is_written(tmp_path: Path) -> None:
    OutputFile.find(tmp_path / "r.json").write(b"data")

    assert (tmp_path / "r.json").read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(b"a longer text that was there before")
    file.chmod(0o640)

    OutputFile.find(file).write(b"data")

    assert file.read_bytes() == b"data"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        OutputFile.find(file).write(b"new")

    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real.json")

    OutputFile.find(tmp_path / "link").write(b"data")

    assert (tmp_path / "real.json").read_bytes() == b"data"
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        OutputFile.find(pipe).write(b"data")
        assert os.read(reader, 100) == b"data"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_descriptor_goes_on_where_it_stands(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb", buffering=0) as file:
        file.write(b"first ")
        OutputFile.find(Path(f"/dev/fd/{file.fileno()}")).write(b"second")

    assert (tmp_path / "out").read_bytes() == b"first second"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("-", "/dev/fd/3", id="stdout"),
        pytest.param(".", "directory", id="directory"),
        pytest.param("/nope/r.json", "does not exist", id="no-directory"),
    ],
)
def test_what_cannot_be_written_is_known_before(path: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        OutputFile.find(Path(path))


def test_a_file_that_does_not_exist_yet_can_be_written(tmp_path: Path) -> None:
    found = OutputFile.find(tmp_path / "r.json")
    os.close(found.parent_fd)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        pytest.param("ws/r.json", True, id="inside"),
        pytest.param("ws/deep/r.json", True, id="in-a-directory-below"),
        pytest.param("ws/../r.json", False, id="beside"),
        pytest.param("ws-other/r.json", False, id="same-prefix"),
        pytest.param("link/r.json", True, id="through-a-link"),
    ],
)
def test_lying_inside_goes_by_identity(tmp_path: Path, path: str, inside: bool) -> None:
    (tmp_path / "ws" / "deep").mkdir(parents=True)
    (tmp_path / "ws-other").mkdir()
    (tmp_path / "link").symlink_to("ws")

    found = OutputFile.find(tmp_path / path)
    os.close(found.parent_fd)

    assert found.lies_inside(tmp_path / "ws") is inside


def test_a_link_that_a_tool_put_there_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"precious")
    found = OutputFile.find(tmp_path / "r.json")
    (tmp_path / "r.json").symlink_to("outside")

    found.write(b"data")

    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert not (tmp_path / "r.json").is_symlink()
    assert (tmp_path / "r.json").read_bytes() == b"data"


def test_a_directory_that_a_tool_made_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "sub").mkdir()
    found = OutputFile.find(tmp_path / "sub" / "r.json")
    (tmp_path / "sub").rename(tmp_path / "moved")
    (tmp_path / "sub").symlink_to("outside")

    found.write(b"data")

    assert os.listdir(tmp_path / "outside") == []
    assert os.listdir(tmp_path / "moved") == ["r.json"]


def test_a_pipe_that_a_tool_put_there_does_not_hang(tmp_path: Path) -> None:
    found = OutputFile.find(tmp_path / "r.json")
    os.mkfifo(tmp_path / "r.json")

    found.write(b"data")

    assert (tmp_path / "r.json").read_bytes() == b"data"


def test_a_pipe_that_a_tool_swapped_is_not_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = OutputFile.find(pipe)
    (tmp_path / "outside").write_bytes(b"precious")
    pipe.unlink()
    pipe.symlink_to("outside")

    with pytest.raises(StoreError, match="not what it was"):
        found.write(b"data")

    assert (tmp_path / "outside").read_bytes() == b"precious"
