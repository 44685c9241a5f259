"""One command of the caller's on a workspace that a host holds: the host observes, this process runs.

The host cannot be handed a terminal, so it attests the interval, and its receipt says
`observed`: how the command ended is this process's claim, what changed is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from workseal.calls import ToolCall, new_challenge
from workseal.client import HostClient
from workseal.errors import HostError as AnsweredError
from workseal.receipt.predicate import ToolExecutionPredicate
from workseal.results import HostResult
from workseal_host.cli.boundary import fail, say, words_of
from workseal_host.cli.cautions import cautions_of
from workseal_host.cli.codes import OUR_FAILURE, tool_exit_code
from workseal_host.cli.connect import client_of
from workseal_host.cli.locate import Located
from workseal_host.cli.progress import Waiting
from workseal_host.cli.running import Ended, Order, notes_of
from workseal_host.cli.signals import Interruptions
from workseal_host.cli.trusted import accept
from workseal_host.engine import isolation_of
from workseal_host.errors import HostError, IsolationError
from workseal_host.execution.inherited import NO_TIMEOUT_S, run_inherited
from workseal_host.execution.isolation import Isolation
from workseal_host.execution.orphans import harden_process
from workseal_host.execution.tool import ToolResult
from workseal_host.execution.tools.run import RUN_TOOL
from workseal_host.workspace.root import WorkspaceRoot

# How long the host waits for word of us, and how often we send it: a `run` that was
# killed must not keep the workspace for long.
_TTL_S = 120.0
_RENEW_EVERY_S = 30.0


class _Patience:
    """What a signal means while the host has not answered yet.

    The first one waits: an observation that began unheard would keep the workspace
    until it expires. The second one leaves.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def leave(self) -> None:
        if self.interrupted:
            say("left; nothing ran, but the host may keep the workspace for us for two minutes")
            os._exit(OUR_FAILURE)
        self.interrupted = True
        say("interrupted; waiting for the host's answer, once more to leave at once")


async def run_observed(order: Order, held: Located) -> Ended:
    """Announce the command to the host, run it here, and fetch the host's receipt.

    Args:
        order: what to run.
        held: the host; its root is known.

    Raises:
        HostError: the command could not be started; nothing ran.
        NotVerifiedError: what the host answered is not by a key of this machine.
    """
    if held.root is None:
        raise IsolationError("the root of the host's workspace is not known; nothing ran")
    harden_process()
    private = (order.state, held.socket.parent)
    here = _Here(order, held.root, isolation_of(order.config, private))
    # A challenge in any case: the answer must be to this very announcement.
    challenge = order.call.challenge or new_challenge()
    call = ToolCall(order.call.session_id, order.call.tool_call_id, RUN_TOOL, order.arguments, challenge)
    async with client_of(held) as client:
        with here.interruptions.watched():
            workspace_id, told = await _observe(here, client, call)
    return here.ended(told, accept(order.state, workspace_id, call, told))


class _Here:
    """The command in this process.

    Args:
        order: what to run.
        root: real path of the workspace.
        isolation: how it is isolated.
    """

    def __init__(self, order: Order, root: Path, isolation: Isolation) -> None:
        self._order = order
        self._root = root
        self._isolation = isolation
        self._below = Path(os.path.realpath(order.workspace)).relative_to(root).parts
        self.patience = _Patience()
        self.interruptions = Interruptions(self.patience.leave)
        self._ran: ToolResult | None = None

    async def run(self) -> ToolResult:
        """Run it."""
        cancelled = asyncio.Event()
        with WorkspaceRoot.open(self._root) as root:
            self.interruptions.running(cancelled)
            try:
                self._ran = await run_inherited(
                    self._order.argv,
                    root=root,
                    environment=dict(os.environ),
                    isolation=self._isolation,
                    cwd=self._below,
                    cancelled=cancelled,
                    timeout_s=self._order.timeout_s or NO_TIMEOUT_S,
                )
            finally:
                self.interruptions.sealing()
        return self._ran

    def ended(self, told: HostResult, predicate: ToolExecutionPredicate) -> Ended:
        """Return what came of it, by the host's verified receipt and by what was seen here."""
        outcome, reason, ran = str(predicate.outcome), predicate.reason or "", self._ran
        code, notes = OUR_FAILURE, tuple[str, ...]()
        if ran is not None:
            code = tool_exit_code(code=ran.exit_code, signal=ran.signal, timed_out=ran.timed_out)
            notes = notes_of(ran.result, ran.exit_code, ran.signal, program=self._order.argv[0])
            if ran.survivors:
                outcome, reason = "inDoubt", "processes of the command could not be ended"
        return Ended(
            envelope=told.envelope,
            sequence=predicate.chain.sequence,
            outcome=outcome,
            reason=reason,
            exit_code=code,
            root=os.fsencode(self._root),
            notes=(*notes, *cautions_of(predicate)),
            isolated=self._isolation.kind == "bubblewrap",
        )


async def _observe(here: _Here, client: HostClient, call: ToolCall) -> tuple[str, HostResult]:
    """Run the command between the two ends of an observation.

    Returns:
        The workspace id that the host gives, and its outcome; neither is verified.
    """
    try:
        with Waiting("waiting for the host"):
            workspace_id = await client.workspace_id()
            observation = await client.begin_observation(call, ttl_s=_TTL_S)
    except AnsweredError as error:
        fail(f"nothing ran: {words_of(error)}", OUR_FAILURE)
    if observation.outcome is not None:
        return workspace_id, observation.outcome
    if here.patience.interrupted:
        await client.end_observation(observation.execution_id, result=b"interrupted before it began\n")
        fail("interrupted; nothing ran", OUR_FAILURE)
    renewing = asyncio.create_task(_renew(client, call))
    try:
        ran = await here.run()
    except (HostError, OSError) as error:
        # The host must not go on waiting for a command that never was.
        await client.end_observation(observation.execution_id, result=f"nothing ran: {error}\n".encode())
        raise
    finally:
        renewing.cancel()
    return workspace_id, await _tell(client, observation.execution_id, ran)


async def _renew(client: HostClient, call: ToolCall) -> None:
    """Say again and again that the command still runs."""
    while True:
        await asyncio.sleep(_RENEW_EVERY_S)
        # A host that cannot be reached now may be there the next time.
        with contextlib.suppress(AnsweredError):
            await client.begin_observation(call, ttl_s=_TTL_S)


async def _tell(client: HostClient, execution_id: str, ran: ToolResult) -> HostResult:
    try:
        return await client.end_observation(
            execution_id, result=ran.result, exit_code=ran.exit_code, signal=ran.signal
        )
    except AnsweredError as error:
        how = f"signal {ran.signal}" if ran.signal is not None else f"code {ran.exit_code}"
        fail(
            f"the command ran and ended with {how}, but there is no receipt: {words_of(error)}. "
            "A host that starts again closes the call as in doubt; see `workseal receipts list`",
            OUR_FAILURE,
        )
