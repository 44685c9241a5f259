"""Public keys that a receipt may be checked with.

The key alone decides the algorithm: nothing in a receipt does. Only the three
schemes below are accepted, whatever the library underneath can do.

The key id is securesystemslib's: SHA-256 over the OLPC canonical JSON of
``{"keytype", "keyval": {"public"}, "scheme"}``; ``docs/receipt.md`` writes it out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from securesystemslib.exceptions import Error as SecureSystemsError
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import Signature, SSlibKey  # type: ignore[attr-defined]  # no __all__ there

from workseal.receipt.errors import PublicKeyError

ACCEPTED_SCHEMES: Final = frozenset({"ed25519", "ecdsa-sha2-nistp256", "rsassa-pss-sha256"})
_MIN_RSA_BITS: Final = 2048
# The y coordinates of the Ed25519 points of small order, 32 bytes little-endian, as RFC 8032 encodes them but
# without the sign bit; 0 and 1 also as p and p + 1. One signature of such a "key" holds for any message.
_SMALL_ORDER: Final = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
_MAX_PEM_BYTES: Final = 16384
_WHAT_TO_GIVE: Final = (
    "give a PEM public key (BEGIN PUBLIC KEY): Ed25519, ECDSA P-256, or RSA of 2048 bits or more"
)


def _has_small_order(raw: bytes) -> bool:
    return bytes((*raw[:31], raw[31] & 0x7F)) in _SMALL_ORDER


@dataclass(frozen=True)
class PublicKey:
    """A public key of an accepted kind.

    Args:
        key: the same key in securesystemslib's form.
        pem: its SubjectPublicKeyInfo as PEM, in the one form that the library writes.
        fingerprint: hex SHA-256 of its DER SubjectPublicKeyInfo.
    """

    key: SSlibKey
    pem: str
    fingerprint: str

    @property
    def key_id(self) -> str:
        """securesystemslib's key id, 64 hex digits."""
        return str(self.key.keyid)

    @property
    def key_type(self) -> str:
        """``ed25519``, ``ecdsa`` or ``rsa``."""
        return str(self.key.keytype)

    @property
    def scheme(self) -> str:
        """The signature scheme that the key decides."""
        return str(self.key.scheme)

    @classmethod
    def from_pem(cls, pem: bytes | str) -> PublicKey:
        """Read a key.

        Args:
            pem: SubjectPublicKeyInfo in PEM.

        Raises:
            PublicKeyError: it is no public key, or of a kind that is not accepted.
        """
        data = pem.encode("utf-8", "replace") if isinstance(pem, str) else pem
        if len(data) > _MAX_PEM_BYTES or b"PRIVATE KEY" in data:
            raise PublicKeyError(f"not a public key: {_WHAT_TO_GIVE}", field="key")
        try:
            crypto_key = load_pem_public_key(data)
            key = SSlibKey.from_crypto(crypto_key)
            der = crypto_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            text = crypto_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")
        except (ValueError, TypeError, UnsupportedAlgorithm, SecureSystemsError) as error:
            raise PublicKeyError(f"not a usable public key: {_WHAT_TO_GIVE}", field="key") from error
        if key.scheme not in ACCEPTED_SCHEMES:
            raise PublicKeyError(f"scheme {key.scheme} is not accepted: {_WHAT_TO_GIVE}", field="key")
        if isinstance(crypto_key, RSAPublicKey) and crypto_key.key_size < _MIN_RSA_BITS:
            raise PublicKeyError(f"RSA key of {crypto_key.key_size} bits: {_WHAT_TO_GIVE}", field="key")
        if isinstance(crypto_key, Ed25519PublicKey) and _has_small_order(crypto_key.public_bytes_raw()):
            raise PublicKeyError(
                f"an Ed25519 key of small order proves nothing: {_WHAT_TO_GIVE}", field="key"
            )
        return cls(key, text, hashlib.sha256(der).hexdigest())

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Say whether a signature over ``data`` is by this key.

        Args:
            signature: raw signature bytes.
            data: the bytes that were signed (of an envelope: its ``pae()``).
        """
        try:
            self.key.verify_signature(Signature(self.key_id, signature.hex()), data)
        except UnverifiedSignatureError:
            return False
        return True
