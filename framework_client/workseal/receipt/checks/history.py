"""Checks 9 and 12: does it continue what was verified before."""

from __future__ import annotations

from workseal.errors import CannotCheckError
from workseal.receipt.checks.context import ChainView, Context, NotAsked, fail
from workseal.receipt.predicate import ToolExecutionPredicate, Workspace
from workseal.receipt.statement import Statement
from workseal.trust.record import ChainEntry


def check_before(context: Context) -> str:
    """9. The workspace before the call is what was expected, or accounted for."""
    predicate, expected = context.execution(), context.expectation
    if expected.before_digest == predicate.workspace.before:
        return "the expected one"
    if expected.before_mode == "strict":
        if expected.before_digest is None:
            raise NotAsked("before-digest")
        raise fail("before", "other-before", "the workspace before the call is not the expected one")
    return _accounted(predicate, context.signed().payload_digest, context.chain_view())


def _accounted(predicate: ToolExecutionPredicate, payload_digest: str, view: ChainView) -> str:
    sequence, head = predicate.chain.sequence, view.head()
    if head is not None and head.chain_id != predicate.chain.id:
        return "nothing to compare with: another chain is known"  # which check 12 refuses
    known = view.at(sequence)
    if known is not None and known.payload_digest == payload_digest:
        return "verified before"
    base = view.below(sequence)
    if base is None:
        return "first contact with this workspace"
    if base.scheme is None or base.after_digest is None:
        if base.sequence + 1 == sequence:
            return "the receipt before left no known state"
    elif _comparable_before(predicate.workspace, base) == base.after_digest:
        return "as it was last verified"
    if base.sequence + 1 != sequence:
        raise CannotCheckError(
            f"the workspace may have changed since receipt {base.sequence}: "
            f"fetch receipts {base.sequence + 1} to {sequence - 1} of the chain",
            check="before",
            reason="gap",
        )
    if not predicate.workspace.outside_changes:
        raise fail(
            "before", "unaccounted", "the workspace changed since the last receipt, and nothing says how"
        )
    return "differs by the outside changes that it lists"


def _comparable_before(workspace: Workspace, base: ChainEntry) -> str:
    """Return the before-digest under the scheme and rules of the entry before."""
    if workspace.scheme != base.scheme:
        raise CannotCheckError(
            f"digest scheme changed from {base.scheme} to {workspace.scheme}: they are never compared. "
            "If the host was set to another scheme on purpose, `workseal keys forget WORKSPACE_ID`",
            check="before",
            reason="scheme-changed",
        )
    if workspace.ignore_policy_before == base.ignore_policy_digest:
        return workspace.before
    if workspace.bridge is None or workspace.bridge.ignore_policy != base.ignore_policy_digest:
        raise fail(
            "before",
            "no-bridge",
            "the ignore rules changed since the last receipt, without a digest under both",
        )
    return workspace.bridge.digest


def check_chain(context: Context) -> str:
    """12. Its place in the chain fits what was verified before."""
    statement, digest, view = context.read(), context.signed().payload_digest, context.chain_view()
    head = view.head()
    if head is None:
        return "first contact: position taken as it is"
    if head.chain_id != statement.chain.id:
        raise fail(
            "chain",
            "chain-changed",
            f"chain {head.chain_id} is known for this workspace. "
            "If the host's ledger was replaced on purpose, `workseal keys forget WORKSPACE_ID`",
        )
    known = view.at(statement.chain.sequence)
    if known is not None:
        return _known(context, known, digest)
    return _linked(statement, digest, view, head)


def _known(context: Context, known: ChainEntry, digest: str) -> str:
    if known.payload_digest != digest:
        raise fail(
            "chain", "fork", f"another receipt is known at sequence {known.sequence}: the chain forked"
        )
    # Without a call that it is to answer (an audit, an entry in between) it is used for none.
    identity = context.expectation.call_identity
    if identity is not None and known.used_by not in (None, identity):
        raise fail("chain", "already-used", "this receipt was already used for another call")
    return "known"


def _linked(statement: Statement, digest: str, view: ChainView, head: ChainEntry) -> str:
    sequence = statement.chain.sequence
    before, after = view.at(sequence - 1), view.at(sequence + 1)
    if before is not None and before.payload_digest != statement.chain.previous:
        raise fail("chain", "fork", f"it does not follow the known receipt {sequence - 1}: the chain forked")
    if after is not None and after.previous_digest != digest:
        raise fail("chain", "fork", f"the known receipt {sequence + 1} does not follow it: the chain forked")
    if sequence < head.sequence and after is None:
        # Older than what is known, and nothing known vouches for it: as a fork would look.
        raise fail("chain", "behind", f"sequence {sequence} is behind {head.sequence}, which is known")
    return f"follows {sequence - 1}" if before is not None else f"after {head.sequence}, with a gap"


def entry_of(statement: Statement, payload_digest: str, view: ChainView, used_by: str | None) -> ChainEntry:
    """Return what the record keeps of a verified statement."""
    chain, predicate = statement.chain, statement.predicate
    if isinstance(predicate, ToolExecutionPredicate):
        workspace = predicate.workspace
        after: str | None = workspace.after
        scheme: str | None = str(workspace.scheme)
        rules: str | None = workspace.ignore_policy_before
    else:
        # A rotation leaves the workspace as the entry before it did.
        base = view.below(chain.sequence)
        after, scheme, rules = (
            (base.after_digest, base.scheme, base.ignore_policy_digest) if base else (None, None, None)
        )
    return ChainEntry(chain.id, chain.sequence, payload_digest, chain.previous, after, scheme, rules, used_by)
