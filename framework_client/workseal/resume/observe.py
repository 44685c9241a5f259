"""What the model is told of a call. Pure.

Invariant: only a completed receipt, or a raw result of a read-only call, reads
as something that was done. Everything else says in its first words what did
not happen, or is unknown.
"""

from __future__ import annotations

from workseal.pending import CallOutcome, CallResult, ReceiptRef
from workseal.receipt.plain import to_plain
from workseal.receipt.predicate import Outcome, ToolExecutionPredicate
from workseal.receipt.verifier import VerifiedReceipt
from workseal.resume.inputs import NotRun, RawResult

_MAX_PATHS = 20


def observe_raw(answer: RawResult) -> CallResult:
    """Return the result of a read-only call that came without a receipt."""
    return CallResult(CallOutcome.RAW, answer.text, plain={"result": answer.text})


def observe_not_run(answer: NotRun) -> CallResult:
    """Return the error observation of a call that was never run."""
    return CallResult(CallOutcome.NOT_RUN, f"[workseal] Not run: {answer.reason}")


def observe_receipt(receipt: VerifiedReceipt) -> CallResult:
    """Return the result that a verified receipt stands for."""
    predicate = receipt.predicate
    outcome, text = _reading(receipt)
    reference = ReceiptRef(
        predicate.workspace.id, predicate.chain.id, predicate.chain.sequence, receipt.payload_digest
    )
    return CallResult(outcome, text, receipt.envelope, reference, to_plain(receipt, text), receipt.claimed)


def _reading(receipt: VerifiedReceipt) -> tuple[CallOutcome, str]:
    predicate = receipt.predicate
    result = (receipt.result or b"").decode("utf-8", "replace")
    reason = f" ({predicate.reason})" if predicate.reason else ""
    match predicate.outcome:
        case Outcome.COMPLETED if receipt.done:
            return CallOutcome.COMPLETED, result
        case Outcome.COMPLETED:
            return CallOutcome.FAILED, f"{_not_done(predicate)}\n{result}"
        case Outcome.REFUSED:
            return (
                CallOutcome.REFUSED,
                f"[workseal] Not run: the host refused this call{reason}. It changed nothing.",
            )
        case Outcome.IN_DOUBT:
            return CallOutcome.IN_DOUBT, _unknown(
                f"the host lost track of this call{reason} and does not run it again", predicate
            )
        case Outcome.EXPIRED:
            return CallOutcome.EXPIRED, _unknown(f"nobody reported the end of this call{reason}", predicate)


def _unknown(what: str, predicate: ToolExecutionPredicate) -> str:
    return (
        f"[workseal] Unknown: {what}. Whether it took effect cannot be proved: do not take it as done, "
        f"look at the workspace first. {_changes(predicate)}"
    )


def _changes(predicate: ToolExecutionPredicate) -> str:
    workspace = predicate.workspace
    if not workspace.changes.total:
        return "No change was seen."
    paths = [entry.path for entry in (*workspace.created, *workspace.modified, *workspace.deleted)]
    more = ", ..." if len(paths) > _MAX_PATHS or not workspace.changes.complete else ""
    total = workspace.changes.total
    seen = "1 change was seen" if total == 1 else f"{total} changes were seen"
    return f"{seen}: {', '.join(paths[:_MAX_PATHS])}{more}."


def _not_done(predicate: ToolExecutionPredicate) -> str:
    forbidden = [violation.path or "." for violation in predicate.policy.unrestored][:_MAX_PATHS]
    parts = ["[workseal] Ran, but does not count as done:"]
    if forbidden:
        parts.append(f"it changed protected paths ({', '.join(forbidden)}).")
    if predicate.verification.failures or not forbidden:
        parts.append(
            f"what was read back afterwards is not what was to be there. {predicate.verification.summary}"
        )
    return " ".join(parts).rstrip()
