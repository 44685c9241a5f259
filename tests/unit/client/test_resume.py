"""Pending calls in, receipts in, verified results out; or nothing changes at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from resume_kit import READ, Kit, new

from fakes.host import WORKSPACE_ID
from fakes.signing import SigningKey, refused, state_digest, without_changes
from workseal.errors import InvalidInputError, NotVerifiedError, ResumeError, StoreError
from workseal.pending import CallOutcome, CallResult, NewCall
from workseal.receipt.predicate import (
    Mode,
    Outcome,
    OutsideChanges,
    Policy,
    PolicyViolation,
    ToolExecutionPredicate,
    Verification,
    VerificationStatus,
)
from workseal.results import HostResult
from workseal.resume import NotRun, RawResult, ResumeTerms, SignedResult
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution


@pytest.fixture
def kit() -> Kit:
    return Kit()


async def test_verified_result_is_stored(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call)
    resumed = await kit.resume({"c1": answer})
    result = resumed.by_call_id["c1"]
    assert (result.outcome, result.text, result.is_error) == (CallOutcome.COMPLETED, "done\n", False)
    assert result.envelope == answer.envelope
    assert result.receipt is not None
    assert (result.receipt.workspace_id, result.receipt.sequence) == (WORKSPACE_ID, 1)
    assert await kit.store.pending("s") == ()
    head = kit.record.head(WORKSPACE_ID)
    assert head is not None
    assert head.payload_digest == result.receipt.payload_digest


async def test_plain_form_carries_the_receipts_reference(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    result = (await kit.resume({"c1": kit.answer(call)})).by_call_id["c1"]
    assert result.receipt is not None
    assert result.receipt.payload_digest in result.plain["artifact_ref"]
    assert result.plain["workspace"]["created"] == ["file1"]
    assert result.plain["attestation"] == result.envelope.decode()  # type: ignore[union-attr]


async def test_host_results_are_taken_as_they_are(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call)
    resumed = await kit.resume({"c1": HostResult(answer.envelope, 1, result=b"done\n")})
    assert resumed.by_call_id["c1"].is_verified


async def test_several_receipts_are_verified_in_chain_order_whatever_their_order_here(kit: Kit) -> None:
    (earlier,) = await kit.add(new("c0"))
    await kit.resume({"c0": kit.answer(earlier)})
    first, second, third = await kit.add(new("c1"), new("c2"), new("c3"))
    answers = {call.tool_call_id: kit.answer(call) for call in (third, first, second)}
    resumed = await kit.resume(answers)
    assert [settled.tool_call_id for settled in resumed.results] == ["c1", "c2", "c3"]
    assert [settled.result.receipt.sequence for settled in resumed.results] == [3, 4, 2]  # type: ignore[union-attr]


async def test_f25_wrong_kind_of_result_clears_nothing(kit: Kit) -> None:
    await kit.add(new("c1"), new("c2"))
    for wrong in (True, {"approved": True}, "done", b"x", None, CallResult(CallOutcome.COMPLETED, "x")):
        with pytest.raises(ResumeError) as caught:
            await kit.resume({"c2": wrong})
        assert caught.value.tool_call_ids == ("c2",)
    assert await kit.untouched("c1", "c2")


async def test_f25_settled_calls_are_neither_required_nor_refused(kit: Kit) -> None:
    first, second, third = await kit.add(new("c1"), new("c2"), new("c3"))
    await kit.store.settle("s", {third.sequence: CallResult(CallOutcome.RAW, "local")})
    resumed = await kit.resume({"c1": kit.answer(first), "c2": kit.answer(second)})
    assert list(resumed.by_call_id) == ["c1", "c2"]
    assert [settled.result.text for settled in resumed.earlier] == ["local"]


async def test_f25_replayed_result_never_overwrites_a_stored_one(kit: Kit) -> None:
    first, second = await kit.add(new("c1"), new("c2"))
    await kit.store.settle("s", {first.sequence: CallResult(CallOutcome.RAW, "newer")})
    await kit.resume({"c1": RawResult("older"), "c2": kit.answer(second)})
    assert [settled.result.text for settled in await kit.store.results("s")] == ["newer", "done\n"]


async def test_resume_without_pending_calls_changes_nothing(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call)
    first = await kit.resume({"c1": answer})
    again = await kit.resume({"c1": answer})
    assert again.results == ()
    assert again.earlier == first.results


async def test_result_of_an_unknown_call_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    with pytest.raises(ResumeError, match="never made") as caught:
        await kit.resume({"c1": kit.answer(call), "c9": RawResult("x")})
    assert caught.value.tool_call_ids == ("c9",)
    assert await kit.untouched("c1")


async def test_missing_result_changes_nothing(kit: Kit) -> None:
    first, _ = await kit.add(new("c1"), new("c2"))
    with pytest.raises(ResumeError) as caught:
        await kit.resume({"c1": kit.answer(first)})
    assert caught.value.tool_call_ids == ("c2",)
    assert await kit.untouched("c1", "c2")


@pytest.mark.parametrize(
    ("stored", "declared", "accepted"),
    [
        pytest.param(READ, None, True, id="stored-read-only"),
        pytest.param(READ, {"write_file": READ}, True, id="both-read-only"),
        pytest.param(UNKNOWN_EXECUTION, None, False, id="undeclared"),
        pytest.param(ToolExecution(), None, False, id="nothing-said"),
        pytest.param(ToolExecution(mutates_workspace=True), None, False, id="mutating"),
        pytest.param(UNKNOWN_EXECUTION, {"write_file": READ}, False, id="only-now-read-only"),
        pytest.param(READ, {}, False, id="no-longer-declared"),
        pytest.param(READ, {"write_file": UNKNOWN_EXECUTION}, False, id="no-longer-read-only"),
        pytest.param(ToolExecution(read_only=True, mutates_workspace=True), None, False, id="contradiction"),
    ],
)
async def test_raw_result_only_for_declared_read_only(
    kit: Kit,
    stored: ToolExecution,
    declared: dict[str, ToolExecution] | None,
    accepted: bool,
) -> None:
    await kit.add(new("c1", execution=stored))
    if accepted:
        result = (await kit.resume({"c1": RawResult("x")}, declarations=declared)).by_call_id["c1"]
        assert (result.outcome, result.text, result.is_verified) == (CallOutcome.RAW, "x", False)
        return
    with pytest.raises(ResumeError, match="read-only"):
        await kit.resume({"c1": RawResult("x")}, declarations=declared)
    assert await kit.untouched("c1")


async def test_one_bad_receipt_among_good_ones_leaves_no_trace(kit: Kit) -> None:
    first, second = await kit.add(new("c1"), new("c2"))
    good = kit.answer(first)
    bad = kit.answer(second)
    forged = replace(bad, envelope=bad.envelope.replace(b'"sig":"', b'"sig":"AAAA'))
    with pytest.raises(NotVerifiedError):
        await kit.resume({"c1": good, "c2": forged})
    assert await kit.untouched("c1", "c2")
    resumed = await kit.resume({"c1": good, "c2": bad})
    assert all(settled.result.is_verified for settled in resumed.results)


async def test_swapped_receipts_are_refused(kit: Kit) -> None:
    first, second = await kit.add(new("c1"), new("c2"))
    one, two = kit.answer(first), kit.answer(second)
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": two, "c2": one})
    assert caught.value.check == "call"
    assert await kit.untouched("c1", "c2")


async def test_result_that_was_not_signed_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": replace(kit.answer(call), result=b"other")})
    assert caught.value.check == "result"
    assert await kit.untouched("c1")


async def test_receipt_of_an_earlier_occurrence_is_refused(kit: Kit) -> None:
    (first,) = await kit.add(new("c1", turn="t1"))
    old = kit.answer(first)
    await kit.resume({"c1": old})
    await kit.add(new("c1", turn="t2"))
    with pytest.raises(NotVerifiedError):
        await kit.resume({"c1": old})
    assert [call.sequence for call in await kit.store.pending("s")] == [2]


async def test_f40_receipt_of_another_session_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    await kit.add(new("c1"), session="other")
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": kit.answer(call)}, session="other")
    assert caught.value.reason == "other-session"
    assert await kit.untouched("c1", session="other")


async def test_f40_receipt_twice_is_refused(kit: Kit) -> None:
    first, _ = await kit.add(new("c1"), new("c2"))
    answer = kit.answer(first)
    with pytest.raises(NotVerifiedError):
        await kit.resume({"c1": answer, "c2": answer})
    assert await kit.untouched("c1", "c2")


async def test_f40_receipt_of_another_workspace_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    kit.signer.workspace_id = "f" * 32
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": kit.answer(call)})
    assert caught.value.reason == "other-workspace"
    assert await kit.untouched("c1")


async def test_f40_receipt_too_old_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume(
            {"c1": kit.answer(call)}, terms=ResumeTerms(workspace_id=WORKSPACE_ID, max_age_s=0.5)
        )
    assert caught.value.check == "age"
    assert await kit.untouched("c1")


async def test_f40_receipt_of_a_workspace_in_another_state_is_refused(kit: Kit) -> None:
    (first,) = await kit.add(new("c1"))
    await kit.resume({"c1": kit.answer(first)})
    (second,) = await kit.add(new("c2", turn="t2"))
    moved = kit.answer(second, lambda p: replace(p, workspace=replace(p.workspace, before=state_digest(77))))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c2": moved})
    assert caught.value.check == "before"
    assert len(await kit.store.pending("s")) == 1


async def test_f40_receipt_by_a_key_that_is_not_pinned_is_refused(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    kit.signer.key = SigningKey()
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": kit.answer(call)})
    assert caught.value.check == "signature"
    assert await kit.untouched("c1")


async def test_idempotency_key_is_bound_too(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call, lambda p: replace(p, call=replace(p.call, idempotency_key="0" * 64)))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": answer})
    assert caught.value.reason == "other-idempotency-key"


async def test_strict_needs_the_expected_workspace_and_follows_it(kit: Kit) -> None:
    first, second = await kit.add(new("c1"), new("c2"))
    answers = {"c1": kit.answer(first), "c2": kit.answer(second)}
    strict = ResumeTerms(workspace_id=WORKSPACE_ID, before_mode="strict", before_digest=state_digest(9))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume(answers, terms=strict)
    assert caught.value.check == "before"
    assert await kit.untouched("c1", "c2")
    await kit.resume(answers, terms=replace(strict, before_digest=state_digest(0)))
    assert await kit.store.pending("s") == ()


async def test_receipts_in_between_are_taken_along(kit: Kit) -> None:
    first, second, third = await kit.add(new("c1"), new("c2"), new("c3"), session="a")
    await kit.resume({call.tool_call_id: kit.answer(call) for call in (first, second, third)}, session="a")
    (foreign,) = await Kit(signer=kit.signer).add(new("x"), session="b")
    between = kit.answer(foreign).envelope
    (mine,) = await kit.add(new("c4", turn="t2"), session="a")
    answer = kit.answer(mine)
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c4": answer}, session="a")
    assert (caught.value.check, caught.value.reason) == ("before", "gap")
    resumed = await kit.resume({"c4": replace(answer, between=(between,))}, session="a")
    assert resumed.by_call_id["c4"].is_verified


async def test_receipts_in_between_may_hold_those_of_the_batch_itself(kit: Kit) -> None:
    (earlier,) = await kit.add(new("c0"))
    await kit.resume({"c0": kit.answer(earlier)})
    first, second = await kit.add(new("c1"), new("c2"))
    one, two = kit.answer(first), kit.answer(second)
    resumed = await kit.resume({"c1": one, "c2": replace(two, between=(one.envelope,))})
    assert len(resumed.results) == 2


@pytest.mark.parametrize("between", [b"", b"{}", b"\xff"])
async def test_malformed_receipt_in_between_is_refused(kit: Kit, between: bytes) -> None:
    (call,) = await kit.add(new("c1"))
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": replace(kit.answer(call), between=(between,))})
    assert caught.value.check == "form"
    assert await kit.untouched("c1")


def _doubt(outcome: Outcome):  # type: ignore[no-untyped-def]
    def change(predicate: ToolExecutionPredicate) -> ToolExecutionPredicate:
        execution = predicate.execution and replace(predicate.execution, result=None, exit_code=None)
        return replace(predicate, outcome=outcome, reason="crash", execution=execution)

    return change


@pytest.mark.parametrize(
    ("change", "result", "outcome", "words"),
    [
        pytest.param(refused, None, CallOutcome.REFUSED, "Not run", id="refused"),
        pytest.param(_doubt(Outcome.IN_DOUBT), None, CallOutcome.IN_DOUBT, "Unknown", id="in-doubt"),
        pytest.param(
            lambda p: replace(p, policy=Policy(violations=(PolicyViolation("opencode.json", "protected"),))),
            b"done\n",
            CallOutcome.FAILED,
            "opencode.json",
            id="forbidden-change",
        ),
        pytest.param(
            lambda p: replace(p, verification=Verification(VerificationStatus.FAILED, "file1 is gone")),
            b"done\n",
            CallOutcome.FAILED,
            "file1 is gone",
            id="verification-failed",
        ),
    ],
)
async def test_what_is_not_done_reads_as_an_error(
    kit: Kit, change: object, result: bytes | None, outcome: CallOutcome, words: str
) -> None:
    (call,) = await kit.add(new("c1"))
    answer = replace(kit.answer(call, change), result=result)  # type: ignore[arg-type]
    stored = (await kit.resume({"c1": answer})).by_call_id["c1"]
    assert (stored.outcome, stored.is_error, stored.is_verified) == (outcome, True, True)
    assert stored.text.startswith("[workseal] ")
    assert words in stored.text
    assert stored.plain["result"] == stored.text
    assert await kit.store.pending("s") == ()


async def test_in_doubt_lists_what_was_seen(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = replace(kit.answer(call, _doubt(Outcome.IN_DOUBT)), result=None)
    text = (await kit.resume({"c1": answer})).by_call_id["c1"].text
    assert "1 change was seen: file1." in text
    assert "do not take it as done" in text


async def test_expired_observation_reads_as_unknown(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))

    def change(predicate: ToolExecutionPredicate) -> ToolExecutionPredicate:
        expired = _doubt(Outcome.EXPIRED)(without_changes(predicate))
        return replace(expired, execution=replace(expired.execution, mode=Mode.OBSERVED))

    answer = replace(kit.answer(call, change), result=None)
    terms = ResumeTerms(workspace_id=WORKSPACE_ID, observed_tools=frozenset({"write_file"}))
    result = (await kit.resume({"c1": answer}, terms=terms)).by_call_id["c1"]
    assert result.outcome is CallOutcome.EXPIRED
    assert "No change was seen." in result.text


def _observed(predicate: ToolExecutionPredicate) -> ToolExecutionPredicate:
    assert predicate.execution is not None
    return replace(predicate, execution=replace(predicate.execution, mode=Mode.OBSERVED))


async def test_observed_only_where_the_tool_allows_it_and_marked_as_a_claim(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call, _observed)
    with pytest.raises(NotVerifiedError) as caught:
        await kit.resume({"c1": answer})
    assert caught.value.reason == "mode"
    terms = ResumeTerms(workspace_id=WORKSPACE_ID, observed_tools=frozenset({"write_file"}))
    assert (await kit.resume({"c1": answer}, terms=terms)).by_call_id["c1"].is_claim


async def test_outside_changes_are_handed_on(kit: Kit) -> None:
    (first,) = await kit.add(new("c1"))
    await kit.resume({"c1": kit.answer(first)})
    (second,) = await kit.add(new("c2", turn="t2"))
    outside = OutsideChanges(modified=("notes.md",))
    answer = kit.answer(
        second,
        lambda p: replace(
            p, workspace=replace(p.workspace, before=state_digest(77), outside_changes=outside)
        ),
    )
    result = (await kit.resume({"c2": answer})).by_call_id["c2"]
    assert result.plain["workspace"]["before_digest"] == state_digest(77)


@pytest.mark.parametrize("arguments", ['{"n": 9007199254740993}', "{", "[]", {"b": b"x"}])
async def test_call_that_cannot_be_sent_never_leaves_a_session_stuck(kit: Kit, arguments: object) -> None:
    _, good = await kit.add(NewCall("c1", "write_file", arguments, occurrence="t1"), new("c2"))
    resumed = await kit.resume({"c2": kit.answer(good)})
    result = resumed.by_call_id["c1"]
    assert (result.outcome, result.is_error, result.is_verified) == (CallOutcome.NOT_RUN, True, False)
    assert result.text.startswith("[workseal] Not run: the call could not be sent")


async def test_receipt_for_a_call_that_cannot_be_sent_is_refused(kit: Kit) -> None:
    _, other = await kit.add(NewCall("c1", "write_file", "{", occurrence="t1"), new("c2"))
    answer = kit.answer(other)
    with pytest.raises(ResumeError, match="cannot have been sent"):
        await kit.resume({"c1": answer, "c2": answer})
    assert await kit.untouched("c1", "c2")


async def test_not_run_reaches_the_model_as_an_error(kit: Kit) -> None:
    await kit.add(new("c1"))
    result = (await kit.resume({"c1": NotRun("the tool is gone")})).by_call_id["c1"]
    assert result.text == "[workseal] Not run: the tool is gone"
    assert result.is_error


async def test_crash_between_record_and_results_can_be_resumed(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call)
    settle = kit.store.settle

    async def crash(*_: object) -> tuple[int, ...]:
        raise StoreError("disk full")

    kit.store.settle = crash  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreError):
        await kit.resume({"c1": answer})
    assert kit.record.head(WORKSPACE_ID) is not None
    assert len(await kit.store.pending("s")) == 1
    kit.store.settle = settle  # type: ignore[method-assign]
    assert (await kit.resume({"c1": answer})).by_call_id["c1"].is_verified


async def test_store_that_loses_results_is_found_out(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))

    async def lose(*_: object) -> tuple[int, ...]:
        return (1,)

    kit.store.settle = lose  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreError, match="lost"):
        await kit.resume({"c1": kit.answer(call)})


async def test_faster_process_wins_and_its_result_is_returned(kit: Kit) -> None:
    (call,) = await kit.add(new("c1"))
    answer = kit.answer(call)
    pending = kit.store.pending

    async def overtaken(session_id: str):  # type: ignore[no-untyped-def]
        calls = await pending(session_id)
        await kit.store.settle("s", {call.sequence: CallResult(CallOutcome.RAW, "theirs")})
        return calls

    kit.store.pending = overtaken  # type: ignore[method-assign]
    assert (await kit.resume({"c1": answer})).by_call_id["c1"].text == "theirs"


async def test_malformed_receipts_end_in_one_error(kit: Kit) -> None:
    await kit.add(new("c1"))
    for envelope in (b"", b"{}", b"\xff", b"null", b'{"payload":"e30=","payloadType":"x","signatures":[]}'):
        with pytest.raises(NotVerifiedError) as caught:
            await kit.resume({"c1": SignedResult(envelope, b"")})
        assert caught.value.check == "form"
    assert await kit.untouched("c1")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SignedResult("{}"), "envelope"),  # type: ignore[arg-type]
        (lambda: SignedResult(b"{}", "text"), "result"),  # type: ignore[arg-type]
        (lambda: SignedResult(b"{}", b"", b"{}"), "between"),  # type: ignore[arg-type]
        (lambda: SignedResult(b"{}", b"", ("{}",)), "between"),  # type: ignore[arg-type]
        (lambda: HostResult("{}", 1), "envelope"),  # type: ignore[arg-type]
        (lambda: HostResult(b"{}", 1, result="text"), "result"),  # type: ignore[arg-type]
        (lambda: RawResult(b"text"), "text"),  # type: ignore[arg-type]
    ],
    ids=["envelope", "result", "between", "in between", "host envelope", "host result", "raw"],
)
def test_what_is_not_bytes_or_text_is_refused_when_it_is_made(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        make()
    assert refused.value.field == field
