"""Statements: the payload bytes of a receipt, written and read.

A payload is an in-toto Statement v1 in RFC 8785 form. It is written once; what
was written is stored, passed on and verified as bytes. Writing reads its own
output back, so that nothing malformed is ever signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from workseal.canonical import canonical_json, parse_json
from workseal.errors import InvalidJsonError
from workseal.receipt.changes import (
    NO_CHANGES,
    ChangeSummary,
    bound_paths,
    encode_change_line,
    parse_change_lines,
    prove_changes,
    sort_changes,
    summarize_changes,
)
from workseal.receipt.codec import TIME_FORMAT, DecodeError
from workseal.receipt.consistency import Subject, contradiction, subject_of
from workseal.receipt.errors import MalformedReceiptError, PublicKeyError, ReceiptFormError
from workseal.receipt.form import (
    KEY_ROTATION,
    MAX_DIFFERENCES,
    MAX_LISTED_CHANGES,
    MAX_REASON_CHARACTERS,
    TOOL_EXECUTION,
)
from workseal.receipt.predicate import (
    KEY_ROTATION_TYPE,
    TOOL_EXECUTION_TYPE,
    Attribution,
    Bridge,
    Call,
    CapturedStreamDigest,
    Chain,
    ChangedEntry,
    ChangeKind,
    Changes,
    Difference,
    Effect,
    EntryState,
    EntryType,
    Execution,
    HostIdentity,
    Isolation,
    KeyRotationPredicate,
    Mode,
    NewKey,
    Outcome,
    OutsideChanges,
    Policy,
    PolicyViolation,
    Precondition,
    PreconditionStatus,
    Predicate,
    ResultDigest,
    ScanLevel,
    Scheme,
    ToolExecutionPredicate,
    Verification,
    VerificationStatus,
    Workspace,
)

__all__ = [
    "KEY_ROTATION_TYPE",
    "MAX_DIFFERENCES",
    "MAX_LISTED_CHANGES",
    "MAX_REASON_CHARACTERS",
    "NO_CHANGES",
    "STATEMENT_TYPE",
    "TOOL_EXECUTION_TYPE",
    "Attribution",
    "Bridge",
    "Call",
    "CapturedStreamDigest",
    "Chain",
    "ChangeKind",
    "ChangeSummary",
    "ChangedEntry",
    "Changes",
    "Difference",
    "Effect",
    "EntryState",
    "EntryType",
    "Execution",
    "HostIdentity",
    "Isolation",
    "KeyRotationPredicate",
    "Mode",
    "NewKey",
    "Outcome",
    "OutsideChanges",
    "Policy",
    "PolicyViolation",
    "Precondition",
    "PreconditionStatus",
    "Predicate",
    "ResultDigest",
    "ScanLevel",
    "Scheme",
    "Statement",
    "Subject",
    "ToolExecutionPredicate",
    "Verification",
    "VerificationStatus",
    "Workspace",
    "bound_paths",
    "encode_change_line",
    "encode_statement",
    "format_time",
    "parse_change_lines",
    "parse_statement",
    "parse_time",
    "prove_changes",
    "sort_changes",
    "summarize_changes",
]

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Statement:
    """A payload that was read."""

    subject: Subject
    predicate: Predicate

    @property
    def chain(self) -> Chain:
        """Where the entry stands."""
        return self.predicate.chain

    @property
    def workspace_id(self) -> str:
        """The workspace that the entry is about."""
        return self.predicate.workspace_id


def format_time(moment: datetime) -> str:
    """Return a time zone aware time in the form that receipts use (microseconds, UTC)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Return the time in a statement that was read; what is finer than microseconds is cut off."""
    fraction = text[19:].strip(".Z")
    moment = datetime.strptime(text[:19], TIME_FORMAT).replace(tzinfo=UTC)
    return moment.replace(microsecond=int(fraction[:6].ljust(6, "0")))


def _malformed(reason: str, message: str) -> MalformedReceiptError:
    return MalformedReceiptError(message, check="statement", reason=reason)


def _read_predicate(value: dict[str, Any]) -> Predicate:
    kind = value.get("predicateType")
    try:
        if kind == TOOL_EXECUTION_TYPE:
            return TOOL_EXECUTION.decode(value.get("predicate"), "predicate")
        if kind == KEY_ROTATION_TYPE:
            return KEY_ROTATION.decode(value.get("predicate"), "predicate")
    except DecodeError as error:
        raise _malformed("field", str(error)) from error
    raise _malformed("predicate-type", "the predicate type is not one that this version knows")


def _read_subject(value: dict[str, Any]) -> Subject:
    match value.get("subject"):
        case [{"name": str(name), "digest": {"sha256": str(digest)}}]:
            return Subject(name, digest)
    raise _malformed("subject", "there is not exactly one subject with a name and a sha256")


def parse_statement(payload: bytes) -> Statement:
    """Read a payload.

    Unknown fields are passed over; unknown values of known fields are not.

    Args:
        payload: the bytes that were signed.

    Raises:
        MalformedReceiptError: check ``statement``, with the reason.
    """
    try:
        value = parse_json(payload, max_bytes=MAX_PAYLOAD_BYTES)
    except InvalidJsonError as error:
        raise _malformed("json", f"the payload is not strict JSON: {error}") from error
    if not isinstance(value, dict) or value.get("_type") != STATEMENT_TYPE:
        raise _malformed("statement-type", f"the payload is not an in-toto statement ({STATEMENT_TYPE})")
    predicate = _read_predicate(value)
    if (problem := contradiction(predicate)) is not None:
        raise _malformed("contradiction", problem)
    subject = _read_subject(value)
    if subject != subject_of(predicate):
        raise _malformed("subject", "the subject is not what the predicate is about")
    return Statement(subject, predicate)


def encode_statement(predicate: Predicate) -> bytes:
    """Return the payload that states a predicate.

    Args:
        predicate: what is to be signed.

    Returns:
        An in-toto Statement v1 in RFC 8785 form.

    Raises:
        ReceiptFormError: the values have no valid form, or contradict each other.
    """
    is_rotation = isinstance(predicate, KeyRotationPredicate)
    record: Any = KEY_ROTATION if is_rotation else TOOL_EXECUTION
    try:
        subject = subject_of(predicate)
        payload = canonical_json(
            {
                "_type": STATEMENT_TYPE,
                "subject": [{"name": subject.name, "digest": {"sha256": subject.digest}}],
                "predicateType": KEY_ROTATION_TYPE if is_rotation else TOOL_EXECUTION_TYPE,
                "predicate": record.encode(predicate),
            }
        )
        statement = parse_statement(payload)
    except (DecodeError, InvalidJsonError, MalformedReceiptError, PublicKeyError) as error:
        raise ReceiptFormError(f"no receipt can be made of this: {error}", field="predicate") from error
    if statement.predicate != predicate:
        raise ReceiptFormError(
            "no receipt can be made of this: a field has the wrong type", field="predicate"
        )
    return payload
