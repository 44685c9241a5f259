"""Closing what a crash left open, before anything is served.

A row that was only *received* never ran: it is abandoned and its key is free. A
row *in flight* may have done anything. What is left of its processes is ended
first; then it is closed as in doubt, with what the workspace was before and is now,
and is never run again under its key. The same durable state always leads to the
same decision.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import structlog

from workseal_host.coordination.remains import end_remains
from workseal_host.errors import LedgerError, WorkspaceError
from workseal_host.evidence.facts import Facts
from workseal_host.evidence.in_flight import Evidence, read_evidence
from workseal_host.ledger.model import ExecutionRow, InFlight, Ledger
from workseal_host.ledger.states import ExecutionState
from workseal_host.observing import Observer, View
from workseal_host.requests import CallRef, CallRequest
from workseal_host.sealing import Sealer
from workseal_host.stages import Clock
from workseal_host.workspace.ignore import IgnorePolicy
from workseal_host.workspace.model import count_entries
from workseal_host.workspace.scan import ScanLevel, ScanResult
from workseal_host.workspace.scheme import DigestScheme

log = structlog.get_logger("workseal.settlement")

_REASON = "the host ended while the call was in flight"


async def settle_all(
    ledger: Ledger, observer: Observer, sealer: Sealer, clock: Clock, *, protected: Sequence[str] = ()
) -> int:
    """Close every execution that is not final.

    Args:
        ledger: whose rows.
        observer: looks at the workspace.
        sealer: signs what was found.
        clock: tells when.
        protected: globs of paths that no tool should have changed.

    Returns:
        How many were in flight.

    Raises:
        HostError: one could not be closed; the workspace must not be served.
    """
    rows = await ledger.unsettled()
    in_flight = [row for row in rows if row.state is ExecutionState.IN_FLIGHT]
    for row in rows:
        if row.state is ExecutionState.RECEIVED:
            await ledger.abandon(row.execution_id)
    # All of them first: a scan must not fall between the writes of another one.
    ended = [await _end(row) for row in in_flight]
    for row, certain in zip(in_flight, ended, strict=True):
        facts = await _facts(row, ledger, observer, protected)
        if not certain:
            facts.doubt("it cannot be proved that none of its processes is left")
        facts.finished_ns = max(clock.wall_ns(), facts.started_ns)
        facts.duration_ns = facts.finished_ns - facts.started_ns
        await sealer.seal(facts)
        log.warning("execution is in doubt", execution_id=row.execution_id, tool=row.tool)
    return len(in_flight)


async def _end(row: ExecutionRow) -> bool:
    record, evidence = _read(row)
    del record
    # Neither the host's own file tools nor somebody else's editor left processes of ours.
    if row.mode == "observed" or evidence.isolation == "host":
        return True
    return await asyncio.to_thread(end_remains, row.execution_id, boot=evidence.boot_id)


def _read(row: ExecutionRow) -> tuple[InFlight, Evidence]:
    damaged = f"execution {row.execution_id} is in flight without a record; restore the ledger from a backup"
    if row.in_flight is None:
        raise LedgerError(damaged)
    try:
        return row.in_flight, read_evidence(row.in_flight)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(damaged) from error


async def _facts(row: ExecutionRow, ledger: Ledger, observer: Observer, protected: Sequence[str]) -> Facts:
    record, evidence = _read(row)
    before = await _before(record, evidence, ledger)
    stored = json.loads(row.request)
    call = CallRef(row.session_id, row.tool_call_id, stored["challenge"])
    facts = Facts(
        request=CallRequest(call, row.tool, {}, observed=stored["observed"]),
        arguments_digest=stored["argumentsDigest"],
        execution_id=row.execution_id,
        key=row.idempotency_key,
        attempt=row.attempt,
        mode=row.mode,
        isolation=evidence.isolation,
        before=before,
        state_sequence=evidence.state_sequence,
        bridge=await _bridge(evidence, before, ledger),
        predicted=evidence.predicted,
        read_only=evidence.read_only,
        protected=protected,
        precondition=evidence.precondition,
        ran=True,
        started_ns=record.started_ns,
    )
    facts.doubt(_REASON)
    await _look_after(facts, observer)
    return facts


async def _before(record: InFlight, evidence: Evidence, ledger: Ledger) -> View:
    tree = await ledger.load_tree(record.before.tree_digest)
    scan = ScanResult(
        tree=tree,
        level=ScanLevel(record.scan_level),
        policy=IgnorePolicy.from_bytes(record.before.policy_rules),
        unreadable=evidence.unreadable,
        unstable=evidence.unstable,
        entries=count_entries(tree),
    )
    return View.of(scan, DigestScheme(record.before.scheme))


async def _bridge(evidence: Evidence, before: View, ledger: Ledger) -> View | None:
    state = (await ledger.head()).state
    if evidence.bridge_tree is None or state is None:
        return None
    tree = await ledger.load_tree(evidence.bridge_tree)
    policy = IgnorePolicy.from_bytes(state.policy_rules)
    scan = ScanResult(tree, before.scan.level, policy, [], [], count_entries(tree))
    return View.of(scan, before.scheme)


async def _look_after(facts: Facts, observer: Observer) -> None:
    """See what is there now, under the scheme and the rules of then, whatever the host is set to by now."""
    try:
        facts.after = await observer.look(policy=facts.before.policy, scheme=facts.before.scheme)
        facts.after_policy_digest = (await observer.policy_now()).digest
    except WorkspaceError as error:
        log.warning("the workspace cannot be observed", error=str(error))
        if facts.after is None:
            facts.doubt(f"the workspace cannot be observed: {error}")
