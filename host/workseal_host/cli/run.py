"""`workseal run -- CMD`: one attested command with the caller's own terminal, input and environment."""

from __future__ import annotations

import asyncio
import secrets
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from workseal.errors import InvalidInputError, StoreError
from workseal_host.cli.boundary import fail, say
from workseal_host.cli.codes import OUR_FAILURE
from workseal_host.cli.common import challenge_option, socket_option, state_option, timeout_option
from workseal_host.cli.locate import locate_held
from workseal_host.cli.output_file import OutputFile

if TYPE_CHECKING:
    from workseal_host.cli.running import Ended, Order
    from workseal_host.execution.isolation import IsolationMode

_SESSION: Final = "cli"
_HINT: Final = (
    "under bubblewrap only the workspace can be written ($HOME is read-only, /tmp private); "
    "`--isolation none` lifts that"
)


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "-C",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The workspace, in which the command runs.  [default: here]",
)
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the receipt here.",
)
@challenge_option("none")
@timeout_option("never")
@click.option(
    "--isolation", type=click.Choice(["auto", "bubblewrap", "none"]), help="In place of the configured one."
)
@socket_option
@state_option
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run_command(
    *,
    workspace: Path,
    receipt_file: Path | None,
    challenge: str | None,
    timeout_s: float | None,
    isolation: IsolationMode | None,
    socket_file: str | None,
    state: Path,
    argv: tuple[str, ...],
) -> None:
    """Run COMMAND and attest what it changed. No daemon needed.

    Where a host holds the workspace, that host observes the command; else this process
    runs and signs. Under bubblewrap only the workspace can be written, $HOME is
    read-only and /tmp is private; `--isolation none` lifts that, and the receipt says so.

    The exit code is the command's own (128 + signal; 124 on --timeout). 125 is a failure
    of Workseal; then nothing ran, unless it says so.
    """
    _refuse_unrecordable(argv)
    target = None if receipt_file is None else OutputFile.find(receipt_file)
    order = _order(workspace, state, argv, challenge=challenge, timeout_s=timeout_s, isolation=isolation)
    held = locate_held(state, workspace)
    if held is None:
        from workseal_host.cli.running import run_here  # noqa: PLC0415 - starts no gRPC

        ended = asyncio.run(run_here(order))
    else:
        from workseal_host.cli.observed import run_observed  # noqa: PLC0415 - the only way that needs gRPC

        if socket_file:
            held = replace(held, socket=Path(socket_file).absolute())
        ended = asyncio.run(run_observed(order, held))
    if target is not None:
        _keep(target, ended)
    sys.exit(_exit_code(ended, state))


def _refuse_unrecordable(argv: tuple[str, ...]) -> None:
    """Refuse what a receipt cannot name: arguments are JSON, and what is signed must be what ran."""
    for position, argument in enumerate(argv, start=1):
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"argument {position} of the command is not UTF-8, which no receipt can name: "
                "put it into a script, or let a shell expand it (sh -c '... bad-*.txt')",
                field="argv",
            ) from error


def _order(
    workspace: Path,
    state: Path,
    argv: tuple[str, ...],
    *,
    challenge: str | None,
    timeout_s: float | None,
    isolation: IsolationMode | None,
) -> Order:
    from workseal_host.cli.plain_logs import configure_plain_logs  # noqa: PLC0415
    from workseal_host.cli.running import Order  # noqa: PLC0415 - after what can be refused cheaply
    from workseal_host.config import load_config  # noqa: PLC0415
    from workseal_host.requests import CallRef  # noqa: PLC0415

    configure_plain_logs()
    config = load_config(workspace=str(workspace))
    if isolation is not None:
        config = replace(config, isolation=isolation)
    call = CallRef(_SESSION, f"run-{secrets.token_hex(8)}", challenge)
    return Order(workspace, state, config, call, argv, timeout_s)


def _keep(target: OutputFile, ended: Ended) -> None:
    try:
        target.write(ended.envelope)
    except StoreError as error:
        fail(
            f"the command ran, but {error}; "
            f"`workseal receipts show {ended.sequence} --output FILE` has the receipt",
            OUR_FAILURE,
        )
    if target.lies_inside(ended.root):
        say(f"warning: {target.path} lies in the workspace: the next receipt lists it as an outside change")


def _exit_code(ended: Ended, state: Path) -> int:
    for note in ended.notes:
        say(note)
    if ended.outcome != "completed":
        fail(f"{ended.outcome}: {ended.reason}", OUR_FAILURE)
    if ended.isolated and 0 < ended.exit_code < OUR_FAILURE and sys.stderr.isatty():
        _hint_once(state)
    return ended.exit_code


def _hint_once(state: Path) -> None:
    """Tell a person whose command failed, the first time, what isolation may have to do with it."""
    with suppress(OSError):
        (state / "hint-isolation").touch(mode=0o600, exist_ok=False)
        say(f"hint: {_HINT}")
