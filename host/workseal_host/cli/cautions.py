"""What a person must hear of a receipt, whatever the exit code is."""

from __future__ import annotations

from collections.abc import Iterator

from workseal.receipt.predicate import ToolExecutionPredicate, VerificationStatus


def cautions_of(predicate: ToolExecutionPredicate) -> Iterator[str]:
    """Yield what is wrong with a call that may have ended well."""
    for violation in predicate.policy.violations:
        restored = " (it was put back)" if violation.path in predicate.policy.restored else ""
        yield f"policy violation: {violation.path or '.'} breaks the rule {violation.rule}{restored}"
    if predicate.verification.status is VerificationStatus.FAILED:
        yield f"read-back failed: {predicate.verification.summary}"
    if predicate.workspace.unstable:
        yield f"warning: {_files(len(predicate.workspace.unstable))} would not hold still while read"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
