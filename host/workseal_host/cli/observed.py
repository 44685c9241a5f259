"""One command of the caller's on a workspace that a host holds: the host observes, this process runs.

The host cannot be handed a terminal, so it attests the interval, and its receipt says
`observed`: how the command ended is this process's claim, what changed is not.
"""

from __future__ import annotations

import os
from pathlib import Path

from workseal.calls import ToolCall, new_challenge
from workseal.client import HostClient
from workseal.errors import HostError as AnsweredError
from workseal.results import HostResult
from workseal_host.cli.boundary import fail, say
from workseal_host.cli.codes import OUR_FAILURE, tool_exit_code
from workseal_host.cli.connect import accept, client_of
from workseal_host.cli.locate import Located
from workseal_host.cli.progress import Waiting
from workseal_host.cli.running import Ended, Order, hint_for
from workseal_host.cli.signals import Interruptions
from workseal_host.engine import isolation_of
from workseal_host.errors import HostError, IsolationError
from workseal_host.execution.inherited import NO_TIMEOUT_S, run_inherited
from workseal_host.execution.isolation import Isolation
from workseal_host.execution.orphans import harden_process
from workseal_host.execution.tool import ToolContext, ToolResult
from workseal_host.execution.tools.run import RUN_TOOL
from workseal_host.requests import MAX_OBSERVATION_S
from workseal_host.workspace.root import WorkspaceRoot

# On top of the command's own time-out, before the host gives the observation up.
_ENDING_S = 60.0


class _Patience:
    """What a signal means while the host has not answered yet.

    The first one waits: an observation that began unheard would keep the workspace
    until it expires. The second one leaves.
    """

    def __init__(self) -> None:
        self.interrupted = False

    def leave(self) -> None:
        if self.interrupted:
            say("left; nothing ran, but the host may keep the workspace for us until it is restarted")
            os._exit(OUR_FAILURE)
        self.interrupted = True
        say("interrupted; waiting for the host's answer, once more to leave at once")


async def run_observed(order: Order, held: Located) -> Ended:
    """Announce the command to the host, run it here, and fetch the host's receipt.

    Args:
        order: what to run.
        held: the host; its root is known.

    Raises:
        HostError: the host refused, or the command could not be started; nothing ran.
    """
    harden_process()
    patience = _Patience()
    interruptions = Interruptions(patience.leave)
    call = _announced(order)
    with interruptions.watched():
        async with client_of(held) as client:
            with Waiting("waiting for the host"):
                observation = await client.begin_observation(call, ttl_s=_ttl_s(order))
            if observation.outcome is not None:
                return await _ended(order, held, client, call, observation.outcome, None)
            if patience.interrupted:
                await client.end_observation(observation.execution_id, result=b"interrupted before it began\n")
                fail("interrupted; nothing ran", OUR_FAILURE)
            ran = await _run(order, held, client, observation.execution_id, interruptions)
            told = await _tell(client, observation.execution_id, ran)
            return await _ended(order, held, client, call, told, ran)


def _announced(order: Order) -> ToolCall:
    # A challenge in any case: the answer must be to this very announcement.
    challenge = order.call.challenge or new_challenge()
    return ToolCall(order.call.session_id, order.call.tool_call_id, RUN_TOOL, order.arguments, challenge)


def _ttl_s(order: Order) -> float:
    if order.timeout_s is None:
        return MAX_OBSERVATION_S
    return min(MAX_OBSERVATION_S, order.timeout_s + _ENDING_S)


async def _run(
    order: Order, held: Located, client: HostClient, execution_id: str, interruptions: Interruptions
) -> ToolResult:
    root = _root(held)
    try:
        return await _command(order, root, _isolation(order, held), interruptions)
    except (HostError, OSError) as error:
        # The host must not go on waiting for a command that never was.
        await client.end_observation(execution_id, result=f"nothing ran: {error}\n".encode())
        raise


def _root(held: Located) -> Path:
    if held.root is None:
        raise IsolationError("the root of the host's workspace is not known; nothing ran")
    return held.root


def _isolation(order: Order, held: Located) -> Isolation:
    return isolation_of(order.config, (Path(os.path.realpath(order.state)), held.socket.parent))


async def _command(
    order: Order, root_path: Path, isolation: Isolation, interruptions: Interruptions
) -> ToolResult:
    below = os.path.relpath(os.path.realpath(order.workspace), root_path)
    with WorkspaceRoot.open(root_path) as root:
        context = ToolContext(root=root, environment=dict(os.environ), isolation=isolation)
        interruptions.running(context.cancelled)
        try:
            return await run_inherited(
                order.argv,
                root=root,
                environment=context.environment,
                isolation=isolation,
                cwd=() if below == "." else tuple(below.split("/")),
                cancelled=context.cancelled,
                timeout_s=order.timeout_s or NO_TIMEOUT_S,
            )
        finally:
            interruptions.sealing()


async def _tell(client: HostClient, execution_id: str, ran: ToolResult) -> HostResult:
    try:
        return await client.end_observation(
            execution_id, result=ran.result, exit_code=ran.exit_code, signal=ran.signal
        )
    except AnsweredError as error:
        how = f"signal {ran.signal}" if ran.signal is not None else f"code {ran.exit_code}"
        fail(
            f"the command ran and ended with {how}, but there is no receipt: {error}. "
            "A host that starts again closes the call as in doubt; see `workseal receipts list`",
            OUR_FAILURE,
        )


async def _ended(
    order: Order,
    held: Located,
    client: HostClient,
    call: ToolCall,
    told: HostResult,
    ran: ToolResult | None,
) -> Ended:
    predicate = accept(order.state, await client.workspace_id(), call, told)
    outcome, reason, code = str(predicate.outcome), predicate.reason or "", OUR_FAILURE
    if ran is not None and ran.survivors:
        outcome, reason = "inDoubt", "processes of the command could not be ended"
    if ran is not None:
        code = tool_exit_code(code=ran.exit_code, signal=ran.signal, timed_out=ran.timed_out)
    return Ended(
        envelope=told.envelope,
        sequence=predicate.chain.sequence,
        outcome=outcome,
        reason=reason,
        exit_code=code,
        root=os.fsencode(_root(held)),
        hint="" if ran is None else hint_for(code, isolated=order.config.isolation != "none"),
    )
