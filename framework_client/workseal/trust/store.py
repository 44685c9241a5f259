"""Where pins are kept: ``trust/pins.json`` in the state directory, or memory.

The file is replaced in one step and durably, under a lock; it lies outside every
workspace. A damaged file is an error, never an empty store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidInputError, StoreError
from workseal.receipt.keys import PublicKey
from workseal.state import as_path, exclusive_lock, make_private_dir, write_private_file
from workseal.trust.pins import Limit, Pin, TrustState

_MAX_BYTES: Final = 16 * 1024 * 1024


class TrustStore(Protocol):
    """Keeps a :class:`TrustState`."""

    def state(self) -> TrustState:
        """Return what is trusted now.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    def update(self, change: Callable[[TrustState], TrustState]) -> TrustState:
        """Replace what is trusted by what ``change`` makes of it, in one step.

        Raises:
            StoreError: it cannot be read or written.
        """
        ...


class MemoryTrustStore:
    """Pins that last as long as the process.

    Args:
        state: what is trusted from the start; by default nothing.
    """

    def __init__(self, state: TrustState | None = None) -> None:
        self._state = state or TrustState()

    @classmethod
    def of_pem(cls, *pems: bytes | str) -> MemoryTrustStore:
        """Return a store that trusts the given keys, for any workspace.

        Args:
            pems: public keys in PEM, from a channel that is trusted.

        Raises:
            PublicKeyError: one of them is no public key, or of a kind that is not accepted.
        """
        return cls(TrustState(pins=tuple(Pin(PublicKey.from_pem(pem)) for pem in pems)))

    def state(self) -> TrustState:
        return self._state

    def update(self, change: Callable[[TrustState], TrustState]) -> TrustState:
        self._state = change(self._state)
        return self._state


class FileTrustStore:
    """Pins in the state directory.

    Args:
        state_dir: the state directory, as it stands (``~`` is not expanded); made when something is
            first pinned.

    Raises:
        InvalidInputError: it is no path.
    """

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self._state_dir = as_path(state_dir, "state_dir")
        self._directory = self._state_dir / "trust"
        self._path = self._directory / "pins.json"

    def state(self) -> TrustState:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return TrustState()
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        try:
            return _parse(parse_json(data, max_bytes=_MAX_BYTES))
        except (InvalidInputError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(f"{self._path} is damaged: put back a good copy ({error})") from error

    def pin(self, pem: bytes | str, *, workspace_id: str | None = None) -> PublicKey:
        """Trust a key from now on, as ``workseal keys trust`` does.

        Args:
            pem: the public key in PEM, from a channel that is trusted.
            workspace_id: the only workspace that it may sign for; None for any.

        Returns:
            The key, such as for showing its id.

        Raises:
            PublicKeyError: it is no public key, or of a kind that is not accepted.
            StoreError: the pins cannot be read or written.
        """
        public = PublicKey.from_pem(pem)
        self.update(lambda state: state.pinned(Pin(public, workspace_id=workspace_id)))
        return public

    def update(self, change: Callable[[TrustState], TrustState]) -> TrustState:
        make_private_dir(self._state_dir)
        make_private_dir(self._directory)
        with exclusive_lock(self._directory / "pins.lock"):
            before = self.state()
            after = change(before)
            if after != before:
                write_private_file(self._path, canonical_json(_form(after)) + b"\n")
            return after


def _form(state: TrustState) -> dict[str, Any]:
    return {
        "version": 1,
        "pins": [
            {
                "key_id": pin.public.key_id,
                "public": pin.public.pem,
                "workspace_id": pin.workspace_id,
                "chain_id": pin.chain_id,
                "valid_from": pin.valid_from,
                "named_by": pin.named_by,
            }
            for pin in state.pins
        ],
        "limits": [
            {
                "key_id": limit.key_id,
                "chain_id": limit.chain_id,
                "from_sequence": limit.from_sequence,
                "why": limit.why,
            }
            for limit in state.limits
        ],
    }


def _text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidInputError("an id is not a string")
    return value


def _count(value: Any) -> int:
    if type(value) is not int:
        raise InvalidInputError("a sequence is not an integer")
    return value


def _parse(value: Any) -> TrustState:
    if value["version"] != 1:
        raise InvalidInputError("written by a newer version: upgrade")
    pins = tuple(
        Pin(
            PublicKey.from_pem(item["public"]),
            _text_or_none(item["workspace_id"]),
            _text_or_none(item["chain_id"]),
            _count(item["valid_from"]),
            _text_or_none(item["named_by"]),
        )
        for item in value["pins"]
    )
    limits = tuple(
        Limit(
            str(item["key_id"]),
            _text_or_none(item["chain_id"]),
            _count(item["from_sequence"]),
            "rotated" if item["why"] == "rotated" else "revoked",
        )
        for item in value["limits"]
    )
    return TrustState(pins, limits)
