"""Where failures become messages and exit codes."""

from __future__ import annotations

import click
import pytest

from workseal.errors import HostError, HostUnreachableError, InvalidInputError, NotVerifiedError, StoreError
from workseal_host.cli.boundary import ReaderGoneError, fail, guarded, say
from workseal_host.cli.codes import tool_exit_code
from workseal_host.errors import ConfigError, LedgerError


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(InvalidInputError("x"), 2, id="malformed-input"),
        pytest.param(ConfigError("x"), 2, id="configuration"),
        pytest.param(LedgerError("x"), 2, id="unreadable-ledger"),
        pytest.param(StoreError("x"), 2, id="unreadable-store"),
        pytest.param(NotVerifiedError("x", check="form", reason="size"), 1, id="not-verified"),
        pytest.param(HostError("x", code="NOT_FOUND"), 1, id="the-host-says-no"),
        pytest.param(HostUnreachableError("x"), 3, id="unreachable"),
        pytest.param(FileNotFoundError(2, "No such file", "/nope"), 2, id="system"),
        pytest.param(click.UsageError("x"), 2, id="usage"),
        pytest.param(ReaderGoneError(), 141, id="reader-gone"),
        pytest.param(BrokenPipeError(), 141, id="broken-pipe"),
        pytest.param(click.Abort(), 130, id="aborted"),
        pytest.param(KeyboardInterrupt(), 130, id="interrupted"),
        pytest.param(ValueError("x"), 2, id="a-fault-of-ours"),
    ],
)
def test_every_failure_has_its_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workseal_host.cli.boundary.drop_stdout", lambda: None)

    assert guarded("digest", raising(error)) == code


@pytest.mark.parametrize("verb", ["run", "exec"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(HostUnreachableError("x"), id="unreachable"),
        pytest.param(click.UsageError("x"), id="usage"),
        pytest.param(OSError(28, "No space left on device"), id="system"),
        pytest.param(KeyboardInterrupt(), id="interrupted"),
        pytest.param(ValueError("x"), id="a-fault-of-ours"),
    ],
)
def test_no_failure_of_ours_looks_like_a_tools_code(
    verb: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workseal_host.cli.boundary.drop_stdout", lambda: None)

    assert guarded(verb, raising(error)) == 125


def test_a_code_that_a_verb_exits_with_is_passed_on() -> None:
    assert guarded("run", raising(SystemExit(7))) == 7


def test_a_verb_that_returns_is_done() -> None:
    assert guarded("digest", lambda: None) == 0


def test_a_missing_dependency_is_the_callers_to_explain() -> None:
    with pytest.raises(ModuleNotFoundError):
        guarded("serve", raising(ModuleNotFoundError("x", name="aiosqlite")))


def test_a_fault_shows_no_traceback(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKSEAL_TRACEBACK", raising=False)
    guarded("digest", raising(RuntimeError("odd")))

    err = capfd.readouterr().err
    assert "odd" in err
    assert "Traceback" not in err


def test_a_fault_shows_its_traceback_where_it_is_asked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKSEAL_TRACEBACK", "1")
    guarded("digest", raising(RuntimeError("odd")))

    assert "Traceback" in capfd.readouterr().err


def test_a_message_cannot_act_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2Jb\nworkseal: forged")

    assert capfd.readouterr().err == "workseal: a\\x1b[2Jb\\x0aworkseal: forged\n"


def test_fail_says_why_and_leaves(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        fail("no", 3)

    assert end.value.code == 3
    assert capfd.readouterr() == ("", "workseal: no\n")


@pytest.mark.parametrize(
    ("code", "signal", "timed_out", "expected"),
    [
        pytest.param(0, None, False, 0, id="success"),
        pytest.param(3, None, False, 3, id="its-own-code"),
        pytest.param(None, 9, False, 137, id="killed"),
        pytest.param(None, 15, True, 124, id="our-time-out"),
        pytest.param(0, None, True, 124, id="our-time-out-that-it-survived"),
        pytest.param(None, None, False, 125, id="unknown"),
    ],
)
def test_how_a_tool_ended_is_passed_through(
    code: int | None, signal: int | None, timed_out: bool, expected: int
) -> None:
    assert tool_exit_code(code=code, signal=signal, timed_out=timed_out) == expected
