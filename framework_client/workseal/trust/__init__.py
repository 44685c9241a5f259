"""Pinned keys, and the memory of what was verified."""

from __future__ import annotations

from workseal.trust.pins import Limit, Pin, Position, TrustState
from workseal.trust.record import ChainEntry, MemoryRecord, SqliteRecord, VerifiedRecord
from workseal.trust.store import FileTrustStore, MemoryTrustStore, TrustStore

__all__ = [
    "ChainEntry",
    "FileTrustStore",
    "Limit",
    "MemoryRecord",
    "MemoryTrustStore",
    "Pin",
    "Position",
    "SqliteRecord",
    "TrustState",
    "TrustStore",
    "VerifiedRecord",
]
