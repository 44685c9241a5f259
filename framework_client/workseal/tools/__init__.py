"""What frameworks declare about tools, and what they are handed of their results."""

from workseal.tools.attested import (
    Completeness,
    EffectAttestation,
    ExternalToolReceipt,
    WorkspaceAttestation,
)
from workseal.tools.declared import UNKNOWN_EXECUTION, ExternalCapability, ToolExecution, stricter

__all__ = [
    "UNKNOWN_EXECUTION",
    "Completeness",
    "EffectAttestation",
    "ExternalCapability",
    "ExternalToolReceipt",
    "ToolExecution",
    "WorkspaceAttestation",
    "stricter",
]
