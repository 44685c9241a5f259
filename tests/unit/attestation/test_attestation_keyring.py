"""The host's keys: made privately, kept, rotated, and only used while private."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import (  # type: ignore[attr-defined]
    SIGNER_FOR_URI_SCHEME,
    CryptoSigner,
    Key,
    SecretsHandler,
    Signature,
    Signer,
)

from unit.receipt.receipt_support import Key as MemoryKey
from unit.receipt.receipt_support import Ledger
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.keys import PublicKey
from workseal.receipt.statement import Chain, HostIdentity, encode_statement, parse_statement
from workseal_host.attestation.keyring import KeyRing, KeySource
from workseal_host.attestation.signing import key_rotation, load_signer, sign_payload
from workseal_host.errors import KeyRingError


def key_file(state: Path, ring: KeyRing) -> Path:
    return state / "keys" / f"{ring.current.key_id}.pem"


def test_the_first_start_makes_a_private_key_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ring = KeyRing.open(tmp_path / "state")
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (tmp_path / "state", tmp_path / "state/keys", *(tmp_path / "state/keys").iterdir())
    }
    assert modes["state"] == modes["keys"] == 0o700
    assert {mode for name, mode in modes.items() if "." in name} == {0o600}
    assert ring.current.public.scheme == "ed25519"


def test_the_next_start_finds_the_same_key(tmp_path: Path) -> None:
    assert KeyRing.open(tmp_path).current == KeyRing.open(tmp_path).current == KeyRing.load(tmp_path).current


def test_without_a_ring_nothing_is_created_for_those_who_only_look(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match="serve"):
        KeyRing.load(tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_hosts_that_start_at_once_share_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(KeyRing.open(tmp_path).current.key_id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_payload_is_signed_by_the_current_key(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path / "a #? b%20")
    payload = encode_statement(Ledger().predicate())
    envelope = parse_envelope(sign_payload(ring.signer(), payload))
    assert envelope.payload == payload
    assert envelope.key_id == ring.current.key_id
    assert ring.current.public.verifies(envelope.signature, envelope.pae())


def test_rotation_keeps_the_old_key_to_name_the_new_one(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    old = ring.current
    new = ring.rotate(clock=lambda: datetime(2026, 1, 2, tzinfo=UTC))
    reopened = KeyRing.open(tmp_path)
    assert (reopened.current, ring.current) == (new, new)
    assert reopened.key(old.key_id).retired_time == "2026-01-02T00:00:00.000000Z"
    entry = key_rotation(
        old.public,
        new.public,
        chain=Chain("c", 2, "0" * 64),
        workspace_id="w",
        host=HostIdentity("workseal", "0", old.key_id),
    )
    envelope = parse_envelope(sign_payload(reopened.signer(old.key_id), encode_statement(entry)))
    assert envelope.key_id == old.key_id
    assert parse_statement(envelope.payload).predicate == entry


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    ring = KeyRing.open(tmp_path)
    key_file(tmp_path, ring).chmod(mode)
    with pytest.raises(KeyRingError, match="chmod 600"):
        ring.signer()


def swap_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def swap_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def swap_key(path: Path) -> None:
    path.write_bytes(MemoryKey().signer.private_bytes)


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(b"x"), swap_link, swap_fifo, swap_key],
    ids=["gone", "no key", "link", "fifo", "another key"],
)
def test_a_damaged_private_key_is_one_typed_error(tmp_path: Path, damage: object) -> None:
    ring = KeyRing.open(tmp_path)
    damage(key_file(tmp_path, ring))  # type: ignore[operator]
    with pytest.raises(KeyRingError):
        ring.signer()


@pytest.mark.parametrize(
    "content", ["", "{}", '{"version":1,"current":"x","keys":[]}', '{"keys":[{}],"current":""}', "[1]"]
)
def test_a_damaged_ring_is_one_typed_error_and_no_new_key(tmp_path: Path, content: str) -> None:
    KeyRing.open(tmp_path)
    (tmp_path / "keys" / "ring.json").write_text(content)
    with pytest.raises(KeyRingError, match="damaged"):
        KeyRing.open(tmp_path)


def test_a_ring_whose_public_half_was_swapped_is_refused(tmp_path: Path) -> None:
    KeyRing.open(tmp_path)
    index = tmp_path / "keys" / "ring.json"
    value = json.loads(index.read_text())
    value["keys"][0]["public"] = MemoryKey().public.pem
    index.write_text(json.dumps(value))
    with pytest.raises(KeyRingError, match="damaged"):
        KeyRing.load(tmp_path)


def test_a_key_without_its_index_is_taken_up_again(tmp_path: Path) -> None:
    current = KeyRing.open(tmp_path).current.key_id
    (tmp_path / "keys" / "ring.json").unlink()
    assert KeyRing.open(tmp_path).current.key_id == current


def test_several_keys_without_their_index_are_not_guessed_at(tmp_path: Path) -> None:
    KeyRing.open(tmp_path).rotate()
    (tmp_path / "keys" / "ring.json").unlink()
    with pytest.raises(KeyRingError, match="put it back"):
        KeyRing.open(tmp_path)


def test_an_unknown_key_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError):
        KeyRing.open(tmp_path).public("0" * 64)


class RemoteSigner(Signer):
    """Stands for a KMS: a signer behind a URI scheme."""

    inner: CryptoSigner = CryptoSigner.generate_ecdsa()

    @classmethod
    def from_priv_key_uri(
        cls, priv_key_uri: str, public_key: Key, secrets_handler: SecretsHandler | None = None
    ) -> RemoteSigner:
        return cls()

    @property
    def public_key(self) -> Key:
        return self.inner.public_key

    def sign(self, payload: bytes) -> Signature:
        return self.inner.sign(payload)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> KeySource:
    monkeypatch.setitem(SIGNER_FOR_URI_SCHEME, "examplekms", RemoteSigner)
    return KeySource("examplekms:key-1", MemoryKey(RemoteSigner.inner).public)


def test_a_key_elsewhere_is_a_uri_away(tmp_path: Path, remote: KeySource) -> None:
    ring = KeyRing.open(tmp_path, first=remote)
    envelope = parse_envelope(sign_payload(ring.signer(), encode_statement(Ledger().predicate())))
    assert remote.public.verifies(envelope.signature, envelope.pae())
    assert list((tmp_path / "keys").glob("*.pem")) == []


def test_the_ring_rotates_to_a_key_elsewhere_once(tmp_path: Path, remote: KeySource) -> None:
    ring = KeyRing.open(tmp_path)
    assert ring.rotate(remote).uri == remote.uri
    with pytest.raises(KeyRingError, match="already"):
        ring.rotate(remote)


def test_an_unknown_uri_is_a_typed_error() -> None:
    with pytest.raises(KeyRingError):
        load_signer("nokms:x", MemoryKey().public)


def test_a_signer_that_answers_with_another_key_is_noticed() -> None:
    class Wrong(RemoteSigner):
        @property
        def public_key(self) -> Key:
            return MemoryKey().public.key

    with pytest.raises(KeyRingError, match="signing failed"):
        sign_payload(Wrong(), b"{}")


def test_a_private_key_in_a_file_elsewhere_is_checked_too(tmp_path: Path) -> None:
    key = MemoryKey()
    path = tmp_path / "key.pem"
    path.write_bytes(key.signer.private_bytes)
    path.chmod(0o644)
    with pytest.raises(KeyRingError, match="chmod 600"):
        load_signer(f"file2:{path}", key.public)
    path.chmod(0o600)
    assert load_signer(f"file2:{path}", key.public).public_key.keyid == key.public.key_id


def test_the_private_key_is_pkcs8(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    data = key_file(tmp_path, ring).read_bytes()
    assert data.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert load_pem_private_key(data, None) is not None
    assert isinstance(ring.current.public, PublicKey)
