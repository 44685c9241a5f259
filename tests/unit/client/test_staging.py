"""What was verified in a batch counts at the commit, and not before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from resume_kit import Kit, new

from fakes.host import CHAIN_ID, WORKSPACE_ID
from fakes.signing import SigningKey
from workseal.errors import NotVerifiedError
from workseal.receipt.statement import Chain, HostIdentity, KeyRotationPredicate, NewKey
from workseal.resume import SignedResult
from workseal.staging import Staging
from workseal.trust.record import ChainEntry


def entry(sequence: int, used_by: str | None = None) -> ChainEntry:
    return ChainEntry("chain", sequence, f"p{sequence}", None, "after", "workseal-tree/1", "rules", used_by)


@pytest.fixture
def kit() -> Kit:
    return Kit()


def rotate(kit: Kit) -> bytes:
    """Sign the entry that names a new key, and sign with that from now on."""
    signer, new_key = kit.signer, SigningKey()
    old, key = signer.key.public, new_key.public
    envelope = signer.sign(
        KeyRotationPredicate(
            Chain(CHAIN_ID, signer.sequence + 1, signer.previous),
            WORKSPACE_ID,
            old.key_id,
            NewKey(key.key_id, key.key_type, key.scheme, key.pem),
            HostIdentity("workseal-host", "0", old.key_id),
        )
    )
    signer.key = new_key
    return envelope


def test_entries_are_seen_before_the_commit_and_written_by_it(kit: Kit) -> None:
    kit.record.accept("w", [entry(1)])
    staging = Staging(kit.verifier)
    record = staging.verifier.record
    record.accept("w", [entry(2, "a"), entry(3)])
    assert record.head("w") == entry(3)
    assert record.at("w", 2) == entry(2, "a")
    assert record.below("w", 2) == entry(1)
    assert kit.record.head("w") == entry(1)
    staging.commit()
    assert kit.record.head("w") == entry(3)
    assert kit.record.at("w", 2) == entry(2, "a")


def test_entry_that_answers_a_call_stays_that_calls(kit: Kit) -> None:
    record = Staging(kit.verifier).verifier.record
    record.accept("w", [entry(1, "a")])
    record.accept("w", [entry(1)])
    assert record.at("w", 1) == entry(1, "a")


def test_forgetting_drops_what_was_staged(kit: Kit) -> None:
    record = Staging(kit.verifier).verifier.record
    record.accept("w", [entry(1)])
    record.forget("w")
    assert record.head("w") is None


def test_other_history_recorded_meanwhile_is_found_at_the_commit(kit: Kit) -> None:
    staging = Staging(kit.verifier)
    staging.verifier.record.accept("w", [entry(1)])
    kit.record.accept("w", [replace(entry(1), payload_digest="other")])
    with pytest.raises(NotVerifiedError) as caught:
        staging.commit()
    assert caught.value.reason == "fork"


async def test_key_rotation_in_between_is_followed_once_the_batch_holds(kit: Kit) -> None:
    (first,) = await kit.add(new("c1"))
    await kit.resume({"c1": kit.answer(first)})
    rotation = rotate(kit)
    second, third = await kit.add(new("c2"), new("c3"))
    good = replace(kit.answer(second), between=(rotation,))
    bad = kit.answer(third)
    pins = kit.trust.state()
    with pytest.raises(NotVerifiedError):
        await kit.resume({"c2": good, "c3": SignedResult(bad.envelope, b"other")})
    assert kit.trust.state() == pins
    await kit.resume({"c2": good, "c3": bad})
    assert kit.signer.key.public in [pin.public for pin in kit.trust.state().pins]
