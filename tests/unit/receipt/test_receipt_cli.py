"""`workseal verify` and the pins, as a user calls them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from unit.receipt.receipt_support import CHALLENGE, RESULT, Key, Ledger, execution
from workseal.cli import main
from workseal.receipt.statement import Isolation, Mode, OutsideChanges, Policy, PolicyViolation
from workseal_host.attestation.keyring import KeyRing
from workseal_host.attestation.signing import sign_payload
from workseal_host.cli.keys import keys_group

Run = Callable[..., "Answer"]


@dataclass
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKSEAL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def run(state: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = int(leave.code or 0)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@dataclass
class Files:
    ledger: Ledger
    directory: Path

    @property
    def key(self) -> Path:
        return self.write("key.pem", self.ledger.key.public.pem.encode())

    def write(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(Ledger(), tmp_path)


def test_a_receipt_verifies_with_the_given_key(run: Run, files: Files) -> None:
    answer = run("verify", files.write("r.json", files.ledger.add()), "--key", files.key)
    assert answer.code == 0
    assert "r.json: verified" in answer.out
    assert "passed   signature" in answer.out
    assert "skipped  challenge" in answer.out
    assert "created notes.md" in answer.out


def test_a_receipt_verifies_with_a_pinned_key(run: Run, files: Files) -> None:
    receipt = files.write("r.json", files.ledger.add())
    assert run("verify", receipt).code == 1
    assert run("keys", "trust", files.key).out.strip() == files.ledger.key.public.key_id
    assert run("verify", receipt).code == 0
    assert run("keys", "untrust", files.ledger.key.public.key_id).code == 0
    assert run("verify", receipt).code == 1


def test_a_pin_for_another_workspace_does_not_help(run: Run, files: Files) -> None:
    run("keys", "trust", files.key, "--workspace", "w-2")
    answer = run("verify", files.write("r.json", files.ledger.add()))
    assert (answer.code, "key-not-for-this" in answer.out) == (1, True)


def test_a_given_key_is_the_only_one_that_counts(run: Run, files: Files) -> None:
    run("keys", "trust", files.key)
    other = files.write("other.pem", Key().public.pem.encode())
    assert run("verify", files.write("r.json", files.ledger.add()), "--key", other).code == 1


def test_without_a_key_nothing_of_the_receipt_is_shown(run: Run, files: Files) -> None:
    answer = run("verify", files.write("r.json", files.ledger.add()))
    assert answer.code == 1
    assert "signature not checked, signer unknown" in answer.out
    assert "notes.md" not in answer.out


def test_without_a_pin_on_the_hosts_own_machine_the_signature_is_intact(
    run: Run, files: Files, state: Path
) -> None:
    ring = KeyRing.open(state)
    files.ledger.key = Key(ring.signer())
    receipt = files.ledger.add()
    answer = run("verify", files.write("r.json", receipt))
    assert (answer.code, "signature intact, signer unknown" in answer.out) == (1, True)
    value = json.loads(receipt)
    value["signatures"][0]["sig"] = "A" * 86 + "=="
    answer = run("verify", files.write("r.json", json.dumps(value).encode()))
    assert (answer.code, "signature broken, signer unknown" in answer.out) == (1, True)


WANTED = {
    "--session": "s-1",
    "--call": "c-1",
    "--tool": "write_file",
    "--challenge": CHALLENGE,
    "--workspace": "w-1",
    "--chain": "chain-1",
}


@pytest.mark.parametrize("option", WANTED)
def test_what_is_expected_is_compared(run: Run, files: Files, option: str) -> None:
    receipt = files.write("r.json", files.ledger.add())
    assert run("verify", receipt, "--key", files.key, option, WANTED[option]).code == 0
    other = "B" * 42 + "A" if option == "--challenge" else "other"
    answer = run("verify", receipt, "--key", files.key, option, other)
    assert (answer.code, "NOT VERIFIED" in answer.out) == (1, True)


def test_before_age_and_result_are_compared(run: Run, files: Files) -> None:
    before = files.ledger.state
    receipt, key = files.write("r.json", files.ledger.add()), files.key
    good, bad = files.write("good", RESULT), files.write("bad", b"other")
    assert run("verify", receipt, "--key", key, "--before", f"sha256:{before}").code == 0
    assert run("verify", receipt, "--key", key, "--before", "0" * 64).code == 1
    assert run("verify", receipt, "--key", key, "--before", "xyz").code == 2
    assert run("verify", receipt, "--key", key, "--result", good).code == 0
    assert run("verify", receipt, "--key", key, "--result", bad).code == 1
    assert run("verify", receipt, "--key", key, "--max-age", "1").code == 1


def test_exit_codes_and_the_worst_of_several(run: Run, files: Files) -> None:
    good = files.write("good.json", files.ledger.add())
    malformed = files.write("bad.json", b"{}")
    missing = files.directory / "missing.json"
    assert run("verify", good, "--key", files.key).code == 0
    assert run("verify", malformed, "--key", files.key).code == 1
    assert run("verify", missing, "--key", files.key).code == 2
    assert run("verify", files.directory, "--key", files.key).code == 2
    assert run("verify", good, malformed, "--key", files.key).code == 1
    answer = run("verify", missing, malformed, good, "--key", files.key)
    assert (answer.code, "good.json: verified" in answer.out) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["verify", "x", "--nope"],
        ["verify", "x", "--max-age", "nan"],
        ["verify", "x", "--max-age", "soon"],
        ["verify", "x", "--max-age", "-1"],
        ["verify", "x", "--challenge", "abc"],
        ["verify", "x", "--outcome", "fine"],
        ["keys", "trust"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(run: Run, arguments: Sequence[str]) -> None:
    answer = run(*arguments)
    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize("content", [b"", b"no key", b"\xff"], ids=["empty", "text", "bytes"])
def test_a_key_that_is_none_is_2(run: Run, files: Files, content: bytes) -> None:
    receipt, bad = files.write("r.json", files.ledger.add()), files.write("bad.pem", content)
    assert run("verify", receipt, "--key", bad).code == 2
    assert run("verify", receipt, "--key", files.directory / "none").code == 2
    assert run("keys", "trust", bad).code == 2


def test_a_receipt_is_read_from_stdin(run: Run, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(files.ledger.add())))
    assert run("verify", "-", "--key", files.key).code == 0


def test_a_rotation_counts_for_the_files_after_it(run: Run, files: Files) -> None:
    key = files.key
    first = files.write("1.json", files.ledger.add())
    rotation = files.write("2.json", files.ledger.rotate(Key()))
    second = files.write("3.json", files.ledger.add())
    assert run("verify", first, rotation, second, "--key", key).code == 0
    assert run("verify", first, second, "--key", key).code == 1


def test_json_says_the_same_in_one_object_for_each_file(run: Run, files: Files) -> None:
    good, bad = files.write("good.json", files.ledger.add()), files.write("bad.json", b"[]")
    lines = run("verify", good, bad, "--key", files.key, "--json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["verified"], first["receipt"]["created"]) == (True, ["notes.md"])
    assert (second["verified"], second["check"], second["reason"]) == (False, "form", "keys")
    assert second["receipt"] is None


def test_isolation_none_is_said_and_can_be_refused(run: Run, files: Files) -> None:
    predicate = files.ledger.predicate(execution=execution(isolation=Isolation.NONE))
    receipt = files.write("r.json", files.ledger.add(predicate))
    answer = run("verify", receipt, "--key", files.key)
    assert (answer.code, "the tool could have reached the key" in answer.out) == (0, True)
    assert run("verify", receipt, "--key", files.key, "--require-isolation").code == 1


def test_observed_and_unstable_need_to_be_allowed(run: Run, files: Files) -> None:
    predicate = files.ledger.predicate(
        execution=execution(mode=Mode.OBSERVED), workspace={"unstable": ("log",)}
    )
    receipt = files.write("r.json", files.ledger.add(predicate))
    both = ("--allow-observed", "--allow-unstable")
    assert [run("verify", receipt, "--key", files.key, *some).code for some in ((), both[:1], both)] == [
        1,
        1,
        0,
    ]


def test_what_a_person_must_see_is_shown(run: Run, files: Files) -> None:
    predicate = files.ledger.predicate(
        policy=Policy((PolicyViolation("", "root-replaced"), PolicyViolation("a", "protected")), ("a",)),
        workspace={"outside_changes": OutsideChanges(("x",), complete=False), "unreadable": ("u",)},
        execution=execution(recovered=True, exit_code=None, signal=9, timed_out=True),
    )
    out = run("verify", files.write("r.json", files.ledger.add(predicate)), "--key", files.key).out
    for text in (
        "POLICY VIOLATION: . breaks the rule root-replaced",
        "put back",
        "ascribed to nobody: 1 or more",
        "unreadable: 1",
        "timed out, signal 9, recovered after a crash",
    ):
        assert text in out


def test_nothing_that_is_printed_acts_on_a_terminal(run: Run, files: Files) -> None:
    hostile = "\x1b]0;x\x07\u202e\r\n\x9b"
    predicate = files.ledger.predicate(reason=hostile, call={"tool_call_id": hostile, "tool": hostile})
    name = files.directory / "r\x1b[31m.json"
    name.write_bytes(files.ledger.add(predicate))
    for arguments in (
        ("verify", name, "--key", files.key),
        ("verify", str(name) + "\x1b", "--key", files.key),
    ):
        answer = run(*arguments)
        printed = (answer.out + answer.err).replace("\n", "")
        assert printed.isprintable()


def test_the_record_of_this_machine_can_be_asked(run: Run, files: Files) -> None:
    answer = run("verify", files.write("r.json", files.ledger.add()), "--key", files.key, "--record")
    assert "first contact" in answer.out


def test_pins_are_listed_and_revoked(run: Run, files: Files) -> None:
    key_id = files.ledger.key.public.key_id
    run("keys", "trust", files.key, "--workspace", "w-1")
    assert key_id in run("keys", "pins").out
    assert json.loads(run("keys", "pins", "--json").out)["pins"][0]["workspace_id"] == "w-1"
    assert run("keys", "revoke", key_id, "--from", "2").code == 2
    assert run("keys", "revoke", key_id, "--chain", "chain-1", "--from", "0").code == 2
    assert run("keys", "revoke", key_id, "--chain", "chain-1", "--from", "2").code == 0
    first = files.write("1.json", files.ledger.add())
    second = files.write("2.json", files.ledger.add())
    assert [run("verify", path).code for path in (first, second)] == [0, 1]
    assert "revoked from 2" in run("keys", "pins").out
    assert run("keys", "untrust", "0" * 64).code == 1
    assert run("keys", "forget", "w-1").code == 0


def test_damaged_pins_are_2_never_no_pins(run: Run, files: Files, state: Path) -> None:
    run("keys", "trust", files.key)
    (state / "trust" / "pins.json").write_text("{}")
    assert run("verify", files.write("r.json", files.ledger.add())).code == 2
    assert run("keys", "pins").code == 2
    assert run("keys", "trust", files.key).code == 2
    assert run("keys", "untrust", "x").code == 2
    assert run("keys", "revoke", "x").code == 2


BLOCK_HOST = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"workseal_host", "click", "structlog", "aiosqlite", "jsonschema"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from workseal.cli import main
sys.exit(main(sys.argv[1:]))
"""


def alone(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK_HOST, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_client_alone_verifies(files: Files, state: Path) -> None:
    receipt = files.write("r.json", files.ledger.add())
    done = alone("verify", receipt, "--key", files.key, "--state-dir", state)
    assert (done.returncode, done.stderr) == (0, "")
    assert alone("keys", "trust", files.key, "--state-dir", state).returncode == 0


@pytest.mark.parametrize("arguments", [["serve"], ["keys", "show"], ["serve", "--help"]], ids=" ".join)
def test_the_client_alone_says_what_to_install_for_the_rest(arguments: list[str]) -> None:
    done = alone(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'workseal[host]'" in done.stderr


def test_the_client_alone_has_a_help() -> None:
    done = alone("--help")
    assert (done.returncode, "verify" in done.stdout) == (0, True)


def test_the_client_alone_says_its_version() -> None:
    done = alone("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("workseal, version ")


def test_the_client_alone_names_the_verbs_where_one_is_unknown() -> None:
    done = alone("nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such command 'nope'" in done.stderr
    assert "verify" in done.stderr
    assert "receipts" in done.stderr


@pytest.mark.parametrize("arguments", [["keys"], ["keys", "--help"]], ids=" ".join)
def test_the_client_alone_lists_its_key_commands(arguments: list[str]) -> None:
    assert "trust" in alone(*arguments).stdout


FAILED = {
    "exit-code": ({"execution": execution(exit_code=3)}, "exit code 3"),
    "signal": ({"execution": execution(exit_code=None, signal=9)}, "signal 9 ended the tool"),
    "time-out": ({"execution": execution(timed_out=True)}, "time was up"),
    "cancelled": ({"execution": execution(cancelled=True)}, "cancelled"),
    "violation": (
        {"policy": Policy((PolicyViolation("a", "protected"),), ())},
        "policy violation: a breaks the rule protected",
    ),
}


@pytest.mark.parametrize("kind", FAILED)
def test_success_can_be_required(run: Run, files: Files, kind: str) -> None:
    predicate, reason = FAILED[kind]
    receipt = files.write("r.json", files.ledger.add(files.ledger.predicate(**predicate)))
    assert run("verify", receipt, "--key", files.key).code == 0
    answer = run("verify", receipt, "--key", files.key, "--require-success")
    assert (answer.code, reason in answer.out) == (1, True)
    answer = run("verify", receipt, "--key", files.key, "--require-success", "--json")
    assert reason in json.loads(answer.out)["shortcoming"]


def test_a_success_passes_where_one_is_required(run: Run, files: Files) -> None:
    predicate = files.ledger.predicate(policy=Policy((PolicyViolation("a", "protected"),), ("a",)))
    receipt = files.write("r.json", files.ledger.add(predicate))
    assert run("verify", receipt, "--key", files.key, "--require-success").code == 0


def test_an_outcome_can_be_required(run: Run, files: Files) -> None:
    receipt = files.write("r.json", files.ledger.add())
    assert run("verify", receipt, "--key", files.key, "--outcome", "completed").code == 0
    answer = run("verify", receipt, "--key", files.key, "--outcome", "refused")
    assert (answer.code, "outcome completed, not refused" in answer.out) == (1, True)


@pytest.mark.parametrize(
    "options",
    [["--require-success"], ["--outcome", "completed"], ["--call", "c-1"], ["--challenge", CHALLENGE]],
    ids=" ".join,
)
def test_a_key_rotation_answers_nothing_that_is_asked_of_a_call(
    run: Run, files: Files, options: list[str]
) -> None:
    key = files.key
    rotation = files.write("r.json", files.ledger.rotate(Key()))
    assert run("verify", rotation, "--key", key).code == 0
    answer = run("verify", rotation, "--key", key, *options)
    assert (answer.code, "key rotation, not the receipt of a tool call" in answer.out) == (1, True)


def test_what_was_compared_is_said_where_only_a_part_was_given(run: Run, files: Files) -> None:
    receipt = files.write("r.json", files.ledger.add())
    given = ("verify", receipt, "--key", files.key, "--session", "s-1", "--call", "c-1", "--chain", "chain-1")
    out = run(*given).out
    assert "passed   call       partly: session, call; not given: tool, arguments" in out
    assert "passed   workspace  partly: chain; not given: workspace id" in out
    checks = {check["name"]: check for check in json.loads(run(*given, "--json").out)["checks"]}
    assert checks["call"]["status"] == "passed"
    assert checks["call"]["detail"] == "partly: session, call; not given: tool, arguments"


def test_checks_that_did_not_run_take_one_line(run: Run, files: Files) -> None:
    out = run("verify", files.write("r.json", b"{}"), "--key", files.key).out
    assert out.count("not run") == 1
    assert "signature, statement, policy" in out


def test_a_file_that_is_not_there_is_said_without_numbers(run: Run, files: Files) -> None:
    missing = files.directory / "nosuch.json"
    answer = run("verify", missing, "--key", files.key)
    assert answer.err == f"workseal: {missing}: cannot be read: No such file or directory\n"
    answer = run("keys", "trust", missing)
    assert answer.err == f"workseal: {missing}: cannot be read: No such file or directory\n"


def test_what_accepts_an_observed_receipt_is_named(run: Run, files: Files) -> None:
    predicate = files.ledger.predicate(execution=execution(mode=Mode.OBSERVED))
    answer = run("verify", files.write("r.json", files.ledger.add(predicate)), "--key", files.key)
    assert "--allow-observed accepts it" in answer.out


def chain_files(files: Files, count: int) -> list[Path]:
    return [files.write(f"{number}.json", files.ledger.add()) for number in range(1, count + 1)]


def test_receipts_of_one_chain_are_compared_with_each_other(run: Run, files: Files) -> None:
    first, second, third = chain_files(files, 3)
    answer = run("verify", third, first, second, "--key", files.key)
    assert (answer.code, "chain chain-1: linked" in answer.out) == (0, True)
    answer = run("verify", first, third, "--key", files.key)
    assert (answer.code, "note: nothing given between 1 and 3" in answer.out) == (0, True)
    assert "chain-1:" not in run("verify", first, "--key", files.key).out


def test_a_forked_chain_is_a_negative_answer(run: Run, files: Files) -> None:
    other = Ledger(files.ledger.key)
    chain_files(files, 1)
    second = files.write("2.json", files.ledger.add())
    forged = files.write("f.json", other.add(other.predicate(reason="other")))
    answer = run("verify", forged, second, "--key", files.key)
    assert (answer.code, "NOT LINKED: 2 does not follow 1" in answer.out) == (1, True)
    answer = run("verify", files.directory / "1.json", forged, "--key", files.key, "--json")
    assert (answer.code, "two different receipts have the sequence 1" in answer.err) == (1, True)
    assert len(answer.out.splitlines()) == 2


def host_keys(*arguments: object) -> Answer:
    result = CliRunner().invoke(keys_group, [str(argument) for argument in arguments])
    return Answer(result.exit_code, result.stdout, result.stderr)


def test_the_hosts_keys_are_shown_exported_and_rotated(state: Path, files: Files, run: Run) -> None:
    assert host_keys("show").code == 2
    ring = KeyRing.open(state)
    old = ring.current
    assert host_keys("export").out == old.public.pem
    rotated = host_keys("rotate")
    assert (rotated.code, "next start" in rotated.err) == (0, True)
    assert host_keys("export").out == KeyRing.load(state).current.public.pem != old.public.pem
    assert host_keys("export", "--key-id", old.key_id).out == old.public.pem
    assert host_keys("export", "--key-id", "x").code == 2
    shown = json.loads(host_keys("show", "--json").out)["keys"]
    assert [key["current"] for key in shown] == [False, True]
    assert f"* {rotated.out.strip()}" in host_keys("show").out
    files.ledger.key = Key(ring.signer(old.key_id))
    assert sign_payload(ring.signer(old.key_id), b"{}")


def test_half_a_key_elsewhere_is_wrong_usage(state: Path, files: Files) -> None:
    KeyRing.open(state)
    assert host_keys("rotate", "--uri", "nokms:x").code == 2
    assert host_keys("rotate", "--uri", "nokms:x", "--public", files.key).code == 2
    assert host_keys("rotate", "--uri", "nokms:x", "--public", files.directory).code == 2


def test_pinning_is_the_same_with_the_host(state: Path, files: Files) -> None:
    # The client's code writes to the process's own streams, which the runner has replaced.
    assert host_keys("trust", files.key, "--workspace", "w-1").out.strip() == files.ledger.key.public.key_id
    assert "w-1" in host_keys("pins").out
    assert host_keys("trust").code == 2
