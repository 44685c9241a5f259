"""Each of the twelve checks is load-bearing.

For each check there is a forgery that it alone refuses: the whole verifier refuses
it, with that check's reason, and the verifier without that one check accepts it.
Checks 1 and 3 also read what later checks need; without them, a reader that takes
anything stands in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from unit.receipt.receipt_support import (
    NOW,
    RESULT,
    Key,
    Ledger,
    clock,
    created,
    digest,
    execution,
    expect,
    reencode,
)
from workseal.errors import NotVerifiedError
from workseal.receipt.checks import CHECKS
from workseal.receipt.checks.context import Check, Context
from workseal.receipt.envelope import Envelope
from workseal.receipt.form import TOOL_EXECUTION
from workseal.receipt.policy import Expectation
from workseal.receipt.statement import Mode, Statement, Subject, encode_statement, format_time
from workseal.receipt.verifier import ReceiptVerifier
from workseal.trust import MemoryRecord, MemoryTrustStore, Pin, TrustState


@dataclass
class Scene:
    """A client that has verified one receipt, and the host's ledger."""

    ledger: Ledger
    trust: MemoryTrustStore
    record: MemoryRecord

    def verifier(self, without: str | None = None) -> ReceiptVerifier:
        checks = [
            (name, STAND_INS.get(name, _nothing) if name == without else check) for name, check in CHECKS
        ]
        return ReceiptVerifier(self.trust, record=self.record, clock=clock, checks=checks)


def _nothing(context: Context) -> str:
    return "switched off"


def _any_form(context: Context) -> str:
    """Read an envelope as a careless client would."""
    value = json.loads(context.data)
    entry = value["signatures"][0]
    context.envelope = Envelope(
        base64.b64decode(value["payload"]),
        value["payloadType"],
        entry["keyid"],
        base64.b64decode(entry["sig"]),
    )
    return "anything"


def _any_statement(context: Context) -> str:
    """Read a predicate whatever the statement says it is."""
    value = json.loads(context.signed().payload)
    predicate = TOOL_EXECUTION.decode(value["predicate"], "predicate")
    context.statement = Statement(Subject("workspace", predicate.workspace.before), predicate)
    return "anything"


STAND_INS: dict[str, Check] = {"form": _any_form, "statement": _any_statement}

Forgery = Callable[[Ledger], tuple[bytes, Expectation, bytes]]


def extra_signature(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    value = json.loads(ledger.add())
    value["signatures"].append({"keyid": Key().public.key_id, "sig": "AAAA"})
    return json.dumps(value).encode(), expect(), RESULT


def signed_by_somebody(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    host, ledger.key = ledger.key, Key()
    predicate = replace(ledger.predicate(), host=replace(ledger.predicate().host, key_id=host.public.key_id))
    payload = encode_statement(predicate)
    forged = json.loads(ledger.key.sign(payload))
    forged["signatures"][0]["keyid"] = host.public.key_id
    return json.dumps(forged).encode(), expect(), RESULT


def another_predicate_type(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    payload = reencode(
        encode_statement(ledger.predicate()),
        lambda value: value.update(predicateType="https://example.invalid/v1"),
    )
    return ledger.key.sign(payload), expect(), RESULT


def observed(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(ledger.predicate(execution=execution(mode=Mode.OBSERVED))), expect(), RESULT


def of_another_chain(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(), expect(chain_id="chain-that-the-host-had-named"), RESULT


def other_arguments(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(ledger.predicate(call={"arguments_digest": digest("rm -rf")})), expect(), RESULT


def of_an_earlier_occurrence(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(ledger.predicate(call={"challenge": "an-older-challenge"})), expect(), RESULT


def too_old(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    old = execution(finished_on=format_time(NOW.replace(year=NOW.year - 1)))
    return ledger.add(ledger.predicate(execution=old)), expect(max_age_s=60), RESULT


def changed_in_between(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    ledger.state = digest("something that nobody reported")
    return ledger.add(), expect(), RESULT


def hidden_change(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    predicate = ledger.predicate((), workspace={"after": digest("not what it was")})
    return ledger.add(predicate), expect(), RESULT


def swapped_result(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(), expect(), b"all tests passed"


def second_history(ledger: Ledger) -> tuple[bytes, Expectation, bytes]:
    return ledger.add(ledger.predicate(chain={"previous": digest("another past")})), expect(), RESULT


FORGERIES: dict[str, tuple[str, Forgery]] = {
    "form": ("signatures", extra_signature),
    "signature": ("bad-signature", signed_by_somebody),
    "statement": ("predicate-type", another_predicate_type),
    "policy": ("mode", observed),
    "workspace": ("other-chain", of_another_chain),
    "call": ("other-arguments", other_arguments),
    "challenge": ("other-challenge", of_an_earlier_occurrence),
    "age": ("too-old", too_old),
    "before": ("unaccounted", changed_in_between),
    "changes": ("inconsistent", hidden_change),
    "result": ("other-result", swapped_result),
    "chain": ("fork", second_history),
}


@pytest.fixture
def scene() -> Scene:
    ledger = Ledger()
    trust = MemoryTrustStore(TrustState().pinned(Pin(ledger.key.public)))
    scene = Scene(ledger, trust, MemoryRecord())
    first = ledger.predicate((created("first.txt"),), call={"tool_call_id": "c-0", "challenge": "first"})
    scene.verifier().verify(ledger.add(first), expect(tool_call_id="c-0", challenge="first"), result=RESULT)
    return scene


def test_every_check_has_a_forgery() -> None:
    assert list(FORGERIES) == [name for name, _ in CHECKS]


@pytest.mark.parametrize("check", FORGERIES)
def test_the_whole_verifier_refuses_the_forgery(scene: Scene, check: str) -> None:
    reason, forge = FORGERIES[check]
    envelope, expectation, result = forge(scene.ledger)
    with pytest.raises(NotVerifiedError) as refusal:
        scene.verifier().verify(envelope, expectation, result=result)
    assert (refusal.value.check, refusal.value.reason) == (check, reason)


@pytest.mark.parametrize("check", FORGERIES)
def test_without_this_one_check_the_forgery_is_accepted(scene: Scene, check: str) -> None:
    envelope, expectation, result = FORGERIES[check][1](scene.ledger)
    verified = scene.verifier(without=check).verify(envelope, expectation, result=result)
    assert verified.done


@pytest.mark.parametrize("check", FORGERIES)
def test_switching_off_any_other_check_does_not_let_it_pass(scene: Scene, check: str) -> None:
    envelope, expectation, result = FORGERIES[check][1](scene.ledger)
    for other in FORGERIES:
        if other not in (check, "form", "statement"):
            with pytest.raises(NotVerifiedError):
                scene.verifier(without=other).verify(envelope, expectation, result=result)


@pytest.mark.parametrize("off", ["call", "challenge"])
def test_f40_even_without_that_check_a_used_receipt_is_not_taken_for_another_call(
    scene: Scene, off: str
) -> None:
    receipt = scene.ledger.add()
    scene.verifier().verify(receipt, expect(), result=RESULT)
    other = expect(tool_call_id="c-2") if off == "call" else expect(challenge="another")
    with pytest.raises(NotVerifiedError) as refusal:
        scene.verifier(without=off).verify(receipt, other, result=RESULT)
    assert (refusal.value.check, refusal.value.reason) == ("chain", "already-used")
