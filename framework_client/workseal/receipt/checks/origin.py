"""Checks 1 to 3 and 5: is it a receipt, by whom, of which workspace."""

from __future__ import annotations

from contextlib import suppress

from workseal.receipt.checks.context import Context, NotAsked, fail
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.errors import MalformedReceiptError
from workseal.receipt.predicate import ToolExecutionPredicate


def check_form(context: Context) -> str:
    """1. The envelope is in the strict form and of acceptable size."""
    context.envelope = parse_envelope(context.data)
    return "strict DSSE envelope"


def check_signature(context: Context) -> str:
    """2. A pinned key signed exactly these bytes, and may do so at this position."""
    envelope = context.signed()
    key = context.trust.find(envelope.key_id)
    if not key.verifies(envelope.signature, envelope.pae()):
        raise fail("signature", "bad-signature", f"the signature is not by the pinned key {envelope.key_id}")
    # Only now may the payload be read: it says where it stands. If it cannot be
    # read, check 3 says why; nothing is accepted in between.
    with suppress(MalformedReceiptError):
        context.trust.require_valid(envelope.key_id, context.position())
    return f"{key.scheme} by pinned key {envelope.key_id}"


def check_statement(context: Context) -> str:
    """3. The payload is a statement of a known type that does not contradict itself."""
    statement = context.read()
    if statement.predicate.host.key_id != context.signed().key_id:
        raise fail("statement", "key-id", "the statement names another key than the one that signed it")
    if isinstance(statement.predicate, ToolExecutionPredicate):
        return "tool execution"
    return "key rotation"


def check_workspace(context: Context) -> str:
    """5. It is about the expected workspace, in the expected chain."""
    statement, expected = context.read(), context.expectation
    if expected.workspace_id is not None and statement.workspace_id != expected.workspace_id:
        raise fail("workspace", "other-workspace", "the receipt is of another workspace")
    if expected.chain_id is not None and statement.chain.id != expected.chain_id:
        raise fail("workspace", "other-chain", "the receipt is of another chain")
    if expected.workspace_id is None:
        raise NotAsked("workspace id", compared="chain" if expected.chain_id is not None else "")
    return "workspace and chain" if expected.chain_id is not None else "workspace"
