"""What a caller accepts, and what it asked for.

Two different things: an :class:`AcceptancePolicy` says which *kinds* of receipts are
good enough, an :class:`Expectation` says which *one* receipt is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from workseal.canonical import canonical_json, sha256_hex
from workseal.receipt.predicate import Isolation, Mode, Outcome, ScanLevel, Scheme

_SCAN_RANK: Final = {ScanLevel.WATCH: 0, ScanLevel.STAT: 1, ScanLevel.FULL: 2}


def scan_at_least(level: ScanLevel, minimum: ScanLevel) -> bool:
    """Say whether a scan read at least as much as another level would."""
    return _SCAN_RANK[level] >= _SCAN_RANK[minimum]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePolicy:
    """Which receipts are good enough. Everything not named here is refused.

    The defaults follow one rule: what is normal on an honest host passes and stays
    visible in the receipt; what leaves the signed state itself open does not.

    Args:
        outcomes: outcomes that are an answer. All four by default: only ``completed``
            may count as done, the others reach the model as errors.
        modes: who may have run the tool.
        allow_observed: take ``observed`` too, whose result is the caller's claim.
        schemes: how the workspace may be digested.
        minimum_scan: least scan level, before and after.
        ignore_policies: policy digests that are accepted; None for any.
        isolations: isolations that are accepted; None for any. ``host`` always is: no
            process of a tool ran.
        allow_recovered: take an execution that was settled after a crash.
        allow_unreadable: take a workspace with entries that the host could not read.
            They are in the digest as unreadable, and are normal (root-owned output).
        allow_unstable: take a workspace with files that would not hold still; its
            digest then is of a state that may never have existed.
        max_leftover_processes: how many processes the tool may have left for the host
            to end; None for any number.
        allow_survivors: take an execution whose processes could not be ended: they
            could still change what was digested.
        clock_skew_s: how far ahead of the verifier's clock a receipt may be.
    """

    outcomes: frozenset[Outcome] = frozenset(Outcome)
    modes: frozenset[Mode] = frozenset({Mode.EXECUTED, Mode.STAGED})
    allow_observed: bool = False
    schemes: frozenset[Scheme] = frozenset(Scheme)
    minimum_scan: ScanLevel = ScanLevel.STAT
    ignore_policies: frozenset[str] | None = None
    isolations: frozenset[Isolation] | None = None
    allow_recovered: bool = True
    allow_unreadable: bool = True
    allow_unstable: bool = False
    max_leftover_processes: int | None = None
    allow_survivors: bool = False
    clock_skew_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Which receipt is meant. Verifying for use needs all that names the call.

    A field that is None is not checked. :meth:`ReceiptVerifier.verify` refuses to go
    without the first six; :meth:`ReceiptVerifier.audit` reports what it could not check.

    Args:
        workspace_id: the workspace that the call was for.
        session_id: the session that made the call.
        tool_call_id: the framework's id of the call.
        tool: the tool that was called.
        arguments_digest: hex SHA-256 of RFC 8785 of the arguments.
        challenge: the challenge that was made for this one call.
        chain_id: the chain, where it is known.
        idempotency_key: the key, where it is known.
        before_digest: what the workspace was expected to be; for ``strict``.
        before_mode: ``strict`` or ``accounted``.
        max_age_s: oldest acceptable receipt, in seconds; None for any age.
        allow_observed: whether this tool may be run by somebody else and observed.
        paths_matter: whether an incomplete list of changes is of no use.
    """

    workspace_id: str | None = None
    session_id: str | None = None
    tool_call_id: str | None = None
    tool: str | None = None
    arguments_digest: str | None = None
    challenge: str | None = None
    chain_id: str | None = None
    idempotency_key: str | None = None
    before_digest: str | None = None
    before_mode: Literal["strict", "accounted"] = "accounted"
    max_age_s: float | None = None
    allow_observed: bool = False
    paths_matter: bool = False

    @property
    def call_identity(self) -> str | None:
        """What tells this occurrence of a call from every other one; None where one of the four is not given.

        The same value as the default idempotency key: hex SHA-256 of RFC 8785 of
        [workspace id, session id, tool call id, challenge].
        """
        if None in (self.workspace_id, self.session_id, self.tool_call_id, self.challenge):
            return None
        return call_identity(self.workspace_id, self.session_id, self.tool_call_id, self.challenge)


def call_identity(
    workspace_id: str | None, session_id: str | None, tool_call_id: str | None, challenge: str | None
) -> str:
    """Return hex SHA-256 of RFC 8785 of the four ids that name one occurrence of a call."""
    return sha256_hex(canonical_json([workspace_id, session_id, tool_call_id, challenge]))
