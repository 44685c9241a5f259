"""Closing what a crash left open, before anything is served.

A row that was only *received* never ran: it is abandoned and its key is free. A
row *in flight* may have done anything: it is closed as in doubt, with what the
workspace was before and is now, and is never run again under its key. The same
durable state always leads to the same decision.
"""

from __future__ import annotations

import json

import structlog

from workseal_host.assembly import Facts
from workseal_host.errors import HostError, LedgerError, WorkspaceError
from workseal_host.ledger.model import ExecutionRow, InFlight, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.observing import Observer, View
from workseal_host.pipeline import Clock
from workseal_host.requests import CallRef, CallRequest
from workseal_host.sealing import Sealer
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.model import count_entries
from workseal_host.workspace.scan import ScanLevel, ScanResult
from workseal_host.workspace.scheme import workspace_digest

log = structlog.get_logger("workseal.settlement")

_REASON = "the host ended while the call was in flight"


async def settle_all(ledger: Ledger, observer: Observer, sealer: Sealer, clock: Clock) -> int:
    """Close every execution that is not final.

    Returns:
        How many were in flight.

    Raises:
        HostError: one could not be closed; the workspace must not be served.
    """
    in_doubt = 0
    for row in await ledger.unsettled():
        if row.state is ExecutionState.RECEIVED:
            await ledger.abandon(row.execution_id)
            continue
        await _close(row, ledger, observer, sealer, clock)
        in_doubt += 1
    return in_doubt


async def _close(row: ExecutionRow, ledger: Ledger, observer: Observer, sealer: Sealer, clock: Clock) -> None:
    if row.in_flight is None:
        raise LedgerError(
            f"execution {row.execution_id} is in flight without a record; the ledger is damaged"
        )
    before = await _before(row.in_flight, ledger, observer)
    after = await _after(observer, before)
    stored = json.loads(row.request)
    call = CallRef(row.session_id, row.tool_call_id, stored["challenge"])
    facts = Facts(
        request=CallRequest(call, row.tool, {}, observed=stored["observed"]),
        arguments_digest=stored["argumentsDigest"],
        execution_id=row.execution_id,
        key=row.idempotency_key,
        attempt=row.attempt,
        mode=row.mode,
        isolation="none",
        before=before,
        outcome="inDoubt",
        reason=_REASON,
        after=after,
        after_policy_digest=after.policy.digest if after else None,
        ran=True,
        started_ns=row.in_flight.started_ns,
        finished_ns=clock.wall_ns(),
    )
    facts.duration_ns = max(0, facts.finished_ns - facts.started_ns)
    await sealer.seal(facts)
    log.warning("execution is in doubt", execution_id=row.execution_id, tool=row.tool)


async def _before(record: InFlight, ledger: Ledger, observer: Observer) -> View:
    tree = await ledger.load_tree(record.before.tree_digest)
    scan = ScanResult(
        tree=tree,
        level=ScanLevel(record.scan_level),
        policy=IgnorePolicy.from_bytes(record.before.policy_rules),
        unreadable=[],
        unstable=[],
        entries=count_entries(tree),
    )
    return View(scan, observer.scheme, tree, workspace_digest(tree, observer.scheme).hex())


async def _after(observer: Observer, before: View) -> View | None:
    try:
        return await observer.look(policy=before.policy)
    except WorkspaceError as error:
        log.warning("the workspace cannot be observed", error=str(error))
        return None


__all__ = ["HostError", "settle_all"]
