"""One command of the caller's, run and sealed by this very process: no daemon, no network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workseal.receipt.envelope import parse_envelope
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.receipt.statement import parse_statement
from workseal_host.cli.boundary import say
from workseal_host.cli.cautions import cautions_of
from workseal_host.cli.codes import OUR_FAILURE, tool_exit_code
from workseal_host.cli.progress import Waiting
from workseal_host.cli.signals import Interruptions
from workseal_host.config import HostConfig
from workseal_host.coordination.live import LiveExecution, Outcome
from workseal_host.engine import Engine, open_engine
from workseal_host.errors import LedgerError
from workseal_host.execution.inherited import NO_TIMEOUT_S
from workseal_host.execution.orphans import harden_process
from workseal_host.execution.registry import ToolRegistry
from workseal_host.execution.result_text import signal_name
from workseal_host.execution.tool import ToolContext, ToolResult
from workseal_host.execution.tools.run import RUN_TOOL, RunTool
from workseal_host.requests import CallRef, CallRequest

_NOT_STARTED: Final = "not started: "


@dataclass(frozen=True, slots=True)
class Order:
    """What the caller wants run.

    Attributes:
        workspace: the workspace, or a directory in one that a host holds.
        state: the state directory.
        config: the configuration of this user's hosts.
        call: names the call in the receipt.
        argv: the command.
        timeout_s: when it is ended, in seconds; None for never.
    """

    workspace: Path
    state: Path
    config: HostConfig
    call: CallRef
    argv: tuple[str, ...]
    timeout_s: float | None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the tool `run`."""
        return {"argv": list(self.argv)}


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of it.

    Attributes:
        envelope: the receipt.
        sequence: its place in the chain.
        outcome, reason: as the receipt has them.
        exit_code: what this process exits with where the outcome is `completed`.
        root: the workspace.
        notes: what the caller has not seen of it: not started, timed out, forbidden changes.
        isolated: whether only the workspace could be written.
    """

    envelope: bytes
    sequence: int
    outcome: str
    reason: str
    exit_code: int
    root: bytes
    notes: tuple[str, ...] = ()
    isolated: bool = False


async def run_here(order: Order) -> Ended:
    """Take the workspace's lock, run the command through the pipeline, and seal it.

    Args:
        order: what to run.

    Raises:
        HostError: nothing ran, unless the message says so.
    """
    harden_process()
    waiting = Waiting("looking at the workspace")
    interruptions = Interruptions(lambda: _leave(waiting))
    with waiting, interruptions.watched():
        engine = await open_engine(
            order.workspace,
            state=order.state,
            config=order.config,
            listens=False,
            registry=ToolRegistry([_WatchedRun(interruptions, waiting)]),
            environment=dict(os.environ),
        )
        try:
            outcome = await _through_pipeline(engine, order)
        finally:
            await engine.close()
    return _ended(outcome, engine, order.argv[0])


def _leave(waiting: Waiting) -> None:
    """End this process at once: a scan of a large tree cannot be interrupted, and nothing has begun."""
    waiting.stop()
    say("interrupted; nothing ran")
    os._exit(OUR_FAILURE)


class _WatchedRun(RunTool):
    """The tool `run`, which says when the command begins and ends."""

    def __init__(self, interruptions: Interruptions, waiting: Waiting) -> None:
        super().__init__(timeout_s=NO_TIMEOUT_S)
        self._interruptions = interruptions
        self._waiting = waiting

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run it; from here on the terminal is the command's."""
        self._waiting.stop()
        self._interruptions.running(context.cancelled)
        try:
            return await super().run(arguments, context)
        finally:
            self._interruptions.sealing()


async def _through_pipeline(engine: Engine, order: Order) -> Outcome:
    request = CallRequest(order.call, RUN_TOOL, order.arguments, timeout_s=order.timeout_s)
    found = await engine.pipeline.execute(request)
    return await found.finished if isinstance(found, LiveExecution) else found


def _ended(outcome: Outcome, engine: Engine, program: str) -> Ended:
    envelope = outcome.receipt.envelope
    predicate = parse_statement(parse_envelope(envelope).payload).predicate
    if not isinstance(predicate, ToolExecutionPredicate):
        raise LedgerError("the receipt is of no tool call; see `workseal receipts list`")
    execution = predicate.execution
    code, notes = OUR_FAILURE, tuple[str, ...]()
    if execution is not None:
        notes = notes_of(outcome.output.result, execution.exit_code, execution.signal, program=program)
        code = tool_exit_code(
            code=execution.exit_code, signal=execution.signal, timed_out=execution.timed_out
        )
    return Ended(
        envelope=envelope,
        sequence=outcome.receipt.sequence,
        outcome=str(predicate.outcome),
        reason=predicate.reason or "",
        exit_code=code,
        root=engine.root.path,
        notes=(*notes, *cautions_of(predicate)),
        isolated=engine.isolation.kind == "bubblewrap",
    )


def notes_of(result: bytes, exit_code: int | None, signal: int | None, *, program: str) -> tuple[str, ...]:
    """Return the status lines of a command, without those that the exit code already says."""
    said = {f"[exit code {exit_code}]", f"[ended by {signal_name(signal)}]" if signal is not None else ""}
    return tuple(
        line.strip("[]").replace(_NOT_STARTED, f"{_NOT_STARTED}{program}: ", 1)
        for line in result.decode("utf-8", "replace").splitlines()
        if line not in said
    )
