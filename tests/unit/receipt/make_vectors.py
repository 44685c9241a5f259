"""Writes ``proto/vectors/receipt/``; run it only when the form changes.

    PYTHONPATH=framework_client:host:tests python -m unit.receipt.make_vectors

New keys are made each time. Their private halves are never written anywhere, so
that nobody can sign anything else with keys that a test trusts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # no __all__ there

from unit.receipt.receipt_support import (
    CHALLENGE,
    NOW,
    RESULT,
    Key,
    Ledger,
    created,
    deleted,
    digest,
    execution,
    modified,
    reencode,
)
from workseal.canonical import sha256_hex
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.statement import (
    Isolation,
    Mode,
    OutsideChanges,
    ResultDigest,
    encode_change_line,
    encode_statement,
    format_time,
    parse_statement,
)

VECTORS = Path(__file__).resolve().parents[3] / "proto" / "vectors" / "receipt"
CALL: dict[str, Any] = {
    "workspaceId": "w-1",
    "sessionId": "s-1",
    "toolCallId": "c-1",
    "tool": "write_file",
    "argumentsDigest": digest("arguments"),
    "challenge": CHALLENGE,
}
FIRST = {**CALL, "toolCallId": "c-0", "challenge": "first"}


class Case:
    """One vector in the making: a ledger, and what the client knows before."""

    def __init__(self, name: str, says: str, key: Key | None = None) -> None:
        self.name, self.says = name, says
        self.ledger = Ledger(key or Key())
        self.pins: list[dict[str, Any]] = [{"public": self.ledger.key.public.pem}]
        self.known: list[dict[str, Any]] = []
        self.between: list[str] = []
        self.expectation = dict(CALL)
        self.result: bytes | None = RESULT

    def after_first(self) -> Case:
        """Let the client have verified one receipt."""
        predicate = self.ledger.predicate(
            (created("first.txt"),), call={"tool_call_id": "c-0", "challenge": "first"}
        )
        receipt = self.ledger.add(predicate).decode()
        self.known.append({"envelope": receipt, "expectation": FIRST, "result": RESULT.decode()})
        return self

    def form(self, envelope: bytes, check: str | None = None, reason: str | None = None) -> dict[str, Any]:
        """Return the vector."""
        return {
            "name": self.name,
            "says": self.says,
            "pins": self.pins,
            "known": self.known,
            "between": self.between,
            "expectation": self.expectation,
            "result": None if self.result is None else self.result.decode(),
            "now": format_time(NOW),
            "envelope": envelope.decode(),
            "verified": check is None,
            "check": check,
            "reason": reason,
        }


def accepted() -> list[dict[str, Any]]:
    """Receipts that verify."""
    vectors = []
    for kind, signer in (
        ("ed25519", CryptoSigner.generate_ed25519()),
        ("ecdsa", CryptoSigner.generate_ecdsa()),
        ("rsa", CryptoSigner.generate_rsa(size=2048)),
    ):
        case = Case(f"signed with {kind}", "Each accepted scheme.", Key(signer))
        vectors.append(case.form(case.ledger.add()))
    case = Case("every kind of change", "Names that are not UTF-8 and control characters are escaped.")
    entries = (created("a\\x0ab"), modified("b.sh"), deleted("c\\\\d"), created("é"), created("\\xff"))
    vectors.append(case.form(case.ledger.add(case.ledger.predicate(entries))))
    case = Case("refused by the host", "Verified, but not done: no execution, nothing changed.")
    case.result = None
    vectors.append(case.form(case.ledger.add(case.ledger.refused())))
    case = Case("unknown fields", "Unknown fields are passed over.")
    payload = reencode(
        encode_statement(case.ledger.predicate()), lambda v: v["predicate"].update(later={"x": 1})
    )
    vectors.append(case.form(case.ledger.key.sign(payload)))
    case = Case("white space and order in the envelope", "They are not part of what is signed.")
    value = json.loads(case.ledger.add())
    vectors.append(case.form(json.dumps(dict(reversed(value.items())), indent=1).encode()))
    case = Case("follows a known one", "The before-digest is the last after-digest.").after_first()
    vectors.append(case.form(case.ledger.add()))
    case = Case("outside changes", "The before-digest differs by what the receipt lists.").after_first()
    case.ledger.state = digest("saved by somebody")
    seen = {"outside_changes": OutsideChanges(modified=("notes",))}
    vectors.append(case.form(case.ledger.add(case.ledger.predicate(workspace=seen))))
    case = Case("rotated key", "The rotation in between is signed by the pinned key.").after_first()
    case.between.append(case.ledger.rotate(Key()).decode())
    vectors.append(case.form(case.ledger.add()))
    case = Case("isolation none", "Accepted by default; a client may ask for more.")
    vectors.append(
        case.form(case.ledger.add(case.ledger.predicate(execution=execution(isolation=Isolation.NONE))))
    )
    return vectors


def _edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Case], bytes]:
    def make(case: Case) -> bytes:
        value = json.loads(case.ledger.add())
        change(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    return make


def _statement(change: Callable[[dict[str, Any]], object]) -> Callable[[Case], bytes]:
    return lambda case: case.ledger.key.sign(reencode(encode_statement(case.ledger.predicate()), change))


def _next(**fields: Any) -> Callable[[Case], bytes]:
    return lambda case: case.ledger.add(case.ledger.predicate(**fields))


def _expecting(**changes: Any) -> Callable[[Case], bytes]:
    def make(case: Case) -> bytes:
        case.expectation.update(changes)
        return case.ledger.add()

    return make


def _loose(value: dict[str, Any]) -> None:
    sig = value["signatures"][0]["sig"]  # 64 bytes: the last character carries four bits that are dropped
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    value["signatures"][0]["sig"] = sig[:85] + alphabet[alphabet.index(sig[85]) | 1] + "=="


def _swapped_key(case: Case) -> bytes:
    host, case.ledger.key = case.ledger.key, Key()
    value = json.loads(case.ledger.add())
    value["signatures"][0]["keyid"] = host.public.key_id
    return json.dumps(value).encode()


def _unpinned(case: Case) -> bytes:
    case.ledger.key = Key()
    return case.ledger.add()


def _old_key(case: Case) -> bytes:
    host = case.ledger.key
    case.between.append(case.ledger.rotate(Key()).decode())
    case.ledger.key = host
    return case.ledger.add()


def _moved(case: Case) -> bytes:
    case.after_first().ledger.state = digest("moved")
    return case.ledger.add()


def _gap(case: Case) -> bytes:
    case.after_first().ledger.add()
    return case.ledger.add()


def _other_past(case: Case) -> bytes:
    case.after_first()
    return case.ledger.add(case.ledger.predicate(chain={"previous": digest("another past")}))


def _second_history(case: Case) -> bytes:
    past = replace(case.ledger)
    case.after_first()
    return past.add(past.predicate())


def _new_chain(case: Case) -> bytes:
    case.after_first()
    case.ledger = Ledger(case.ledger.key, chain_id="chain-2")
    return case.ledger.add()


def _wrong_result(case: Case) -> bytes:
    case.result = b"all tests passed"
    return case.ledger.add()


def _result_of_a_refusal(case: Case) -> bytes:
    return case.ledger.add(case.ledger.refused())


Make = Callable[[Case], bytes]
REFUSED: list[tuple[str, str, str, Make]] = [
    ("no signature", "form", "signatures", _edited(lambda v: v.update(signatures=[]))),
    ("two signatures", "form", "signatures", _edited(lambda v: v["signatures"].append(v["signatures"][0]))),
    ("extra field", "form", "keys", _edited(lambda v: v.update(verified=True))),
    ("extra field in the signature", "form", "keys", _edited(lambda v: v["signatures"][0].update(cert=""))),
    ("loose base64 bits", "form", "base64", _edited(_loose)),
    (
        "unpadded base64",
        "form",
        "base64",
        _edited(lambda v: v["signatures"][0].update(sig=v["signatures"][0]["sig"][:-2])),
    ),
    (
        "other payload type",
        "form",
        "payload-type",
        _edited(lambda v: v.update(payloadType="application/json")),
    ),
    ("duplicate key", "form", "json", lambda c: c.ledger.add().replace(b"{", b'{"payload":"",', 1)),
    ("not JSON", "form", "json", lambda c: c.ledger.add()[:-1]),
    ("key that is not pinned", "signature", "key-not-pinned", _unpinned),
    ("key id swapped", "signature", "bad-signature", _swapped_key),
    (
        "signature of something else",
        "signature",
        "bad-signature",
        _edited(lambda v: v["signatures"][0].update(sig="A" * 86 + "==")),
    ),
    ("old key after a rotation", "signature", "key-rotated", _old_key),
    (
        "other predicate type",
        "statement",
        "predicate-type",
        _statement(lambda v: v.update(predicateType="urn:x")),
    ),
    (
        "other statement type",
        "statement",
        "statement-type",
        _statement(lambda v: v.update({"_type": "urn:x"})),
    ),
    (
        "subject of another state",
        "statement",
        "subject",
        _statement(lambda v: v["subject"][0]["digest"].update(sha256=digest("x"))),
    ),
    ("unknown outcome", "statement", "field", _statement(lambda v: v["predicate"].update(outcome="done"))),
    (
        "exit code as text",
        "statement",
        "field",
        _statement(lambda v: v["predicate"]["execution"].update(exitCode="0")),
    ),
    (
        "paths as text",
        "statement",
        "field",
        _statement(lambda v: v["predicate"]["workspace"].update(unreadable="abc")),
    ),
    (
        "path that escapes",
        "statement",
        "field",
        _statement(lambda v: v["predicate"]["workspace"]["created"][0].update(path="../x")),
    ),
    ("fraction", "statement", "field", _statement(lambda v: v["predicate"]["call"].update(attempt=1.5))),
    (
        "other key named",
        "statement",
        "key-id",
        _statement(lambda v: v["predicate"]["host"].update(keyId="0" * 64)),
    ),
    ("observed", "policy", "mode", _next(execution=execution(mode=Mode.OBSERVED))),
    ("unstable", "policy", "unstable", _next(workspace={"unstable": ("log",)})),
    ("survivors", "policy", "survivors", _next(execution=execution(survivors=1))),
    ("other workspace", "workspace", "other-workspace", _expecting(workspaceId="w-2")),
    ("other chain", "workspace", "other-chain", _expecting(chainId="chain-2")),
    ("other session", "call", "other-session", _expecting(sessionId="s-2")),
    ("other call", "call", "other-call", _expecting(toolCallId="c-2")),
    ("other tool", "call", "other-tool", _expecting(tool="bash")),
    ("other arguments", "call", "other-arguments", _expecting(argumentsDigest=digest("x"))),
    ("other challenge", "challenge", "other-challenge", _expecting(challenge="x")),
    ("no challenge", "challenge", "other-challenge", _next(call={"challenge": None})),
    ("too old", "age", "too-old", _expecting(maxAgeSeconds=0.1)),
    (
        "from the future",
        "age",
        "from-the-future",
        _next(execution=execution(finished_on="2027-01-01T00:00:00Z")),
    ),
    (
        "not the expected state",
        "before",
        "other-before",
        _expecting(beforeMode="strict", beforeDigest=digest("x")),
    ),
    ("changed in between", "before", "unaccounted", _moved),
    ("receipts missing in between", "before", "gap", _gap),
    (
        "change without an entry",
        "changes",
        "inconsistent",
        _next(changes=(), workspace={"after": digest("x")}),
    ),
    ("entry without a change", "changes", "inconsistent", _next(workspace={"after": digest("state 0")})),
    (
        "counts that are wrong",
        "changes",
        "inconsistent",
        _statement(lambda v: v["predicate"]["workspace"]["changes"].update(created=7)),
    ),
    ("other result", "result", "other-result", _wrong_result),
    ("result with a refusal", "result", "no-result-signed", _result_of_a_refusal),
    (
        "result of another length",
        "result",
        "other-result",
        _next(execution=execution(result=ResultDigest(sha256_hex(RESULT), 1))),
    ),
    ("another past", "chain", "fork", _other_past),
    ("another receipt at a known place", "chain", "fork", _second_history),
    ("another chain than the known one", "chain", "chain-changed", _new_chain),
]


def refused() -> list[dict[str, Any]]:
    """Receipts that must not verify, with the check that refuses and its reason."""
    vectors = []
    for name, check, reason, make in REFUSED:
        case = Case(name, f"Check {check} refuses: {reason}.")
        envelope = make(case)
        vectors.append(case.form(envelope, check, reason))
    return vectors


def keys() -> list[dict[str, str]]:
    """Public keys, the text whose SHA-256 is the key id, and the subject digest."""
    vectors = []
    for signer in (
        CryptoSigner.generate_ed25519(),
        CryptoSigner.generate_ecdsa(),
        CryptoSigner.generate_rsa(size=2048),
    ):
        public = Key(signer).public
        inner = public.key.keyval["public"]
        text = f'{{"keytype":"{public.key_type}","keyval":{{"public":"{inner}"}},"scheme":"{public.scheme}"}}'
        vectors.append(
            {
                "public": public.pem,
                "keyIdInput": text,
                "keyId": public.key_id,
                "fingerprint": public.fingerprint,
            }
        )
    return vectors


def forms() -> dict[str, Any]:
    """Byte-exact forms: a payload with what is signed, and a full list of changes."""
    ledger = Ledger()
    entries = (created("a"), modified("b"), deleted("c\\xff"))
    envelope = parse_envelope(ledger.add(ledger.predicate(entries)))
    lines = b"".join(encode_change_line(entry) for entry in entries)
    return {
        "payload": envelope.payload.decode(),
        "payloadDigest": envelope.payload_digest,
        "pae": envelope.pae().decode(),
        "sequence": parse_statement(envelope.payload).chain.sequence,
        "fullList": lines.decode(),
        "fullListDigest": sha256_hex(lines),
    }


def main() -> None:
    """Write all files."""
    VECTORS.mkdir(parents=True, exist_ok=True)
    for name, value in (
        ("accepted", accepted()),
        ("refused", refused()),
        ("keys", keys()),
        ("forms", forms()),
    ):
        text = json.dumps(value, indent=1, ensure_ascii=True, sort_keys=True)
        (VECTORS / f"{name}.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
