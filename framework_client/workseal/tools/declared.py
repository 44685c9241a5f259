"""Declarations of tools, in the words that frameworks use.

Invariant: what is not declared counts as mutating, stateful and exclusive, and
of two declarations the stricter one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workseal.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ToolExecution:
    """What a tool does beyond returning a value.

    Args:
        read_only: changes nothing at all.
        mutates_workspace: may change files of the workspace.
        exclusive: must not run beside another call on the same workspace.
        stateful_action: changes state outside the workspace.
        pagination: returns results in pages.

    Raises:
        InvalidInputError: a field is not a bool (``bool("false")`` would be true).
    """

    read_only: bool = False
    mutates_workspace: bool = False
    exclusive: bool = False
    stateful_action: bool = False
    pagination: bool = False

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(f"{name} must be true or false", field=name)

    @property
    def accepts_unsigned(self) -> bool:
        """Whether a raw, unsigned result may stand for such a call."""
        return self.read_only and not (self.mutates_workspace or self.stateful_action)


UNKNOWN_EXECUTION = ToolExecution(mutates_workspace=True, exclusive=True, stateful_action=True)


def stricter(first: ToolExecution, second: ToolExecution) -> ToolExecution:
    """Return the declaration that promises no more than either of two."""
    return ToolExecution(
        read_only=first.read_only and second.read_only,
        mutates_workspace=first.mutates_workspace or second.mutates_workspace,
        exclusive=first.exclusive or second.exclusive,
        stateful_action=first.stateful_action or second.stateful_action,
        pagination=first.pagination or second.pagination,
    )


@dataclass(frozen=True, slots=True)
class ExternalCapability:
    """A tool that a host runs for the framework.

    Args:
        name: the tool's name, for the model and for the host.
        description: what it does, for the model.
        parameters: JSON Schema of its arguments.
        execution: its declared side effects.
        audit_required: overrides whether a receipt must be there; ``None`` goes by ``execution``.
            It can ask for more than ``execution`` does, never for less.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    execution: ToolExecution = UNKNOWN_EXECUTION
    audit_required: bool | None = None

    @property
    def requires_workspace_attestation(self) -> bool:
        """Whether only a verified receipt may answer a call of this tool."""
        return bool(self.audit_required) or not self.execution.accepts_unsigned

    def to_json_schema(self) -> dict[str, Any]:
        """Return the function declaration that chat models take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }
