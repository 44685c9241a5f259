"""The one place where a failure of the command line becomes a message and an exit code.

Invariants: results alone go to stdout, as UTF-8 whatever the locale; nothing in a
message can act on the terminal; nobody sees a traceback, except who asks for it
with ``WORKSEAL_TRACEBACK=1``; a failure of ours never looks like a tool's own code.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

import click

from workseal.cli.output import safe
from workseal.errors import HostUnreachableError, WorksealError
from workseal_host.cli.codes import (
    INTERRUPTED,
    OUR_FAILURE,
    PASS_THROUGH_VERBS,
    READER_GONE,
    USAGE,
    exit_code,
)
from workseal_host.errors import ConfigError

_TRACEBACK_VARIABLE: Final = "WORKSEAL_TRACEBACK"


class ReaderGoneError(Exception):
    """Whoever read our output has closed it."""


def say(message: str) -> None:
    """Say something on stderr that is no result."""
    # Nobody may be listening there either.
    with contextlib.suppress(OSError):
        click.echo(f"workseal: {safe(message)}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Say why, and leave with a code."""
    say(message)
    sys.exit(code)


def words_of(error: WorksealError) -> str:
    """Return the message of an error; of a broken connection without what gRPC calls it."""
    if isinstance(error, HostUnreachableError) and error.code:
        return "the host does not answer any more; see `workseal healthcheck`"
    return str(error)


def guarded(verb: str, command: Callable[[], object]) -> int:
    """Run a verb.

    Args:
        verb: its name; empty where none was given.
        command: what to run.

    Returns:
        The exit code; stdout is flushed.

    Raises:
        ModuleNotFoundError: a dependency is not installed.
    """
    _have_streams()
    _write_utf8()
    try:
        code = _run(command)
        sys.stdout.flush()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001 - the one boundary
        ours = _report(error)
        return OUR_FAILURE if verb in PASS_THROUGH_VERBS else ours
    except KeyboardInterrupt:
        say("interrupted")
        return OUR_FAILURE if verb in PASS_THROUGH_VERBS else INTERRUPTED
    return code


def _run(command: Callable[[], object]) -> int:
    try:
        returned = command()
    except SystemExit as end:
        returned = end.code
    return returned if isinstance(returned, int) else 0


def _report(error: Exception) -> int:  # noqa: PLR0911 - one row per kind of error
    """Say what went wrong.

    Returns:
        The exit code, for a verb that passes nobody's code through.
    """
    match error:
        case click.Abort():
            say("interrupted")
            return INTERRUPTED
        case click.UsageError() if _is_bare(error):
            # The words of this error are the help that was asked for without saying so.
            click.echo(error.format_message())
            return error.exit_code
        case click.UsageError():
            _show_usage(error)
            say(error.format_message())
            return error.exit_code
        case click.ClickException():
            say(error.format_message())
            return error.exit_code
        case ReaderGoneError() | BrokenPipeError():
            drop_stdout()
            return READER_GONE
        case ConfigError() if error.key:
            say(f"{error.key}: {error}")
            return exit_code(error)
        case WorksealError():
            say(words_of(error))
            return exit_code(error)
        case OSError():
            drop_stdout()
            say(_os_words(error))
            return USAGE
    if os.environ.get(_TRACEBACK_VARIABLE):
        traceback.print_exc()
    say(
        f"a fault of Workseal itself ({type(error).__name__}: {error}); please report it with the output "
        f"that {_TRACEBACK_VARIABLE}=1 adds"
    )
    return USAGE


def _is_bare(error: click.UsageError) -> bool:
    # By name: click 8.1 has no such error, and prints the help itself.
    return type(error).__name__ == "NoArgsIsHelpError"


def _show_usage(error: click.UsageError) -> None:
    context = error.ctx
    if context is None:
        return
    with contextlib.suppress(OSError):
        click.echo(context.get_usage(), err=True)
        click.echo(f"Try '{context.command_path} --help' for help.\n", err=True)


def _os_words(error: OSError) -> str:
    what = error.strerror or type(error).__name__
    return what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}"


def _have_streams() -> None:
    """Open what the caller has closed: else a database or a socket would become somebody's stdin."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _write_utf8() -> None:
    # Results are UTF-8 in documented forms; a locale must neither change nor refuse them.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def drop_stdout() -> None:
    """Throw away what could not be written, so that the interpreter does not try again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
