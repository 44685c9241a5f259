"""Streams, locales and shells, with real processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.command import Command
from support.daemon import requires


@pytest.fixture
def full_workspace(workspace: Path) -> Path:
    """A workspace whose manifest is longer than a pipe holds."""
    for number in range(3000):
        (workspace / f"file-{number:05}").touch()
    return workspace


def test_a_reader_that_goes_away_is_no_negative_answer(workseal: Command, full_workspace: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = workseal("manifest", full_workspace, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_is_said(workseal: Command, workspace: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = workseal("digest", workspace, stdout=full, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (2, b"workseal: No space left on device\n")


def test_closed_streams_are_survived(workseal: Command, workspace: Path) -> None:
    command = workseal.argv("digest", workspace)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        env=workseal.clean_environment(),
        timeout=60,
        check=False,
    )

    assert done.returncode == 0


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.ISO-8859-1"])
def test_results_are_utf8_whatever_the_locale(workseal: Command, workspace: Path, locale: str) -> None:
    workseal.environment = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (workspace / "é").touch()

    done = workseal("manifest", workspace)

    assert done.returncode == 0
    assert "é".encode() in done.stdout


@pytest.mark.parametrize("verb", ["digest", "manifest"])
def test_a_path_that_is_not_utf8_is_named_in_a_message(workseal: Command, verb: str) -> None:
    done = workseal(verb, b"/nope-\xff\x1b")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"\\xff" in done.stderr
    assert b"\x1b" not in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [(b"\xff",), (b"status", b"-C", b"/nope\xff"), (b"exec", b"\xff")])
def test_arguments_that_are_not_utf8_are_refused_without_a_traceback(
    workseal: Command, arguments: tuple[bytes, ...]
) -> None:
    done = workseal(*arguments)

    assert done.returncode in (2, 3, 125)
    assert b"Traceback" not in done.stderr


@requires("bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("workseal re", {"receipts"}, id="verb"),
        pytest.param("workseal run --iso", {"--isolation"}, id="option"),
        pytest.param("workseal run --isolation ''", {"auto", "bubblewrap", "none"}, id="value"),
        pytest.param("workseal receipts ''", {"list", "show"}, id="second-verb"),
        pytest.param("workseal verify --k", {"--key"}, id="a-verb-of-the-client"),
    ],
)
def test_completion_works_in_bash(workseal: Command, tmp_path: Path, words: str, expected: set[str]) -> None:
    # Under the name that the script calls.
    entry = tmp_path / "bin" / "workseal"
    entry.parent.mkdir()
    python, *module = (os.fsdecode(word) for word in workseal.argv())
    entry.write_text(f'#!/bin/sh\nexec {python} {" ".join(module)} "$@"\n')
    entry.chmod(0o755)
    script = (
        f'PATH="{entry.parent}:$PATH"; eval "$(workseal completion bash)"; COMP_WORDS=({words});'
        " COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _workseal_completion workseal;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", script], env=workseal.clean_environment(), capture_output=True, timeout=60, check=False
    )

    assert (set(done.stdout.decode().split()), done.stderr) == (expected, b"")
