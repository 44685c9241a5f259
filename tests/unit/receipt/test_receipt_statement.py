"""Statements: what is written can be read, and nothing malformed is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.receipt.receipt_support import Key, Ledger, created, deleted, digest, execution, modified, reencode
from workseal.paths import escape_path
from workseal.receipt.envelope import parse_envelope
from workseal.receipt.errors import MalformedReceiptError, ReceiptFormError
from workseal.receipt.statement import (
    Bridge,
    CapturedStreamDigest,
    ChangedEntry,
    ChangeKind,
    Difference,
    Effect,
    EntryState,
    EntryType,
    KeyRotationPredicate,
    Outcome,
    OutsideChanges,
    Policy,
    PolicyViolation,
    Precondition,
    PreconditionStatus,
    ToolExecutionPredicate,
    Verification,
    VerificationStatus,
    encode_statement,
    format_time,
    parse_statement,
    parse_time,
)

STATE = EntryState(EntryType.FILE, digest("s"))


def full_predicate() -> ToolExecutionPredicate:
    ledger = Ledger(sequence=6, previous=digest("before"))
    stream = CapturedStreamDigest(digest("out"), 7, truncated=True)
    return ledger.predicate(
        (created("a"), modified("b"), deleted("c")),
        call={"arguments": {"path": "a", "ratio": 0.5}},
        workspace={
            "unreadable": ("secret",),
            "unstable": ("log\\x0a",),
            "outside_changes": OutsideChanges(("x",), ("y",), ("z",), complete=False),
            "bridge": Bridge(digest("rules"), digest("bridged")),
            "unreadable_omitted": 3,
        },
        execution=execution(stdout=stream, stderr=stream, leftover_processes=2, survivors=1, signal=9),
        effects=(Effect("http", None, digest("row"), changed=True),),
        precondition=Precondition(PreconditionStatus.MET, digest("e"), (Difference("p", STATE, None),)),
        verification=Verification(
            VerificationStatus.FAILED, "no", (Difference("p", None, STATE),), complete=False
        ),
        policy=Policy((PolicyViolation("a", "protected"), PolicyViolation("", "root-replaced")), ("a",)),
        issued_on="2026-03-04T05:06:07.000001Z",
    )


PREDICATES: dict[str, Callable[[], ToolExecutionPredicate]] = {
    "plain": lambda: Ledger().predicate(),
    "everything": full_predicate,
    "refused": lambda: Ledger().refused(),
    "in doubt without a result": lambda: Ledger().predicate(
        outcome=Outcome.IN_DOUBT, execution=execution(result=None, exit_code=None)
    ),
    "root replaced": lambda: Ledger().predicate(
        (), workspace={"after": None, "scan_after": None, "ignore_policy_after": None}
    ),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_what_is_written_is_read_back(name: str) -> None:
    predicate = PREDICATES[name]()
    assert parse_statement(encode_statement(predicate)).predicate == predicate


@pytest.mark.parametrize("name", PREDICATES)
def test_the_payload_is_canonical_json(name: str) -> None:
    payload = encode_statement(PREDICATES[name]())
    assert reencode(payload, lambda value: None) == payload


def test_the_subject_is_the_workspace_after_the_call() -> None:
    predicate = Ledger().predicate()
    subject = parse_statement(encode_statement(predicate)).subject
    assert (subject.name, subject.digest) == ("workspace", predicate.workspace.after)


def test_without_an_after_state_the_subject_says_that_it_is_the_one_before() -> None:
    predicate = PREDICATES["root replaced"]()
    subject = parse_statement(encode_statement(predicate)).subject
    assert (subject.name, subject.digest) == ("workspace-before", predicate.workspace.before)


def test_the_subject_of_a_rotation_is_the_new_key() -> None:
    ledger, new = Ledger(), Key()
    statement = parse_statement(parse_envelope(ledger.rotate(new)).payload)
    assert (statement.subject.name, statement.subject.digest) == ("key", new.public.fingerprint)
    assert isinstance(statement.predicate, KeyRotationPredicate)


def test_unknown_fields_are_passed_over() -> None:
    predicate = Ledger().predicate()

    def extend(value: Any) -> None:
        value["note"] = 1.5
        value["predicate"]["later"] = {"x": [1]}
        value["predicate"]["workspace"]["later"] = True
        value["predicate"]["chain"]["later"] = None

    assert parse_statement(reencode(encode_statement(predicate), extend)).predicate == predicate


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("outcome",), "outcome"),
        (("execution", "mode"), "mode"),
        (("execution", "isolation"), "isolation"),
        (("execution", "attribution"), "attribution"),
        (("workspace", "scheme"), "scheme"),
        (("workspace", "scan", "before"), "scan"),
        (("workspace", "created", 0, "type"), "type"),
        (("precondition", "status"), "precondition"),
        (("verification", "status"), "verification"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("wrong", ["later", "", "COMPLETED", "0"])
def test_unknown_values_of_known_fields_are_refused(place: tuple[Any, ...], name: str, wrong: str) -> None:
    def change(value: Any) -> None:
        inner = value["predicate"]
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = wrong

    with pytest.raises(MalformedReceiptError) as error:
        parse_statement(reencode(encode_statement(Ledger().predicate()), change))
    assert error.value.reason == "field"


CONTRADICTIONS: dict[str, Any] = {
    "completed without an execution": lambda p: replace(p, execution=None),
    "completed without a result": lambda p: replace(p, execution=replace(p.execution, result=None)),
    "refused although it ran": lambda p: replace(p, outcome=Outcome.REFUSED),
    "refused although it changed": lambda p: replace(p, outcome=Outcome.REFUSED, execution=None),
    "first with a previous one": lambda p: replace(p, chain=replace(p.chain, previous=digest("x"))),
    "second without one": lambda p: replace(p, chain=replace(p.chain, sequence=2)),
    "sequence zero": lambda p: replace(p, chain=replace(p.chain, sequence=0)),
    "sequence of 2^53": lambda p: replace(p, chain=replace(p.chain, sequence=2**53, previous=digest("x"))),
    "after without a scan": lambda p: replace(p, workspace=replace(p.workspace, scan_after=None)),
    "probe that lies": lambda p: replace(p, effects=(Effect("x", digest("a"), digest("b"), changed=False),)),
    "path that escapes": lambda p: replace(p, workspace=replace(p.workspace, unreadable=("../x",))),
    "absolute path": lambda p: replace(p, workspace=replace(p.workspace, unreadable=("/x",))),
    "path that is not escaped": lambda p: replace(p, workspace=replace(p.workspace, unreadable=("a\nb",))),
    "path with a NUL": lambda p: replace(p, workspace=replace(p.workspace, unreadable=("a\\x00b",))),
    "upper-case digest": lambda p: replace(p, call=replace(p.call, arguments_digest="A" * 64)),
    "boolean for a number": lambda p: replace(p, call=replace(p.call, attempt=True)),
    "fraction for a number": lambda p: replace(p, call=replace(p.call, attempt=1.5)),
    "no such day": lambda p: replace(p, execution=replace(p.execution, started_on="2026-02-30T00:00:00Z")),
    "time without a zone": lambda p: replace(
        p, execution=replace(p.execution, started_on="2026-02-03T00:00:00")
    ),
    "lone surrogate": lambda p: replace(p, reason="\ud800"),
    "reason too long": lambda p: replace(p, reason="x" * 5000),
    "created without its state": lambda p: replace(
        p, workspace=replace(p.workspace, created=(ChangedEntry("a", ChangeKind.CREATED, None, None),))
    ),
    "list where a tuple belongs": lambda p: replace(p, policy=Policy(restored=["a"])),  # type: ignore[arg-type]
    "modified among the created": lambda p: replace(
        p, workspace=replace(p.workspace, created=(modified("a"),))
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_nothing_malformed_is_ever_written(name: str) -> None:
    with pytest.raises(ReceiptFormError):
        encode_statement(CONTRADICTIONS[name](Ledger().predicate()))


@pytest.mark.parametrize(
    "change",
    [
        lambda key: {"key_id": digest("x")},
        lambda key: {"scheme": "rsa-pkcs1v15-sha256"},
        lambda key: {"public": key.pem + "\n"},
        lambda key: {"public": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"},
    ],
    ids=["key id", "scheme", "PEM in another form", "no key"],
)
def test_a_rotation_to_a_key_that_is_not_what_it_says_is_refused(change: Any) -> None:
    ledger, new = Ledger(), Key()
    good = parse_statement(parse_envelope(ledger.rotate(new)).payload).predicate
    assert isinstance(good, KeyRotationPredicate)
    bad = replace(good, new_key=replace(good.new_key, **change(new.public)))
    with pytest.raises(ReceiptFormError):
        encode_statement(bad)


def test_a_statement_of_another_type_is_refused() -> None:
    payload = reencode(
        encode_statement(Ledger().predicate()), lambda v: v.update(_type="https://in-toto.io/Statement/v0.1")
    )
    with pytest.raises(MalformedReceiptError) as error:
        parse_statement(payload)
    assert error.value.reason == "statement-type"


@pytest.mark.parametrize(
    "subject",
    [
        [],
        [{"name": "workspace", "digest": {"sha256": digest("other")}}],
        [{"name": "workspace-before", "digest": {"sha256": digest("state 1")}}],
        [{"name": "workspace", "digest": {"sha256": digest("state 1")}}] * 2,
        {"name": "workspace"},
        [{"name": "workspace", "digest": {}}],
    ],
    ids=["none", "other digest", "other name", "two", "no list", "no digest"],
)
def test_a_subject_that_is_not_the_predicates_is_refused(subject: Any) -> None:
    payload = reencode(encode_statement(Ledger().predicate()), lambda v: v.update(subject=subject))
    with pytest.raises(MalformedReceiptError) as error:
        parse_statement(payload)
    assert error.value.reason == "subject"


@given(st.binary(min_size=1, max_size=40), st.integers(1, 2**53 - 1), st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_f5_any_name_and_text_survive(raw: bytes, count: int, text: str) -> None:
    path = escape_path(raw.replace(b"/", b"_").replace(b"\0", b"_").strip(b".") or b"x")
    predicate = Ledger().predicate(
        (created(path),),
        reason=text.encode("utf-8", "replace").decode(),
        execution=execution(duration_ns=count),
    )
    assert parse_statement(encode_statement(predicate)).predicate == predicate


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-04T05:06:07Z", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2026-03-04T05:06:07.5Z", datetime(2026, 3, 4, 5, 6, 7, 500_000, tzinfo=UTC)),
        ("2026-03-04T05:06:07.123456789Z", datetime(2026, 3, 4, 5, 6, 7, 123_456, tzinfo=UTC)),
    ],
    ids=["seconds", "tenths", "nanoseconds"],
)
def test_times_are_read_to_the_microsecond(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment


def test_times_are_written_in_utc() -> None:
    assert (
        format_time(datetime(2026, 3, 4, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2))))
        == "2026-03-03T23:02:03.000004Z"
    )
