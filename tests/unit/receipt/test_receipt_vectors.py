"""The golden vectors, run as any implementation runs them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from workseal.canonical import sha256_hex
from workseal.errors import NotVerifiedError
from workseal.receipt.checks import CHECKS
from workseal.receipt.envelope import PAYLOAD_TYPE, pae
from workseal.receipt.keys import PublicKey
from workseal.receipt.policy import Expectation
from workseal.receipt.statement import (
    encode_change_line,
    encode_statement,
    parse_change_lines,
    parse_statement,
)
from workseal.receipt.verifier import ReceiptVerifier, VerifiedReceipt
from workseal.trust import MemoryRecord, MemoryTrustStore, Pin, TrustState

VECTORS = Path(__file__).resolve().parents[3] / "proto" / "vectors" / "receipt"


def load(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="ascii"))


NAMES = {
    "workspaceId": "workspace_id",
    "sessionId": "session_id",
    "toolCallId": "tool_call_id",
    "tool": "tool",
    "argumentsDigest": "arguments_digest",
    "challenge": "challenge",
    "chainId": "chain_id",
    "beforeDigest": "before_digest",
    "beforeMode": "before_mode",
    "maxAgeSeconds": "max_age_s",
}


def expectation(value: dict[str, Any]) -> Expectation:
    return Expectation(**{NAMES[name]: item for name, item in value.items()})


def run(vector: dict[str, Any]) -> VerifiedReceipt:
    pins = tuple(Pin(PublicKey.from_pem(pin["public"])) for pin in vector["pins"])
    now = datetime.fromisoformat(vector["now"])
    verifier = ReceiptVerifier(MemoryTrustStore(TrustState(pins)), record=MemoryRecord(), clock=lambda: now)
    for known in vector["known"]:
        verifier.verify(
            known["envelope"].encode(), expectation(known["expectation"]), result=known["result"].encode()
        )
    result = vector["result"]
    return verifier.verify(
        vector["envelope"].encode(),
        expectation(vector["expectation"]),
        result=None if result is None else result.encode(),
        between=[item.encode() for item in vector["between"]],
    )


@pytest.mark.parametrize("vector", load("accepted"), ids=lambda vector: vector["name"])
def test_a_receipt_that_verifies(vector: dict[str, Any]) -> None:
    assert vector["verified"]
    assert run(vector).envelope == vector["envelope"].encode()


@pytest.mark.parametrize("vector", load("refused"), ids=lambda vector: vector["name"])
def test_a_receipt_that_must_not_verify(vector: dict[str, Any]) -> None:
    with pytest.raises(NotVerifiedError) as error:
        run(vector)
    assert (error.value.check, error.value.reason) == (vector["check"], vector["reason"])


def test_every_check_has_a_vector() -> None:
    assert {vector["check"] for vector in load("refused")} == {name for name, _ in CHECKS}


@pytest.mark.parametrize("vector", load("keys"), ids=lambda vector: vector["keyId"][:8])
def test_key_ids(vector: dict[str, str]) -> None:
    key = PublicKey.from_pem(vector["public"])
    assert key.key_id == vector["keyId"] == sha256_hex(vector["keyIdInput"].encode())
    assert (key.fingerprint, key.pem) == (vector["fingerprint"], vector["public"])


def test_byte_exact_forms() -> None:
    vector = load("forms")
    payload = vector["payload"].encode()
    assert encode_statement(parse_statement(payload).predicate) == payload
    assert sha256_hex(payload) == vector["payloadDigest"]
    assert pae(PAYLOAD_TYPE, payload).decode() == vector["pae"]
    lines = vector["fullList"].encode()
    assert b"".join(map(encode_change_line, parse_change_lines(lines))) == lines
    assert sha256_hex(lines) == vector["fullListDigest"]


def test_no_private_key_is_among_the_vectors() -> None:
    assert all(b"PRIVATE" not in path.read_bytes() for path in VECTORS.iterdir())
