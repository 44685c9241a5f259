"""`workseal run -- CMD`: one attested command with the caller's own terminal.

Without a host for the workspace, this process takes the lock, runs the same
pipeline and signs with the user's key. Where a host holds the workspace, the
host observes the interval while the command runs here: it cannot be handed a
terminal, so the receipt says `observed`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from workseal.calls import ToolCall
from workseal.errors import HostUnreachableError
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.receipt.statement import parse_statement
from workseal_host.cli.common import (
    OUR_FAILURE,
    fail,
    maps_errors_of_tools,
    signal_or_code,
    socket_option,
    state_option,
)
from workseal_host.cli.connect import Located, locate
from workseal_host.config import HostConfig, load_config
from workseal_host.coordination.live import LiveExecution, Outcome
from workseal_host.engine import Engine, open_engine
from workseal_host.errors import HostError
from workseal_host.execution.inherited import NO_TIMEOUT_S, run_inherited
from workseal_host.execution.isolation import detect
from workseal_host.execution.orphans import harden_process
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.tool import ToolResult
from workseal_host.execution.tools.run import RUN_TOOL, RunTool
from workseal_host.logs import configure_logs
from workseal_host.requests import MAX_OBSERVATION_S, MAX_TIMEOUT_S, CallRef, CallRequest
from workseal_host.workspace.root import WorkspaceRoot

_SESSION: Final = "cli"


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-C",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The workspace, in which the command runs. [default: here]",
)
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the receipt here.",
)
@click.option("--challenge", default="", help="32 random bytes in base64url, bound into the receipt.")
@click.option(
    "--isolation", type=click.Choice(["auto", "bubblewrap", "none"]), help="In place of the configured one."
)
@socket_option
@state_option
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@maps_errors_of_tools
def run_command(
    workspace: Path,
    receipt_file: Path | None,
    challenge: str,
    isolation: str | None,
    socket_file: str | None,
    state: Path,
    argv: tuple[str, ...],
) -> None:
    """Run a command and attest what it changed. No daemon needed.

    The exit code is the command's own (128 + signal); 125 means that Workseal
    itself failed, and then nothing ran unless it says so.
    """
    configure_logs(verbose=False)
    config = load_config(workspace=str(workspace))
    if isolation is not None:
        config = replace(config, isolation=isolation)
    call = CallRef(_SESSION, f"run-{secrets.token_hex(8)}", challenge or None)
    try:
        located = locate(state, workspace, socket_file)
    except HostUnreachableError:
        envelope = asyncio.run(_run_here(workspace, state, config, call, list(argv)))
    else:
        envelope = asyncio.run(_run_observed(located, workspace, state, config, call, list(argv)))
    if receipt_file is not None:
        receipt_file.write_bytes(envelope)
    sys.exit(_code(envelope))


async def _run_here(
    workspace: Path, state: Path, config: HostConfig, call: CallRef, argv: list[str]
) -> bytes:
    harden_process()
    engine = await open_engine(
        workspace,
        state=state,
        config=config,
        registry=ToolRegistry([RunTool(timeout_s=MAX_TIMEOUT_S)]),
        environment=dict(os.environ),
    )
    try:
        outcome = await _through_pipeline(engine, call, argv)
    finally:
        await engine.close()
    return outcome.receipt.envelope


async def _through_pipeline(engine: Engine, call: CallRef, argv: list[str]) -> Outcome:
    found = await engine.pipeline.execute(CallRequest(call, RUN_TOOL, {"argv": argv}))
    return await found.finished if isinstance(found, LiveExecution) else found


async def _run_observed(
    located: Located, workspace: Path, state: Path, config: HostConfig, call: CallRef, argv: list[str]
) -> bytes:
    announced = ToolCall(call.session_id, call.tool_call_id, RUN_TOOL, {"argv": argv}, call.challenge)
    async with located.client() as client:
        observation = await client.begin_observation(announced, ttl_s=MAX_OBSERVATION_S)
        if observation.outcome is not None:
            return observation.outcome.envelope
        try:
            result = await _command(located, workspace, state, config, argv)
        except HostError as error:
            await client.end_observation(observation.execution_id, result=str(error).encode())
            raise
        ended = await client.end_observation(
            observation.execution_id, result=result.result, exit_code=result.exit_code, signal=result.signal
        )
    return ended.envelope


async def _command(
    located: Located, workspace: Path, state: Path, config: HostConfig, argv: list[str]
) -> ToolResult:
    isolation = detect(
        config.isolation,
        masked_dirs=[str(state), str(located.socket.parent)],
        writable_paths=config.writable_paths,
    )
    with WorkspaceRoot.open(located.root) as root:
        below = os.path.relpath(os.path.realpath(workspace), located.root)
        return await run_inherited(
            argv,
            root=root,
            environment=dict(os.environ),
            isolation=isolation,
            cwd=() if below == "." else tuple(below.split("/")),
            timeout_s=NO_TIMEOUT_S,
        )


def _code(envelope: bytes) -> int:
    predicate = parse_statement(parse_envelope(envelope).payload).predicate
    if not isinstance(predicate, ToolExecutionPredicate):
        fail("the receipt is not of a tool call", OUR_FAILURE)
    execution = predicate.execution
    if predicate.outcome != "completed" or execution is None:
        fail(f"{predicate.outcome}: {predicate.reason}", OUR_FAILURE)
    return signal_or_code(code=execution.exit_code, signal=execution.signal, timed_out=execution.timed_out)
