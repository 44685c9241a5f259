"""Receipts are what other people's libraries take for DSSE and in-toto."""

from __future__ import annotations

import hashlib
import json

import pytest
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement as InTotoStatement  # type: ignore[import-untyped]
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage  # type: ignore[import-untyped]
from securesystemslib.dsse import Envelope as DsseEnvelope
from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]

from unit.receipt.receipt_support import Key, Ledger, created, deleted, modified
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.statement import parse_statement

KEYS = {
    "ed25519": Key(),
    "ecdsa": Key(CryptoSigner.generate_ecdsa()),
    "rsa": Key(CryptoSigner.generate_rsa(size=2048)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_securesystemslib_verifies_the_envelope(kind: str) -> None:
    key = KEYS[kind]
    envelope = DsseEnvelope.from_dict(json.loads(Ledger(key).add()))
    assert list(envelope.verify([key.public.key], 1)) == [key.public.key_id]


def test_our_pre_authentication_encoding_is_the_librarys() -> None:
    data = Ledger().add()
    assert parse_envelope(data).pae() == DsseEnvelope.from_dict(json.loads(data)).pae()


@pytest.mark.parametrize("what", ["call", "refused", "rotation"])
def test_in_totos_own_bindings_read_the_statement(what: str) -> None:
    ledger = Ledger()
    data = {
        "call": lambda: ledger.add(ledger.predicate((created("a"), modified("b"), deleted("c")))),
        "refused": lambda: ledger.add(ledger.refused()),
        "rotation": lambda: ledger.rotate(Key()),
    }[what]()
    payload = parse_envelope(data).payload
    message = json_format.Parse(payload, StatementMessage())
    InTotoStatement.copy_from_pb(message).validate()
    statement = parse_statement(payload)
    assert message.subject[0].digest["sha256"] == statement.subject.digest
    assert message.predicate["chain"]["sequence"] == statement.chain.sequence


def test_the_key_id_is_what_the_document_writes_out() -> None:
    key = KEYS["ed25519"].public
    text = f'{{"keytype":"ed25519","keyval":{{"public":"{key.key.keyval["public"]}"}},"scheme":"ed25519"}}'
    assert hashlib.sha256(text.encode()).hexdigest() == key.key_id


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_the_key_id_of_pem_keys_is_what_the_document_writes_out(kind: str) -> None:
    key = KEYS[kind].public
    text = f'{{"keytype":"{key.key_type}","keyval":{{"public":"{key.pem}"}},"scheme":"{key.scheme}"}}'
    assert hashlib.sha256(text.encode()).hexdigest() == key.key_id
