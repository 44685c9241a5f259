"""Pins, rotations, revocations: as values, and in their file."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from unit.receipt.receipt_support import Key
from workseal.errors import CannotCheckError, InvalidInputError, NotVerifiedError, StoreError
from workseal.receipt.errors import PublicKeyError
from workseal.receipt.keys import PublicKey
from workseal.receipt.statement import Chain, HostIdentity, KeyRotationPredicate, NewKey
from workseal.receipt.verifier import ReceiptVerifier
from workseal.state import make_private_dir, socket_path, state_dir, workspace_key, write_private_file
from workseal.trust import FileTrustStore, MemoryTrustStore, Pin, Position, SqliteRecord, TrustState

OLD, NEW, THIRD = Key().public, Key().public, Key().public


def rotation(old: PublicKey, new: PublicKey, sequence: int = 5) -> KeyRotationPredicate:
    named = NewKey(new.key_id, new.key_type, new.scheme, new.pem)
    chain = Chain("chain-1", sequence, "0" * 64)
    return KeyRotationPredicate(chain, "w-1", old.key_id, named, HostIdentity("workseal", "0", old.key_id))


def at(sequence: int, chain: str = "chain-1", workspace: str = "w-1") -> Position:
    return Position(workspace, chain, sequence)


def reason(state: TrustState, key: PublicKey, position: Position) -> str | None:
    try:
        state.require_valid(key.key_id, position)
    except NotVerifiedError as error:
        return error.reason
    return None


PINNED = TrustState().pinned(Pin(OLD))
ROTATED = PINNED.rotated(rotation(OLD, NEW))


def test_nothing_is_trusted_unless_pinned() -> None:
    with pytest.raises(CannotCheckError):
        TrustState().find(OLD.key_id)


@pytest.mark.parametrize(
    ("key", "position", "expected"),
    [
        (OLD, at(5), None),
        (OLD, at(6), "key-rotated"),
        (OLD, at(6, "chain-2"), None),
        (NEW, at(5), "key-not-for-this"),
        (NEW, at(6), None),
        (NEW, at(6, "chain-2"), "key-not-for-this"),
        (NEW, at(6, workspace="w-2"), "key-not-for-this"),
        (THIRD, at(6), "key-not-pinned"),
    ],
    ids=["old until", "old after", "old elsewhere", "new before", "new after", "chain", "workspace", "other"],
)
def test_a_rotation_moves_validity_by_sequence(
    key: PublicKey, position: Position, expected: str | None
) -> None:
    assert reason(ROTATED, key, position) == expected


def test_a_rotation_that_was_followed_changes_nothing_again() -> None:
    assert ROTATED.rotated(rotation(OLD, NEW)) == ROTATED


def test_a_revoked_key_is_refused_from_its_sequence_on() -> None:
    state = PINNED.revoked(OLD.key_id, chain_id="chain-1", from_sequence=3)
    assert [reason(state, OLD, at(number)) for number in (2, 3)] == [None, "key-revoked"]
    assert reason(state, OLD, at(3, "chain-2")) is None


def test_a_key_named_by_a_revoked_key_is_not_trusted() -> None:
    assert (
        reason(ROTATED.revoked(OLD.key_id, chain_id="chain-1", from_sequence=5), NEW, at(6))
        == "key-not-for-this"
    )
    assert reason(ROTATED.revoked(OLD.key_id, chain_id="chain-1", from_sequence=6), NEW, at(6)) is None


def test_a_key_may_have_been_rotated_any_number_of_times() -> None:
    keys = [OLD, *(Key().public for _ in range(600))]
    state = PINNED
    for sequence, (old, new) in enumerate(itertools.pairwise(keys), start=1):
        state = state.rotated(rotation(old, new, sequence))

    state.require_valid(keys[-1].key_id, at(len(keys)))

    with pytest.raises(NotVerifiedError):
        state.revoked(keys[1].key_id).require_valid(keys[-1].key_id, at(len(keys)))


def test_removing_a_key_removes_the_keys_that_it_named() -> None:
    state = ROTATED.rotated(rotation(NEW, THIRD, 7)).unpinned(OLD.key_id)
    assert state.pins == ()


def test_removing_a_key_leaves_a_key_that_the_user_pinned_too() -> None:
    assert ROTATED.pinned(Pin(NEW)).unpinned(OLD.key_id).pins == (Pin(NEW),)


def test_a_pin_may_be_for_one_workspace_only() -> None:
    state = TrustState().pinned(Pin(OLD, workspace_id="w-1"))
    assert reason(state, OLD, at(1)) is None
    assert reason(state, OLD, at(1, workspace="w-2")) == "key-not-for-this"


def test_pins_survive_in_a_private_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = FileTrustStore(tmp_path / "state")
        store.update(lambda state: ROTATED.revoked(THIRD.key_id))
    finally:
        os.umask(before)
    assert FileTrustStore(tmp_path / "state").state() == ROTATED.revoked(THIRD.key_id)
    for path, mode in (("state", 0o700), ("state/trust", 0o700), ("state/trust/pins.json", 0o600)):
        assert (tmp_path / path).stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"version":2,"pins":[],"limits":[]}', '{"version":1,"pins":[{}],"limits":[]}', "\x00"],
)
def test_a_damaged_file_is_an_error_never_an_empty_store(tmp_path: Path, content: str) -> None:
    store = FileTrustStore(tmp_path)
    store.update(lambda state: PINNED)
    (tmp_path / "trust" / "pins.json").write_text(content)
    with pytest.raises(StoreError):
        store.state()
    with pytest.raises(StoreError):
        store.update(lambda state: state)


def private_pem() -> bytes:
    data: bytes = Key().signer.private_bytes
    return data


def weak_rsa() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = generate_private_key(public_exponent=65537, key_size=1024).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def p384() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return (
        generate_private_key(SECP384R1())
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )


@pytest.mark.parametrize(
    "make",
    [lambda: b"", lambda: b"key", private_pem, weak_rsa, p384, lambda: b"x" * 100_000, lambda: "\ud800"],
    ids=["empty", "no PEM", "private", "weak RSA", "P-384", "too long", "lone surrogate"],
)
def test_what_is_no_acceptable_public_key_is_refused(make: object) -> None:
    with pytest.raises(PublicKeyError):
        PublicKey.from_pem(make())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("explicit", "environ", "expected"),
    [
        ("/a", {"WORKSEAL_STATE_DIR": "/b", "XDG_STATE_HOME": "/c"}, "/a"),
        (None, {"WORKSEAL_STATE_DIR": "/b", "XDG_STATE_HOME": "/c"}, "/b"),
        (None, {"XDG_STATE_HOME": "/c"}, "/c/workseal"),
        (None, {"XDG_STATE_HOME": "relative"}, str(Path.home() / ".local/state/workseal")),
        (None, {}, str(Path.home() / ".local/state/workseal")),
    ],
    ids=["argument", "variable", "XDG", "XDG relative", "default"],
)
def test_the_state_directory(explicit: str | None, environ: dict[str, str], expected: str) -> None:
    assert str(state_dir(explicit, environ)) == expected


def test_the_socket_is_in_the_runtime_directory_or_beside_the_state(tmp_path: Path) -> None:
    name = f"{workspace_key(b'/w')}.sock"
    state = Path("/s")
    runtime = {"XDG_RUNTIME_DIR": "/tmp"}
    assert socket_path(state, b"/w", environ=runtime) == Path("/tmp/workseal") / name
    assert socket_path(state, b"/w", environ={}) == state / "sockets" / name
    assert socket_path(state, b"/w", "/x.sock", runtime) == Path("/x.sock")
    assert socket_path(state, b"/w", environ={"WORKSEAL_SOCKET": "/y.sock"}) == Path("/y.sock")


def test_a_socket_path_that_is_too_long_says_what_to_do() -> None:
    with pytest.raises(InvalidInputError, match="--socket"):
        socket_path(Path("/" + "s" * 100), b"/w", environ={})


def test_the_workspace_key_is_of_raw_bytes() -> None:
    assert workspace_key(b"/w") != workspace_key(b"/w/")
    assert len(workspace_key(b"/\xff")) == 32


def test_a_shared_directory_is_not_made_private(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(StoreError):
        make_private_dir(shared)
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_a_file_that_cannot_be_replaced_keeps_its_content(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    with pytest.raises(StoreError):
        write_private_file(target, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory"]


def test_keys_at_hand_make_a_store_in_memory() -> None:
    store = MemoryTrustStore.of_pem(OLD.pem, NEW.pem.encode())
    assert [store.state().find(key.key_id) for key in (OLD, NEW)] == [OLD, NEW]


def test_text_that_is_no_key_makes_no_store() -> None:
    with pytest.raises(PublicKeyError):
        MemoryTrustStore.of_pem("no key")


def test_a_key_is_pinned_in_the_file_for_the_named_workspace(tmp_path: Path) -> None:
    assert FileTrustStore(tmp_path).pin(OLD.pem, workspace_id="w-1") == OLD
    state = FileTrustStore(tmp_path).state()
    assert [reason(state, OLD, at(1, workspace=name)) for name in ("w-1", "w-2")] == [
        None,
        "key-not-for-this",
    ]


@pytest.mark.parametrize("store", [FileTrustStore, SqliteRecord], ids=["pins", "record"])
@pytest.mark.parametrize("directory", ["", 7, b"bytes", None], ids=["empty", "number", "bytes", "none"])
def test_a_store_takes_the_path_of_a_directory_only(store: type, directory: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        store(directory)
    assert refused.value.field == "state_dir"


def test_the_state_directory_may_be_text(tmp_path: Path) -> None:
    FileTrustStore(str(tmp_path)).pin(OLD.pem)
    assert FileTrustStore(tmp_path).state().find(OLD.key_id) == OLD
    assert SqliteRecord(str(tmp_path)).head("w-1") is None


@pytest.mark.parametrize("trust", [OLD.pem, Path("host.pem"), OLD, None], ids=["pem", "path", "key", "none"])
def test_a_verifier_without_a_trust_store_cannot_be_made(trust: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"MemoryTrustStore\.of_pem") as refused:
        ReceiptVerifier(trust)
    assert refused.value.field == "trust"


def test_a_verifier_with_a_path_for_its_record_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="SqliteRecord"):
        ReceiptVerifier(MemoryTrustStore(), record=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["audit", "gap"])
def test_a_receipt_as_text_is_refused(method: str) -> None:
    with pytest.raises(InvalidInputError, match="envelope is a str: give the bytes"):
        getattr(ReceiptVerifier(MemoryTrustStore()), method)("{}")
