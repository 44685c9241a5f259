"""Options that the verbs share, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from workseal.calls import check_challenge
from workseal.errors import InvalidInputError
from workseal.state import state_dir

_MAX_SECONDS: Final = 24 * 3600.0
_Command = TypeVar("_Command", bound=Callable[..., Any])


def state_option(command: _Command) -> _Command:
    """Add ``--state-dir``."""
    option = click.option(
        "--state-dir",
        "state",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        callback=lambda _context, _parameter, value: state_dir(value),
        help="Where keys, trust and ledgers are kept.  "
        "[default: $WORKSEAL_STATE_DIR or the user's state directory]",
    )
    return option(command)


def workspace_option(command: _Command) -> _Command:
    """Add ``--workspace``."""
    option = click.option(
        "--workspace",
        "-C",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        metavar="DIR",
        help="The workspace, or a directory in it.  [default: here]",
    )
    return option(command)


def socket_option(command: _Command) -> _Command:
    """Add ``--socket``."""
    option = click.option(
        "--socket",
        "socket_file",
        envvar="WORKSEAL_SOCKET",
        metavar="PATH",
        help="The host's socket.  [default: by workspace]",
    )
    return option(command)


def json_option(command: _Command) -> _Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def timeout_option(default: str) -> Callable[[_Command], _Command]:
    """Add ``--timeout`` in seconds.

    Args:
        default: what holds without it, in words.
    """
    return click.option(
        "--timeout",
        "timeout_s",
        type=float,
        callback=_checked_seconds,
        metavar="SECONDS",
        help=f"End it after this many seconds.  [default: {default}]",
    )


def challenge_option(default: str) -> Callable[[_Command], _Command]:
    """Add ``--challenge``.

    Args:
        default: what holds without it, in words.
    """
    return click.option(
        "--challenge",
        callback=_checked_challenge,
        metavar="C",
        help=f"32 random bytes in base64url, bound into the receipt.  [default: {default}]",
    )


def _checked_challenge(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return value if value is None else check_challenge(value)
    except InvalidInputError:
        raise click.BadParameter(
            "a challenge is 32 random bytes in base64url without padding: 43 characters"
        ) from None


def _checked_seconds(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    # Written so that NaN, which compares as false, is refused too.
    if value is not None and not 0 < value <= _MAX_SECONDS:
        raise click.BadParameter(f"a time-out is more than 0 and at most {_MAX_SECONDS:.0f} seconds")
    return value


def host_options(command: _Command) -> _Command:
    """Add what names a host: ``--socket``, ``--workspace``, ``--state-dir``."""
    return socket_option(workspace_option(state_option(command)))


def echo_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))
