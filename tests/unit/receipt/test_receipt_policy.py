"""Check 4: which receipts are good enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from unit.receipt.receipt_support import RESULT, RULES, Ledger, clock, digest, execution, expect
from workseal.errors import NotVerifiedError
from workseal.receipt.policy import AcceptancePolicy
from workseal.receipt.statement import (
    Isolation,
    Mode,
    Outcome,
    Policy,
    PolicyViolation,
    ScanLevel,
    Scheme,
    ToolExecutionPredicate,
    Verification,
    VerificationStatus,
)
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust import MemoryTrustStore, Pin, TrustState


def accept(
    predicate: ToolExecutionPredicate, policy: AcceptancePolicy, ledger: Ledger, **wanted: Any
) -> VerifiedReceipt:
    trust = MemoryTrustStore(TrustState().pinned(Pin(ledger.key.public)))
    verifier = ReceiptVerifier(trust, policy, clock=clock)
    return verifier.verify(ledger.add(predicate), expect(**wanted), result=RESULT)


DEFAULT = AcceptancePolicy()

REFUSED: dict[str, tuple[dict[str, Any], AcceptancePolicy, str]] = {
    "outcome": ({}, AcceptancePolicy(outcomes=frozenset({Outcome.REFUSED})), "outcome"),
    "observed": ({"execution": execution(mode=Mode.OBSERVED)}, DEFAULT, "mode"),
    "scheme": ({}, AcceptancePolicy(schemes=frozenset({Scheme.NONOKA_1})), "scheme"),
    "scan before by the watcher": ({"workspace": {"scan_before": ScanLevel.WATCH}}, DEFAULT, "scan-level"),
    "scan after by the watcher": ({"workspace": {"scan_after": ScanLevel.WATCH}}, DEFAULT, "scan-level"),
    "stat where full is wanted": ({}, AcceptancePolicy(minimum_scan=ScanLevel.FULL), "scan-level"),
    "rules": ({}, AcceptancePolicy(ignore_policies=frozenset({digest("x")})), "ignore-policy"),
    "rules after": (
        {"workspace": {"ignore_policy_after": digest("y")}},
        AcceptancePolicy(ignore_policies=frozenset({RULES})),
        "ignore-policy",
    ),
    "isolation": (
        {"execution": execution(isolation=Isolation.NONE)},
        AcceptancePolicy(isolations=frozenset({Isolation.BUBBLEWRAP})),
        "isolation",
    ),
    "recovered": (
        {"execution": execution(recovered=True)},
        AcceptancePolicy(allow_recovered=False),
        "recovered",
    ),
    "unstable": ({"workspace": {"unstable": ("log",)}}, DEFAULT, "unstable"),
    "unreadable": (
        {"workspace": {"unreadable": ("a",)}},
        AcceptancePolicy(allow_unreadable=False),
        "unreadable",
    ),
    "left over": (
        {"execution": execution(leftover_processes=3)},
        AcceptancePolicy(max_leftover_processes=2),
        "leftover-processes",
    ),
    "survivors": ({"execution": execution(survivors=1)}, DEFAULT, "survivors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_own_reason(name: str) -> None:
    fields, policy, reason = REFUSED[name]
    ledger = Ledger()
    with pytest.raises(NotVerifiedError) as error:
        accept(ledger.predicate(**fields), policy, ledger)
    assert (error.value.check, error.value.reason) == ("policy", reason)


ACCEPTED: dict[str, tuple[dict[str, Any], AcceptancePolicy]] = {
    "staged": ({"execution": execution(mode=Mode.STAGED)}, DEFAULT),
    "observed where allowed": (
        {"execution": execution(mode=Mode.OBSERVED)},
        AcceptancePolicy(allow_observed=True),
    ),
    "recovered": ({"execution": execution(recovered=True)}, DEFAULT),
    "unreadable": ({"workspace": {"unreadable": ("a",)}}, DEFAULT),
    "unstable where allowed": ({"workspace": {"unstable": ("log",)}}, AcceptancePolicy(allow_unstable=True)),
    "isolation none": ({"execution": execution(isolation=Isolation.NONE)}, DEFAULT),
    "left over and ended": ({"execution": execution(leftover_processes=3)}, DEFAULT),
    "full": (
        {"workspace": {"scan_before": ScanLevel.FULL, "scan_after": ScanLevel.FULL}},
        AcceptancePolicy(minimum_scan=ScanLevel.FULL),
    ),
    "watch where allowed": (
        {"workspace": {"scan_before": ScanLevel.WATCH}},
        AcceptancePolicy(minimum_scan=ScanLevel.WATCH),
    ),
    "a tool that failed": ({"execution": execution(exit_code=3)}, DEFAULT),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_and_done(name: str) -> None:
    fields, policy = ACCEPTED[name]
    ledger = Ledger()
    assert accept(ledger.predicate(**fields), policy, ledger).done


def test_observed_is_a_claim_and_only_for_tools_that_allow_it() -> None:
    ledger = Ledger()
    verified = accept(
        ledger.predicate(execution=execution(mode=Mode.OBSERVED)), DEFAULT, ledger, allow_observed=True
    )
    assert verified.claimed


NOT_DONE: dict[str, dict[str, Any]] = {
    "in doubt": {"outcome": Outcome.IN_DOUBT},
    "read-back failed": {"verification": Verification(VerificationStatus.FAILED, "no")},
    "violation left": {"policy": Policy((PolicyViolation("a", "protected"),))},
    "root replaced": {"policy": Policy((PolicyViolation("", "root-replaced"),))},
}


@pytest.mark.parametrize("name", NOT_DONE)
def test_verified_but_not_done(name: str) -> None:
    ledger = Ledger()
    assert not accept(ledger.predicate(**NOT_DONE[name]), DEFAULT, ledger).done


def test_a_violation_that_was_put_back_does_not_count_against_it() -> None:
    ledger = Ledger()
    policy = Policy((PolicyViolation("a", "protected"),), ("a",))
    assert accept(ledger.predicate(policy=policy), DEFAULT, ledger).done


def test_an_incomplete_list_is_refused_where_paths_matter() -> None:
    ledger = Ledger()
    predicate = ledger.predicate()
    changes = replace(predicate.workspace.changes, created=9000, complete=False)
    partial = replace(predicate, workspace=replace(predicate.workspace, changes=changes))
    with pytest.raises(NotVerifiedError) as error:
        accept(partial, DEFAULT, ledger, paths_matter=True)
    assert error.value.reason == "incomplete"


@pytest.mark.parametrize(
    ("finished", "reason"),
    [("2026-03-04T05:00:00Z", "too-old"), ("2026-03-04T06:00:00Z", "from-the-future")],
    ids=["old", "future"],
)
def test_a_receipt_of_another_time_is_refused(finished: str, reason: str) -> None:
    ledger = Ledger()
    with pytest.raises(NotVerifiedError) as error:
        accept(ledger.predicate(execution=execution(finished_on=finished)), DEFAULT, ledger, max_age_s=60)
    assert error.value.reason == reason


@pytest.mark.parametrize("limit", [float("nan"), -1.0], ids=["nan", "negative"])
def test_an_age_that_is_no_age_accepts_nothing(limit: float) -> None:
    ledger = Ledger()
    with pytest.raises(NotVerifiedError) as error:
        accept(ledger.predicate(), DEFAULT, ledger, max_age_s=limit)
    assert error.value.reason == "too-old"


@pytest.mark.parametrize("limit", [1e300, float("inf")], ids=["huge", "infinite"])
def test_an_age_beyond_all_calendars_accepts_any(limit: float) -> None:
    ledger = Ledger()
    assert accept(ledger.predicate(), DEFAULT, ledger, max_age_s=limit).done


def test_without_a_time_the_age_cannot_be_checked() -> None:
    ledger = Ledger()
    trust = MemoryTrustStore(TrustState().pinned(Pin(ledger.key.public)))
    verifier = ReceiptVerifier(trust, clock=clock)
    with pytest.raises(NotVerifiedError) as error:
        verifier.verify(ledger.add(ledger.refused()), expect(max_age_s=60), result=None)
    assert error.value.reason == "no-time"
    ledger = Ledger(ledger.key, workspace_id="w-1")
    dated = ledger.refused(issued_on="2026-03-04T05:06:00Z")
    assert verifier.verify(ledger.add(dated), expect(max_age_s=60), result=None).outcome == Outcome.REFUSED
