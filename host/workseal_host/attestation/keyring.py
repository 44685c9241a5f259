"""The host's signing keys, as files in the state directory.

::

    keys/ring.json        which key is current; of each key: URI, public half, times
    keys/<key id>.pem     private keys, PKCS #8, mode 0600 in a directory of mode 0700

``ring.json`` is replaced in one step and durably, under a lock: hosts of several
workspaces share one ring, and the first two may start at the same moment. A key
is never removed: what it signed must stay verifiable, and it signs the chain
entries that name its successor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from securesystemslib.signer import Signer  # type: ignore[attr-defined]  # no __all__ there

from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidInputError, StoreError
from workseal.receipt.keys import PublicKey
from workseal.receipt.statement import format_time
from workseal.state import exclusive_lock, make_private_dir, write_private_file
from workseal_host.attestation.signing import FILE_SCHEME, load_signer, read_private_key
from workseal_host.errors import KeyRingError

_MAX_RING_BYTES: Final = 4 * 1024 * 1024
_RING_KEY_PREFIX: Final = "ring:"  # a file beside ring.json, wherever the state directory is moved


@dataclass(frozen=True, slots=True)
class RingKey:
    """A key of the ring.

    Args:
        key_id: securesystemslib's key id.
        uri: where the private half is; ``ring:NAME`` is a file of the ring.
        public: the public half.
        created_time: when it was added, RFC 3339.
        retired_time: when another one became current, RFC 3339; None for the current one.
    """

    key_id: str
    uri: str
    public: PublicKey
    created_time: str
    retired_time: str | None = None


@dataclass(frozen=True, slots=True)
class KeySource:
    """A key that lives elsewhere: a securesystemslib URI and its public half."""

    uri: str
    public: PublicKey


def _now() -> datetime:
    return datetime.now(UTC)


class KeyRing:
    """The keys of one state directory.

    Use :meth:`open` in a host and :meth:`load` where nothing may be created.
    """

    def __init__(self, directory: Path, keys: tuple[RingKey, ...], current_id: str) -> None:
        self._directory = directory
        self._keys = {key.key_id: key for key in keys}
        self._current_id = current_id

    @classmethod
    def open(
        cls,
        state_dir: Path,
        *,
        first: KeySource | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> KeyRing:
        """Open the ring; make it, with one Ed25519 key, where there is none.

        Args:
            state_dir: the state directory.
            first: the key to start with in place of a new one (a KMS or HSM key).
            clock: tells the time.

        Raises:
            KeyRingError: it cannot be read or written.
        """
        directory = state_dir / "keys"
        with _locked(directory):
            ring = cls._read(directory)
            if ring is None:
                key = _adopt(directory, clock) or _add(directory, first, clock)
                ring = cls(directory, (key,), key.key_id)
                ring._write()
            return ring

    @classmethod
    def load(cls, state_dir: Path) -> KeyRing:
        """Open an existing ring.

        Raises:
            KeyRingError: there is none, or it cannot be read.
        """
        ring = cls._read(state_dir / "keys")
        if ring is None:
            raise KeyRingError(f"there are no keys in {state_dir}: the first `workseal serve` makes one")
        return ring

    @property
    def current(self) -> RingKey:
        """The key that signs new receipts."""
        return self._keys[self._current_id]

    @property
    def keys(self) -> tuple[RingKey, ...]:
        """All keys, oldest first."""
        return tuple(self._keys.values())

    def key(self, key_id: str) -> RingKey:
        """Return a key of the ring.

        Raises:
            KeyRingError: it has no such key.
        """
        try:
            return self._keys[key_id]
        except KeyError:
            raise KeyRingError(f"the key ring has no key {key_id}: put ring.json and its file back") from None

    def public(self, key_id: str) -> PublicKey:
        """Return the public half of a key."""
        return self.key(key_id).public

    def signer(self, key_id: str | None = None) -> Signer:
        """Return the signer of a key, by default of the current one.

        Raises:
            KeyRingError: there is no such key, or its private half cannot be used.
        """
        key = self.current if key_id is None else self.key(key_id)
        uri = key.uri
        if uri.startswith(_RING_KEY_PREFIX):
            path = self._directory / uri.removeprefix(_RING_KEY_PREFIX)
            uri = f"{FILE_SCHEME}:{quote(os.fspath(path))}"
        return load_signer(uri, key.public)

    def rotate(self, source: KeySource | None = None, *, clock: Callable[[], datetime] = _now) -> RingKey:
        """Make another key the current one. Hosts take it up at their next start.

        Args:
            source: the key to use in place of a new Ed25519 key.
            clock: tells the time.

        Returns:
            The new current key.

        Raises:
            KeyRingError: the ring cannot be written, or has the key already.
        """
        with _locked(self._directory):
            latest = self._read(self._directory)
            if latest is None:
                raise KeyRingError(f"{self._directory / 'ring.json'} is gone: put it back")
            key = _add(self._directory, source, clock)
            if key.key_id in latest._keys:
                raise KeyRingError(f"the key {key.key_id} is in the ring already: name a new one")
            retired = replace(latest.current, retired_time=format_time(clock()))
            self._keys = {**latest._keys, retired.key_id: retired, key.key_id: key}
            self._current_id = key.key_id
            self._write()
            return key

    def _write(self) -> None:
        keys = [
            {
                "key_id": key.key_id,
                "uri": key.uri,
                "public": key.public.pem,
                "created_time": key.created_time,
                "retired_time": key.retired_time,
            }
            for key in self._keys.values()
        ]
        data = canonical_json({"version": 1, "current": self._current_id, "keys": keys})
        try:
            write_private_file(self._directory / "ring.json", data + b"\n")
        except StoreError as error:
            raise KeyRingError(str(error)) from error

    @classmethod
    def _read(cls, directory: Path) -> KeyRing | None:
        path = directory / "ring.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyRingError(f"cannot read {path}: {error.strerror}") from error
        try:
            value = parse_json(data, max_bytes=_MAX_RING_BYTES)
            keys = tuple(_parse_key(item) for item in value["keys"])
            ring = cls(directory, keys, value["current"])
            ring.current  # noqa: B018 - a ring that names no key of its own is refused here
        except (InvalidInputError, LookupError, TypeError, AttributeError) as error:
            raise KeyRingError(f"{path} is damaged: put back a good copy ({error})") from error
        return ring


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        make_private_dir(directory.parent)
        make_private_dir(directory)
        with exclusive_lock(directory / "ring.lock"):
            yield
    except StoreError as error:
        raise KeyRingError(str(error)) from error


def _parse_key(item: dict[str, Any]) -> RingKey:
    public = PublicKey.from_pem(str(item["public"]))
    if public.key_id != item["key_id"]:
        raise InvalidInputError(f"key {item['key_id']!r} is not the key of its id")
    retired = item["retired_time"]
    return RingKey(
        public.key_id,
        str(item["uri"]),
        public,
        str(item["created_time"]),
        None if retired is None else str(retired),
    )


def _public_of(private_pem: bytes) -> PublicKey:
    public = load_pem_private_key(private_pem, None).public_key()
    return PublicKey.from_pem(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _add(directory: Path, source: KeySource | None, clock: Callable[[], datetime]) -> RingKey:
    created = format_time(clock())
    if source is not None:
        load_signer(source.uri, source.public)  # a key that cannot sign must not become current
        return RingKey(source.public.key_id, source.uri, source.public, created)
    private = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = _public_of(private)
    name = f"{public.key_id}.pem"
    write_private_file(directory / name, private)
    return RingKey(public.key_id, _RING_KEY_PREFIX + name, public, created)


def _adopt(directory: Path, clock: Callable[[], datetime]) -> RingKey | None:
    """Return the key of a ring whose index was never written, or was lost.

    A new key in its place would be a silent change of identity.
    """
    names = sorted(path.name for path in directory.glob("*.pem"))
    if not names:
        return None
    if len(names) > 1:
        raise KeyRingError(f"{directory / 'ring.json'} is missing beside {len(names)} keys: put it back")
    try:
        public = _public_of(read_private_key(os.fspath(directory / names[0])))
    except (ValueError, TypeError) as error:
        raise KeyRingError(f"{directory / names[0]} is not a private key: put back a good copy") from error
    return RingKey(public.key_id, _RING_KEY_PREFIX + names[0], public, format_time(clock()))
