"""No receipt is accepted that departs from what was signed, or was made for something else.

Whatever bytes come, the answer is a verified receipt or one typed error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

from unit.receipt.receipt_support import (
    CHALLENGE,
    RESULT,
    Key,
    Ledger,
    clock,
    created,
    deleted,
    digest,
    expect,
    modified,
    reencode,
)
from workseal.canonical import canonical_json
from workseal.errors import NotVerifiedError
from workseal.receipt.changes import parse_change_lines
from workseal.receipt.envelope import MAX_ENVELOPE_BYTES, parse_envelope
from workseal.receipt.errors import MalformedReceiptError, PublicKeyError
from workseal.receipt.keys import PublicKey
from workseal.receipt.policy import Expectation
from workseal.receipt.statement import encode_statement, parse_statement
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust import MemoryRecord, MemoryTrustStore, Pin, TrustState

ED25519 = Key()
RSA = Key(CryptoSigner.generate_rsa(size=2048))
ECDSA = Key(CryptoSigner.generate_ecdsa())


def verifier_for(*keys: Key, record: MemoryRecord | None = None) -> ReceiptVerifier:
    state = TrustState(pins=tuple(Pin(key.public) for key in keys))
    return ReceiptVerifier(MemoryTrustStore(state), record=record, clock=clock)


def accept(envelope: bytes, *keys: Key, expectation: Expectation | None = None) -> VerifiedReceipt:
    return verifier_for(*(keys or (ED25519,))).verify(envelope, expectation or expect(), result=RESULT)


@cache
def genuine() -> bytes:
    ledger = Ledger(ED25519)
    return ledger.add(ledger.predicate(sorted_changes()))


def sorted_changes() -> tuple[Any, ...]:
    return (created("a.txt"), modified("b.sh"), deleted("c"))


def envelope_json() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(genuine())
    return value


def refused(envelope: bytes, *keys: Key, expectation: Expectation | None = None) -> NotVerifiedError:
    with pytest.raises(NotVerifiedError) as error:
        accept(envelope, *keys, expectation=expectation)
    return error.value


def test_the_genuine_receipt_is_accepted() -> None:
    assert accept(genuine()).done


@given(st.integers(0, len(genuine()) - 1), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_anywhere_in_the_envelope_is_refused(position: int, change: int) -> None:
    data = bytearray(genuine())
    data[position] ^= change
    refused(bytes(data))


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_a_changed_byte_anywhere_in_the_payload_is_refused(position: int, change: int) -> None:
    value = envelope_json()
    payload = bytearray(base64.b64decode(value["payload"]))
    payload[position % len(payload)] ^= change
    value["payload"] = base64.b64encode(payload).decode()
    assert refused(canonical_json(value)).reason == "bad-signature"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


PAYLOAD = json.loads(parse_envelope(genuine()).payload)
WRONG_VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**53 - 1, "", "x", [], [None], {}, {"sha256": "AB"})


@pytest.mark.parametrize("path", leaves(PAYLOAD), ids=lambda path: ".".join(map(str, path)))
def test_each_field_is_covered_by_the_signature_and_read_strictly(path: tuple[Any, ...]) -> None:
    envelope = parse_envelope(genuine())
    for wrong in WRONG_VALUES:

        def change(value: Any, wrong: Any = wrong) -> None:
            for step in path[:-1]:
                value = value[step]
            value[path[-1]] = wrong

        payload = reencode(envelope.payload, change)
        if payload != envelope.payload:
            unsigned = envelope_json()
            unsigned["payload"] = base64.b64encode(payload).decode()
            assert refused(canonical_json(unsigned)).reason == "bad-signature"
        with suppress(MalformedReceiptError):  # signed by the host's own key: a receipt or one typed error
            parse_statement(payload)


@pytest.mark.parametrize("path", leaves(PAYLOAD), ids=lambda path: ".".join(map(str, path)))
def test_each_field_is_required(path: tuple[Any, ...]) -> None:
    def remove(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        del value[path[-1]]

    payload = reencode(parse_envelope(genuine()).payload, remove)
    if isinstance(path[-1], int):
        return
    with pytest.raises(MalformedReceiptError):
        parse_statement(payload)


def with_envelope(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = envelope_json()
    change(value)
    return json.dumps(value).encode()


LOOSE_BITS = {"A": "B", "Q": "R", "g": "h", "w": "x"}


def loosen(text: str) -> str:
    """Set bits of the last character that decoders drop."""
    body = text.rstrip("=")
    return body[:-1] + LOOSE_BITS[body[-1]] + text[len(body) :]


ENVELOPES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "no signatures": ("signatures", lambda e: e.update(signatures=[])),
    "signatures missing": ("keys", lambda e: e.pop("signatures")),
    "signatures null": ("signatures", lambda e: e.update(signatures=None)),
    "signature twice": ("signatures", lambda e: e["signatures"].append(e["signatures"][0])),
    "extra signature": ("signatures", lambda e: e["signatures"].append({"keyid": "0" * 64, "sig": "AAAA"})),
    "empty signature": ("signatures", lambda e: e["signatures"][0].update(sig="")),
    "huge signature": ("signatures", lambda e: e["signatures"][0].update(sig="AAAA" * 10_000)),
    "extra field": ("keys", lambda e: e.update(verified=True)),
    "extra field beside the signature": ("keys", lambda e: e["signatures"][0].update(cert="x")),
    "sig missing": ("keys", lambda e: e["signatures"][0].pop("sig")),
    "keyid missing": ("keys", lambda e: e["signatures"][0].pop("keyid")),
    "keyid upper case": (
        "key-id",
        lambda e: e["signatures"][0].update(keyid=e["signatures"][0]["keyid"].upper()),
    ),
    "keyid not a string": ("key-id", lambda e: e["signatures"][0].update(keyid=7)),
    "other payload type": ("payload-type", lambda e: e.update(payloadType="application/json")),
    "payload type by case": ("payload-type", lambda e: e.update(payloadType="application/vnd.in-toto+JSON")),
    "payload a list": ("base64", lambda e: e.update(payload=[])),
    "payload not ASCII": ("base64", lambda e: e.update(payload=e["payload"] + "é")),
    "payload with a newline": (
        "base64",
        lambda e: e.update(payload=e["payload"][:4] + "\n" + e["payload"][4:]),
    ),
    "payload url-safe": (
        "base64",
        lambda e: e["signatures"][0].update(sig=url_safe(e["signatures"][0]["sig"])),
    ),
    "sig unpadded": (
        "base64",
        lambda e: e["signatures"][0].update(sig=e["signatures"][0]["sig"].rstrip("=")),
    ),
    "sig loose bits": ("base64", lambda e: e["signatures"][0].update(sig=loosen(e["signatures"][0]["sig"]))),
    "sig with tail": ("base64", lambda e: e["signatures"][0].update(sig=e["signatures"][0]["sig"] + "AAAA")),
}


def url_safe(text: str) -> str:
    return "-" + text[1:]


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_outside_the_strict_form_is_refused(name: str) -> None:
    reason, change = ENVELOPES[name]
    error = refused(with_envelope(change))
    assert isinstance(error, MalformedReceiptError)
    assert (error.check, error.reason) == ("form", reason)


def test_loose_base64_bits_in_the_payload_are_refused() -> None:
    ledger = Ledger(ED25519)
    for filler in ("", "x", "xx"):  # one of three lengths leaves bits to play with
        data = json.loads(ledger.add(ledger.predicate(reason=filler)))
        if data["payload"].endswith("="):
            data["payload"] = loosen(data["payload"])
            assert refused(canonical_json(data)).reason == "base64"


RAW: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"receipt",
    "null": b"null",
    "list": b"[]",
    "not UTF-8": b"\xff\xfe",
    "byte order mark": b"\xef\xbb\xbf" + genuine(),
    "two documents": genuine() + genuine(),
    "NUL after": genuine() + b"\0",
    "duplicate key": genuine().replace(b'{"payload":', b'{"payload":"","payload":', 1),
    "duplicate keyid": genuine().replace(b'{"keyid":', b'{"keyid":"","keyid":', 1),
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "NaN": b'{"payload":NaN}',
    "huge number": b'{"payload":' + b"9" * 10_000 + b"}",
    "lone surrogate": b'{"payload":"\\ud800"}',
    "too large": b" " * MAX_ENVELOPE_BYTES + genuine(),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_envelope_are_refused(name: str) -> None:
    error = refused(RAW[name])
    assert isinstance(error, MalformedReceiptError)
    assert error.check == "form"


def test_too_large_is_said_before_anything_is_read() -> None:
    assert refused(RAW["too large"]).reason == "size"


@given(st.binary(max_size=2000))
@settings(max_examples=300, deadline=None)
def test_any_bytes_end_in_one_typed_error(data: bytes) -> None:
    refused(data)
    with pytest.raises(MalformedReceiptError):
        parse_statement(data)
    report = verifier_for(ED25519).audit(data)
    assert not report.verified


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from(leaves(PAYLOAD)), st.integers(0, 8))
@settings(max_examples=400, deadline=None)
def test_any_json_in_the_place_of_any_field_is_read_or_refused(
    wrong: Any, path: tuple[Any, ...], depth: int
) -> None:
    value = json.loads(json.dumps(PAYLOAD))
    place, steps = value, path[: 1 + min(depth, len(path) - 1)]
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = wrong
    payload = json.dumps(value).encode("utf-8", "surrogatepass")
    with suppress(MalformedReceiptError):
        parse_statement(payload)
    envelope = ED25519.sign(payload)
    with suppress(NotVerifiedError):
        accept(envelope)


@given(json_values)
@settings(max_examples=200, deadline=None)
def test_any_json_is_no_envelope(value: Any) -> None:
    refused(json.dumps(value).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=500))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_no_key_or_one_typed_error(data: bytes) -> None:
    for text in (
        data,
        b"-----BEGIN PUBLIC KEY-----\n" + base64.b64encode(data) + b"\n-----END PUBLIC KEY-----\n",
    ):
        with suppress(PublicKeyError):
            PublicKey.from_pem(text)


@given(st.binary(max_size=500) | json_values.map(lambda v: json.dumps(v).encode() + b"\n"))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_no_full_list_or_one_typed_error(data: bytes) -> None:
    with suppress(MalformedReceiptError):
        parse_change_lines(data)


def test_a_key_that_is_not_pinned_cannot_be_checked() -> None:
    assert refused(genuine(), Key()).reason == "key-not-pinned"


def test_swapping_the_key_id_for_a_pinned_one_is_refused() -> None:
    attacker = Key()
    ledger = Ledger(attacker)
    value = json.loads(ledger.add())
    value["signatures"][0]["keyid"] = ED25519.public.key_id
    assert refused(canonical_json(value)).reason == "bad-signature"


def test_a_receipt_that_names_another_key_than_its_signer_is_refused() -> None:
    ledger = Ledger(ED25519)
    predicate = ledger.predicate()
    payload = encode_statement(replace(predicate, host=replace(predicate.host, key_id=RSA.public.key_id)))
    error = refused(ED25519.sign(payload), ED25519, RSA)
    assert (error.check, error.reason) == ("statement", "key-id")


@pytest.mark.parametrize("signer", [ED25519, RSA, ECDSA], ids=["ed25519", "rsa", "ecdsa"])
@pytest.mark.parametrize("named", [ED25519, RSA, ECDSA], ids=["ed25519", "rsa", "ecdsa"])
def test_the_pinned_key_alone_decides_the_algorithm(signer: Key, named: Key) -> None:
    ledger = Ledger(signer)
    value = json.loads(ledger.add())
    value["signatures"][0]["keyid"] = named.public.key_id
    data = canonical_json(value)
    if signer is named:
        assert accept(data, ED25519, RSA, ECDSA).done
    else:
        assert refused(data, ED25519, RSA, ECDSA).reason == "bad-signature"


def test_a_signature_with_the_public_key_as_secret_is_refused() -> None:
    import hmac

    envelope = parse_envelope(genuine())
    value = envelope_json()
    forged = hmac.digest(RSA.public.pem.encode(), envelope.pae(), "sha256")
    value["signatures"] = [{"keyid": RSA.public.key_id, "sig": base64.b64encode(forged).decode()}]
    assert refused(canonical_json(value), RSA).reason == "bad-signature"


OTHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "session": ({"session_id": "s-2"}, "call", "other-session"),
    "call with equal arguments": ({"tool_call_id": "c-2"}, "call", "other-call"),
    "tool": ({"tool": "bash"}, "call", "other-tool"),
    "arguments": ({"arguments_digest": digest("other")}, "call", "other-arguments"),
    "key": ({"idempotency_key": "other"}, "call", "other-idempotency-key"),
    "challenge": ({"challenge": CHALLENGE[::-1]}, "challenge", "other-challenge"),
    "workspace": ({"workspace_id": "w-2"}, "workspace", "other-workspace"),
    "chain": ({"chain_id": "chain-2"}, "workspace", "other-chain"),
    "workspace digest": (
        {"before_mode": "strict", "before_digest": digest("moved on")},
        "before",
        "other-before",
    ),
    "time": ({"max_age_s": 0.1}, "age", "too-old"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_f40_a_genuine_receipt_of_something_else_is_refused_with_its_own_reason(name: str) -> None:
    change, check, reason = OTHERS[name]
    error = refused(genuine(), expectation=replace(expect(), **change))
    assert (error.check, error.reason) == (check, reason)


def test_f40_the_same_receipt_twice_counts_for_one_call_only() -> None:
    ledger, record = Ledger(ED25519), MemoryRecord()
    predicate = ledger.predicate()
    receipt = ledger.add(predicate)
    verifier = verifier_for(ED25519, record=record)
    verifier.verify(receipt, expect(), result=RESULT)
    assert verifier.verify(receipt, expect(), result=RESULT).done  # the same call, after a crash

    with pytest.raises(NotVerifiedError) as error:
        record.accept("w-1", [replace(_entry(record), used_by="another call")])
    assert error.value.reason == "already-used"


def _entry(record: MemoryRecord) -> Any:
    return record.head("w-1")


def test_f40_a_receipt_from_before_a_rotation_is_not_accepted_after_it() -> None:
    ledger, record = Ledger(ED25519), MemoryRecord()
    verifier = verifier_for(ED25519, record=record)
    first, new = ledger.add(), Key()
    verifier.verify(first, expect(), result=RESULT)
    verifier.follow([ledger.rotate(new)], workspace_id="w-1")
    ledger.key = ED25519
    old = ledger.predicate(host=replace(ledger.predicate().host, key_id=ED25519.public.key_id))
    with pytest.raises(NotVerifiedError) as error:
        verifier.verify(ED25519.sign(encode_statement(old)), expect(), result=RESULT)
    assert error.value.reason == "key-rotated"


def test_a_verified_receipt_cannot_be_made_by_hand() -> None:
    genuine_one = accept(genuine())
    with pytest.raises(TypeError):
        VerifiedReceipt(b"", genuine_one.statement, "", "", None, (), (), token=object())
    with pytest.raises(ValueError, match="token"):
        replace(genuine_one, key_id="0" * 64)  # type: ignore[call-arg]
