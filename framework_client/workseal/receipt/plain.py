"""The plain shape that agent frameworks read, made of verified receipts only.

It says no more than the receipt does. In particular it carries no ``verification``
that passed: frameworks take that as "the project's checks passed", and a host that
read back its own write has shown nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from workseal.receipt.predicate import (
    ChangedEntry,
    ChangeKind,
    Execution,
    Outcome,
    PolicyViolation,
    ToolExecutionPredicate,
    Verification,
    VerificationStatus,
    Workspace,
)
from workseal.receipt.verifier import VerifiedReceipt

COLLECTOR: Final = "workseal"
#: In place of a digest where the state after the call is not known; frameworks want a text.
UNKNOWN_DIGEST: Final = "unknown"
_TIMED_OUT_CODE: Final = 124
_CANCELLED_CODE: Final = 130
_SIGNAL_BASE: Final = 128


def artifact_ref(payload_digest: str) -> str:
    """Return the name by which a receipt can be found again."""
    return f"urn:workseal:receipt:sha256:{payload_digest}"


def plain_exit_code(predicate: ToolExecutionPredicate) -> int:
    """Return the one number that stands for exit code, signal, time-out and cancellation.

    The tool's own code where it has one; else 124 on a time-out, 130 when it was
    cancelled, 128 and the signal when it was killed, 0 when it completed without
    having a code, 1 when it did not complete.
    """
    execution = predicate.execution
    if execution is None:
        return 1
    if execution.timed_out:
        return _TIMED_OUT_CODE
    if execution.cancelled:
        return _CANCELLED_CODE
    if execution.signal is not None:
        return _SIGNAL_BASE + execution.signal
    code = execution.exit_code or 0
    # Frameworks read 0 as success: what was not completed never is.
    return code if predicate.outcome is Outcome.COMPLETED else code or 1


def _violation_path(violation: PolicyViolation) -> str:
    return violation.path or "."


def _workspace(predicate: ToolExecutionPredicate, changes: Sequence[ChangedEntry] | None) -> dict[str, Any]:
    seen: Workspace = predicate.workspace
    listed = changes if changes is not None else [*seen.created, *seen.modified, *seen.deleted]
    paths = {kind: [entry.path for entry in listed if entry.kind == kind] for kind in ChangeKind}
    return {
        "root": seen.root,
        "before_digest": seen.before,
        "after_digest": seen.after or UNKNOWN_DIGEST,
        "created": paths[ChangeKind.CREATED],
        "modified": paths[ChangeKind.MODIFIED],
        "deleted": paths[ChangeKind.DELETED],
        "policy_violations": [_violation_path(item) for item in predicate.policy.violations],
        "restored_paths": list(predicate.policy.restored),
        "collector": COLLECTOR,
    }


def _verification(verification: Verification, reference: str) -> dict[str, Any] | None:
    if verification.status is not VerificationStatus.FAILED:
        return None
    return {
        "status": "failed",
        "level": "focused",
        "kind": "custom",
        "command": "",
        "cwd": "",
        "exit_code": 1,
        "timed_out": False,
        "timeout_seconds": None,
        "truncated": not verification.complete,
        "completeness": "complete" if verification.complete else "partial",
        "collected_tests": None,
        "summary": verification.summary,
        "failure_summary": ", ".join(item.path for item in verification.failures),
        "artifact_ref": reference,
    }


def _output(execution: Execution | None) -> dict[str, Any]:
    streams = [] if execution is None else [s for s in (execution.stdout, execution.stderr) if s is not None]
    truncated = any(stream.truncated for stream in streams)
    result = execution.result if execution is not None else None
    return {
        "output_kind": "text",
        "original_bytes": sum(s.bytes for s in streams) if streams else (result.bytes if result else 0),
        "truncated": truncated,
        "completeness": "partial" if truncated else "complete",
    }


def to_plain(
    verified: VerifiedReceipt, result_text: str, *, changes: Sequence[ChangedEntry] | None = None
) -> dict[str, Any]:
    """Return the plain shape of a verified receipt.

    Args:
        verified: what the verifier returned.
        result_text: the text for the model.
        changes: the full list of changes, from ``prove_changes``, where the receipt
            does not list all of them.

    Returns:
        A JSON object; paths are in the escaped form, digests bare hex, ``attestation``
        is the envelope exactly as it was signed.
    """
    predicate = verified.predicate
    execution, total = predicate.execution, predicate.workspace.changes.total
    reference = artifact_ref(verified.payload_digest)
    return {
        "tool_call_id": predicate.call.tool_call_id,
        "result": result_text,
        "exit_code": plain_exit_code(predicate),
        "elapsed_seconds": execution.duration_ns / 1e9 if execution is not None else 0.0,
        "host": f"{predicate.host.name} {predicate.host.version}",
        "workspace": _workspace(predicate, changes),
        "effect": {
            "changed": total > 0 or any(effect.changed for effect in predicate.effects),
            "scope": "workspace",
            "collector": COLLECTOR,
            "summary": f"{total} entries changed",
        },
        "verification": _verification(predicate.verification, reference),
        "artifact_ref": reference,
        "outcome": str(predicate.outcome),
        "reason": predicate.reason,
        "claimed": verified.claimed,
        "changes_complete": changes is not None or predicate.workspace.changes.complete,
        "attestation": verified.envelope.decode("utf-8"),
        **_output(execution),
    }
