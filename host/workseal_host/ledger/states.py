"""The life of an execution. Pure.

Legal transitions, and nothing else::

    received  -> in_flight   the tool may run from here on (durable before it does)
    received  -> refused     decided without running; the key stays free
    received  -> abandoned   given up in the queue; nothing ran, the key stays free
    in_flight -> committed   ran, and what it did was observed and signed
    in_flight -> in_doubt    what happened cannot be proved; never run again under this key
    in_flight -> expired     an observation whose end was never told
    in_flight -> refused     the tool was not started after all; the key is free again

Every state but ``received``, ``in_flight`` and ``abandoned`` comes with a
receipt, written in the same transaction.
"""

from __future__ import annotations

from enum import StrEnum

from workseal_host.errors import StateError


class ExecutionState(StrEnum):
    """Where an execution stands."""

    RECEIVED = "received"
    IN_FLIGHT = "in_flight"
    COMMITTED = "committed"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    ABANDONED = "abandoned"

    @property
    def holds_key(self) -> bool:
        """Whether the idempotency key is taken in this state."""
        return self not in (ExecutionState.REFUSED, ExecutionState.ABANDONED)

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow."""
        return self not in _NEXT


_NEXT: dict[ExecutionState, frozenset[ExecutionState]] = {
    ExecutionState.RECEIVED: frozenset(
        {ExecutionState.IN_FLIGHT, ExecutionState.REFUSED, ExecutionState.ABANDONED}
    ),
    ExecutionState.IN_FLIGHT: frozenset(
        {
            ExecutionState.COMMITTED,
            ExecutionState.IN_DOUBT,
            ExecutionState.EXPIRED,
            ExecutionState.REFUSED,
        }
    ),
}


def check_transition(current: ExecutionState, following: ExecutionState) -> None:
    """Refuse an illegal transition.

    Raises:
        StateError: ``following`` may not come after ``current``.
    """
    if following not in _NEXT.get(current, frozenset()):
        raise StateError(f"an execution that is {current} cannot become {following}")
