"""`workseal run`: one attested command, with and without a host."""

from __future__ import annotations

import base64
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import Command, predicate_of
from support.daemon import DaemonFactory, requires

pytestmark = requires("bwrap")

HARMLESS_S = 60


@pytest.fixture(params=[False, True], ids=["no-host", "host-observes"])
def anyhow(
    request: pytest.FixtureRequest, workseal: Command, workspace: Path, daemons: DaemonFactory
) -> Command:
    """The command line, without a host and with one that holds the workspace."""
    if request.param:
        daemons(workspace, state=workseal.state, runtime_dir=workseal.runtime_dir)
    return workseal


def audited(workseal: Command, workspace: Path) -> list[dict[str, Any]]:
    done = workseal("receipts", "list", "--json", "-C", workspace)
    assert done.returncode == 0, done
    return list(json.loads(done.stdout))


def test_what_a_command_changes_is_attested(anyhow: Command, workspace: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "r.json"

    script = "pwd; echo e >&2; echo 1 > f"

    done = anyhow("run", "-C", workspace, "--receipt", receipt, "--", "sh", "-c", script)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{workspace}\n".encode(), b"e\n")
    predicate = predicate_of(receipt)
    assert [entry["path"] for entry in predicate["workspace"]["created"]] == ["f"]
    assert (predicate["outcome"], predicate["call"]["tool"]) == ("completed", "run")
    assert audited(anyhow, workspace)[-1]["verified"]


def test_it_needs_no_path_for_a_socket(workseal: Command, workspace: Path, tmp_path: Path) -> None:
    state = tmp_path / ("x" * 120)

    done = workseal("run", "-C", workspace, "--state-dir", state, "--socket", "", "--", "true")

    assert done.returncode == 0, done


def test_who_ran_it_is_in_the_receipt(
    workseal: Command, workspace: Path, tmp_path: Path, daemons: DaemonFactory
) -> None:
    modes = []
    for hosted in (False, True):
        if hosted:
            daemons(workspace, state=workseal.state, runtime_dir=workseal.runtime_dir)
        workseal("run", "-C", workspace, "--receipt", tmp_path / "r.json", "--", "true")
        execution = predicate_of(tmp_path / "r.json")["execution"]
        modes.append((execution["mode"], execution["isolation"]))

    assert modes == [("executed", "bubblewrap"), ("observed", "none")]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(["sh", "-c", "exit 7"], 7, id="its-own-code"),
        pytest.param(["sh", "-c", "kill -9 $$"], 137, id="killed"),
        pytest.param(["no-such-program"], 127, id="no-such-program"),
    ],
)
def test_how_it_ends_is_passed_through(
    anyhow: Command, workspace: Path, command: list[str], code: int
) -> None:
    assert anyhow("run", "-C", workspace, "--", *command).returncode == code


def test_our_time_out_is_124(anyhow: Command, workspace: Path) -> None:
    done = anyhow("run", "-C", workspace, "--timeout", "0.3", "--", "sleep", str(HARMLESS_S))

    assert done.returncode == 124
    assert b"timed out" in done.stderr


def test_stdin_is_the_commands(anyhow: Command, workspace: Path) -> None:
    assert anyhow("run", "-C", workspace, "--", "cat", input=b"hi\xff\n").stdout == b"hi\xff\n"


def test_a_closed_stdin_is_nothing_of_ours(workseal: Command, workspace: Path) -> None:
    command = workseal.argv("run", "-C", workspace, "--", "cat")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command],
        env=workseal.clean_environment(),
        capture_output=True,
        timeout=HARMLESS_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, b"")


def test_what_it_leaves_running_is_ended(anyhow: Command, workspace: Path) -> None:
    begun = time.monotonic()

    done = anyhow("run", "-C", workspace, "--", "sh", "-c", f"setsid sleep {HARMLESS_S} & exit 3")

    assert done.returncode == 3
    assert b"background process" in done.stderr
    assert time.monotonic() - begun < HARMLESS_S


def test_f44_the_environment_is_the_commands_and_is_not_recorded(
    anyhow: Command, workspace: Path, tmp_path: Path
) -> None:
    anyhow.environment = {"MY_INHOUSE_CRED": "canary-value", "MY_BYTES": os.fsdecode(b"\xff")}
    test = 'test "$MY_INHOUSE_CRED" = canary-value && printf %s "$MY_BYTES" | od -An -tx1'

    done = anyhow("run", "-C", workspace, "--receipt", tmp_path / "r.json", "--", "sh", "-c", test)

    assert (done.returncode, done.stdout.strip()) == (0, b"ff")
    stored = [path.read_bytes() for path in anyhow.state.rglob("*") if path.is_file()]
    payload = base64.b64decode(json.loads((tmp_path / "r.json").read_bytes())["payload"])
    for text in (*stored, payload, done.stderr):
        assert b"canary-value" not in text
        assert b"MY_INHOUSE_CRED" not in text


def test_f5_a_name_that_is_not_utf8(anyhow: Command, workspace: Path, tmp_path: Path) -> None:
    (workspace / os.fsdecode(b"bad-\xff.txt")).write_text("x")
    command = 'for f in bad-*.txt; do printf y > "$f"; done'

    done = anyhow("run", "-C", workspace, "--receipt", tmp_path / "r.json", "--", "sh", "-c", command)

    assert done.returncode == 0
    changed = predicate_of(tmp_path / "r.json")["workspace"]
    assert [entry["path"] for entry in changed["modified"]] == ["bad-\\xff.txt"]
    assert audited(anyhow, workspace)[-1]["verified"]


def test_an_argument_that_is_not_utf8_is_refused_before_anything_runs(
    workseal: Command, workspace: Path
) -> None:
    done = workseal("run", "-C", workspace, "--", "touch", b"a\xff")

    assert (done.returncode, os.listdir(workspace)) == (125, [])
    assert b"argument 2 of the command is not UTF-8" in done.stderr


def test_f10_a_change_of_mode_is_attested(workseal: Command, workspace: Path, tmp_path: Path) -> None:
    (workspace / "s.sh").write_text("#!/bin/sh\n")

    workseal("run", "-C", workspace, "--receipt", tmp_path / "r.json", "--", "chmod", "755", "s.sh")

    (entry,) = predicate_of(tmp_path / "r.json")["workspace"]["modified"]
    assert (entry["before"]["type"], entry["after"]["type"]) == ("file", "executable")


def test_f39_the_command_is_not_in_the_receipt_nor_in_the_state(
    anyhow: Command, workspace: Path, tmp_path: Path
) -> None:
    anyhow("run", "-C", workspace, "--receipt", tmp_path / "r.json", "--", "true", "-psk-canary-123")

    stored = [path.read_bytes() for path in anyhow.state.rglob("*") if path.is_file()]
    for text in (*stored, base64.b64decode(json.loads((tmp_path / "r.json").read_bytes())["payload"])):
        assert b"sk-canary-123" not in text


def test_f50_state_in_the_workspace_is_refused_and_not_made(workspace: Path, workseal: Command) -> None:
    workseal.environment = {
        "HOME": str(workspace),
        "WORKSEAL_STATE_DIR": "",
        "WORKSEAL_CONFIG": "",
        "XDG_CONFIG_HOME": str(workseal.base / "config"),
    }
    for _ in range(2):
        done = workseal("run", "-C", workspace, "--", "true")
        assert done.returncode == 125
        assert b"--state-dir" in done.stderr
    assert os.listdir(workspace) == []


def test_a_root_that_holds_everything_is_refused(workseal: Command) -> None:
    done = workseal("run", "-C", "/", "--", "true")

    assert done.returncode == 125
    assert b"workspace" in done.stderr


def test_a_challenge_is_bound_in(anyhow: Command, workspace: Path, tmp_path: Path) -> None:
    challenge = "A" * 43

    anyhow("run", "-C", workspace, "--challenge", challenge, "--receipt", tmp_path / "r.json", "--", "true")

    assert predicate_of(tmp_path / "r.json")["call"]["challenge"] == challenge


def test_a_receipt_in_the_workspace_is_warned_of(workseal: Command, workspace: Path) -> None:
    done = workseal("run", "-C", workspace, "--receipt", workspace / "r.json", "--", "true")

    assert done.returncode == 0
    assert b"lies in the workspace" in done.stderr
    assert predicate_of(workspace / "r.json")["workspace"]["changes"]["created"] == 0


def test_a_command_cannot_lead_the_receipt_out_of_the_workspace(
    workseal: Command, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")

    workseal("run", "-C", workspace, "--receipt", workspace / "r.json", "--", "ln", "-s", outside, "r.json")

    assert outside.read_bytes() == b"precious"
    assert predicate_of(workspace / "r.json")["workspace"]["created"][0]["type"] == "symlink"


def test_a_receipt_that_cannot_be_written_is_125_and_stays_in_the_ledger(
    workseal: Command, workspace: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    # The place is good before the call and gone after it.
    command = ("sh", "-c", f"rmdir {target}")
    done = workseal(
        "run", "-C", workspace, "--isolation", "none", "--receipt", target / "r.json", "--", *command
    )

    assert done.returncode == 125
    assert b"receipts show 1 --output FILE" in done.stderr
    shown = workseal("receipts", "show", "1", "-C", workspace, "--output", tmp_path / "r.json")
    assert shown.returncode == 0
    assert predicate_of(tmp_path / "r.json")["outcome"] == "completed"


def test_a_forbidden_change_is_said_whatever_the_code_is(anyhow: Command, workspace: Path) -> None:
    done = anyhow("run", "-C", workspace, "--", "touch", ".mcp.json")

    assert done.returncode == 0
    assert done.stderr.startswith(b"workseal: policy violation: ")
    assert b".mcp.json" in done.stderr


def test_isolation_can_be_switched_off(workseal: Command, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    command = ("run", "-C", workspace, "--receipt", tmp_path / "r.json")

    workseal(*command, "--", "touch", outside)
    assert not outside.exists()
    workseal(*command, "--isolation", "none", "--", "touch", outside)
    assert outside.exists()
    assert predicate_of(tmp_path / "r.json")["execution"]["isolation"] == "none"


def test_a_run_within_a_run_says_why_it_cannot(workseal: Command, workspace: Path) -> None:
    inner = workseal.argv("run", "-C", workspace, "--", "true")

    done = workseal("run", "-C", workspace, "--isolation", "none", "--", *inner)

    assert done.returncode == 125
    assert b"held by another `workseal run`" in done.stderr


def test_receipts_can_be_read_while_a_command_runs(workseal: Command, workspace: Path) -> None:
    workseal("run", "-C", workspace, "--", "true")
    inner = workseal.argv("receipts", "list", "--json", "-C", workspace)

    done = workseal("run", "-C", workspace, "--isolation", "none", "--", *inner)

    assert [row["sequence"] for row in json.loads(done.stdout)] == [1]


def test_it_runs_in_a_directory_of_the_hosts_workspace(
    workseal: Command, workspace: Path, daemons: DaemonFactory
) -> None:
    daemons(workspace, state=workseal.state, runtime_dir=workseal.runtime_dir)
    (workspace / "sub").mkdir()

    done = workseal("run", "-C", workspace / "sub", "--", "pwd")

    assert done.stdout == f"{workspace / 'sub'}\n".encode()


def test_a_host_that_dies_meanwhile_is_125_and_the_call_ends_in_doubt(
    workseal: Command, workspace: Path, daemons: DaemonFactory
) -> None:
    daemon = daemons(workspace, state=workseal.state, runtime_dir=workseal.runtime_dir)
    command = ("sh", "-c", "echo up; read x; exit 3")
    with workseal_process(workseal, "run", "-C", workspace, "--", *command) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        daemon.kill()
        _, err = process.communicate(b"\n", timeout=HARMLESS_S)

    assert process.returncode == 125
    assert b"ended with code 3, but there is no receipt" in err
    workseal("run", "-C", workspace, "--", "true")
    assert [row["outcome"] for row in audited(workseal, workspace)] == ["inDoubt", "completed"]


def workseal_process(workseal: Command, *arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        workseal.argv(*arguments),
        env=workseal.clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_ends_the_command_and_a_receipt_is_made(
    anyhow: Command, workspace: Path, number: signal.Signals
) -> None:
    command = ("sh", "-c", f"echo up; exec sleep {HARMLESS_S}")
    with workseal_process(anyhow, "run", "-C", workspace, "--", *command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        process.communicate(timeout=HARMLESS_S)

    assert process.returncode == 128 + signal.SIGTERM
    (row,) = audited(anyhow, workspace)
    assert (row["outcome"], row["signal"]) == ("completed", signal.SIGTERM)


def test_a_reader_that_goes_away_ends_the_command(workseal: Command, workspace: Path) -> None:
    with workseal_process(workseal, "run", "-C", workspace, "--", "yes") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait(HARMLESS_S)

    assert process.returncode == 128 + signal.SIGPIPE
    assert audited(workseal, workspace)[0]["outcome"] == "completed"


@pytest.fixture
def at_terminal(anyhow: Command) -> Callable[..., tuple[bytes, int]]:
    """Run `workseal` on a terminal and type an answer to what it prints."""

    def run(*arguments: str | Path, prompt: bytes, answer: bytes) -> tuple[bytes, int]:
        environment = {**anyhow.clean_environment(), "TERM": "dumb"}
        pid, terminal = pty.fork()
        if pid == 0:
            command = anyhow.argv(*arguments)
            os.execve(command[0], command, environment)
        output, answered, until = b"", False, time.monotonic() + HARMLESS_S
        try:
            while time.monotonic() < until:
                if not select.select([terminal], [], [], 1)[0]:
                    continue
                try:
                    data = os.read(terminal, 65536)
                except OSError:  # the other side is closed
                    break
                output += data
                if not answered and prompt in output:
                    os.write(terminal, answer)
                    answered = True
        finally:
            os.close(terminal)
            _, status = os.waitpid(pid, 0)
        return output, os.waitstatus_to_exitcode(status)

    return run


def test_the_terminal_is_the_commands(at_terminal: Callable[..., tuple[bytes, int]], workspace: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && echo all three; read x; echo got $x"

    output, code = at_terminal(
        "run", "-C", workspace, "--", "sh", "-c", script, prompt=b"all three\r\n", answer=b"word\n"
    )

    assert code == 0
    assert b"got word\r\n" in output


def test_ctrl_c_reaches_the_command_and_a_receipt_is_made(
    at_terminal: Callable[..., tuple[bytes, int]], anyhow: Command, workspace: Path
) -> None:
    script = f"trap 'echo caught; exit 5' INT; echo 'r'eady; sleep {HARMLESS_S} & wait"

    output, code = at_terminal(
        "run", "-C", workspace, "--", "sh", "-c", script, prompt=b"ready\r\n", answer=b"\x03"
    )

    assert code == 5
    assert b"caught" in output
    (row,) = audited(anyhow, workspace)
    assert (row["outcome"], row["exit_code"], row["verified"]) == ("completed", 5, True)
