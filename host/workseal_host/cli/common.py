"""What the verbs share: options, exit codes, output.

Results go to stdout, everything else to stderr. Exit codes: 0 yes or done, 1 a
negative answer, 2 usage or unreadable input, 3 host unreachable. ``run`` and
``exec`` pass the tool's own code through and use 124 and 125 for ours.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from workseal.errors import (
    HostUnreachableError,
    InvalidInputError,
    NotVerifiedError,
    StoreError,
    WorksealError,
)
from workseal.state import state_dir
from workseal_host.errors import ConfigError, RequestError, WorkspaceError

NEGATIVE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
TIMED_OUT: Final = 124
OUR_FAILURE: Final = 125
SIGNALLED: Final = 128

_USAGE_ERRORS = (InvalidInputError, ConfigError, RequestError, WorkspaceError, StoreError)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def fail(message: str, code: int) -> NoReturn:
    """Say why on stderr, and exit."""
    click.echo(f"workseal: {message}", err=True)
    sys.exit(code)


def exit_code(error: WorksealError) -> int:
    """Return the exit code that an error stands for."""
    if isinstance(error, HostUnreachableError):
        return UNREACHABLE
    if isinstance(error, NotVerifiedError):
        return NEGATIVE
    return USAGE if isinstance(error, _USAGE_ERRORS) else NEGATIVE


def maps_errors(command: _Command) -> _Command:
    """Turn the errors of a verb into a message and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except WorksealError as error:
            fail(str(error), exit_code(error))

    return wrapper  # type: ignore[return-value]


def maps_errors_of_tools(command: _Command) -> _Command:
    """As :func:`maps_errors`, for verbs that pass a tool's code through: every failure of ours is 125."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except WorksealError as error:
            fail(str(error), OUR_FAILURE)

    return wrapper  # type: ignore[return-value]


def state_option(command: _Command) -> _Command:
    """Add ``--state-dir``."""
    option = click.option(
        "--state-dir",
        "state",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _context, _parameter, value: state_dir(value),
        help="Where keys, trust and ledgers are kept. [default: $WORKSEAL_STATE_DIR or the user's state directory]",
    )
    return option(command)


def workspace_option(command: _Command) -> _Command:
    """Add ``--workspace``."""
    option = click.option(
        "--workspace",
        "-C",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        help="The workspace, or a directory in it. [default: here]",
    )
    return option(command)


def socket_option(command: _Command) -> _Command:
    """Add ``--socket``."""
    option = click.option(
        "--socket", "socket_file", envvar="WORKSEAL_SOCKET", help="The host's socket. [default: by workspace]"
    )
    return option(command)


def json_option(command: _Command) -> _Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def echo_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def signal_or_code(*, code: int | None, signal: int | None, timed_out: bool) -> int:
    """Return the exit code that passes a tool's end through."""
    if timed_out:
        return TIMED_OUT
    if signal is not None:
        return SIGNALLED + signal
    return code if code is not None else OUR_FAILURE
