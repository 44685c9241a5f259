"""The DSSE envelope in its strict JSON form.

Strict: exactly the keys ``payload``, ``payloadType`` and ``signatures``, exactly
one signature with exactly ``keyid`` and ``sig``, the one payload type, canonical
base64, no duplicate keys, a size cap. All of it is checked here before any
library sees the envelope: what is accepted holds exactly the bytes that were
signed, and nothing besides them.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any, Final

from workseal.canonical import canonical_json, parse_json, sha256_hex
from workseal.errors import InvalidJsonError
from workseal.receipt.errors import MalformedReceiptError

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
MAX_ENVELOPE_BYTES: Final = 8 * 1024 * 1024
MAX_SIGNATURE_BYTES: Final = 8192
_KEY_ID: Final = re.compile(r"[0-9a-f]{64}")


def _malformed(reason: str, message: str) -> MalformedReceiptError:
    return MalformedReceiptError(message, check="form", reason=reason)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload and its one signature, both as raw bytes."""

    payload: bytes
    payload_type: str
    key_id: str
    signature: bytes

    @property
    def payload_digest(self) -> str:
        """Hex SHA-256 of the payload: what the chain links and the record keeps."""
        return sha256_hex(self.payload)

    def pae(self) -> bytes:
        """Return the bytes that are signed (DSSE pre-authentication encoding, version 1)."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the DSSE pre-authentication encoding of a payload."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _exact_object(value: Any, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != keys:
        raise _malformed("keys", f"{what} does not have exactly the keys {', '.join(sorted(keys))}")
    return value


def _canonical_base64(value: Any, what: str) -> bytes:
    # Libraries drop stray bits and foreign characters: one payload would then have many envelopes.
    try:
        if isinstance(value, str):
            data = base64.b64decode(value, validate=True)
            if base64.b64encode(data).decode("ascii") == value:
                return data
    except ValueError:
        pass
    raise _malformed("base64", f"{what} is not canonical base64 (standard alphabet, padded)")


def parse_envelope(data: bytes) -> Envelope:
    """Read an envelope in the strict form.

    Args:
        data: JSON bytes; white space between tokens and the order of keys are free.

    Raises:
        MalformedReceiptError: check ``form``, with the reason.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise _malformed("size", f"{len(data)} bytes, where at most {MAX_ENVELOPE_BYTES} are accepted")
    try:
        value = parse_json(data, max_bytes=MAX_ENVELOPE_BYTES)
    except InvalidJsonError as error:
        raise _malformed("json", f"the envelope is not strict JSON: {error}") from error
    envelope = _exact_object(value, {"payload", "payloadType", "signatures"}, "the envelope")
    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise _malformed("payload-type", f"the payload type is not {PAYLOAD_TYPE}")
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise _malformed("signatures", "there is not exactly one signature")
    entry = _exact_object(signatures[0], {"keyid", "sig"}, "the signature")
    if not isinstance(entry["keyid"], str) or not _KEY_ID.fullmatch(entry["keyid"]):
        raise _malformed("key-id", "keyid is not 64 lower-case hex digits")
    signature = _canonical_base64(entry["sig"], "sig")
    if not 0 < len(signature) <= MAX_SIGNATURE_BYTES:
        raise _malformed("signatures", f"the signature is not of 1 to {MAX_SIGNATURE_BYTES} bytes")
    payload = _canonical_base64(envelope["payload"], "payload")
    return Envelope(payload, PAYLOAD_TYPE, entry["keyid"], signature)


def encode_envelope(envelope: Envelope) -> bytes:
    """Return an envelope as canonical JSON (RFC 8785).

    Raises:
        MalformedReceiptError: the result would not be in the strict form.
    """
    data = canonical_json(
        {
            "payload": base64.b64encode(envelope.payload).decode("ascii"),
            "payloadType": envelope.payload_type,
            "signatures": [
                {"keyid": envelope.key_id, "sig": base64.b64encode(envelope.signature).decode("ascii")}
            ],
        }
    )
    parse_envelope(data)
    return data
