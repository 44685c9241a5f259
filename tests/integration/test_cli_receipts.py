"""`workseal receipts`: the chain, audited through a host or from the ledger alone."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.command import Command, predicate_of
from support.daemon import DaemonFactory, requires

pytestmark = requires("bwrap")


@pytest.fixture
def chain(workseal: Command, workspace: Path) -> Command:
    """Three receipts and a key rotation, made without a host."""
    for command in ("echo 1 > a", "exit 3", "mkdir d"):
        workseal("run", "-C", workspace, "--", "sh", "-c", command)
    assert workseal("keys", "rotate").returncode == 0
    workseal("run", "-C", workspace, "--", "true")
    return workseal


@pytest.fixture(params=[False, True], ids=["from-the-ledger", "from-the-host"])
def source(
    request: pytest.FixtureRequest, chain: Command, workspace: Path, daemons: DaemonFactory
) -> Command:
    """The same chain, without a host and with one."""
    if request.param:
        daemons(workspace, state=chain.state, runtime_dir=chain.runtime_dir)
    return chain


def rows(workseal: Command, workspace: Path, *options: str, code: int = 0) -> list[dict[str, Any]]:
    done = workseal("receipts", "list", "--json", "-C", workspace, *options)
    assert done.returncode == code, done
    return list(json.loads(done.stdout))


def ledger_of(workseal: Command) -> Path:
    (found,) = workseal.state.glob("workspaces/*/ledger.sqlite3")
    return found


def test_list_and_show(source: Command, workspace: Path, tmp_path: Path) -> None:
    found = rows(source, workspace)
    assert [row["sequence"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["kind"] == "key-rotation" for row in found] == [False, False, False, True, False]
    assert all(row["verified"] for row in found)
    assert [row.get("exit_code") for row in found] == [0, 3, 0, None, 0]

    assert [row["sequence"] for row in rows(source, workspace, "--limit", "2")] == [4, 5]
    assert [row["sequence"] for row in rows(source, workspace, "--after", "1", "--limit", "2")] == [2, 3]
    assert rows(source, workspace, "--session", "other") == []
    assert [row["sequence"] for row in rows(source, workspace, "--session", "cli")] == [1, 2, 3, 5]

    by_digest = source("receipts", "show", found[0]["payload_digest"], "-C", workspace, "--json")
    assert json.loads(by_digest.stdout)["created"] == ["a"]
    rotation = source("receipts", "show", "4", "-C", workspace)
    assert b"key rotation: " in rotation.stdout
    changes = source("receipts", "show", "3", "--changes", "-C", workspace)
    assert [json.loads(line)["path"] for line in changes.stdout.splitlines()] == ["d"]
    assert source("receipts", "show", "99", "-C", workspace).returncode == 1
    assert source("receipts", "show", "nonsense", "-C", workspace).returncode == 1
    written = source("receipts", "show", "1", "--output", tmp_path / "r.json", "-C", workspace)
    assert written.returncode == 0
    assert predicate_of(tmp_path / "r.json")["chain"]["sequence"] == 1


def test_more_entries_are_announced(chain: Command, workspace: Path) -> None:
    done = chain("receipts", "list", "--after", "0", "--limit", "2", "-C", workspace)

    assert b"--after 2" in done.stderr


def test_a_program_gets_one_line_for_each(chain: Command, workspace: Path) -> None:
    lines = chain("receipts", "list", "-C", workspace).stdout.decode().splitlines()

    assert len(lines) == 6
    assert lines[1].split("\t")[:4] == ["1", "run", "completed", "0"]


def test_a_receipt_that_was_written_out_verifies(chain: Command, workspace: Path, tmp_path: Path) -> None:
    chain("receipts", "show", "5", "--output", tmp_path / "r.json", "-C", workspace)
    key = tmp_path / "key.pem"
    key.write_bytes(chain("keys", "export").stdout)

    assert chain("verify", tmp_path / "r.json", "--key", key).returncode == 0


def test_reading_changes_nothing(chain: Command, workspace: Path) -> None:
    before = ledger_of(chain).read_bytes()

    rows(chain, workspace)

    assert ledger_of(chain).read_bytes() == before


def test_a_tampered_entry_is_shown_as_such(chain: Command, workspace: Path, tmp_path: Path) -> None:
    with sqlite3.connect(ledger_of(chain)) as ledger:
        (envelope,) = ledger.execute("SELECT envelope FROM receipts WHERE sequence = 2").fetchone()
        forged = envelope.replace(b'"payload":"e', b'"payload":"f', 1)
        assert forged != envelope
        ledger.execute("UPDATE receipts SET envelope = ? WHERE sequence = 2", (forged,))
    ledger.close()

    found = rows(chain, workspace, code=1)
    assert [row["verified"] for row in found][:2] == [True, False]
    assert "tool" not in found[1]
    shown = chain("receipts", "show", "2", "--output", tmp_path / "r.json", "-C", workspace)
    assert (shown.returncode, shown.stdout, (tmp_path / "r.json").exists()) == (1, b"", False)


def test_a_removed_entry_is_noticed(chain: Command, workspace: Path) -> None:
    with sqlite3.connect(ledger_of(chain)) as ledger:
        ledger.execute("DELETE FROM receipts WHERE sequence = 2")
    ledger.close()

    found = rows(chain, workspace, code=1)
    assert [row.get("problem") for row in found][:2] == [None, "entries are missing after number 1"]


def test_a_swapped_entry_is_noticed(chain: Command, workspace: Path) -> None:
    with sqlite3.connect(ledger_of(chain)) as ledger:
        (envelope,) = ledger.execute("SELECT envelope FROM receipts WHERE sequence = 1").fetchone()
        ledger.execute("UPDATE receipts SET envelope = ? WHERE sequence = 2", (envelope,))
    ledger.close()

    found = rows(chain, workspace, code=1)
    assert found[1]["problem"] == "it is kept as number 2"


def test_a_changed_change_list_is_not_shown(chain: Command, workspace: Path) -> None:
    with sqlite3.connect(ledger_of(chain)) as ledger:
        ledger.execute("DELETE FROM change_parts")
    ledger.close()

    done = chain("receipts", "show", "1", "--changes", "-C", workspace)

    assert (done.returncode, done.stdout) == (1, b"")


def test_a_receipt_of_another_workspace_does_not_pass(chain: Command, workspace: Path) -> None:
    (place,) = chain.state.glob("workspaces/*")
    (place / "workspace-id").write_text("0" * 32)

    found = rows(chain, workspace, code=1)
    assert not any(row["verified"] for row in found)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b"no database at all" * 100), id="not-a-database"),
        pytest.param(lambda path: os.truncate(path, 0), id="empty"),
    ],
)
def test_a_damaged_ledger_is_2_and_no_traceback(chain: Command, workspace: Path, damage: Any) -> None:
    damage(ledger_of(chain))

    done = chain("receipts", "list", "-C", workspace)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"workseal: ")
