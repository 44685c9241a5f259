"""`workseal exec`: one call to the running host."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from typing import Any

import click

from workseal.calls import Precondition, ToolCall, new_challenge
from workseal.canonical import parse_json
from workseal.errors import InvalidInputError, NotVerifiedError
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import Outcome, ScanLevel, ToolExecutionPredicate
from workseal.receipt.verifier import ReceiptVerifier
from workseal.results import HostResult
from workseal_host.cli.common import (
    OUR_FAILURE,
    echo_json,
    fail,
    json_option,
    maps_errors_of_tools,
    signal_or_code,
    socket_option,
    state_option,
    workspace_option,
)
from workseal_host.cli.connect import Located, locate, own_keys
from workseal_host.requests import MAX_ARGUMENTS_BYTES

_DIGEST_PREFIX = "sha256:"


@click.command("exec")
@click.argument("tool")
@click.option(
    "--args",
    "arguments",
    default="{}",
    help="The arguments, a JSON object; `@FILE` reads a file, `@-` stdin.",
)
@click.option("--session", default="cli", show_default=True, help="Session id in the receipt.")
@click.option("--call", "call_id", default="", help="Call id in the receipt. [default: random]")
@click.option("--challenge", default="", help="32 random bytes in base64url. [default: a new one]")
@click.option("--expect", default="", help="Refuse unless the workspace has this digest (sha256:HEX).")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    help="End the tool after this many seconds.",
)
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the receipt here.",
)
@json_option
@socket_option
@workspace_option
@state_option
@maps_errors_of_tools
def exec_command(
    tool: str,
    arguments: str,
    session: str,
    call_id: str,
    challenge: str,
    expect: str,
    timeout_s: float | None,
    receipt_file: Path | None,
    as_json: bool,
    workspace: Path,
    socket_file: str | None,
    state: Path,
) -> None:
    """Run TOOL once on the host, verify its receipt, print the tool's text.

    The exit code is the tool's own (128 + signal; 124 on time-out). 125 means
    that it did not run to an end that can be relied on: refused, in doubt, not
    verified, or the host cannot be reached.
    """
    call = ToolCall(
        session,
        call_id or f"cli-{secrets.token_hex(8)}",
        tool,
        _arguments(arguments),
        challenge or new_challenge(),
    )
    precondition = Precondition(workspace_digest=expect.removeprefix(_DIGEST_PREFIX)) if expect else None
    located = locate(state, workspace, socket_file)
    workspace_id, result = asyncio.run(_execute(located, call, precondition, timeout_s))
    if receipt_file is not None:
        receipt_file.write_bytes(result.envelope)
    predicate = _verified(state, workspace_id, call, result)
    if as_json:
        echo_json(_summary(predicate, result))
    else:
        sys.stdout.buffer.write(result.result)
        sys.stdout.buffer.flush()
    sys.exit(_code(predicate))


def _arguments(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        with click.open_file(text[1:], "rb") as file:
            data = file.read(MAX_ARGUMENTS_BYTES + 1)
    else:
        data = text.encode("utf-8", "surrogateescape")
    value = parse_json(data, max_bytes=MAX_ARGUMENTS_BYTES)
    if not isinstance(value, dict):
        raise InvalidInputError("--args must be a JSON object", field="args")
    return value


async def _execute(
    located: Located, call: ToolCall, precondition: Precondition | None, timeout_s: float | None
) -> tuple[str, HostResult]:
    async with located.client() as client:
        result = await client.execute(call, precondition=precondition, timeout_s=timeout_s)
        return await client.workspace_id(), result


def _verified(state: Path, workspace_id: str, call: ToolCall, result: HostResult) -> ToolExecutionPredicate:
    """Check the receipt with this machine's own keys before anything of it is believed."""
    expectation = Expectation(
        workspace_id=workspace_id,
        session_id=call.session_id,
        tool_call_id=call.tool_call_id,
        tool=call.tool,
        arguments_digest=call.arguments_digest,
        challenge=call.challenge,
    )
    policy = AcceptancePolicy(minimum_scan=ScanLevel.WATCH, allow_unstable=True)
    try:
        verified = ReceiptVerifier(own_keys(state), policy).verify(
            result.envelope, expectation, result=result.result or None
        )
    except NotVerifiedError as error:
        fail(f"the receipt does not verify ({error.check}): {error}", OUR_FAILURE)
    return verified.predicate


def _summary(predicate: ToolExecutionPredicate, result: HostResult) -> dict[str, Any]:
    workspace, execution = predicate.workspace, predicate.execution
    return {
        "outcome": str(predicate.outcome),
        "reason": predicate.reason,
        "result": result.result.decode("utf-8", "replace"),
        "exit_code": execution.exit_code if execution else None,
        "signal": execution.signal if execution else None,
        "timed_out": bool(execution and execution.timed_out),
        "before_digest": f"{_DIGEST_PREFIX}{workspace.before}",
        "after_digest": f"{_DIGEST_PREFIX}{workspace.after}" if workspace.after else None,
        "created": [entry.path for entry in workspace.created],
        "modified": [entry.path for entry in workspace.modified],
        "deleted": [entry.path for entry in workspace.deleted],
        "sequence": result.sequence,
        "payload_digest": result.payload_digest,
        "replayed": result.replayed,
    }


def _code(predicate: ToolExecutionPredicate) -> int:
    execution = predicate.execution
    if predicate.outcome is not Outcome.COMPLETED or execution is None:
        click.echo(f"workseal: {predicate.outcome}: {predicate.reason}", err=True)
        return OUR_FAILURE
    return signal_or_code(code=execution.exit_code, signal=execution.signal, timed_out=execution.timed_out)
