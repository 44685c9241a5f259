"""What may answer a pending call, and which answers fit. Pure.

Invariants: a call that was not declared read-only is answered by a signed
receipt or by nothing; every pending call is answered or none is; calls that
have a result are neither required nor refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from workseal.calls import ToolCall, check_bytes, idempotency_key
from workseal.errors import InvalidInputError, ResumeError
from workseal.pending import PendingCall
from workseal.results import HostResult
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution, stricter


@dataclass(frozen=True, slots=True)
class SignedResult:
    """A receipt with the result that goes with it; nothing of it is verified yet.

    Args:
        envelope: the receipt, as it came.
        result: the text for the model that came with it; ``None`` where none did.
        between: the receipts since the last verified one, by sequence.

    Raises:
        InvalidInputError: one of them is not bytes.
    """

    envelope: bytes = field(repr=False)
    result: bytes | None = field(default=None, repr=False)
    between: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_bytes(self.envelope, "envelope")
        if self.result is not None:
            check_bytes(self.result, "result")
        _check_between(self.between)


def _check_between(between: object) -> None:
    # Bytes are a sequence too: one envelope must not become as many as it has bytes.
    if not isinstance(between, tuple | list):
        raise InvalidInputError(
            f"between is a {type(between).__name__}: give a tuple of envelopes", field="between"
        )
    for envelope in between:
        check_bytes(envelope, "between")


@dataclass(frozen=True, slots=True)
class RawResult:
    """An unsigned result, for a call that was declared read-only.

    Args:
        text: the text for the model.

    Raises:
        InvalidInputError: it is not text.
    """

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidInputError(f"text is a {type(self.text).__name__}: give a str", field="text")


@dataclass(frozen=True, slots=True)
class NotRun:
    """The caller's own word that a call was never run. It reaches the model as an error.

    Args:
        reason: why, for the model.
    """

    reason: str


ResultInput = SignedResult | HostResult | RawResult | NotRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTerms:
    """What every receipt of a session must fit, besides its call.

    Args:
        workspace_id: the workspace that the session works on.
        chain_id: the chain, where it is known.
        before_mode: ``strict`` or ``accounted``, as in the verifier's ``Expectation``.
        before_digest: for ``strict``: the workspace before the first pending call.
        max_age_s: oldest acceptable receipt, in seconds; ``None`` for any age.
        observed_tools: tools that somebody else may run while the host observes.
    """

    workspace_id: str
    chain_id: str | None = None
    before_mode: Literal["strict", "accounted"] = "accounted"
    before_digest: str | None = None
    max_age_s: float | None = None
    observed_tools: frozenset[str] = frozenset()

    def request(self, call: PendingCall) -> ToolCall:
        """Return the request for a pending call, under its key in this workspace.

        Raises:
            InvalidInputError: it cannot be sent.
        """
        plain = call.to_tool_call()
        key = idempotency_key(self.workspace_id, call.session_id, call.tool_call_id, call.challenge)
        return ToolCall(
            plain.session_id, plain.tool_call_id, plain.tool, plain.arguments, plain.challenge, key
        )


def effective_execution(call: PendingCall, declarations: Mapping[str, ToolExecution] | None) -> ToolExecution:
    """Return the stricter of what was declared when the call was stored, and now.

    Args:
        call: the stored call.
        declarations: tools by name, now; a tool that is not among them is undeclared.
            ``None`` leaves what was stored.
    """
    if declarations is None:
        return call.execution
    return stricter(call.execution, declarations.get(call.tool, UNKNOWN_EXECUTION))


def match_results(
    pending: Sequence[PendingCall],
    settled_ids: Collection[str],
    results: Mapping[str, Any],
    declarations: Mapping[str, ToolExecution] | None,
) -> list[tuple[PendingCall, ResultInput]]:
    """Pair pending calls with their answers.

    Args:
        pending: calls without a result.
        settled_ids: ids of calls of this session that have one.
        results: answers by call id.
        declarations: as in :func:`effective_execution`.

    Returns:
        A pair for each pending call, in the order of ``pending``.

    Raises:
        ResumeError: an answer is of the wrong kind, of an unknown call, or missing.
    """
    _refuse_strangers({call.tool_call_id for call in pending}, settled_ids, results)
    pairs = [(call, results.get(call.tool_call_id) or _unsendable(call)) for call in pending]
    if missing := tuple(call.tool_call_id for call, answer in pairs if answer is None):
        raise ResumeError(
            f"no result for pending calls {', '.join(missing)}: give all of them at once",
            tool_call_ids=missing,
        )
    complete = [(call, answer) for call, answer in pairs if answer is not None]
    for call, answer in complete:
        _refuse_misfit(call, answer, effective_execution(call, declarations))
    return complete


def _refuse_strangers(
    pending_ids: Collection[str], settled_ids: Collection[str], results: Mapping[str, Any]
) -> None:
    for call_id, answer in results.items():
        # Decisions on approvals, bools and plain dicts end here, whatever they look like.
        if not isinstance(answer, ResultInput):
            raise ResumeError(
                f"the result of {call_id!r} is a {type(answer).__name__}: "
                "give a SignedResult, or a RawResult where the call was declared read-only",
                tool_call_ids=(call_id,),
            )
    if unknown := tuple(sorted(set(results) - set(pending_ids) - set(settled_ids))):
        raise ResumeError(
            f"results of calls that this session never made: {', '.join(unknown)}", tool_call_ids=unknown
        )


def _refuse_misfit(call: PendingCall, answer: ResultInput, execution: ToolExecution) -> None:
    if isinstance(answer, RawResult) and not execution.accepts_unsigned:
        raise ResumeError(
            f"call {call.tool_call_id!r} of {call.tool!r} was not declared read-only: "
            "only a signed receipt may answer it",
            tool_call_ids=(call.tool_call_id,),
        )
    if isinstance(answer, SignedResult | HostResult) and _unsendable(call) is not None:
        raise ResumeError(
            f"call {call.tool_call_id!r} cannot have been sent, so no receipt can answer it",
            tool_call_ids=(call.tool_call_id,),
        )


def _unsendable(call: PendingCall) -> NotRun | None:
    """Return the answer to a call that no host could have been asked for."""
    try:
        call.to_tool_call()
    except InvalidInputError as error:
        return NotRun(f"the call could not be sent: {error}")
    return None
