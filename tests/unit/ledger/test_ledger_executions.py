"""Claims, the states of an execution, and the chain, in a real SQLite file."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from ledger_kit import Reopen, claim, in_flight, receipt, run, state, tree

from workseal_host.errors import KeyConflictError, LedgerError, NotFoundError, StateError
from workseal_host.ledger.sqlite import SqliteLedger
from workseal_host.ledger.states import ExecutionState, check_transition

LEGAL = {
    ("received", "in_flight"),
    ("received", "refused"),
    ("received", "abandoned"),
    ("in_flight", "committed"),
    ("in_flight", "in_doubt"),
    ("in_flight", "expired"),
    ("in_flight", "refused"),
}


@pytest.mark.parametrize("pair", list(itertools.product(ExecutionState, ExecutionState)), ids="-".join)
def test_only_the_listed_transitions_are_legal(pair: tuple[ExecutionState, ExecutionState]) -> None:
    if pair in LEGAL:
        check_transition(*pair)
    else:
        with pytest.raises(StateError):
            check_transition(*pair)


async def test_a_key_is_claimed_once(ledger: SqliteLedger) -> None:
    found = await asyncio.gather(*(ledger.claim(claim(str(number))) for number in range(20)))
    assert sum(is_new for _, is_new in found) == 1
    assert len({row.execution_id for row, _ in found}) == 1


async def test_another_request_under_the_same_key_is_refused(ledger: SqliteLedger) -> None:
    await ledger.claim(claim("1"))
    with pytest.raises(KeyConflictError):
        await ledger.claim(claim("2", request="another"))
    assert len(await ledger.unsettled()) == 1


@pytest.mark.parametrize("end", ["abandoned", "refused"])
async def test_a_key_that_was_not_used_is_free_again(ledger: SqliteLedger, end: str) -> None:
    await ledger.claim(claim("1"))
    if end == "abandoned":
        await ledger.abandon("execution-1")
    else:
        await ledger.settle("execution-1", ExecutionState.REFUSED, receipt(1), None)
    row, is_new = await ledger.claim(claim("2", request="another"))
    assert is_new
    assert row.attempt == 2


@pytest.mark.parametrize("end", [ExecutionState.COMMITTED, ExecutionState.IN_DOUBT, ExecutionState.EXPIRED])
async def test_a_key_that_was_used_stays_taken(ledger: SqliteLedger, end: ExecutionState) -> None:
    await ledger.claim(claim("1"))
    await ledger.mark_in_flight("execution-1", in_flight(tree()), [tree()])
    await ledger.settle("execution-1", end, receipt(1), None)
    row, is_new = await ledger.claim(claim("2"))
    assert (is_new, row.execution_id, row.state) == (False, "execution-1", end)


async def test_an_illegal_move_leaves_no_receipt(ledger: SqliteLedger) -> None:
    await ledger.claim(claim("1"))
    with pytest.raises(StateError):
        await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1), None)
    assert (await ledger.head()).sequence == 0
    assert [row.state for row in await ledger.unsettled()] == [ExecutionState.RECEIVED]


async def test_the_record_of_a_call_in_flight_is_durable(ledger: SqliteLedger, reopen: Reopen) -> None:
    before = tree(f=b"1")
    await ledger.claim(claim("1"))
    await ledger.mark_in_flight("execution-1", in_flight(before), [before, tree(g=b"2")])
    await ledger.close()
    again = await reopen()
    (row,) = await again.unsettled()
    assert row.in_flight == in_flight(before)
    assert await again.load_tree(before.digest) == before
    assert await again.load_tree(tree(g=b"2").digest) == tree(g=b"2")


async def test_a_receipt_does_not_follow_with_a_gap(ledger: SqliteLedger) -> None:
    await run(ledger, 1)
    with pytest.raises(LedgerError):
        await ledger.append(receipt(3, name="2"))
    assert (await ledger.head()).sequence == 1


async def test_the_head_says_what_the_newest_call_left(ledger: SqliteLedger) -> None:
    after = tree(f=b"1")
    await run(ledger, 1, of=after)
    rotation = receipt(2, name="rotation")
    await ledger.append(type(rotation)(2, "e" * 64, b"envelope", "new-key", "key-rotation"))
    head = await ledger.head()
    assert (head.sequence, head.key_id, head.state, head.state_sequence) == (2, "new-key", state(after), 1)


async def test_a_call_whose_end_was_not_seen_leaves_no_state(ledger: SqliteLedger) -> None:
    await run(ledger, 1)
    await ledger.claim(claim("2", key="key-2"))
    await ledger.mark_in_flight("execution-2", in_flight(tree()), [tree()])
    await ledger.settle("execution-2", ExecutionState.IN_DOUBT, receipt(2, name="2"), None)
    head = await ledger.head()
    assert (head.state, head.state_sequence) == (None, 2)


async def test_receipts_are_found_in_every_way(ledger: SqliteLedger) -> None:
    await run(ledger, 1)
    wanted = receipt(1)
    found = [
        await ledger.receipt(sequence=1),
        await ledger.receipt(payload_digest=wanted.payload_digest),
        await ledger.receipt(execution_id="execution-1"),
        await ledger.receipt(idempotency_key="key-1"),
    ]
    assert {row.envelope for row in found} == {wanted.envelope}
    assert await ledger.output(found[0]) == wanted.output


@pytest.mark.parametrize(
    "by",
    [{"sequence": 9}, {"payload_digest": "0" * 64}, {"execution_id": "none"}, {"idempotency_key": "none"}],
    ids=lambda by: next(iter(by)),
)
async def test_what_is_not_there_is_not_found(ledger: SqliteLedger, by: dict[str, object]) -> None:
    with pytest.raises(NotFoundError):
        await ledger.receipt(**by)  # type: ignore[arg-type]


async def test_receipts_are_listed_in_order_by_page_and_session(ledger: SqliteLedger) -> None:
    for number in range(1, 5):
        await run(ledger, number, name=str(number))
    pages = [await ledger.receipts(after_sequence=after, limit=3) for after in (0, 3)]
    assert [[row.sequence for row in page] for page in pages] == [[1, 2, 3], [4]]
    assert not await ledger.receipts(after_sequence=0, limit=3, session_id="another")


async def test_a_long_change_list_comes_back_in_pieces(ledger: SqliteLedger) -> None:
    await ledger.claim(claim("1"))
    await ledger.mark_in_flight("execution-1", in_flight(tree()), [tree()])
    lines = b"x" * (3 << 20)
    row = await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, changes=lines), None)
    pieces = [piece async for piece in ledger.changes(row)]
    assert b"".join(pieces) == lines
    assert len(pieces) == 3
