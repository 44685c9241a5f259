"""Signing: from a payload to an envelope, through securesystemslib's signers.

A key is named by a URI; ``file2:`` is a PEM file, a KMS or an HSM is another
scheme. A private key in a file that others may read is refused. Every signature
is checked with the public key before it leaves this module: a signer that
answers with another key must not be noticed by clients first.
"""

from __future__ import annotations

import os
import stat
from typing import Final
from urllib.parse import unquote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.exceptions import Error as SecureSystemsError
from securesystemslib.signer import CryptoSigner, Signer  # type: ignore[attr-defined]  # no __all__ there

from workseal.errors import NotVerifiedError
from workseal.receipt.envelope import PAYLOAD_TYPE, Envelope, encode_envelope, pae
from workseal.receipt.keys import PublicKey
from workseal.receipt.statement import Chain, HostIdentity, KeyRotationPredicate, NewKey
from workseal_host.errors import KeyRingError

FILE_SCHEME: Final = "file2"
_MAX_KEY_BYTES: Final = 65536
_SIGNER_ERRORS: Final = (
    OSError,
    ValueError,
    TypeError,
    ImportError,
    SecureSystemsError,
    UnsupportedAlgorithm,
)


def read_private_key(path: str) -> bytes:
    """Return a private key's PEM from a file that nobody else may read.

    Raises:
        KeyRingError: it cannot be read, or its owner or mode is wrong.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise KeyRingError(f"cannot read the private key {path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)  # of what was opened, not of a name that may be swapped
        if not stat.S_ISREG(found.st_mode):
            raise KeyRingError(f"the private key {path} is not a regular file")
        if found.st_uid != os.geteuid():
            raise KeyRingError(f"the private key {path} belongs to another user: chown it to the host's user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise KeyRingError(
                f"others may read the private key {path}: chmod 600 it, and rotate it if they might have"
            )
        return os.read(descriptor, _MAX_KEY_BYTES)
    finally:
        os.close(descriptor)


def load_signer(uri: str, public: PublicKey) -> Signer:
    """Return the signer that a URI names.

    Args:
        uri: ``file2:PATH`` or any scheme that securesystemslib knows.
        public: the public half; the signer must belong to it.

    Raises:
        KeyRingError: there is no such signer, or it is of another key.
    """
    scheme, _, rest = uri.partition(":")
    try:
        if scheme == FILE_SCHEME:
            # Read here, not by the library: its permissions are checked on the descriptor that is read.
            private = load_pem_private_key(read_private_key(unquote(rest)), None)
            return CryptoSigner(private, public.key)
        return Signer.from_priv_key_uri(uri, public.key)
    except _SIGNER_ERRORS as error:
        raise KeyRingError(f"cannot use the signing key {uri}: {error}") from error


def sign_payload(signer: Signer, payload: bytes) -> bytes:
    """Return the envelope of a payload, signed.

    Args:
        signer: of :func:`load_signer` or a key ring.
        payload: what ``encode_statement`` returned.

    Returns:
        Canonical JSON bytes, to be stored and passed on as they are.

    Raises:
        KeyRingError: the signer failed, or its signature is not good.
    """
    try:
        signature = signer.sign(pae(PAYLOAD_TYPE, payload))
        raw = bytes.fromhex(signature.signature)
        signer.public_key.verify_signature(signature, pae(PAYLOAD_TYPE, payload))
        return encode_envelope(Envelope(payload, PAYLOAD_TYPE, signature.keyid, raw))
    except (*_SIGNER_ERRORS, NotVerifiedError) as error:
        raise KeyRingError(f"signing failed: {error}") from error


def key_rotation(
    old: PublicKey,
    new: PublicKey,
    *,
    chain: Chain,
    workspace_id: str,
    host: HostIdentity,
    issued_on: str | None = None,
) -> KeyRotationPredicate:
    """Return the chain entry that names a new key; it is signed with the old one.

    Args:
        old: the key that signed the entry before, and signs this one.
        new: the key that signs from the next entry on.
        chain: where the entry stands.
        workspace_id: the workspace of the chain.
        host: who signs; its key id is the old key's.
        issued_on: when, as an RFC 3339 time.
    """
    new_key = NewKey(new.key_id, new.key_type, new.scheme, new.pem)
    return KeyRotationPredicate(chain, workspace_id, old.key_id, new_key, host, issued_on)
