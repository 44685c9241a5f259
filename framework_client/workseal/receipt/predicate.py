"""The two predicates that a host signs, as dataclasses.

Digests are lower-case hex SHA-256, times are RFC 3339 in UTC, paths are in the
escaped form of :mod:`workseal.paths`. ``docs/receipt.md`` says what each field
means; this module only holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

TOOL_EXECUTION_TYPE: Final = "urn:workseal:tool-execution:v1"
KEY_ROTATION_TYPE: Final = "urn:workseal:key-rotation:v1"


class Outcome(StrEnum):
    """What became of a call."""

    COMPLETED = "completed"
    REFUSED = "refused"
    IN_DOUBT = "inDoubt"
    EXPIRED = "expired"


class Mode(StrEnum):
    """Who ran the tool, and on what."""

    EXECUTED = "executed"
    OBSERVED = "observed"
    STAGED = "staged"


class Isolation(StrEnum):
    """What kept the tool from the host's key; ``host``: the host's own code ran, and no process."""

    BUBBLEWRAP = "bubblewrap"
    HOST = "host"
    NONE = "none"


class Attribution(StrEnum):
    """How changes were ascribed to the call."""

    INTERVAL = "interval"
    PREDICTED = "predicted"
    EXACT = "exact"


class Scheme(StrEnum):
    """How the workspace was digested."""

    WORKSEAL_TREE_1 = "workseal-tree/1"
    NONOKA_1 = "nonoka/1"


class ScanLevel(StrEnum):
    """How much a scan read again."""

    FULL = "full"
    STAT = "stat"
    WATCH = "watch"


class EntryType(StrEnum):
    """What an entry of the workspace is."""

    FILE = "file"
    EXECUTABLE = "executable"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    FIFO = "fifo"
    SOCKET = "socket"
    CHAR = "char"
    BLOCK = "block"
    UNREADABLE = "unreadable"


class ChangeKind(StrEnum):
    """What happened to an entry."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"


class PreconditionStatus(StrEnum):
    """Whether what was to hold before the tool ran did hold."""

    NOT_REQUESTED = "notRequested"
    MET = "met"
    UNMET = "unmet"


class VerificationStatus(StrEnum):
    """Whether what was read back after the tool ran is what was to be there."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    NOT_RUN = "notRun"


@dataclass(frozen=True, slots=True)
class Call:
    """The request that the receipt answers."""

    session_id: str
    tool_call_id: str
    tool: str
    arguments_digest: str
    idempotency_key: str
    attempt: int
    challenge: str | None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CapturedStreamDigest:
    """A whole output stream; ``truncated`` says whether all of it was kept."""

    digest: str
    bytes: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class ResultDigest:
    """The text that the model is given."""

    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Execution:
    """The one run of the tool.

    ``leftover_processes`` counts what the tool left running and the host ended;
    ``survivors`` counts what it could not end.
    """

    execution_id: str
    mode: Mode
    isolation: Isolation
    attribution: Attribution
    started_on: str
    finished_on: str
    duration_ns: int
    exit_code: int | None
    signal: int | None
    timed_out: bool
    cancelled: bool
    recovered: bool
    leftover_processes: int
    stdout: CapturedStreamDigest | None
    stderr: CapturedStreamDigest | None
    result: ResultDigest | None
    survivors: int = 0


@dataclass(frozen=True, slots=True)
class EntryState:
    """One entry at one moment."""

    type: EntryType
    digest: str


@dataclass(frozen=True, slots=True)
class ChangedEntry:
    """One changed entry; ``before`` is None when created, ``after`` when deleted."""

    path: str
    kind: ChangeKind
    before: EntryState | None
    after: EntryState | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Counts and digest of the full list; ``complete`` if the receipt lists all of it."""

    created: int
    modified: int
    deleted: int
    digest: str
    complete: bool

    @property
    def total(self) -> int:
        """How many entries changed."""
        return self.created + self.modified + self.deleted


@dataclass(frozen=True, slots=True)
class OutsideChanges:
    """Paths that changed and are ascribed to nobody."""

    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    complete: bool = True

    def __bool__(self) -> bool:
        return bool(self.created or self.modified or self.deleted or not self.complete)


@dataclass(frozen=True, slots=True)
class Bridge:
    """This call's before-state, digested under the rules of the receipt before."""

    ignore_policy: str
    digest: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """What the host saw of the workspace."""

    id: str
    root: str
    scheme: Scheme
    scan_before: ScanLevel
    scan_after: ScanLevel | None
    ignore_policy_before: str
    ignore_policy_after: str | None
    before: str
    after: str | None
    created: tuple[ChangedEntry, ...]
    modified: tuple[ChangedEntry, ...]
    deleted: tuple[ChangedEntry, ...]
    changes: Changes
    unreadable: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    outside_changes: OutsideChanges | None = None
    bridge: Bridge | None = None
    unreadable_omitted: int = 0
    unstable_omitted: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """A declared probe outside the workspace: digests of what it read."""

    probe: str
    before: str | None
    after: str | None
    changed: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """What was expected of a path, and what was there; None is absent."""

    path: str
    expected: EntryState | None
    found: EntryState | None


@dataclass(frozen=True, slots=True)
class Precondition:
    """What was to hold before the tool ran."""

    status: PreconditionStatus = PreconditionStatus.NOT_REQUESTED
    expected: str | None = None
    differences: tuple[Difference, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Verification:
    """What was read back after the tool ran."""

    status: VerificationStatus = VerificationStatus.NOT_RUN
    summary: str = ""
    failures: tuple[Difference, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """A change that the host's policy forbids; an empty path is the root itself."""

    path: str
    rule: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Forbidden changes, and the paths that the host put back."""

    violations: tuple[PolicyViolation, ...] = ()
    restored: tuple[str, ...] = ()

    @property
    def unrestored(self) -> tuple[PolicyViolation, ...]:
        """Violations whose path was not put back."""
        return tuple(item for item in self.violations if item.path not in self.restored)


@dataclass(frozen=True, slots=True)
class Chain:
    """Where an entry stands: sequence from 1, digest of the payload before it."""

    id: str
    sequence: int
    previous: str | None


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Who signs."""

    name: str
    version: str
    key_id: str


@dataclass(frozen=True, slots=True)
class ToolExecutionPredicate:
    """The outcome of one tool call."""

    outcome: Outcome
    reason: str
    call: Call
    execution: Execution | None
    workspace: Workspace
    chain: Chain
    host: HostIdentity
    effects: tuple[Effect, ...] = ()
    precondition: Precondition = field(default_factory=Precondition)
    verification: Verification = field(default_factory=Verification)
    policy: Policy = field(default_factory=Policy)
    issued_on: str | None = None

    @property
    def workspace_id(self) -> str:
        """The workspace that the entry is about."""
        return self.workspace.id


@dataclass(frozen=True, slots=True)
class NewKey:
    """A public key as a rotation names it; ``public`` is PEM."""

    key_id: str
    key_type: str
    scheme: str
    public: str


@dataclass(frozen=True, slots=True)
class KeyRotationPredicate:
    """The host signs with another key from the next entry on."""

    chain: Chain
    workspace_id: str
    old_key_id: str
    new_key: NewKey
    host: HostIdentity
    issued_on: str | None = None


Predicate = ToolExecutionPredicate | KeyRotationPredicate
