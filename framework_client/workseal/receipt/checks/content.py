"""Checks 4, 6, 7, 8, 10 and 11: is it good enough, and the one that was asked for."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from workseal.errors import CannotCheckError
from workseal.receipt.checks.context import Context, NotAsked, fail
from workseal.receipt.consistency import inconsistency
from workseal.receipt.policy import AcceptancePolicy, scan_at_least
from workseal.receipt.predicate import Execution, Isolation, Mode, Workspace
from workseal.receipt.statement import parse_time


def check_policy(context: Context) -> str:
    """4. Outcome, mode, scheme, scans, ignore policy, isolation and what was left open are acceptable."""
    predicate, policy = context.execution(), context.policy
    if predicate.outcome not in policy.outcomes:
        raise fail("policy", "outcome", f"outcome {predicate.outcome} is not accepted")
    _workspace_policy(predicate.workspace, policy)
    if predicate.execution is not None:
        allow_observed = policy.allow_observed or context.expectation.allow_observed
        _execution_policy(predicate.execution, policy, allow_observed=allow_observed)
    return f"outcome {predicate.outcome}"


def _workspace_policy(workspace: Workspace, policy: AcceptancePolicy) -> None:
    scans = [level for level in (workspace.scan_before, workspace.scan_after) if level is not None]
    rules = [workspace.ignore_policy_before, workspace.ignore_policy_after]
    if workspace.scheme not in policy.schemes:
        raise fail("policy", "scheme", f"digest scheme {workspace.scheme} is not accepted")
    if not all(scan_at_least(level, policy.minimum_scan) for level in scans):
        raise fail("policy", "scan-level", f"a scan read less than level {policy.minimum_scan}")
    if policy.ignore_policies is not None and not policy.ignore_policies.issuperset(filter(None, rules)):
        raise fail("policy", "ignore-policy", "the ignore rules are not among those that are accepted")
    if workspace.unstable and not policy.allow_unstable:
        raise fail(
            "policy",
            "unstable",
            f"{_counted(len(workspace.unstable), 'file', 'files')} would not hold still while digested",
        )
    if workspace.unreadable and not policy.allow_unreadable:
        raise fail(
            "policy",
            "unreadable",
            f"{_counted(len(workspace.unreadable), 'entry', 'entries')} could not be read",
        )


def _execution_policy(execution: Execution, policy: AcceptancePolicy, *, allow_observed: bool) -> None:
    if execution.mode not in policy.modes and not (execution.mode is Mode.OBSERVED and allow_observed):
        raise fail("policy", "mode", f"mode {execution.mode} is not accepted")
    # The host's own code ran and no process of the tool: there was nothing to isolate.
    isolated = execution.isolation is Isolation.HOST or policy.isolations is None
    if not isolated and execution.isolation not in (policy.isolations or ()):
        raise fail("policy", "isolation", f"isolation {execution.isolation} is not accepted")
    if execution.recovered and not policy.allow_recovered:
        raise fail("policy", "recovered", "the execution was settled after a crash")
    limit = policy.max_leftover_processes
    if limit is not None and execution.leftover_processes > limit:
        left = _counted(execution.leftover_processes, "process", "processes")
        raise fail("policy", "leftover-processes", f"left over: {left}")
    if execution.survivors and not policy.allow_survivors:
        left = _counted(execution.survivors, "process", "processes")
        raise fail("policy", "survivors", f"{left} of the tool could not be ended")


_OTHER: Final = {
    "session": "another session",
    "call": "another call",
    "tool": "another tool",
    "arguments": "other arguments",
    "idempotency-key": "another idempotency key",
}


def check_call(context: Context) -> str:
    """6. It answers this session's call of this tool with these arguments."""
    call, expected = context.execution().call, context.expectation
    pairs = {
        "session": (call.session_id, expected.session_id),
        "call": (call.tool_call_id, expected.tool_call_id),
        "tool": (call.tool, expected.tool),
        "arguments": (call.arguments_digest, expected.arguments_digest),
        "idempotency-key": (call.idempotency_key, expected.idempotency_key),
    }
    for name, (found, wanted) in pairs.items():
        if wanted is not None and found != wanted:
            raise fail("call", f"other-{name}", f"the receipt is of {_OTHER[name]}")
    missing = [name for name, (_, wanted) in pairs.items() if wanted is None and name != "idempotency-key"]
    if missing:
        given = [name for name, (_, wanted) in pairs.items() if wanted is not None]
        raise NotAsked(", ".join(missing), compared=", ".join(given))
    return "session, call, tool and arguments"


def check_challenge(context: Context) -> str:
    """7. It carries the challenge that was made for this one call."""
    found, expected = context.execution().call.challenge, context.expectation.challenge
    if expected is None:
        raise NotAsked("challenge")
    if found is None or not hmac.compare_digest(found.encode("utf-8"), expected.encode("utf-8")):
        raise fail("challenge", "other-challenge", "the receipt does not carry this call's challenge")
    return "challenge"


def check_age(context: Context) -> str:
    """8. It is not older than acceptable, nor from the future."""
    predicate = context.execution()
    written = predicate.execution.finished_on if predicate.execution is not None else predicate.issued_on
    limit = context.expectation.max_age_s
    if written is None:
        if limit is None:
            raise NotAsked("the receipt carries no time", needed=False)
        raise CannotCheckError("the receipt carries no time", check="age", reason="no-time")
    age_s = (context.now() - parse_time(written)).total_seconds()
    # Both written so that NaN, which compares as false, is refused.
    if not age_s >= -context.policy.clock_skew_s:
        raise fail("age", "from-the-future", f"the receipt is dated {written}: compare the clocks")
    if limit is None:
        raise NotAsked("maximum age", needed=False)
    if not age_s <= limit:
        raise fail("age", "too-old", f"the receipt is dated {written}, more than {limit:g} s ago")
    return f"not older than {limit:g} s"


def check_changes(context: Context) -> str:
    """10. The listed changes, their counts and digest, and the workspace digests agree."""
    predicate = context.execution()
    if (problem := inconsistency(predicate)) is not None:
        raise fail("changes", "inconsistent", problem)
    changes = predicate.workspace.changes
    if context.expectation.paths_matter and not changes.complete:
        raise fail(
            "changes", "incomplete", f"not all {changes.total} changed paths are listed: fetch the full list"
        )
    counted = "1 change" if changes.total == 1 else f"{changes.total} changes"
    return counted if changes.complete else f"{counted}, not all listed"


def check_result(context: Context) -> str:
    """11. The result is, byte for byte, the one that was signed."""
    predicate, result = context.execution(), context.result
    signed = predicate.execution.result if predicate.execution is not None else None
    if signed is None:
        if result:
            raise fail("result", "no-result-signed", "a result came with a receipt that has none")
        return "no result"
    if result is None:
        raise NotAsked("result")
    if len(result) != signed.bytes or hashlib.sha256(result).hexdigest() != signed.digest:
        raise fail("result", "other-result", "the result is not the one that was signed")
    return _counted(signed.bytes, "byte", "bytes")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
