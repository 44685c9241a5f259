"""The spinner: for people, and only where it takes long."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from workseal_host.cli.progress import Waiting


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
