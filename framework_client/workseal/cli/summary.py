"""A verified receipt in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from workseal.receipt.predicate import (
    Execution,
    Isolation,
    KeyRotationPredicate,
    Mode,
    ToolExecutionPredicate,
)
from workseal.receipt.statement import Statement

_SHOWN_PATHS: Final = 20
REACHABLE_KEY: Final = "isolation none: the tool could have reached the key"


def summary_lines(statement: Statement) -> Iterator[str]:
    """Yield what a person wants to know first; not made safe for a terminal yet."""
    chain, predicate = statement.chain, statement.predicate
    if isinstance(predicate, KeyRotationPredicate):
        yield f"key rotation: {predicate.old_key_id} to {predicate.new_key.key_id}"
    else:
        yield from _call_lines(predicate)
    yield f"workspace {statement.workspace_id}, chain {chain.id}, sequence {chain.sequence}"


def _call_lines(predicate: ToolExecutionPredicate) -> Iterator[str]:
    call, execution = predicate.call, predicate.execution
    reason = f" ({predicate.reason})" if predicate.reason else ""
    yield f"tool {call.tool}, call {call.tool_call_id} of session {call.session_id}"
    yield f"outcome {predicate.outcome}{reason}"
    if execution is not None:
        yield from _execution_lines(execution)
    changes = predicate.workspace.changes
    yield f"changes: {changes.created} created, {changes.modified} modified, {changes.deleted} deleted"
    yield from _path_lines(predicate)
    for violation in predicate.policy.violations:
        restored = " (it was put back)" if violation.path in predicate.policy.restored else ""
        yield f"POLICY VIOLATION: {violation.path or '.'} breaks the rule {violation.rule}{restored}"
    if predicate.verification.status == "failed":
        yield f"READ-BACK FAILED: {predicate.verification.summary}"


def _execution_lines(execution: Execution) -> Iterator[str]:
    ended = [
        "timed out" if execution.timed_out else "",
        "cancelled" if execution.cancelled else "",
        f"signal {execution.signal}" if execution.signal is not None else "",
        f"exit code {execution.exit_code}" if execution.exit_code is not None else "",
        "recovered after a crash" if execution.recovered else "",
    ]
    yield ", ".join([f"{execution.mode} {execution.started_on}", *filter(None, ended)])
    if execution.mode is Mode.OBSERVED:
        yield "observed: somebody else ran the tool, its result is their claim"
    elif execution.isolation is Isolation.NONE:
        yield REACHABLE_KEY


def _path_lines(predicate: ToolExecutionPredicate) -> Iterator[str]:
    workspace = predicate.workspace
    entries = [*workspace.created, *workspace.modified, *workspace.deleted]
    for entry in entries[:_SHOWN_PATHS]:
        yield f"  {entry.kind} {entry.path}"
    if workspace.changes.total > min(len(entries), _SHOWN_PATHS):
        yield f"  and {workspace.changes.total - min(len(entries), _SHOWN_PATHS)} more"
    outside = workspace.outside_changes
    if outside:
        total = len(outside.created) + len(outside.modified) + len(outside.deleted)
        yield f"outside changes, ascribed to nobody: {total}{'' if outside.complete else ' or more'}"
    if workspace.unreadable or workspace.unstable:
        yield f"unreadable: {len(workspace.unreadable)}, unstable: {len(workspace.unstable)}"


def summary_value(statement: Statement) -> dict[str, Any]:
    """Return the same as JSON."""
    chain, predicate = statement.chain, statement.predicate
    value: dict[str, Any] = {
        "workspace_id": statement.workspace_id,
        "chain_id": chain.id,
        "sequence": chain.sequence,
    }
    if isinstance(predicate, KeyRotationPredicate):
        return {**value, "old_key_id": predicate.old_key_id, "new_key_id": predicate.new_key.key_id}
    workspace, execution = predicate.workspace, predicate.execution
    return {
        **value,
        "outcome": str(predicate.outcome),
        "reason": predicate.reason,
        "tool": predicate.call.tool,
        "session_id": predicate.call.session_id,
        "tool_call_id": predicate.call.tool_call_id,
        "mode": str(execution.mode) if execution else None,
        "isolation": str(execution.isolation) if execution else None,
        "exit_code": execution.exit_code if execution else None,
        "before": workspace.before,
        "after": workspace.after,
        "created": [entry.path for entry in workspace.created],
        "modified": [entry.path for entry in workspace.modified],
        "deleted": [entry.path for entry in workspace.deleted],
        "changes_complete": workspace.changes.complete,
        "violations": [item.path or "." for item in predicate.policy.violations],
    }
