"""One tool call to a running host, believed only once its receipt is verified."""

from __future__ import annotations

import asyncio
import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workseal.calls import Precondition, ToolCall
from workseal.client import HostClient
from workseal.errors import HostError as AnsweredError
from workseal.errors import HostUnreachableError, InvalidInputError
from workseal.paths import unescape_path
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.results import HostInfo, HostResult, Selector
from workseal_host.cli.boundary import fail, say, words_of
from workseal_host.cli.cautions import cautions_of
from workseal_host.cli.codes import OUR_FAILURE
from workseal_host.cli.connect import client_of
from workseal_host.cli.locate import Located
from workseal_host.cli.progress import Waiting
from workseal_host.cli.trusted import accept

_UNKNOWN_TOOL: Final = "unknown-tool"


@dataclass(frozen=True, slots=True)
class Answered:
    """A verified answer.

    Attributes:
        predicate: what was signed.
        result: what came with it.
        root: raw path of the workspace as the host gives it; empty where it is not known.
    """

    predicate: ToolExecutionPredicate
    result: HostResult
    root: bytes


async def execute(
    located: Located, state: Path, call: ToolCall, precondition: Precondition | None, timeout_s: float | None
) -> Answered:
    """Have a tool run once.

    Args:
        located: the host.
        state: its state directory, with the keys that its receipts are verified with.
        call: what to run.
        precondition: what must hold before.
        timeout_s: when the host ends it, in seconds; None for the tool's own.

    Raises:
        HostError: the host did not do it, or cannot be reached.
        NotVerifiedError: the receipt does not verify; nothing of the answer was used.
    """
    async with client_of(located) as client:
        info = await client.host_info()
        asking = asyncio.ensure_future(client.execute(call, precondition=precondition, timeout_s=timeout_s))
        try:
            with Waiting(f"{call.tool} runs on the host") as waiting:
                result = await _interruptible(client, call, asking, waiting)
        except HostUnreachableError:
            fail(how_to_ask_again(call), OUR_FAILURE)
    predicate = accept(state, info.workspace_id, call, result)
    for caution in cautions_of(predicate):
        say(caution)
    if predicate.outcome != "completed":
        say(f"{predicate.outcome}: {_reason(predicate)}")
    return Answered(predicate, result, _root(info))


def _reason(predicate: ToolExecutionPredicate) -> str:
    reason = predicate.reason or ""
    if reason.startswith(_UNKNOWN_TOOL):
        return (
            f"{_UNKNOWN_TOOL}: the host has no tool {predicate.call.tool}; `workseal status` lists its tools"
        )
    return reason


def how_to_ask_again(call: ToolCall) -> str:
    """Return what to say where the host went away: with the same ids the call is the same one."""
    again = ["--session", call.session_id, "--call", call.tool_call_id]
    if call.challenge is not None:
        again.append(f"--challenge={call.challenge}")  # it may begin with a dash
    return (
        "the connection to the host broke, and whether the tool ran is not known. When the host is back, "
        f"the same command with {shlex.join(again)} gives the outcome of this call; it runs at most once"
    )


def _root(info: HostInfo) -> bytes:
    with suppress(InvalidInputError):
        return unescape_path(info.root)
    return b""


async def _interruptible(
    client: HostClient, call: ToolCall, asking: asyncio.Future[HostResult], waiting: Waiting
) -> HostResult:
    """Wait for the outcome; Ctrl-C asks the host to end the tool, a second one leaves."""
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        waiting.stop()
        if ending:
            asking.cancel()
            return
        say("asking the host to end the tool; once more to leave it")
        ending.append(asyncio.ensure_future(_cancel(client, call)))

    handled = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if handled:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await asking
    except asyncio.CancelledError:
        fail("left; the tool may go on, and `workseal receipts list` will show its end", OUR_FAILURE)
    finally:
        if handled:
            loop.remove_signal_handler(signal.SIGINT)
        for task in ending:
            task.cancel()


async def _cancel(client: HostClient, call: ToolCall) -> None:
    try:
        await client.cancel(Selector(idempotency_key=await client.idempotency_key(call)))
    except AnsweredError as error:
        say(f"the host could not be asked: {words_of(error)}")
