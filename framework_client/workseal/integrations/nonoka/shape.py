"""Results in the exact shapes that nonoka reads. Pure.

nonoka records whatever has a ``workspace`` as verified. Only results that rest
on a verified receipt get one here; errors without a receipt enter its memory
as plain tool messages, which nonoka takes as answers that are already there.
"""

from __future__ import annotations

from typing import Any

from workseal.errors import ResumeError
from workseal.pending import CallOutcome, CallResult
from workseal.tools import ExternalToolReceipt

_FIELDS = (
    "result",
    "exit_code",
    "elapsed_seconds",
    "workspace",
    "effect",
    "host",
    "artifact_ref",
    "output_kind",
    "original_bytes",
    "truncated",
    "completeness",
    "verification",
)
_UNKNOWN = frozenset({CallOutcome.IN_DOUBT, CallOutcome.EXPIRED})


def receipt_shape(result: CallResult) -> Any:
    """Return what ``Runner.resume_external_tools`` is given for a result.

    Args:
        result: as stored; not one of a call that was never run.

    Returns:
        The receipt as a dict, or the bare text of a read-only call's raw result.

    Raises:
        ResumeError: there is nothing to give.
    """
    if result.outcome is CallOutcome.RAW:
        return result.text
    if not result.is_verified:
        raise ResumeError("a result without a verified receipt is never given to nonoka as one")
    shape = {name: result.plain[name] for name in _FIELDS if result.plain.get(name) is not None}
    if result.is_error and shape.get("exit_code") == 0:
        shape["exit_code"] = 1  # nonoka takes 0 as proof that a command succeeded
    if result.outcome in _UNKNOWN:
        shape["completeness"] = "unknown"
    ExternalToolReceipt.from_value(shape)  # strictly: nonoka would read "abc" as three paths
    return shape


def error_entry(call_id: str, tool: str, text: str) -> dict[str, Any]:
    """Return nonoka's memory entry for the error observation of a call that was never run."""
    return {
        "role": "tool",
        "content": text,
        "metadata": {"tool_call_id": call_id, "tool_name": tool},
        "tokens": len(text) // 4 + 1,
    }
