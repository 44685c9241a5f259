"""All of a transaction or nothing, seen by nobody before it is durable, whoever goes away meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ledger_kit import Reopen, claim, in_flight, receipt, run, tree

from workseal_host.errors import LedgerError, NotFoundError
from workseal_host.ledger.database import Connection
from workseal_host.ledger.sqlite import SqliteLedger
from workseal_host.ledger.states import ExecutionState
from workseal_host.workspace.model import Directory


async def test_commits_reach_the_disk_before_they_return(ledger: SqliteLedger) -> None:
    async def pragmas(db: Connection) -> list[Any]:
        return [
            (await db.one(f"PRAGMA {name}"))[0] for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    # synchronous=2 is FULL: in WAL mode every commit syncs the log.
    assert await ledger._db.atomically("test", pragmas) == ["wal", 2, 1]


async def test_nobody_sees_a_receipt_before_it_is_committed(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.claim(claim("1"))
    await ledger.mark_in_flight("execution-1", in_flight(tree()), [tree()])
    stored, go_on = asyncio.Event(), asyncio.Event()

    async def pause(*_: object) -> set[bytes]:
        stored.set()
        await go_on.wait()
        return set()

    monkeypatch.setattr(ledger._trees, "store", pause)
    settling = asyncio.ensure_future(
        ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, of=tree()), tree())
    )
    await stored.wait()
    try:
        assert await ledger.receipts(after_sequence=0, limit=10) == []
        assert (await ledger.head()).sequence == 0
        assert (await ledger.execution(execution_id="execution-1")).state is ExecutionState.IN_FLIGHT
        with pytest.raises(NotFoundError):
            await ledger.receipt(sequence=1)
    finally:
        go_on.set()
        await settling
    assert (await ledger.head()).sequence == 1


@pytest.mark.parametrize("steps", range(10))
async def test_a_cancelled_caller_leaves_no_transaction_open(ledger: SqliteLedger, steps: int) -> None:
    claiming = asyncio.ensure_future(ledger.claim(claim("1")))
    for _ in range(steps):
        await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    await run(ledger, 1, name="2")
    assert (await ledger.head()).sequence == 1


async def test_a_failure_half_way_leaves_nothing(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.claim(claim("1"))
    before = tree(f=b"1")
    await ledger.mark_in_flight("execution-1", in_flight(before), [before])

    async def fail(*_: object) -> set[bytes]:
        raise LedgerError("in the middle")

    after = tree(f=b"2")
    with monkeypatch.context() as patched:
        patched.setattr(ledger._trees, "store", fail)
        with pytest.raises(LedgerError):
            await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, of=after), after)
    assert (await ledger.head()).sequence == 0
    await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, of=after), after)
    assert await ledger.load_tree(after.digest) == after


async def test_a_tree_of_a_transaction_that_failed_is_not_taken_for_stored(
    ledger: SqliteLedger, reopen: Reopen
) -> None:
    after = tree(f=b"2")
    await ledger.claim(claim("1"))
    await ledger.mark_in_flight("execution-1", in_flight(tree()), [tree()])
    with pytest.raises(LedgerError):
        # The sequence does not fit, and is found out... after the tree would have been noted.
        await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(7, of=after), after)
    await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, of=after), after)
    await ledger.close()
    again = await reopen()
    assert await again.load_tree(after.digest) == after


async def _limit(ledger: SqliteLedger, pages: int | None) -> None:
    async def limit(db: Connection) -> None:
        used = (await db.one("PRAGMA page_count"))[0]
        await db.one(f"PRAGMA max_page_count = {used + pages if pages is not None else 1 << 30}")

    await ledger._db.atomically("test", limit)


async def _write(ledger: SqliteLedger, step: str, big: Directory) -> None:
    match step:
        case "claim":
            for number in range(1000):
                await ledger.claim(claim(str(number), key=f"key-{number}"))
        case "mark":
            await ledger.mark_in_flight("execution-1", in_flight(big), [big])
        case _:
            await ledger.settle("execution-1", ExecutionState.COMMITTED, receipt(1, of=big), big)


@pytest.mark.parametrize("step", ["claim", "mark", "settle"])
async def test_a_full_disk_is_an_error_and_nothing_is_lost(ledger: SqliteLedger, step: str) -> None:
    big = tree(**{f"file-{number}": b"x" for number in range(20_000)})
    if step != "claim":
        await ledger.claim(claim("1"))
    if step == "settle":
        await ledger.mark_in_flight("execution-1", in_flight(tree()), [tree()])
    await _limit(ledger, 0)
    with pytest.raises(LedgerError, match="disk is full"):
        await _write(ledger, step, big)
    assert (await ledger.head()).sequence == 0
    await _limit(ledger, None)
    await run(ledger, 1, name="after")
    assert (await ledger.head()).sequence == 1
