"""The spinner: for people, and only where it takes long."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from workseal_host.cli.progress import Waiting
from workseal_host.cli.scanning import readable
from workseal_host.workspace.limits import ScanLimits
from workseal_host.workspace.root import WorkspaceRoot
from workseal_host.workspace.scan import Scanner


class Terminal(io.StringIO):
    """A stderr that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def show_on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr what a person has; not in a fixture, after which pytest takes stderr back."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


def await_text(terminal: Terminal) -> None:
    ticked = threading.Event()
    for _ in range(500):
        if "looking" in terminal.getvalue():
            return
        ticked.wait(0.01)
    raise AssertionError("nothing was shown")


def test_it_is_shown_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = show_on_terminal(monkeypatch)
    with Waiting("looking [bold]\x1b", patience_s=0):
        await_text(terminal)

    assert "looking [bold]\\x1b" in terminal.getvalue()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = show_on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with Waiting("looking", patience_s=0):
        await_text(terminal)

    assert "\x1b[32m" not in terminal.getvalue()


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = show_on_terminal(monkeypatch)
    with Waiting("looking", patience_s=60):
        pass

    assert terminal.getvalue() == ""


def test_a_program_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    waiting = Waiting("looking", patience_s=0)
    with waiting:
        waiting.stop()

    assert stream.getvalue() == ""


def test_how_far_it_has_come_is_asked_for_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = show_on_terminal(monkeypatch)
    asked: list[int] = []

    def so_far() -> str:
        asked.append(1)
        return "looking: done" if len(asked) > 3 else "at it"

    with Waiting("at a tree", so_far=so_far, patience_s=0):
        await_text(terminal)

    assert "at it  at a tree" in terminal.getvalue()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_550_000_000, "1.6 GB"), (5e15, "5000.0 TB")],
)
def test_sizes_are_shown_as_people_read_them(size: float, text: str) -> None:
    assert readable(size) == text


def test_a_scan_counts_what_it_meets(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("12345")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_text("123")
    limits = ScanLimits.of()
    with WorkspaceRoot.open(tmp_path) as root:
        Scanner(root, limits=limits).scan()
    assert (limits.counts.files, limits.counts.read_bytes) == (2, 8)
