"""Believing what this machine's own hosts signed. Imports no gRPC."""

from __future__ import annotations

from pathlib import Path

from workseal.calls import ToolCall
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import Mode, ScanLevel, ToolExecutionPredicate
from workseal.receipt.verifier import ReceiptVerifier
from workseal.results import HostResult
from workseal.trust.pins import Pin, TrustState
from workseal.trust.store import MemoryTrustStore
from workseal_host.attestation.keyring import KeyRing

#: For showing what happened to the one who asked: honest receipts of every kind, and only signed ones.
_SHOW_ALL = AcceptancePolicy(
    modes=frozenset(Mode),
    allow_observed=True,
    minimum_scan=ScanLevel.WATCH,
    allow_unstable=True,
    allow_survivors=True,
)


def own_verifier(state: Path) -> ReceiptVerifier:
    """Return a verifier that trusts the keys of this state directory's own ring, and no other.

    Whoever can read the ring is the user of the host: its keys need no pinning by hand.

    Raises:
        KeyRingError: there is no ring, or it cannot be read.
    """
    pins = tuple(Pin(key.public) for key in KeyRing.load(state).keys)
    return ReceiptVerifier(MemoryTrustStore(TrustState(pins=pins)), _SHOW_ALL)


def accept(state: Path, workspace_id: str, call: ToolCall, answer: HostResult) -> ToolExecutionPredicate:
    """Verify a host's answer to a call before anything of it is believed.

    Args:
        state: the state directory of that host.
        workspace_id: the workspace that the call was for.
        call: what was asked.
        answer: what the host answered.

    Raises:
        NotVerifiedError: the receipt is not by a key of that state directory, or answers another call.
        KeyRingError: there are no keys to verify with.
    """
    expectation = Expectation(
        workspace_id=workspace_id,
        session_id=call.session_id,
        tool_call_id=call.tool_call_id,
        tool=call.tool,
        arguments_digest=call.arguments_digest,
        challenge=call.challenge,
    )
    verified = own_verifier(state).verify(answer.envelope, expectation, result=answer.result)
    return verified.predicate
