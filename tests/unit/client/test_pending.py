"""What every store of pending calls must do, run against each engine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from workseal.calls import check_challenge
from workseal.errors import InvalidInputError, InvalidJsonError, ResumeError, StoreError
from workseal.pending import (
    CallOutcome,
    CallResult,
    MemoryPendingCallStore,
    NewCall,
    PendingCallStore,
    ReceiptRef,
    SqlitePendingCallStore,
)
from workseal.tools import UNKNOWN_EXECUTION, ToolExecution

READ = ToolExecution(read_only=True)


def new(call_id: str = "c1", *, turn: str = "t1", arguments: object = '{"command": "true"}') -> NewCall:
    return NewCall(call_id, "bash", arguments, occurrence=turn)


def done(text: str = "ok") -> CallResult:
    return CallResult(
        CallOutcome.COMPLETED, text, b"\x00envelope", ReceiptRef("w", "c", 3, "d" * 64), {"a": [1]}
    )


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PendingCallStore:
    return (
        MemoryPendingCallStore() if request.param == "memory" else SqlitePendingCallStore(tmp_path / "p.db")
    )


async def test_added_calls_are_pending_in_order_with_distinct_challenges(store: PendingCallStore) -> None:
    added = await store.add("s", [new("b"), new("a")])
    assert [call.tool_call_id for call in await store.pending("s")] == ["b", "a"]
    assert [call.sequence for call in added] == [1, 2]
    assert len({check_challenge(call.challenge) for call in added}) == 2
    assert await store.results("s") == ()


async def test_adding_again_gives_the_same_challenge(store: PendingCallStore) -> None:
    first = await store.add("s", [new()])
    assert await store.add("s", [new()]) == first


async def test_adding_a_settled_occurrence_again_does_not_make_it_pending(store: PendingCallStore) -> None:
    (call,) = await store.add("s", [new()])
    await store.settle("s", {call.sequence: done()})
    assert await store.add("s", [new()]) == (call,)
    assert await store.pending("s") == ()


async def test_reused_id_in_a_later_turn_is_another_call(store: PendingCallStore) -> None:
    (first,) = await store.add("s", [new(turn="t1")])
    await store.settle("s", {first.sequence: done("first")})
    (second,) = await store.add("s", [new(turn="t2")])
    assert second.challenge != first.challenge
    assert [call.sequence for call in await store.pending("s")] == [2]
    assert [settled.result.text for settled in await store.results("s")] == ["first"]


async def test_id_that_is_still_pending_is_refused_in_another_turn(store: PendingCallStore) -> None:
    await store.add("s", [new(turn="t1")])
    with pytest.raises(InvalidInputError, match="still pending"):
        await store.add("s", [new("c0", turn="t2"), new(turn="t2")])
    assert [call.tool_call_id for call in await store.pending("s")] == ["c1"]


async def test_abandoned_call_frees_its_id(store: PendingCallStore) -> None:
    (call,) = await store.add("s", [new(turn="t1")])
    await store.abandon("s", [call.sequence, 99])
    assert await store.pending("s") == ()
    (again,) = await store.add("s", [new(turn="t2")])
    assert again.sequence == 2
    with pytest.raises(ResumeError):
        await store.settle("s", {call.sequence: done()})


async def test_abandoning_a_settled_call_changes_nothing(store: PendingCallStore) -> None:
    (call,) = await store.add("s", [new()])
    await store.settle("s", {call.sequence: done()})
    await store.abandon("s", [call.sequence])
    assert [settled.result for settled in await store.results("s")] == [done()]


@pytest.mark.parametrize(
    "other",
    [
        new(arguments='{"command": "false"}'),
        NewCall("c1", "write_file", '{"command": "true"}', occurrence="t1"),
    ],
)
async def test_occurrence_that_names_another_call_is_refused(store: PendingCallStore, other: NewCall) -> None:
    await store.add("s", [new()])
    with pytest.raises(InvalidInputError, match="names another call"):
        await store.add("s", [other])


async def test_one_id_twice_in_a_batch_is_refused(store: PendingCallStore) -> None:
    with pytest.raises(InvalidInputError, match="two calls"):
        await store.add("s", [new(), new(arguments="{}")])
    assert await store.pending("s") == ()


async def test_result_is_read_back_whole(store: PendingCallStore) -> None:
    (call,) = await store.add("s", [new()])
    assert await store.settle("s", {call.sequence: done()}) == (1,)
    (settled,) = await store.results("s")
    assert (settled.call, settled.result) == (call, done())


async def test_f25_stored_result_is_never_replaced(store: PendingCallStore) -> None:
    (call,) = await store.add("s", [new()])
    await store.settle("s", {call.sequence: done("first")})
    assert await store.settle("s", {call.sequence: done("second")}) == ()
    assert [settled.result.text for settled in await store.results("s")] == ["first"]


async def test_settling_is_all_or_nothing(store: PendingCallStore) -> None:
    await store.add("s", [new("a"), new("b")])
    with pytest.raises(ResumeError):
        await store.settle("s", {1: done(), 7: done()})
    assert len(await store.pending("s")) == 2
    assert await store.results("s") == ()


async def test_sessions_do_not_see_each_other(store: PendingCallStore) -> None:
    await store.add("s", [new()])
    assert await store.pending("other") == ()
    with pytest.raises(ResumeError):
        await store.settle("other", {1: done()})


async def test_concurrent_adds_of_one_call_agree(store: PendingCallStore) -> None:
    added = await asyncio.gather(*(store.add("s", [new()]) for _ in range(8)))
    assert len({calls[0].challenge for calls in added}) == 1


async def test_declaration_is_kept(store: PendingCallStore) -> None:
    await store.add("s", [NewCall("a", "read_file", "{}", occurrence="t1", execution=READ), new("b")])
    assert [call.execution for call in await store.pending("s")] == [READ, UNKNOWN_EXECUTION]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"n": 9007199254740993}', id="integer-beyond-2^53"),
        pytest.param({"n": 2**60}, id="integer-beyond-2^53-as-value"),
        pytest.param('{"a": 1, "a": 2}', id="duplicate-key"),
        pytest.param('{"a": NaN}', id="nan"),
        pytest.param('{"a": "\ud800"}', id="lone-surrogate"),
        pytest.param({"a": "\ud800"}, id="lone-surrogate-as-value"),
        pytest.param('{"command": "tru', id="cut-off"),
        pytest.param("[]", id="no-object"),
        pytest.param("", id="empty"),
        pytest.param({"a": b"bytes"}, id="no-json-value"),
        pytest.param(None, id="null"),
    ],
)
async def test_arguments_that_cannot_be_sent_are_stored_all_the_same(
    store: PendingCallStore, arguments: object
) -> None:
    (call,) = await store.add("s", [new(arguments=arguments)])
    assert await store.add("s", [new(arguments=arguments)]) == (call,)
    with pytest.raises(InvalidJsonError):
        call.to_tool_call()


@pytest.mark.parametrize("field", ["occurrence", "tool_call_id", "tool"])
async def test_text_that_cannot_be_stored_is_refused(store: PendingCallStore, field: str) -> None:
    values = {"occurrence": "t", "tool_call_id": "c", "tool": "bash", "arguments": "{}"} | {field: "\ud800"}
    with pytest.raises(InvalidInputError) as caught:
        await store.add("s", [NewCall(**values)])
    assert caught.value.field == field


async def test_sqlite_survives_the_process_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    before = os.umask(0)
    try:
        (call,) = await SqlitePendingCallStore(path).add("s", [new()])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await SqlitePendingCallStore(path).pending("s") == (call,)


async def test_sqlite_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "p.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="newer Workseal"):
        await SqlitePendingCallStore(tmp_path / "p.db").pending("s")


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to be one" * 100)


def _directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [_garbage, _directory])
async def test_sqlite_that_cannot_be_read_is_a_store_error(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(tmp_path / "p.db")
    with pytest.raises(StoreError):
        await SqlitePendingCallStore(tmp_path / "p.db").pending("s")


@pytest.mark.parametrize("column", ["execution_json", "result_json"])
async def test_sqlite_with_a_malformed_row_is_a_store_error(tmp_path: Path, column: str) -> None:
    store = SqlitePendingCallStore(tmp_path / "p.db")
    (call,) = await store.add("s", [new()])
    await store.settle("s", {call.sequence: done()})
    with sqlite3.connect(tmp_path / "p.db") as db:
        db.execute("DROP TRIGGER settled_is_final")
        db.execute(f"UPDATE calls SET {column} = '{{}}x'")
    db.close()
    with pytest.raises(StoreError, match="malformed"):
        await store.results("s")


async def test_sqlite_itself_refuses_to_replace_a_result(tmp_path: Path) -> None:
    store = SqlitePendingCallStore(tmp_path / "p.db")
    (call,) = await store.add("s", [new()])
    await store.settle("s", {call.sequence: done()})
    with sqlite3.connect(tmp_path / "p.db") as db, pytest.raises(sqlite3.IntegrityError, match="final"):
        db.execute("UPDATE calls SET result_json = '{}'")
    db.close()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ('{"a": 1, "b": "\\u00e4"}', {"b": "ä", "a": 1}),
        ({"a": 1}, '{"a":1}'),
        ('{"n": 1.0}', {"n": 1}),
    ],
    ids=["text then value", "value then text", "numbers"],
)
async def test_the_same_arguments_in_another_form_are_the_same_call(
    store: PendingCallStore, first: object, again: object
) -> None:
    stored = await store.add("s", [new(arguments=first)])
    assert await store.add("s", [new(arguments=again)]) == stored


@pytest.mark.parametrize("again", ['{"a": 1, "a": 2}', '{"a": 2}', "no json"])
async def test_other_arguments_of_one_occurrence_are_refused(store: PendingCallStore, again: str) -> None:
    await store.add("s", [new(arguments='{"a": 1}')])
    with pytest.raises(InvalidInputError, match="names another call"):
        await store.add("s", [new(arguments=again)])
