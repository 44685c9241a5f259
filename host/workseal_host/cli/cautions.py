"""What a person must hear of a receipt, whatever the exit code is."""

from __future__ import annotations

from collections.abc import Iterator

from workseal.receipt.predicate import ToolExecutionPredicate, VerificationStatus


def cautions_of(predicate: ToolExecutionPredicate) -> Iterator[str]:
    """Yield what is wrong with a call that may have ended well."""
    for violation in predicate.policy.violations:
        restored = ", put back" if violation.path in predicate.policy.restored else ""
        yield f"policy violation: {violation.rule} {violation.path or '.'}{restored}"
    if predicate.verification.status is VerificationStatus.FAILED:
        yield f"read-back failed: {predicate.verification.summary}"
    if predicate.workspace.unstable:
        yield f"{len(predicate.workspace.unstable)} files would not hold still while they were read"
