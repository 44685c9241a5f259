"""What a person reads: log lines in words, the table of receipts in 80 columns, cautions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from workseal.calls import ToolCall
from workseal.errors import HostUnreachableError
from workseal_host.cli.boundary import words_of
from workseal_host.cli.calling import how_to_ask_again
from workseal_host.cli.plain_logs import configure_plain_logs, plain_line
from workseal_host.cli.receipt_audit import print_table
from workseal_host.cli.running import notes_of

ROW: dict[str, Any] = {
    "sequence": 1234,
    "kind": "tool-execution",
    "payload_digest": "0" * 64,
    "verified": True,
    "session_id": "session-" + "s" * 40,
    "tool_call_id": "call-" + "c" * 40,
    "tool": "search_and_replace",
    "outcome": "completed",
    "exit_code": 0,
    "signal": None,
    "created": 12,
    "modified": 3,
    "deleted": 4,
}


@pytest.fixture
def logs() -> Iterator[None]:
    """Give logging back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # Else its own handlers of this run would be closed for the sake of the new one.
    root.handlers = []
    yield
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_the_table_keeps_what_matters_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # no marks that would be counted as text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_table([ROW])

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for whole in ("1234", "completed", "+12 ~3 -4", "yes"):
        assert whole in lines[1]
    assert "…" not in "".join(lines)


def test_a_log_line_is_a_message() -> None:
    event = {"event": "executions are in doubt", "level": "warning", "count": 1, "where": ["x.py:1"]}

    assert plain_line(None, "", event) == "workseal: warning: executions are in doubt (count: 1)"


def test_a_log_line_cannot_act_on_the_terminal() -> None:
    line = plain_line(None, "", {"event": "a\x1b[2J", "level": "error"})

    assert line == "workseal: error: a\\x1b[2J"


def test_only_what_is_wrong_is_logged_in_words(logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure_plain_logs()
    log = structlog.get_logger("workseal.test")
    log.info("all is well")
    log.warning("odd", path="a")

    assert capsys.readouterr().err == "workseal: warning: odd (path: a)\n"


def test_a_program_that_was_not_started_is_named() -> None:
    notes = notes_of(
        b"[not started: the program cannot be started: No such file or directory]\n[exit code 127]\n",
        127,
        None,
        program="nosuch",
    )

    assert notes == ("not started: nosuch: the program cannot be started: No such file or directory",)


def test_a_broken_connection_says_how_to_ask_for_the_same_call() -> None:
    words = how_to_ask_again(ToolCall("s 1", "c-1", "bash", {}, "-" + "A" * 42))

    assert f"--session 's 1' --call c-1 --challenge=-{'A' * 42}" in words


def test_what_grpc_says_of_a_broken_connection_is_not_repeated() -> None:
    error = HostUnreachableError("recvmsg:Connection reset by peer", code="UNAVAILABLE")

    assert "recvmsg" not in words_of(error)
    assert words_of(HostUnreachableError("no host serves /x")) == "no host serves /x"
