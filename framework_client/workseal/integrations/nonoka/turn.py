"""Read the turn that a nonoka session paused in, from its checkpoint. Pure.

nonoka looks for the last assistant entry with tool calls, and takes those
without a tool entry after it as pending; so does this module. Call ids come
from the model: they repeat from turn to turn, and sometimes within one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workseal.errors import ResumeError
from workseal.pending import NewCall
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution

_EFFECTS = ("read_only", "mutates_workspace", "exclusive", "stateful_action", "pagination")


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn that a session paused in.

    Args:
        occurrence: names it, stably across processes.
        calls: pending calls for the host, in the model's order.
        ambiguous: (id, tool) of pending calls that share their id with another of the turn.
    """

    occurrence: str
    calls: tuple[NewCall, ...]
    ambiguous: tuple[tuple[str, str], ...]


def declared_execution(capability: Any) -> ToolExecution:
    """Return what a nonoka capability declares.

    Args:
        capability: a tool of the agent; ``None`` for one that it no longer has.

    Returns:
        Its declaration; never read-only where nonoka itself asks for an attestation.
    """
    declared = getattr(capability, "execution", None)
    if declared is None:
        return UNKNOWN_EXECUTION
    execution = ToolExecution(**{name: getattr(declared, name, False) is True for name in _EFFECTS})
    if getattr(capability, "requires_workspace_attestation", True):
        return replace(execution, read_only=False)
    return execution


def declarations(tools: Iterable[Any]) -> dict[str, ToolExecution]:
    """Return what the tools of an agent declare, by name."""
    return {str(tool.name): declared_execution(tool) for tool in tools}


def read_turn(session_id: str, state: Any, tools: Sequence[Any]) -> Turn:
    """Read the turn that a session paused in.

    Args:
        session_id: for messages.
        state: nonoka's ``SessionState``; ``None`` where there is no such session.
        tools: the agent's capabilities.

    Raises:
        ResumeError: the session is not paused for external tools.
    """
    status = getattr(getattr(state, "status", None), "value", None)
    if status != "paused":
        # nonoka would resume a completed session as well, and spend a model turn on it.
        raise ResumeError(
            f"session {session_id!r} is {status or 'unknown'}, not paused: there is nothing to resume"
        )
    index, tool_calls = _last_tool_calls(session_id, state.memory_entries)
    answered = {
        str(entry.get("metadata", {}).get("tool_call_id"))
        for entry in state.memory_entries[index + 1 :]
        if entry.get("role") == "tool"
    }
    pending = [call for call in tool_calls if _call_id(call) not in answered]
    by_name = {tool.name: tool for tool in tools}
    _refuse_local(session_id, pending, by_name)
    counts = Counter(_call_id(call) for call in tool_calls)
    start = "" if state.start_time is None else state.start_time.isoformat()
    occurrence = f"{start} turn {state.turn_count} entry {index}"
    return Turn(
        occurrence,
        tuple(_new_call(call, occurrence, by_name) for call in pending if counts[_call_id(call)] == 1),
        tuple((_call_id(call), _name(call)) for call in pending if counts[_call_id(call)] > 1),
    )


def _last_tool_calls(
    session_id: str, entries: Sequence[Mapping[str, Any]]
) -> tuple[int, Sequence[Mapping[str, Any]]]:
    for index in range(len(entries) - 1, -1, -1):
        tool_calls = entries[index].get("metadata", {}).get("tool_calls")
        if entries[index].get("role") == "assistant" and tool_calls:
            return index, tool_calls
    raise ResumeError(f"session {session_id!r} paused without tool calls: there is nothing to resume")


def _refuse_local(session_id: str, pending: Sequence[Mapping[str, Any]], by_name: Mapping[str, Any]) -> None:
    """Refuse a session that waits for something else: an approval is not a result."""
    local = tuple(
        _call_id(call) for call in pending if not getattr(by_name.get(_name(call)), "external", False)
    )
    if local:
        raise ResumeError(
            f"session {session_id!r} waits for calls that no host runs: resume its approvals with nonoka",
            tool_call_ids=local,
        )


def _new_call(call: Mapping[str, Any], occurrence: str, by_name: Mapping[str, Any]) -> NewCall:
    return NewCall(
        _call_id(call),
        _name(call),
        call.get("function", {}).get("arguments", "{}"),
        occurrence=occurrence,
        execution=declared_execution(by_name.get(_name(call))),
    )


def _call_id(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or call.get("tool_call_id", "unknown"))  # as nonoka itself does


def _name(call: Mapping[str, Any]) -> str:
    return str(call.get("function", {}).get("name", ""))
