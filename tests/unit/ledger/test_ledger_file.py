"""The file itself: new, old, foreign, damaged, restored, and who may read it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_kit import Reopen, receipt, run, tree

from workseal_host.errors import LedgerError, NotFoundError
from workseal_host.ledger.schema import MIGRATIONS
from workseal_host.ledger.sqlite import SqliteLedger
from workseal_host.workspace.model import Directory


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def test_only_the_owner_may_read_the_files(ledger: SqliteLedger, path: Path) -> None:
    await run(ledger, 1)
    files = [*path.parent.glob("ledger*"), path.with_name("head.json")]
    assert len(files) == 4
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files} == {0}


async def test_what_was_written_is_there_the_next_time(ledger: SqliteLedger, reopen: Reopen) -> None:
    await run(ledger, 1)
    await ledger.close()
    again = await reopen()
    assert again.chain_id == ledger.chain_id
    assert (await again.receipt(sequence=1)).envelope == receipt(1).envelope


async def test_many_openings_of_a_new_ledger_make_one_chain(reopen: Reopen) -> None:
    # One after another here; the lock of the workspace keeps hosts apart.
    chains = set()
    for _ in range(3):
        ledger = await reopen()
        chains.add(ledger.chain_id)
        await ledger.close()
    assert len(chains) == 1


def newer(path: Path) -> None:
    execute(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


def foreign(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE notes (body TEXT)")


def foreign_with_a_version(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE notes (body TEXT)", "PRAGMA user_version = 1")


def no_database(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (newer, "upgrade Workseal"),
        (foreign, "no Workseal ledger"),
        (foreign_with_a_version, "no Workseal ledger"),
        (no_database, "keys forget"),
        (cut_off, "keys forget"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_file_that_cannot_be_used_says_what_to_do(
    ledger: SqliteLedger, path: Path, damage: Callable[[Path], None], says: str
) -> None:
    await run(ledger, 1)
    await ledger.close()
    damage(path)
    content = path.read_bytes()
    with pytest.raises(LedgerError, match=says):
        await SqliteLedger.open(path)
    assert path.read_bytes() == content


async def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="permissions"):
        await SqliteLedger.open(tmp_path / "missing" / "ledger.sqlite3")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_read_only_directory_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match="permissions"):
            await SqliteLedger.open(tmp_path / "ledger.sqlite3")
    finally:
        tmp_path.chmod(0o700)


async def test_a_link_in_place_of_the_ledger_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError):
        await SqliteLedger.open(tmp_path / "ledger.sqlite3")
    assert not (tmp_path / "elsewhere").exists()


async def test_a_ledger_from_a_backup_begins_a_new_chain(
    ledger: SqliteLedger, path: Path, reopen: Reopen
) -> None:
    await run(ledger, 1)
    await ledger.close()
    shutil.copy(path, path.with_name("backup"))
    ledger = await reopen()
    await run(ledger, 2, name="2")
    await ledger.close()
    shutil.copy(path.with_name("backup"), path)
    restored = await reopen()
    assert restored.chain_id != ledger.chain_id
    head = await restored.head()
    assert (head.sequence, head.state, head.key_id) == (0, None, None)
    await run(restored, 1, name="3")
    await restored.close()
    # What was of the old chain can still be read by its digest.
    again = await reopen()
    assert again.chain_id == restored.chain_id
    assert (await again.receipt(payload_digest=receipt(1).payload_digest)).sequence == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"chain_id": 1}'], ids=["empty", "cut", "list", "other"]
)
async def test_a_damaged_witness_is_no_witness(
    ledger: SqliteLedger, path: Path, content: bytes, reopen: Reopen
) -> None:
    await run(ledger, 1)
    await ledger.close()
    path.with_name("head.json").write_bytes(content)
    again = await reopen()
    assert again.chain_id == ledger.chain_id


async def test_the_witness_names_the_newest_entry(ledger: SqliteLedger, path: Path) -> None:
    await run(ledger, 1)
    seen = json.loads(path.with_name("head.json").read_bytes())
    assert seen == {
        "chain_id": ledger.chain_id,
        "sequence": 1,
        "payload_digest": receipt(1).payload_digest,
    }


async def test_a_stored_tree_costs_what_changed(ledger: SqliteLedger, path: Path, reopen: Reopen) -> None:
    still = tree(**{f"file-{number}": b"x" for number in range(50)})
    first = Directory({b"a": still, b"b": tree(f=b"1")})
    second = Directory({b"a": still, b"b": tree(f=b"2")})
    await run(ledger, 1, of=first)
    await ledger.close()
    # A host that has just started knows of none of them.
    again = await reopen()
    await run(again, 2, name="2", of=second)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM trees").fetchone()[0] == 5
    connection.close()


async def test_deep_and_repeated_trees_come_back_as_they_were(ledger: SqliteLedger, reopen: Reopen) -> None:
    deep = tree(f=b"1")
    for number in range(600):
        deep = Directory({b"d": deep, b"other": tree(n=str(number % 3).encode()), b"again": tree(n=b"0")})
    await run(ledger, 1, of=deep)
    await ledger.close()
    again = await reopen()
    assert await again.load_tree(deep.digest) == deep


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE trees SET body = x'00'",
        "DELETE FROM trees WHERE digest != (SELECT tree_digest FROM receipts)",
        "UPDATE trees SET body = (SELECT body FROM trees ORDER BY length(body) LIMIT 1)",
    ],
    ids=["unreadable", "missing-part", "swapped"],
)
async def test_a_damaged_tree_is_never_loaded(
    ledger: SqliteLedger, path: Path, damage: str, reopen: Reopen
) -> None:
    stored = Directory({b"a": tree(f=b"1"), b"b": tree(g=b"22")})
    await run(ledger, 1, of=stored)
    await ledger.close()
    execute(path, damage)
    again = await reopen()
    with pytest.raises(LedgerError, match="backup"):
        await again.load_tree(stored.digest)


async def test_a_tree_that_is_not_stored_is_not_found(ledger: SqliteLedger) -> None:
    with pytest.raises(NotFoundError):
        await ledger.load_tree(b"0" * 32)


async def test_twenty_five_thousand_files_are_stored_and_loaded_at_once(
    ledger: SqliteLedger, reopen: Reopen
) -> None:
    many = Directory(
        {f"d{number}".encode(): tree(**{f"f{each}": b"x" for each in range(25)}) for number in range(1000)}
    )
    await run(ledger, 1, of=many)
    await ledger.close()
    again = await reopen()
    assert (await again.load_tree(many.digest)).digest == many.digest


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), foreign], ids=["removed", "replaced"])
async def test_nothing_is_committed_into_a_file_that_nobody_will_find(
    ledger: SqliteLedger, path: Path, harm: Callable[[Path], None]
) -> None:
    await run(ledger, 1)
    harm(path)
    with pytest.raises(LedgerError, match="removed or replaced"):
        await run(ledger, 2)
