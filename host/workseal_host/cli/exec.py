"""`workseal exec`: one call to the running host."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from workseal.calls import Precondition, ToolCall, new_challenge
from workseal.canonical import parse_json
from workseal.errors import InvalidInputError, StoreError
from workseal_host.cli.boundary import drop_stdout, say
from workseal_host.cli.codes import OUR_FAILURE, tool_exit_code
from workseal_host.cli.common import challenge_option, echo_json, host_options, json_option, timeout_option
from workseal_host.cli.locate import locate
from workseal_host.cli.output_file import OutputFile
from workseal_host.requests import MAX_ARGUMENTS_BYTES

if TYPE_CHECKING:
    from workseal.receipt.predicate import ToolExecutionPredicate
    from workseal.results import HostResult

_DIGEST_PREFIX: Final = "sha256:"


@click.command("exec")
@click.argument("tool")
@click.option(
    "--args",
    "arguments",
    default="{}",
    metavar="JSON",
    help="The arguments, a JSON object; `@FILE` reads a file, `@-` stdin.",
)
@click.option("--session", default="cli", show_default=True, metavar="ID", help="Session id in the receipt.")
@click.option("--call", "call_id", metavar="ID", help="Call id in the receipt.  [default: random]")
@challenge_option("a new one")
@click.option(
    "--expect",
    metavar="DIGEST",
    help="Refuse unless the workspace has this digest, as `workseal digest` prints it.",
)
@timeout_option("of the tool")
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the receipt here.",
)
@json_option
@host_options
def exec_command(
    *,
    tool: str,
    arguments: str,
    session: str,
    call_id: str | None,
    challenge: str | None,
    expect: str | None,
    timeout_s: float | None,
    receipt_file: Path | None,
    as_json: bool,
    workspace: Path,
    socket_file: str | None,
    state: Path,
) -> None:
    """Run TOOL once on the host, verify its receipt, then print the tool's text.

    The exit code is the tool's own (128 + signal; 124 on time-out). 125 means that it
    did not run to an end that can be relied on: refused, in doubt, not verified, or
    the host cannot be reached. Ctrl-C asks the host to end the tool; a second one leaves.
    """
    call_id = call_id if call_id is not None else f"cli-{secrets.token_hex(8)}"
    challenge = challenge if challenge is not None else new_challenge()
    call = ToolCall(session, call_id, tool, _arguments(arguments), challenge)
    target = None if receipt_file is None else OutputFile.find(receipt_file)
    from workseal_host.cli.calling import execute  # noqa: PLC0415 - gRPC, after what can be refused cheaply

    located = locate(state, workspace, socket_file)
    answered = asyncio.run(execute(located, state, call, _precondition(expect), timeout_s))
    code = _code(answered.predicate)
    if target is not None:
        code = _keep(target, answered.result, answered.root, code)
    _print(answered.predicate, answered.result, as_json=as_json)
    sys.exit(code)


def _arguments(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        with click.open_file(text[1:], "rb") as file:
            data = file.read(MAX_ARGUMENTS_BYTES + 1)
    else:
        data = text.encode("utf-8", "surrogateescape")
    value = parse_json(data, max_bytes=MAX_ARGUMENTS_BYTES)
    if not isinstance(value, dict):
        raise InvalidInputError('--args must be a JSON object, such as {"path": "a.txt"}', field="args")
    return value


def _precondition(expect: str | None) -> Precondition | None:
    if expect is None:
        return None
    digest = expect.removeprefix(_DIGEST_PREFIX)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise InvalidInputError(
            "--expect must be a digest as `workseal digest` prints it: sha256: and 64 hex digits",
            field="expect",
        )
    return Precondition(workspace_digest=digest)


def _keep(target: OutputFile, result: HostResult, root: bytes, code: int) -> int:
    """Write the receipt.

    Returns:
        The exit code: a receipt that was asked for and is not there is a failure.
    """
    try:
        target.write(result.envelope)
    except StoreError as error:
        say(f"{error}; `workseal receipts show {result.sequence} --output FILE` has the receipt")
        return OUR_FAILURE
    if root and target.lies_inside(root):
        say(f"warning: {target.path} lies in the workspace: the next receipt lists it as an outside change")
    return code


def _print(predicate: ToolExecutionPredicate, result: HostResult, *, as_json: bool) -> None:
    try:
        if as_json:
            echo_json(_summary(predicate, result))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(result.result)
        sys.stdout.flush()
    except BrokenPipeError:
        # The call is over and its code is known, whoever reads its text.
        drop_stdout()


def _summary(predicate: ToolExecutionPredicate, result: HostResult) -> dict[str, Any]:
    workspace, execution = predicate.workspace, predicate.execution
    return {
        "outcome": str(predicate.outcome),
        "reason": predicate.reason,
        "result": result.result.decode("utf-8", "replace"),
        "exit_code": execution.exit_code if execution else None,
        "signal": execution.signal if execution else None,
        "timed_out": bool(execution and execution.timed_out),
        "cancelled": bool(execution and execution.cancelled),
        "before_digest": f"{_DIGEST_PREFIX}{workspace.before}",
        "after_digest": f"{_DIGEST_PREFIX}{workspace.after}" if workspace.after else None,
        "created": [entry.path for entry in workspace.created],
        "modified": [entry.path for entry in workspace.modified],
        "deleted": [entry.path for entry in workspace.deleted],
        "changes_complete": workspace.changes.complete,
        "violations": [item.path or "." for item in predicate.policy.violations],
        "session_id": predicate.call.session_id,
        "tool_call_id": predicate.call.tool_call_id,
        "challenge": predicate.call.challenge,
        "sequence": predicate.chain.sequence,
        "payload_digest": result.payload_digest,
        "replayed": result.replayed,
    }


def _code(predicate: ToolExecutionPredicate) -> int:
    execution = predicate.execution
    if predicate.outcome != "completed" or execution is None:
        return OUR_FAILURE
    return tool_exit_code(code=execution.exit_code, signal=execution.signal, timed_out=execution.timed_out)
