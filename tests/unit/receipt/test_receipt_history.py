"""Checks 9 and 12 over several receipts: accounting, gaps, rotations, forks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unit.receipt.receipt_support import (
    RESULT,
    RULES,
    Key,
    Ledger,
    clock,
    created,
    digest,
    expect,
)
from workseal.errors import CannotCheckError, NotVerifiedError
from workseal.receipt.policy import Expectation
from workseal.receipt.statement import Bridge, Outcome, OutsideChanges, Scheme, encode_statement
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust import MemoryRecord, MemoryTrustStore, Pin, SqliteRecord, TrustState, VerifiedRecord
from workseal.trust.record import ChainEntry


class Client:
    """A verifier with a durable record, and the ledger that it talks to."""

    def __init__(self, record: VerifiedRecord, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()
        self.trust = MemoryTrustStore(TrustState().pinned(Pin(self.ledger.key.public)))
        self.record = record
        self.verifier = ReceiptVerifier(self.trust, record=record, clock=clock)

    def verify(
        self, envelope: bytes, call: str = "c-1", between: tuple[bytes, ...] = (), **changes: Any
    ) -> VerifiedReceipt:
        expectation = expect(tool_call_id=call, challenge=call, **changes)
        return self.verifier.verify(envelope, expectation, result=RESULT, between=between)

    def call(self, call: str = "c-1", **fields: Any) -> bytes:
        named = {"tool_call_id": call, "challenge": call}
        return self.ledger.add(self.ledger.predicate((created(f"{call}.txt"),), call=named, **fields))


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    return Client(MemoryRecord() if request.param == "memory" else SqliteRecord(tmp_path))


def reason_of(action: Callable[[], object]) -> str:
    with pytest.raises(NotVerifiedError) as error:
        action()
    return f"{error.value.check}/{error.value.reason}"


def test_the_first_receipt_is_taken_where_it_stands(client: Client) -> None:
    client.ledger.sequence, client.ledger.previous = 41, digest("before")
    assert client.verify(client.call()).done
    head = client.record.head("w-1")
    assert head is not None
    assert head.sequence == 42


def test_receipts_that_follow_each_other_are_accounted(client: Client) -> None:
    for call in ("c-1", "c-2", "c-3"):
        assert client.verify(client.call(call), call).done


def test_a_receipt_further_on_is_accounted_if_the_workspace_is_as_it_was(client: Client) -> None:
    client.verify(client.call())
    client.ledger.add(client.ledger.refused())
    assert client.verify(client.call("c-2"), "c-2").done


def test_a_gap_with_changes_asks_for_the_receipts_in_between(client: Client) -> None:
    client.verify(client.call())
    between = client.call("other")
    last = client.call("c-2")
    assert reason_of(lambda: client.verify(last, "c-2")) == "before/gap"
    assert list(client.verifier.gap(last)) == [2]
    verified = client.verify(last, "c-2", (between,))
    assert [statement.chain.sequence for statement in verified.between] == [2]


def test_a_change_that_nothing_explains_is_refused_in_between_too(client: Client) -> None:
    client.verify(client.call())
    client.ledger.state = digest("touched")
    between = client.call("other")
    last = client.call("c-2")
    assert reason_of(lambda: client.verify(last, "c-2", (between,))) == "before/unaccounted"


def test_outside_changes_explain_a_difference_and_are_handed_on(client: Client) -> None:
    client.verify(client.call())
    client.ledger.state = digest("somebody saved notes")
    outside = OutsideChanges(modified=("notes.md",))
    verified = client.verify(client.call("c-2", workspace={"outside_changes": outside}), "c-2")
    assert verified.outside_changes == outside


@pytest.mark.parametrize("outside", [None, OutsideChanges()], ids=["null", "empty"])
def test_a_difference_without_outside_changes_is_refused(
    client: Client, outside: OutsideChanges | None
) -> None:
    client.verify(client.call())
    client.ledger.state = digest("somebody saved notes")
    receipt = client.call("c-2", workspace={"outside_changes": outside})
    assert reason_of(lambda: client.verify(receipt, "c-2")) == "before/unaccounted"


def test_strict_takes_only_the_expected_state(client: Client) -> None:
    before = client.ledger.state
    receipt = client.call()
    strict: dict[str, Any] = {"before_mode": "strict"}
    assert (
        reason_of(lambda: client.verify(receipt, before_digest=digest("x"), **strict))
        == "before/other-before"
    )
    assert reason_of(lambda: client.verify(receipt, **strict)) == "before/not-given"
    assert client.verify(receipt, before_digest=before, **strict).done


def test_changed_ignore_rules_need_a_bridge(client: Client) -> None:
    client.verify(client.call(workspace={"ignore_policy_after": digest("new rules")}))
    last_state, client.ledger.state = client.ledger.state, digest("same tree, new rules")
    new = {"ignore_policy_before": digest("new rules"), "ignore_policy_after": digest("new rules")}
    ledger = client.ledger
    call = {"tool_call_id": "c-2", "challenge": "c-2"}

    def signed(bridge: Bridge | None) -> bytes:
        return ledger.key.sign(
            encode_statement(ledger.predicate(call=call, workspace={**new, "bridge": bridge}))
        )

    assert reason_of(lambda: client.verify(signed(None), "c-2")) == "before/no-bridge"
    assert (
        reason_of(lambda: client.verify(signed(Bridge(digest("third"), last_state)), "c-2"))
        == "before/no-bridge"
    )
    assert reason_of(lambda: client.verify(signed(Bridge(RULES, digest("x"))), "c-2")) == "before/unaccounted"
    assert client.verify(signed(Bridge(RULES, last_state)), "c-2").done


def test_digests_of_different_schemes_are_never_compared(client: Client) -> None:
    client.verify(client.call())
    receipt = client.call("c-2", workspace={"scheme": Scheme.NONOKA_1})
    assert reason_of(lambda: client.verify(receipt, "c-2")) == "before/scheme-changed"


def test_after_a_lost_state_the_next_receipt_starts_anew(client: Client) -> None:
    gone = {"after": None, "scan_after": None, "ignore_policy_after": None}
    call = {"tool_call_id": "c-1", "challenge": "c-1"}
    client.verify(client.ledger.add(client.ledger.predicate((), call=call, workspace=gone)))
    client.ledger.state = digest("another directory")
    assert client.verify(client.call("c-2"), "c-2").done


def test_after_an_unknown_state_the_receipts_in_between_are_asked_for_all_the_same(client: Client) -> None:
    gone = {"after": None, "scan_after": None, "ignore_policy_after": None}
    call = {"tool_call_id": "c-1", "challenge": "c-1"}
    client.verify(client.ledger.add(client.ledger.predicate((), call=call, workspace=gone)))
    between = client.call("other")
    last = client.call("c-2")
    assert reason_of(lambda: client.verify(last, "c-2")) == "before/gap"
    assert client.verify(last, "c-2", (between,)).done


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.IN_DOUBT, Outcome.EXPIRED])
def test_an_answer_that_is_not_done_is_verified_all_the_same(client: Client, outcome: Outcome) -> None:
    call = {"tool_call_id": "c-1", "challenge": "c-1"}
    predicate = client.ledger.predicate((), call=call, outcome=outcome, reason="no", execution=None)
    receipt = client.ledger.add(predicate)
    verified = client.verifier.verify(receipt, expect(challenge="c-1"), result=None)
    assert (verified.outcome, verified.done) == (outcome, False)


def test_a_result_with_a_receipt_that_has_none_is_refused(client: Client) -> None:
    call = {"tool_call_id": "c-1", "challenge": "c-1"}
    receipt = client.ledger.add(client.ledger.refused(call=call))
    assert reason_of(lambda: client.verify(receipt)) == "result/no-result-signed"


def test_a_result_is_needed_where_one_was_signed(client: Client) -> None:
    receipt = client.call()
    expectation = expect(challenge="c-1")
    assert reason_of(lambda: client.verifier.verify(receipt, expectation, result=None)) == "result/not-given"


NOT_GIVEN = {
    "workspace_id": "workspace",
    "session_id": "call",
    "tool_call_id": "call",
    "tool": "call",
    "arguments_digest": "call",
    "challenge": "challenge",
}


@pytest.mark.parametrize("field", NOT_GIVEN)
def test_what_names_the_call_must_be_given(client: Client, field: str) -> None:
    receipt = client.ledger.add()
    without: dict[str, Any] = {field: None}
    expectation: Expectation = replace(expect(), **without)
    with pytest.raises(CannotCheckError) as error:
        client.verifier.verify(receipt, expectation, result=RESULT)
    assert (error.value.check, error.value.reason) == (NOT_GIVEN[field], "not-given")


def test_a_refused_receipt_is_not_remembered(client: Client) -> None:
    receipt = client.call()
    assert reason_of(lambda: client.verify(receipt, "c-9")) == "call/other-call"
    assert client.record.head("w-1") is None
    assert client.verify(receipt).done


def test_a_rotation_is_followed_and_old_receipts_still_verify(client: Client) -> None:
    first = client.call()
    client.verify(first)
    rotation = client.ledger.rotate(Key())
    second = client.call("c-2")
    assert reason_of(lambda: client.verify(second, "c-2")) == "signature/key-not-pinned"
    assert client.verify(second, "c-2", (rotation,)).done
    assert client.verify(first).done
    assert client.verify(client.call("c-3"), "c-3").done


def test_two_rotations_are_followed(client: Client) -> None:
    client.verify(client.call())
    rotations = (client.ledger.rotate(Key()), client.ledger.rotate(Key()))
    assert client.verify(client.call("c-2"), "c-2", rotations).done


def test_a_rotation_by_a_key_that_is_not_pinned_is_not_followed(client: Client) -> None:
    client.verify(client.call())
    host, client.ledger.key = client.ledger.key, Key()
    rotation = client.ledger.rotate(Key())
    assert (
        reason_of(lambda: client.verify(client.call("c-2"), "c-2", (rotation,))) == "signature/key-not-pinned"
    )
    assert [pin.public for pin in client.trust.state().pins] == [host.public]


def test_a_rotation_pins_nothing_if_the_receipt_after_it_is_refused(client: Client) -> None:
    client.verify(client.call())
    rotation = client.ledger.rotate(Key())
    assert reason_of(lambda: client.verify(client.call("c-2"), "c-9", (rotation,))) == "call/other-call"
    assert len(client.trust.state().pins) == 1


def test_a_rotation_counts_in_its_own_chain_only(client: Client) -> None:
    client.verify(client.call())
    new = Key()
    client.verifier.follow([client.ledger.rotate(new)], workspace_id="w-1")
    elsewhere = Ledger(new, workspace_id="w-2", chain_id="chain-2")
    receipt = elsewhere.add(elsewhere.predicate(call={"challenge": "c-1"}))
    assert reason_of(lambda: client.verify(receipt, workspace_id="w-2")) == "signature/key-not-for-this"


def test_a_rotation_is_no_answer_to_a_call(client: Client) -> None:
    rotation = client.ledger.rotate(Key())
    assert reason_of(lambda: client.verify(rotation)) == "statement/predicate-type"


def test_another_receipt_at_a_known_place_is_a_fork(client: Client) -> None:
    past = replace(client.ledger)
    client.verify(client.call())
    client.ledger = past
    assert reason_of(lambda: client.verify(client.call("c-2"), "c-2")) == "chain/fork"


def test_a_place_behind_what_is_known_is_refused(client: Client) -> None:
    client.ledger.sequence, client.ledger.previous = 41, digest("x")
    client.verify(client.call())
    old = Ledger(client.ledger.key, sequence=6, previous=digest("y"))
    receipt = old.add(old.predicate(call={"tool_call_id": "c-2", "challenge": "c-2"}))
    assert reason_of(lambda: client.verify(receipt, "c-2")) == "chain/behind"


def test_two_answers_may_be_verified_in_the_other_order(client: Client) -> None:
    client.verify(client.call("c-0"), "c-0")
    state = client.ledger.state
    first, second = client.call("c-1"), client.call("c-2")
    client.verify(second, "c-2", (first,))
    assert client.verify(first, "c-1").done
    assert state != client.ledger.state


def test_an_earlier_receipt_is_taken_if_a_known_one_follows_it(client: Client) -> None:
    first = client.call("c-1")
    strict_before = client.ledger.state
    second = client.call("c-2")
    client.verify(second, "c-2", before_mode="strict", before_digest=strict_before)
    assert client.verify(first, "c-1").done


def test_an_earlier_receipt_that_the_known_one_does_not_follow_is_a_fork(client: Client) -> None:
    other_past = replace(client.ledger)
    client.call("c-1")
    strict_before = client.ledger.state
    client.verify(client.call("c-2"), "c-2", before_mode="strict", before_digest=strict_before)
    client.ledger = other_past
    receipt = client.call("c-1", reason="another history")
    assert reason_of(lambda: client.verify(receipt, "c-1")) == "chain/fork"


def test_another_chain_is_refused_until_the_user_forgets_the_first(client: Client) -> None:
    client.verify(client.call())
    client.ledger = Ledger(client.ledger.key, chain_id="chain-of-a-new-ledger")
    receipt = client.call("c-2")
    assert reason_of(lambda: client.verify(receipt, "c-2")) == "chain/chain-changed"
    client.record.forget("w-1")
    assert client.verify(receipt, "c-2").done


def test_f40_a_receipt_counts_for_one_call_only(client: Client) -> None:
    receipt = client.call()
    client.verify(receipt)
    entry = client.record.head("w-1")
    assert entry is not None
    with pytest.raises(NotVerifiedError) as error:
        client.record.accept("w-1", [replace(entry, used_by="another call")])
    assert error.value.reason == "already-used"


def test_a_receipt_seen_in_between_may_still_answer_its_own_call(client: Client) -> None:
    client.verify(client.call("c-0"), "c-0")
    other = client.call("c-1")
    client.verifier.follow([other], workspace_id="w-1")
    assert client.verify(other, "c-1").done


def test_a_receipt_that_answered_its_call_may_come_again_in_between(client: Client) -> None:
    first = client.call("c-1")
    client.verify(first, "c-1")
    assert client.verify(client.call("c-2"), "c-2", (first,)).done
    entry = client.record.at("w-1", 1)
    assert entry is not None
    assert entry.used_by == expect(tool_call_id="c-1", challenge="c-1").call_identity


def test_an_audit_with_the_record_takes_a_receipt_that_answered_its_call(client: Client) -> None:
    receipt = client.call()
    client.verify(receipt)
    assert client.verifier.audit(receipt, with_record=True).verified


def test_a_receipt_that_another_process_recorded_otherwise_meanwhile_is_a_fork() -> None:
    class Raced(MemoryRecord):
        def accept(self, workspace_id: str, entries: Sequence[ChainEntry]) -> None:
            other = [replace(entry, payload_digest=digest("their history")) for entry in entries]
            super().accept(workspace_id, other)
            super().accept(workspace_id, entries)

    client = Client(Raced())
    assert reason_of(lambda: client.verify(client.call())) == "chain/fork"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_lies_further_back_than_the_record_reaches_is_refused(kind: str, tmp_path: Path) -> None:
    record = MemoryRecord(kept_entries=2) if kind == "memory" else SqliteRecord(tmp_path, kept_entries=2)
    client = Client(record)
    receipts = {call: client.call(call) for call in ("c-1", "c-2", "c-3", "c-4")}
    for call, receipt in receipts.items():
        client.verify(receipt, call)
    assert [record.at("w-1", sequence) is not None for sequence in (1, 2, 3, 4)] == [False, False, True, True]
    assert client.verify(receipts["c-3"], "c-3").done
    assert reason_of(lambda: client.verify(receipts["c-1"], "c-1")) == "chain/behind"


def test_a_rotation_verified_over_a_gap_may_come_again_when_the_gap_is_closed(client: Client) -> None:
    client.verify(client.call("c-1"), "c-1")
    second = client.call("c-2")
    rotation = client.ledger.rotate(Key())
    client.verifier.follow([rotation], workspace_id="w-1")
    client.verify(second, "c-2")
    assert client.verifier.follow([rotation], workspace_id="w-1")


def test_the_gap_is_empty_where_nothing_is_known(client: Client) -> None:
    client.ledger.sequence, client.ledger.previous = 41, digest("x")
    assert list(client.verifier.gap(client.call())) == []


def test_an_endless_gap_is_refused(client: Client) -> None:
    client.verify(client.call())
    client.ledger.sequence = 2_000_000
    assert reason_of(lambda: client.verifier.gap(client.call("c-2"))) == "before/gap"


def test_another_record_of_the_same_directory_knows_the_same(tmp_path: Path) -> None:
    client = Client(SqliteRecord(tmp_path))
    client.verify(client.call())
    assert SqliteRecord(tmp_path).head("w-1") == client.record.head("w-1")
    assert (tmp_path / "trust" / "verified.sqlite3").stat().st_mode & 0o777 == 0o600


def test_an_audit_reports_and_records_nothing(client: Client) -> None:
    report = client.verifier.audit(client.call(), with_record=True)
    assert report.verified
    assert client.record.head("w-1") is None
    statuses = {check.name: str(check.status) for check in report.checks}
    assert statuses["signature"] == "passed"
    assert statuses["challenge"] == "skipped"


def test_an_audit_stops_at_the_first_check_that_does_not_hold(client: Client) -> None:
    report = client.verifier.audit(client.call(), expect(session_id="s-9"))
    assert report.error is not None
    assert report.statement is None
    statuses = [str(check.status) for check in report.checks]
    assert statuses[5:] == ["failed"] + ["not run"] * 6


def test_what_does_not_hold_in_between_is_named_by_its_place(client: Client) -> None:
    client.verify(client.call())
    between, last = client.call("c-2"), client.call("c-3")
    with pytest.raises(NotVerifiedError, match=r"the receipt 2 between .* is of another workspace"):
        client.verify(last, "c-3", (between,), workspace_id="w-2")
