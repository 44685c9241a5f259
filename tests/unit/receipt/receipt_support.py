"""Receipts for tests: made with keys that live in memory only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from securesystemslib.signer import CryptoSigner  # type: ignore[attr-defined]  # no __all__ there

from workseal.canonical import canonical_json, sha256_hex
from workseal.receipt.envelope import PAYLOAD_TYPE, Envelope, encode_envelope, pae
from workseal.receipt.keys import PublicKey
from workseal.receipt.policy import Expectation
from workseal.receipt.statement import (
    NO_CHANGES,
    Attribution,
    Call,
    Chain,
    ChangedEntry,
    ChangeKind,
    EntryState,
    EntryType,
    Execution,
    HostIdentity,
    Isolation,
    KeyRotationPredicate,
    Mode,
    NewKey,
    Outcome,
    ResultDigest,
    ScanLevel,
    Scheme,
    ToolExecutionPredicate,
    Workspace,
    encode_statement,
    parse_statement,
    summarize_changes,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
RESULT = b"wrote notes.md"
RULES = sha256_hex(b"rules")
CHALLENGE = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA"


def digest(word: str) -> str:
    """A digest that stands for a word."""
    return hashlib.sha256(word.encode()).hexdigest()


def clock() -> datetime:
    """The moment at which tests verify."""
    return NOW


class Key:
    """A signing key and its public half."""

    def __init__(self, signer: Any = None) -> None:
        self.signer: Any = signer or CryptoSigner.generate_ed25519()
        pem = self.signer._private_key.public_key().public_bytes(*_spki())
        self.public = PublicKey.from_pem(pem)

    def sign(self, payload: bytes) -> bytes:
        """Return the envelope of any bytes, signed by this key."""
        signature = self.signer.sign(pae(PAYLOAD_TYPE, payload))
        raw = bytes.fromhex(signature.signature)
        return encode_envelope(Envelope(payload, PAYLOAD_TYPE, self.public.key_id, raw))


def _spki() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return Encoding.PEM, PublicFormat.SubjectPublicKeyInfo


def created(path: str, content: str = "x") -> ChangedEntry:
    """A created file."""
    return ChangedEntry(path, ChangeKind.CREATED, None, EntryState(EntryType.FILE, digest(content)))


def modified(path: str) -> ChangedEntry:
    """A modified file."""
    return ChangedEntry(
        path,
        ChangeKind.MODIFIED,
        EntryState(EntryType.FILE, digest("old")),
        EntryState(EntryType.EXECUTABLE, digest("new")),
    )


def deleted(path: str) -> ChangedEntry:
    """A deleted link."""
    return ChangedEntry(path, ChangeKind.DELETED, EntryState(EntryType.SYMLINK, digest("t")), None)


def execution(**changes: Any) -> Execution:
    """An execution that went well."""
    base = Execution(
        execution_id="e-1",
        mode=Mode.EXECUTED,
        isolation=Isolation.BUBBLEWRAP,
        attribution=Attribution.INTERVAL,
        started_on="2026-03-04T05:06:06.000000Z",
        finished_on="2026-03-04T05:06:06.250000Z",
        duration_ns=250_000_000,
        exit_code=0,
        signal=None,
        timed_out=False,
        cancelled=False,
        recovered=False,
        leftover_processes=0,
        stdout=None,
        stderr=None,
        result=ResultDigest(sha256_hex(RESULT), len(RESULT)),
    )
    return replace(base, **changes)


@dataclass
class Ledger:
    """A host in small: signs one receipt after another."""

    key: Key = field(default_factory=Key)
    workspace_id: str = "w-1"
    chain_id: str = "chain-1"
    sequence: int = 0
    previous: str | None = None
    state: str = digest("state 0")

    def predicate(
        self,
        changes: Sequence[ChangedEntry] = (created("notes.md"),),
        *,
        call: dict[str, Any] | None = None,
        workspace: dict[str, Any] | None = None,
        chain: dict[str, Any] | None = None,
        **fields: Any,
    ) -> ToolExecutionPredicate:
        """The next predicate; what is given replaces what would be right."""
        summary = summarize_changes(changes)
        after = digest(f"state {self.sequence + 1}") if changes else self.state
        seen = Workspace(
            id=self.workspace_id,
            root="/home/user/project",
            scheme=Scheme.WORKSEAL_TREE_1,
            scan_before=ScanLevel.STAT,
            scan_after=ScanLevel.STAT,
            ignore_policy_before=RULES,
            ignore_policy_after=RULES,
            before=self.state,
            after=after,
            created=summary.created,
            modified=summary.modified,
            deleted=summary.deleted,
            changes=summary.changes,
        )
        values: dict[str, Any] = {
            "outcome": Outcome.COMPLETED,
            "reason": "",
            "call": replace(
                Call("s-1", "c-1", "write_file", digest("arguments"), digest("key"), 1, CHALLENGE),
                **(call or {}),
            ),
            "execution": execution(),
            "workspace": replace(seen, **(workspace or {})),
            "chain": replace(Chain(self.chain_id, self.sequence + 1, self.previous), **(chain or {})),
            "host": HostIdentity("workseal", "0.1.0", self.key.public.key_id),
        }
        return ToolExecutionPredicate(**{**values, **fields})

    def refused(self, **fields: Any) -> ToolExecutionPredicate:
        """The next predicate, of a call that was refused."""
        return self.predicate((), outcome=Outcome.REFUSED, reason="no", execution=None, **fields)

    def add(self, predicate: ToolExecutionPredicate | KeyRotationPredicate | None = None) -> bytes:
        """Sign a predicate as the next entry."""
        payload = encode_statement(predicate or self.predicate())
        envelope = self.key.sign(payload)
        self._advance(payload)
        return envelope

    def rotate(self, new: Key) -> bytes:
        """Sign the entry that names another key, and go on with that key."""
        old, key = self.key.public, new.public
        envelope = self.add(
            KeyRotationPredicate(
                Chain(self.chain_id, self.sequence + 1, self.previous),
                self.workspace_id,
                old.key_id,
                NewKey(key.key_id, key.key_type, key.scheme, key.pem),
                HostIdentity("workseal", "0.1.0", old.key_id),
            )
        )
        self.key = new
        return envelope

    def _advance(self, payload: bytes) -> None:
        statement = parse_statement(payload)
        self.sequence, self.previous = statement.chain.sequence, sha256_hex(payload)
        if isinstance(statement.predicate, ToolExecutionPredicate):
            self.state = statement.predicate.workspace.after or self.state


def expect(**changes: Any) -> Expectation:
    """The call that receipts of :class:`Ledger` answer by default."""
    base = Expectation(
        workspace_id="w-1",
        session_id="s-1",
        tool_call_id="c-1",
        tool="write_file",
        arguments_digest=digest("arguments"),
        challenge=CHALLENGE,
    )
    return replace(base, **changes)


def reencode(payload: bytes, change: Any) -> bytes:
    """Return a payload after a change to its JSON, without any check of the form."""
    import json

    value = json.loads(payload)
    change(value)
    return canonical_json(value)


__all__ = [
    "CHALLENGE",
    "NOW",
    "NO_CHANGES",
    "RESULT",
    "RULES",
    "Key",
    "Ledger",
    "clock",
    "created",
    "deleted",
    "digest",
    "execution",
    "expect",
    "modified",
    "reencode",
]
