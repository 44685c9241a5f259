"""Files that the user names for results."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from workseal.errors import InvalidInputError, StoreError
from workseal_host.cli.output_file import check_output, lies_inside, write_output


def test_a_new_file_is_written(tmp_path: Path) -> None:
    write_output(tmp_path / "r.json", b"data")

    assert (tmp_path / "r.json").read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(b"a longer text that was there before")
    file.chmod(0o640)

    write_output(file, b"data")

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
        write_output(file, b"new")

    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real.json")

    write_output(tmp_path / "link", b"data")

    assert (tmp_path / "real.json").read_bytes() == b"data"
    assert (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output(pipe, b"data")
        assert os.read(reader, 100) == b"data"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_descriptor_goes_on_where_it_stands(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb", buffering=0) as file:
        file.write(b"first ")
        write_output(Path(f"/dev/fd/{file.fileno()}"), b"second")

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
        check_output(Path(path))


def test_a_file_that_does_not_exist_yet_can_be_written(tmp_path: Path) -> None:
    check_output(tmp_path / "r.json")

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        pytest.param("ws/r.json", True, id="inside"),
        pytest.param("ws/deep/er/r.json", True, id="in-a-directory-that-does-not-exist"),
        pytest.param("ws/../r.json", False, id="beside"),
        pytest.param("ws-other/r.json", False, id="same-prefix"),
        pytest.param("link/r.json", True, id="through-a-link"),
    ],
)
def test_lying_inside_goes_by_identity(tmp_path: Path, path: str, inside: bool) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws-other").mkdir()
    (tmp_path / "link").symlink_to("ws")

    assert lies_inside(tmp_path / path, tmp_path / "ws") is inside
