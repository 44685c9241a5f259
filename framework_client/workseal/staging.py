"""Verify several receipts before any of them counts.

A :class:`Staging` lends a verifier whose record and pins live in memory, on top
of the durable ones. Only :meth:`Staging.commit` writes; until then a receipt
that fails leaves no trace of those that were verified before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workseal.receipt.checks.context import ChainView
from workseal.receipt.verifier import ReceiptVerifier
from workseal.trust.pins import TrustState
from workseal.trust.record import ChainEntry, VerifiedRecord
from workseal.trust.store import TrustStore


class _StagedRecord:
    """What was verified before, and what was since; nothing is written."""

    def __init__(self, base: VerifiedRecord) -> None:
        self._base = base
        self._views: dict[str, ChainView] = {}

    def _view(self, workspace_id: str) -> ChainView:
        return self._views.setdefault(workspace_id, ChainView(self._base, workspace_id))

    def head(self, workspace_id: str) -> ChainEntry | None:
        return self._view(workspace_id).head()

    def at(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        return self._view(workspace_id).at(sequence)

    def below(self, workspace_id: str, sequence: int) -> ChainEntry | None:
        return self._view(workspace_id).below(sequence)

    def accept(self, workspace_id: str, entries: Sequence[ChainEntry]) -> None:
        view = self._view(workspace_id)
        for entry in entries:
            view.add(entry)

    def forget(self, workspace_id: str) -> None:
        self._views.pop(workspace_id, None)

    def commit(self) -> None:
        for workspace_id, view in self._views.items():
            if view.added:
                self._base.accept(workspace_id, view.added)


class _StagedTrust:
    """The pins, as the rotations verified so far would leave them; nothing is written."""

    def __init__(self, base: TrustStore) -> None:
        self._base = base
        self._changes: list[Callable[[TrustState], TrustState]] = []

    def state(self) -> TrustState:
        state = self._base.state()
        for change in self._changes:
            state = change(state)
        return state

    def update(self, change: Callable[[TrustState], TrustState]) -> TrustState:
        self._changes.append(change)
        return self.state()

    def commit(self) -> None:
        for change in self._changes:
            self._base.update(change)


class Staging:
    """A verifier for one batch, and what it will have recorded.

    Args:
        verifier: the verifier with the durable record and pins.
    """

    def __init__(self, verifier: ReceiptVerifier) -> None:
        self._record = _StagedRecord(verifier.record)
        self._trust = _StagedTrust(verifier.trust)
        self.verifier = verifier.over(self._trust, self._record)

    def commit(self) -> None:
        """Record what was verified.

        Raises:
            NotVerifiedError: another process recorded a different history meanwhile.
            StoreError: the pins or the record cannot be written.
        """
        self._trust.commit()
        self._record.commit()
