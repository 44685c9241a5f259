"""The plain shape says what the receipt says, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from unit.receipt.receipt_support import (
    RESULT,
    Ledger,
    clock,
    created,
    deleted,
    digest,
    execution,
    expect,
    modified,
)
from workseal.receipt.plain import plain_exit_code, to_plain
from workseal.receipt.statement import (
    CapturedStreamDigest,
    Outcome,
    Policy,
    PolicyViolation,
    Verification,
    VerificationStatus,
)
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust import MemoryTrustStore, Pin, TrustState


def verified(**fields: Any) -> VerifiedReceipt:
    ledger = Ledger()
    trust = MemoryTrustStore(TrustState().pinned(Pin(ledger.key.public)))
    changes = (created("a"), modified("b"), deleted("c"))
    return ReceiptVerifier(trust, clock=clock).verify(
        ledger.add(ledger.predicate(changes, **fields)), expect(), result=RESULT
    )


def test_the_shape_of_an_ordinary_call() -> None:
    receipt = verified()
    plain = to_plain(receipt, RESULT.decode())
    assert plain["workspace"] == {
        "root": "/home/user/project",
        "before_digest": digest("state 0"),
        "after_digest": digest("state 1"),
        "created": ["a"],
        "modified": ["b"],
        "deleted": ["c"],
        "policy_violations": [],
        "restored_paths": [],
        "collector": "workseal",
    }
    assert (plain["tool_call_id"], plain["result"], plain["exit_code"]) == ("c-1", "wrote notes.md", 0)
    assert plain["elapsed_seconds"] == 0.25
    assert plain["effect"]["changed"] is True
    assert plain["artifact_ref"] == f"urn:workseal:receipt:sha256:{receipt.payload_digest}"
    assert plain["attestation"].encode() == receipt.envelope
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize("status", [VerificationStatus.PASSED, VerificationStatus.NOT_RUN])
def test_a_read_back_never_passes_as_the_projects_own_checks(status: VerificationStatus) -> None:
    assert to_plain(verified(verification=Verification(status)), "")["verification"] is None


def test_a_failed_read_back_is_a_failed_verification() -> None:
    plain = to_plain(verified(verification=Verification(VerificationStatus.FAILED, "a differs")), "")
    assert (plain["verification"]["status"], plain["verification"]["exit_code"]) == ("failed", 1)


def test_violations_and_what_was_put_back_are_listed() -> None:
    policy = Policy((PolicyViolation("a", "protected"), PolicyViolation("", "root-replaced")), ("a",))
    workspace = to_plain(verified(policy=policy), "")["workspace"]
    assert (workspace["policy_violations"], workspace["restored_paths"]) == (["a", "."], ["a"])


def test_output_that_was_cut_is_partial() -> None:
    stream = CapturedStreamDigest(digest("o"), 9_000_000, truncated=True)
    plain = to_plain(verified(execution=execution(stdout=stream)), "")
    assert (plain["truncated"], plain["completeness"], plain["original_bytes"]) == (
        True,
        "partial",
        9_000_000,
    )


def test_a_full_list_takes_the_place_of_a_cut_one() -> None:
    plain = to_plain(verified(), "", changes=(created("x"), created("y")))
    assert (plain["workspace"]["created"], plain["workspace"]["modified"]) == (["x", "y"], [])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exit_code": 3}, 3),
        ({"exit_code": None, "signal": 9}, 137),
        ({"exit_code": None, "signal": 9, "timed_out": True}, 124),
        ({"exit_code": None, "signal": 15, "cancelled": True}, 130),
        ({"exit_code": None}, 0),
    ],
    ids=["own code", "signal", "time-out", "cancelled", "no code"],
)
def test_one_number_for_how_it_ended(fields: dict[str, Any], code: int) -> None:
    assert plain_exit_code(Ledger().predicate(execution=execution(**fields))) == code


def test_what_did_not_complete_is_not_zero() -> None:
    for own_code in (None, 0):
        predicate = Ledger().predicate(execution=execution(exit_code=own_code))
        assert plain_exit_code(replace(predicate, outcome=Outcome.IN_DOUBT)) == 1
    assert plain_exit_code(Ledger().refused()) == 1
