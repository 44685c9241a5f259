"""Where pending calls and their results live: a small protocol with two engines."""

from workseal.pending.memory import MemoryPendingCallStore
from workseal.pending.model import (
    CallOutcome,
    CallResult,
    NewCall,
    PendingCall,
    PendingCallStore,
    ReceiptRef,
    SettledCall,
)
from workseal.pending.sqlite import SqlitePendingCallStore

__all__ = [
    "CallOutcome",
    "CallResult",
    "MemoryPendingCallStore",
    "NewCall",
    "PendingCall",
    "PendingCallStore",
    "ReceiptRef",
    "SettledCall",
    "SqlitePendingCallStore",
]
