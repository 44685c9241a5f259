"""Pending calls, their results, and what a store of them must do.

Call ids come from the model and are not unique over a session. What names a
call is its *occurrence*: a text that the framework gives, the same in every
process that loads the same turn, and another one in every other turn.

Invariants of every store: the challenge of a call is durable before its first
request; adding the same occurrence again gives the same challenge; per session
at most one occurrence of a call id is pending; a stored result is never
replaced; order is an integer sequence, never a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from workseal.calls import MAX_ARGUMENTS_BYTES, ToolCall, check_id
from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidInputError, InvalidJsonError
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution


class CallOutcome(StrEnum):
    """What became of a call, as the client stored it. Only ``completed`` and ``raw`` count as done."""

    COMPLETED = "completed"  # verified receipt: the tool ran, whatever its exit code
    FAILED = "failed"  # verified receipt: it ran, but left what it must not, or not what it was to leave
    REFUSED = "refused"  # verified receipt: the host ran nothing
    IN_DOUBT = "inDoubt"  # verified receipt: whether it took effect is unknown
    EXPIRED = "expired"  # verified receipt: an observation that never ended
    RAW = "raw"  # no receipt: the result of a call that was declared read-only
    NOT_RUN = "notRun"  # no receipt: the call was never sent, or the host would not take it


@dataclass(frozen=True, slots=True)
class ReceiptRef:
    """Where the receipt of a result stands in its chain.

    Args:
        workspace_id, chain_id: which chain.
        sequence: position in it.
        payload_digest: hex SHA-256 of its payload.
    """

    workspace_id: str
    chain_id: str
    sequence: int
    payload_digest: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """The stored result of one call.

    Args:
        outcome: what became of it.
        text: what the model is told.
        envelope: the verified receipt; ``None`` for ``raw`` and ``notRun``.
        receipt: where that receipt stands.
        plain: the form that frameworks read; a JSON object.
        is_claim: whether the text is only what an observer claimed.
    """

    outcome: CallOutcome
    text: str
    envelope: bytes | None = field(default=None, repr=False)
    receipt: ReceiptRef | None = None
    plain: Mapping[str, Any] = field(default_factory=dict)
    is_claim: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the model must read it as something that was not done."""
        return self.outcome not in (CallOutcome.COMPLETED, CallOutcome.RAW)

    @property
    def is_verified(self) -> bool:
        """Whether it rests on a receipt that was verified before it was stored."""
        return self.receipt is not None


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call that a framework paused for.

    Args:
        tool_call_id: the call as the model named it.
        tool: the tool's name.
        arguments: JSON text as the model wrote it, or a value. What is no strict JSON object is
            kept all the same, and never sent.
        occurrence: names this occurrence in its session, stably across processes.
        execution: what the framework declared of the tool.
    """

    tool_call_id: str
    tool: str
    arguments: object = field(repr=False)
    occurrence: str = field(kw_only=True)
    execution: ToolExecution = field(default=UNKNOWN_EXECUTION, kw_only=True)

    @property
    def arguments_json(self) -> str:
        """The arguments as text; empty where they have no JSON form at all."""
        if isinstance(self.arguments, str):
            # A lone surrogate as JSON escapes it: storable, and still not strict JSON.
            return self.arguments.encode("utf-8", "backslashreplace").decode("utf-8")
        try:
            return json.dumps(self.arguments, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            return ""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A stored call.

    Args:
        session_id: the framework's session.
        sequence: position among the session's calls, from 1.
        occurrence, tool_call_id, tool, arguments_json, execution: as it was added.
        challenge: made when it was first added.
    """

    session_id: str
    sequence: int
    occurrence: str
    tool_call_id: str
    tool: str
    arguments_json: str = field(repr=False)
    execution: ToolExecution
    challenge: str

    def to_tool_call(self) -> ToolCall:
        """Return the request for it.

        Raises:
            InvalidInputError: it cannot be sent: an id is malformed, or the
                arguments are not a strict JSON object.
        """
        data = self.arguments_json.encode("utf-8")
        arguments = parse_json(data, max_bytes=MAX_ARGUMENTS_BYTES)
        if not isinstance(arguments, dict):
            raise InvalidJsonError("arguments are not a JSON object", field="arguments")
        return ToolCall(self.session_id, self.tool_call_id, self.tool, arguments, self.challenge)


@dataclass(frozen=True, slots=True)
class SettledCall:
    """A call and its stored result."""

    call: PendingCall
    result: CallResult

    @property
    def tool_call_id(self) -> str:
        """The call as the model named it."""
        return self.call.tool_call_id


class PendingCallStore(Protocol):
    """What a framework brings, or takes from here, to keep its pending calls in."""

    async def add(self, session_id: str, calls: Sequence[NewCall]) -> tuple[PendingCall, ...]:
        """Store calls with fresh challenges, durably; known occurrences stay as they are.

        Args:
            session_id: the framework's session.
            calls: in the order in which they are to run.

        Returns:
            The stored calls in the same order, those settled earlier included.

        Raises:
            InvalidInputError: an occurrence names another call, a call id occurs twice, or another
                occurrence of a call id is still pending (settle or abandon it first). Nothing was stored.
            StoreError: the store cannot be written.
        """
        ...

    async def pending(self, session_id: str) -> tuple[PendingCall, ...]:
        """Return the calls without a result, by sequence."""
        ...

    async def settle(self, session_id: str, results: Mapping[int, CallResult]) -> tuple[int, ...]:
        """Store results by sequence, all in one transaction.

        A call that has a result already keeps it.

        Returns:
            The sequences that were pending and now have a result, in order.

        Raises:
            ResumeError: a sequence names no call of this session, or an abandoned one. Nothing was stored.
            StoreError: the store cannot be written.
        """
        ...

    async def abandon(self, session_id: str, sequences: Sequence[int]) -> None:
        """Give pending calls up without a result: the framework dropped their turn.

        What has a result keeps it; what is unknown is passed over.
        """
        ...

    async def results(self, session_id: str) -> tuple[SettledCall, ...]:
        """Return the calls with a result, by sequence."""
        ...


def check_batch(session_id: str, calls: Sequence[NewCall]) -> None:
    """Refuse a batch that no store may take.

    Raises:
        InvalidInputError: an id cannot be stored, or a call id occurs twice.
    """
    check_id(session_id, "session_id")
    seen: set[str] = set()
    for call in calls:
        if call.tool_call_id in seen:
            raise InvalidInputError(
                f"two calls of one batch have the id {call.tool_call_id!r}: results could not be told apart",
                field="tool_call_id",
            )
        seen.add(call.tool_call_id)
        for name in ("occurrence", "tool_call_id", "tool", "arguments_json"):
            _check_storable(getattr(call, name), name)


def _check_storable(value: object, name: str) -> None:
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidInputError(f"{name} must be text without lone surrogates", field=name)


def _same_arguments(first: str, second: str) -> bool:
    """Whether two texts stand for the same arguments: what travels is their RFC 8785 form."""
    if first == second:
        return True
    try:
        one, other = (
            parse_json(text.encode("utf-8"), max_bytes=MAX_ARGUMENTS_BYTES) for text in (first, second)
        )
        return canonical_json(one) == canonical_json(other)
    except InvalidJsonError:
        return False  # never sent in any form, so only the text itself can be compared


def reconcile(
    call: NewCall, known: PendingCall | None, other_pending: PendingCall | None
) -> PendingCall | None:
    """Decide what adding a call means.

    Args:
        call: what is added.
        known: the stored call of the same occurrence and id.
        other_pending: the pending call of the same id, whatever its occurrence.

    Returns:
        The stored call, where the occurrence is known; ``None`` where it is to be stored.

    Raises:
        InvalidInputError: as :meth:`PendingCallStore.add`.
    """
    if known is not None:
        if known.tool != call.tool or not _same_arguments(known.arguments_json, call.arguments_json):
            raise InvalidInputError(
                f"occurrence {call.occurrence!r} of {call.tool_call_id!r} names another call: "
                "give each occurrence its own name",
                field="occurrence",
            )
        return known
    if other_pending is not None:
        raise InvalidInputError(
            f"call {call.tool_call_id!r} is still pending from {other_pending.occurrence!r}: "
            "settle or abandon it first",
            field="tool_call_id",
        )
    return None
