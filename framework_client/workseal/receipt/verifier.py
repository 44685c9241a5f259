"""The one place where a receipt becomes verified.

:meth:`ReceiptVerifier.verify` accepts a receipt for use: every check of
:data:`workseal.receipt.checks.CHECKS` must hold, in order, and what was verified is
then recorded. :meth:`ReceiptVerifier.audit` only reports: which checks held, which
could not be made. Only ``verify`` makes a :class:`VerifiedReceipt`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Final

from workseal.calls import check_bytes
from workseal.errors import CannotCheckError, InvalidInputError, NotVerifiedError
from workseal.receipt.checks import BETWEEN_CHECKS, CHECKS
from workseal.receipt.checks.context import ChainView, Check, Context, NotAsked
from workseal.receipt.checks.history import entry_of
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.errors import MalformedReceiptError
from workseal.receipt.policy import AcceptancePolicy, Expectation
from workseal.receipt.predicate import KeyRotationPredicate, ToolExecutionPredicate
from workseal.receipt.statement import Statement, parse_statement
from workseal.receipt.verified import TOKEN, AuditReport, CheckReport, CheckStatus, VerifiedReceipt
from workseal.trust.pins import TrustState
from workseal.trust.record import MemoryRecord, VerifiedRecord
from workseal.trust.store import TrustStore

__all__ = [
    "MAX_GAP",
    "AcceptancePolicy",
    "AuditReport",
    "CheckReport",
    "CheckStatus",
    "Expectation",
    "ReceiptVerifier",
    "VerifiedReceipt",
]

MAX_GAP: Final = 10_000


def _now() -> datetime:
    return datetime.now(UTC)


_GIVE_TRUST: Final = "FileTrustStore(directory), or MemoryTrustStore.of_pem(pem) for keys at hand"
_GIVE_RECORD: Final = "SqliteRecord(directory) or MemoryRecord()"


def _require_store(value: object, name: str, methods: Sequence[str], give: str) -> None:
    """Refuse text, paths and keys in place of a store: else the first receipt would be what finds out."""
    if not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidInputError(f"{name} is a {type(value).__name__}: give a store, {give}", field=name)


def _asked_in_part(name: str, nothing: NotAsked) -> CheckReport:
    """Return what an audit says of a check that was given less than it could compare."""
    if nothing.compared:
        detail = f"partly: {nothing.compared}; not given: {nothing.what}"
        return CheckReport(name, CheckStatus.PASSED, detail)
    return CheckReport(name, CheckStatus.SKIPPED, f"not given: {nothing.what}")


class ReceiptVerifier:
    """Verifies receipts against pinned keys, a policy and what was verified before.

    Args:
        trust: the pinned keys.
        policy: which receipts are good enough.
        record: what was verified before, durably; by default only in memory.
        clock: tells the time, time zone aware.
        checks: for tests of the checks only.

    Raises:
        InvalidInputError: ``trust`` or ``record`` is no store.
    """

    def __init__(
        self,
        trust: TrustStore,
        policy: AcceptancePolicy | None = None,
        record: VerifiedRecord | None = None,
        *,
        clock: Callable[[], datetime] = _now,
        checks: Sequence[tuple[str, Check]] = CHECKS,
    ) -> None:
        _require_store(trust, "trust", ("state", "update"), _GIVE_TRUST)
        if record is not None:
            _require_store(record, "record", ("head", "accept"), _GIVE_RECORD)
        self._trust = trust
        self._policy = policy or AcceptancePolicy()
        self._record: VerifiedRecord = record if record is not None else MemoryRecord()
        self._clock = clock
        self._checks = tuple(checks)

    @property
    def trust(self) -> TrustStore:
        """The pinned keys."""
        return self._trust

    @property
    def record(self) -> VerifiedRecord:
        """What was verified before."""
        return self._record

    def over(self, trust: TrustStore, record: VerifiedRecord) -> ReceiptVerifier:
        """Return a verifier with the same policy, clock and checks over other stores.

        For callers that must verify several receipts before any of them counts.
        """
        return ReceiptVerifier(trust, self._policy, record, clock=self._clock, checks=self._checks)

    def verify(
        self,
        envelope: bytes,
        expectation: Expectation,
        *,
        result: bytes | None,
        between: Sequence[bytes] = (),
        policy: AcceptancePolicy | None = None,
    ) -> VerifiedReceipt:
        """Accept a receipt for use, and record that.

        The same receipt may be verified again for the same call, never for another one.

        Args:
            envelope: the receipt, as it came.
            expectation: the call that it must answer.
            result: the text for the model that came with it; None or empty if none did.
            between: the receipts since the last verified one, by sequence; key
                rotations among them are followed, and those that are known are passed over.
            policy: in place of the verifier's own.

        Raises:
            InvalidInputError: the receipt or the result is not bytes.
            NotVerifiedError: ``check`` and ``reason`` say what did not hold.
            CannotCheckError: a check could not be made.
            StoreError: the pins or the record could not be read or written.
        """
        trust, view, others = self._walk(between, expectation.workspace_id)
        context = self._context(envelope, expectation, trust, result, policy)
        context.view = view
        reports = tuple(self._require(name, check, context) for name, check in self._checks)
        self._require_call(context)
        view = self._add(context, expectation.call_identity)
        self._follow_rotations(others)
        self._record.accept(context.read().workspace_id, view.added)
        signed = context.signed()
        return VerifiedReceipt(
            envelope=bytes(envelope),
            statement=context.read(),
            payload_digest=signed.payload_digest,
            key_id=signed.key_id,
            result=result,
            between=tuple(others),
            checks=reports,
            token=TOKEN,
        )

    def follow(self, between: Sequence[bytes], *, workspace_id: str) -> tuple[Statement, ...]:
        """Verify and record entries of a chain that answer none of the caller's calls.

        Args:
            between: entries by sequence; key rotations among them are followed.
            workspace_id: the workspace that they must be of.

        Returns:
            What they state.

        Raises:
            NotVerifiedError: one of them does not hold; those before it are recorded.
            StoreError: the pins or the record could not be read or written.
        """
        statements = []
        for data in between:
            expectation = Expectation(workspace_id=workspace_id)
            context = self._context(data, expectation, self._trust.state(), None, None)
            self._run_between(context)
            view, statement = self._add(context, None), context.read()
            self._follow_rotations([statement])
            self._record.accept(workspace_id, view.added)
            statements.append(statement)
        return tuple(statements)

    def gap(self, envelope: bytes) -> range:
        """Return which sequences to fetch and give as ``between``.

        A hint from bytes that are not verified yet: it decides what to ask for, and
        nothing else.

        Args:
            envelope: the receipt, as it came.

        Raises:
            MalformedReceiptError: it is no receipt.
            NotVerifiedError: more than :data:`MAX_GAP` entries lie between.
        """
        check_bytes(envelope, "envelope")
        statement = parse_statement(parse_envelope(envelope).payload)
        head = self._record.head(statement.workspace_id)
        if head is None or head.chain_id != statement.chain.id:
            return range(0)
        missing = range(head.sequence + 1, statement.chain.sequence)
        if len(missing) > MAX_GAP:
            raise CannotCheckError(
                f"{len(missing)} receipts lie between: `workseal keys forget WORKSPACE_ID` to start anew",
                check="before",
                reason="gap",
            )
        return missing

    def audit(
        self,
        envelope: bytes,
        expectation: Expectation | None = None,
        *,
        result: bytes | None = None,
        with_record: bool = False,
    ) -> AuditReport:
        """Report on a receipt without using it. Nothing is recorded.

        Args:
            envelope: the receipt.
            expectation: what is known of the call; checks that need more are skipped.
            result: the text for the model, where it is at hand.
            with_record: compare with what was verified before.
        """
        context = self._context(envelope, expectation or Expectation(), self._trust.state(), result, None)
        if not with_record:
            context.record = None
        reports: list[CheckReport] = []
        error: NotVerifiedError | None = None
        for name, check in self._checks:
            if error is not None:
                reports.append(CheckReport(name, CheckStatus.NOT_RUN, "an earlier check did not hold"))
                continue
            try:
                reports.append(CheckReport(name, CheckStatus.PASSED, check(context)))
            except NotAsked as nothing:
                reports.append(_asked_in_part(name, nothing))
            except NotVerifiedError as failure:
                error = failure
                reports.append(CheckReport(name, CheckStatus.FAILED, str(failure)))
        signed = context.envelope
        return AuditReport(
            tuple(reports),
            context.statement if error is None else None,
            signed.payload_digest if signed else "",
            signed.key_id if signed else "",
            error,
        )

    def _context(
        self,
        data: bytes,
        expectation: Expectation,
        trust: TrustState,
        result: bytes | None,
        policy: AcceptancePolicy | None,
    ) -> Context:
        check_bytes(data, "envelope")
        if result is not None:
            check_bytes(result, "result")
        return Context(
            data=data,
            expectation=expectation,
            policy=policy or self._policy,
            trust=trust,
            record=self._record,
            view=None,
            result=result,
            now=self._clock,
        )

    def _walk(
        self, between: Sequence[bytes], workspace_id: str | None
    ) -> tuple[TrustState, ChainView | None, list[Statement]]:
        """Check entries one after another; nothing is kept yet but what is returned."""
        trust, view = self._trust.state(), None
        statements: list[Statement] = []
        for data in between:
            context = self._context(data, Expectation(workspace_id=workspace_id), trust, None, None)
            context.view = view
            self._run_between(context)
            view = self._add(context, None)
            statement = context.read()
            statements.append(statement)
            if isinstance(statement.predicate, KeyRotationPredicate):
                trust = trust.rotated(statement.predicate)
        return trust, view, statements

    def _follow_rotations(self, statements: Sequence[Statement]) -> None:
        entries = [item.predicate for item in statements if isinstance(item.predicate, KeyRotationPredicate)]
        if entries:
            self._trust.update(lambda state: reduce(TrustState.rotated, entries, state))

    def _require(self, name: str, check: Check, context: Context) -> CheckReport:
        try:
            return CheckReport(name, CheckStatus.PASSED, check(context))
        except NotAsked as nothing:
            if not nothing.needed:
                return CheckReport(name, CheckStatus.SKIPPED, nothing.what)
            raise CannotCheckError(
                f"cannot be checked without: {nothing.what}", check=name, reason="not-given"
            ) from nothing

    def _require_call(self, context: Context) -> None:
        if not isinstance(context.read().predicate, ToolExecutionPredicate):
            raise MalformedReceiptError(
                "the receipt is of no tool call", check="statement", reason="predicate-type"
            )

    def _run_between(self, context: Context) -> None:
        try:
            for name, check in self._checks:
                if name in BETWEEN_CHECKS:
                    self._require(name, check, context)
        except NotVerifiedError as error:
            # Its place is known only once its signature held.
            known = context.statement
            which = f"the receipt {known.chain.sequence}" if known is not None else "a receipt"
            error.args = (f"{which} between the last verified one and this one does not hold: {error}",)
            raise

    def _add(self, context: Context, used_by: str | None) -> ChainView:
        view = context.chain_view()
        view.add(entry_of(context.read(), context.signed().payload_digest, view, used_by))
        return view
