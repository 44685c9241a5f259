"""Pending calls in memory: for tests, and for sessions that die with their process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from workseal.calls import new_challenge
from workseal.errors import ResumeError
from workseal.pending.model import (
    CallResult,
    NewCall,
    PendingCall,
    SettledCall,
    check_batch,
    reconcile,
)


class MemoryPendingCallStore:
    """A :class:`~workseal.pending.PendingCallStore` that forgets when its process ends.

    Args:
        random_bytes: source of challenges.
    """

    def __init__(self, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._random_bytes = random_bytes
        self._calls: dict[str, list[PendingCall]] = {}
        self._results: dict[tuple[str, int], CallResult] = {}
        self._abandoned: set[tuple[str, int]] = set()

    async def add(self, session_id: str, calls: Sequence[NewCall]) -> tuple[PendingCall, ...]:
        """Store calls; as in the protocol."""
        check_batch(session_id, calls)
        rows = self._calls.get(session_id, [])
        known = {(row.occurrence, row.tool_call_id): row for row in rows}
        open_ids = {row.tool_call_id: row for row in rows if self._is_pending(row)}
        stored = [
            reconcile(call, known.get((call.occurrence, call.tool_call_id)), open_ids.get(call.tool_call_id))
            for call in calls
        ]
        added = list(rows)
        for index, call in enumerate(calls):
            if stored[index] is None:
                row = _row(session_id, len(added) + 1, call, new_challenge(self._random_bytes))
                added.append(row)
                stored[index] = row
        self._calls[session_id] = added
        return tuple(row for row in stored if row is not None)

    async def pending(self, session_id: str) -> tuple[PendingCall, ...]:
        """Return the calls without a result."""
        return tuple(row for row in self._calls.get(session_id, ()) if self._is_pending(row))

    async def settle(self, session_id: str, results: Mapping[int, CallResult]) -> tuple[int, ...]:
        """Store results; as in the protocol."""
        rows = self._calls.get(session_id, [])
        for sequence in results:
            if not 1 <= sequence <= len(rows) or (session_id, sequence) in self._abandoned:
                raise ResumeError(f"session {session_id!r} has no call {sequence} to settle")
        settled = tuple(sequence for sequence in sorted(results) if self._is_pending(rows[sequence - 1]))
        for sequence in settled:
            self._results[session_id, sequence] = results[sequence]
        return settled

    async def abandon(self, session_id: str, sequences: Sequence[int]) -> None:
        """Give pending calls up."""
        wanted = set(sequences)
        for row in self._calls.get(session_id, ()):
            if row.sequence in wanted and self._is_pending(row):
                self._abandoned.add((session_id, row.sequence))

    async def results(self, session_id: str) -> tuple[SettledCall, ...]:
        """Return the calls with a result."""
        return tuple(
            SettledCall(row, self._results[session_id, row.sequence])
            for row in self._calls.get(session_id, ())
            if (session_id, row.sequence) in self._results
        )

    def _is_pending(self, row: PendingCall) -> bool:
        name = (row.session_id, row.sequence)
        return name not in self._results and name not in self._abandoned


def _row(session_id: str, sequence: int, call: NewCall, challenge: str) -> PendingCall:
    return PendingCall(
        session_id,
        sequence,
        call.occurrence,
        call.tool_call_id,
        call.tool,
        call.arguments_json,
        call.execution,
        challenge,
    )
