"""Which key may sign where: pins, rotations and revocations, as pure values.

A pin is a decision of the user, or follows from one: a rotation entry in a chain,
signed by a pinned key, pins the key that it names for the rest of that chain.
Validity goes by sequence in a chain, never by a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from workseal.errors import CannotCheckError, NotVerifiedError
from workseal.receipt.keys import PublicKey
from workseal.receipt.predicate import KeyRotationPredicate

_CHECK: Final = "signature"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a receipt stands."""

    workspace_id: str
    chain_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Pin:
    """A key that is trusted.

    Args:
        public: the key.
        workspace_id: the only workspace that it may sign for; None for any.
        chain_id: the only chain that it may sign in; None for any.
        valid_from: the first sequence that it may sign.
        named_by: id of the key that named it in a rotation; None if the user did.
    """

    public: PublicKey
    workspace_id: str | None = None
    chain_id: str | None = None
    valid_from: int = 1
    named_by: str | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """From ``from_sequence`` on, what the key signs in the chain (None: in any) is refused."""

    key_id: str
    chain_id: str | None
    from_sequence: int
    why: Literal["rotated", "revoked"]


def _refusal(reason: str, message: str) -> NotVerifiedError:
    return NotVerifiedError(message, check=_CHECK, reason=reason)


def _fits(pin: Pin, position: Position) -> bool:
    return (
        pin.workspace_id in (None, position.workspace_id)
        and pin.chain_id in (None, position.chain_id)
        and position.sequence >= pin.valid_from
    )


@dataclass(frozen=True, slots=True)
class TrustState:
    """All pins and limits."""

    pins: tuple[Pin, ...] = ()
    limits: tuple[Limit, ...] = ()

    def find(self, key_id: str) -> PublicKey:
        """Return the pinned key of an id.

        Raises:
            CannotCheckError: reason ``key-not-pinned``.
        """
        for pin in self.pins:
            if pin.public.key_id == key_id:
                return pin.public
        raise CannotCheckError(
            f"the key {key_id} is not pinned: get the host's public key over a channel you trust, "
            "then `workseal keys trust PEM`",
            check=_CHECK,
            reason="key-not-pinned",
        )

    def require_valid(self, key_id: str, position: Position) -> None:
        """Raise unless a pinned key may sign at a position.

        Raises:
            CannotCheckError: the key is not pinned.
            NotVerifiedError: reasons ``key-revoked``, ``key-rotated``, ``key-not-for-this``.
        """
        self.find(key_id)
        limit = self._limit(key_id, position)
        if limit is not None:
            raise _refusal(
                f"key-{limit.why}", f"the key {key_id} is {limit.why} from {limit.from_sequence} on"
            )
        if not self._descends_from_the_user(key_id, position):
            raise _refusal(
                "key-not-for-this",
                f"the key {key_id} is pinned, but not for this workspace, chain and sequence",
            )

    def _limit(self, key_id: str, position: Position) -> Limit | None:
        for limit in self.limits:
            if (
                limit.key_id == key_id
                and limit.chain_id in (None, position.chain_id)
                and position.sequence >= limit.from_sequence
            ):
                return limit
        return None

    def _descends_from_the_user(self, key_id: str, position: Position) -> bool:
        """Say whether pins lead from a key at a position back to one that the user pinned.

        A key that was named by a key which was revoked before it did so is not trusted either.
        """
        # A list and no recursion: how often a key was rotated is for the host to decide.
        waiting, seen = [(key_id, position.sequence)], set[tuple[str, int]]()
        while waiting:
            place = waiting.pop()
            at = replace(position, sequence=place[1])
            if place in seen or self._limit(place[0], at) is not None:
                continue
            seen.add(place)
            for pin in self.pins:
                if pin.public.key_id != place[0] or not _fits(pin, at):
                    continue
                if pin.named_by is None:
                    return True
                waiting.append((pin.named_by, pin.valid_from - 1))
        return False

    def pinned(self, pin: Pin) -> TrustState:
        """Return the state with one more pin."""
        return self if pin in self.pins else replace(self, pins=(*self.pins, pin))

    def unpinned(self, key_id: str) -> TrustState:
        """Return the state without a key, and without the keys that only it named."""
        gone = {key_id}
        while more := {
            pin.public.key_id for pin in self.pins if pin.named_by in gone and pin.public.key_id not in gone
        }:
            gone |= more
        kept = tuple(
            pin
            for pin in self.pins
            if pin.public.key_id != key_id and (pin.named_by is None or pin.named_by not in gone)
        )
        return replace(self, pins=kept)

    def revoked(self, key_id: str, *, chain_id: str | None = None, from_sequence: int = 1) -> TrustState:
        """Return the state in which a key is refused from a sequence on."""
        limit = Limit(key_id, chain_id, from_sequence, "revoked")
        return self if limit in self.limits else replace(self, limits=(*self.limits, limit))

    def rotated(self, entry: KeyRotationPredicate) -> TrustState:
        """Return the state after a rotation entry, which must have been verified."""
        chain = entry.chain
        limit = Limit(entry.old_key_id, chain.id, chain.sequence + 1, "rotated")
        pin = Pin(
            PublicKey.from_pem(entry.new_key.public),
            entry.workspace_id,
            chain.id,
            chain.sequence + 1,
            entry.old_key_id,
        )
        limits = self.limits if limit in self.limits else (*self.limits, limit)
        return replace(self.pinned(pin), limits=limits)
