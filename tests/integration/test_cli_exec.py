"""`workseal exec`: one call to a running host, and what is believed of its answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.command import Command, predicate_of
from support.daemon import Daemon, DaemonFactory
from workseal_host.attestation.keyring import KeyRing

LONG_S = 60
CHALLENGE = "A" * 43
OUTSIDE = '{"path":"../x","content":""}'


@pytest.fixture
def host(workseal: Command, workspace: Path, daemons: DaemonFactory) -> Daemon:
    """A host in the same state directory as the command line."""
    return daemons(workspace, state=workseal.state, runtime_dir=workseal.runtime_dir)


def bash(command: str) -> str:
    return json.dumps({"command": command})


def test_the_tools_text_is_on_stdout_and_its_code_is_ours(
    workseal: Command, workspace: Path, host: Daemon, tmp_path: Path
) -> None:
    done = workseal(
        "exec", "bash", "-C", workspace, "--receipt", tmp_path / "r.json", "--args", bash("echo hi; exit 4")
    )

    assert (done.returncode, done.stdout, done.stderr) == (4, b"hi\n[exit code 4]\n", b"")
    assert predicate_of(tmp_path / "r.json")["execution"]["exitCode"] == 4


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        pytest.param("kill -9 $$", (), 137, id="killed"),
        pytest.param(f"sleep {LONG_S}", ("--timeout", "0.3"), 124, id="timed-out"),
        pytest.param("true", (), 0, id="success"),
    ],
)
def test_how_a_tool_ends_is_passed_through(
    workseal: Command, workspace: Path, host: Daemon, command: str, options: tuple[str, ...], code: int
) -> None:
    done = workseal("exec", "bash", "-C", workspace, *options, "--args", bash(command))

    assert done.returncode == code


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(("bash", "--expect", "sha256:" + "0" * 64), b"precondition-unmet", id="precondition"),
        pytest.param(("nope",), b"unknown-tool", id="unknown-tool"),
        pytest.param(
            ("write_file", "--args", '{"path":"../x","content":""}'), b"invalid-arguments", id="path"
        ),
    ],
)
def test_a_refusal_is_125_with_its_reason_and_its_receipt(
    workseal: Command,
    workspace: Path,
    host: Daemon,
    tmp_path: Path,
    arguments: tuple[str, ...],
    reason: bytes,
) -> None:
    if "--args" not in arguments:
        arguments = (*arguments, "--args", bash("echo ran > f"))

    done = workseal("exec", *arguments, "-C", workspace, "--receipt", tmp_path / "r.json")

    assert (done.returncode, done.stdout) == (125, b"")
    assert b"refused: " + reason in done.stderr
    assert predicate_of(tmp_path / "r.json")["outcome"] == "refused"
    assert os.listdir(workspace) == []


def test_an_unknown_tool_is_told_where_the_tools_are(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    done = workseal("exec", "nope", "-C", workspace)

    assert done.stderr == (
        b"workseal: refused: unknown-tool: the host has no tool nope; `workseal status` lists its tools\n"
    )


def test_a_host_that_dies_leaves_what_is_needed_to_ask_again(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    command = workseal.argv(
        "exec", "bash", "-C", workspace, "--call", "c-1", "--challenge", CHALLENGE,
        "--args", bash(f"echo up > up; sleep {LONG_S}"),
    )  # fmt: skip
    with subprocess.Popen(
        command, env=workseal.clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + LONG_S
        while not (workspace / "up").exists() and time.monotonic() < until:
            time.sleep(0.02)
        host.kill()
        out, err = process.communicate(timeout=LONG_S)

    assert (process.returncode, out) == (125, b"")
    assert f"--session cli --call c-1 --challenge={CHALLENGE}".encode() in err
    assert b"unix:" not in err


def test_the_digest_that_was_printed_can_be_expected(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    digest = workseal("digest", workspace).stdout.decode().strip()

    done = workseal("exec", "bash", "-C", workspace, "--expect", digest, "--args", bash("echo ran"))

    assert (done.returncode, done.stdout) == (0, b"ran\n")


@pytest.mark.parametrize("form", ["@file", "@-"])
def test_arguments_come_from_a_file(
    workseal: Command, workspace: Path, host: Daemon, tmp_path: Path, form: str
) -> None:
    text = bash("echo from elsewhere").encode()
    (tmp_path / "args.json").write_bytes(text)
    argument = "@-" if form == "@-" else f"@{tmp_path / 'args.json'}"

    done = workseal("exec", "bash", "-C", workspace, "--args", argument, input=text)

    assert done.stdout == b"from elsewhere\n"


def test_json_tells_what_changed(workseal: Command, workspace: Path, host: Daemon) -> None:
    done = workseal(
        "exec", "write_file", "-C", workspace, "--json", "--args", '{"path":"a","content":"x"}',
        "--session", "s", "--call", "c", "--challenge", CHALLENGE,
    )  # fmt: skip

    found = json.loads(done.stdout)
    assert found["created"] == ["a"]
    assert (found["session_id"], found["tool_call_id"], found["challenge"]) == ("s", "c", CHALLENGE)
    assert found["before_digest"] != found["after_digest"]


def test_the_same_call_again_is_answered_from_the_record(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    call = ("--session", "s", "--call", "c", "--challenge", CHALLENGE, "--json")
    command = ("exec", "bash", "-C", workspace, *call, "--args", bash("echo x >> log"))

    first, second = (json.loads(workseal(*command).stdout) for _ in range(2))

    assert (workspace / "log").read_text() == "x\n"
    assert (first["sequence"], first["replayed"]) == (second["sequence"], False)
    assert second["replayed"]


def test_the_same_call_with_other_arguments_is_refused(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    call = ("exec", "bash", "-C", workspace, "--session", "s", "--call", "c", "--challenge", CHALLENGE)
    workseal(*call, "--args", bash("echo one"))

    done = workseal(*call, "--args", bash("echo two"))

    assert (done.returncode, done.stdout) == (125, b"")
    assert b"already names another request" in done.stderr


def test_nothing_is_printed_of_an_answer_by_another_key(
    workseal: Command, workspace: Path, host: Daemon, tmp_path: Path
) -> None:
    # What this machine trusts is replaced under a host that still signs with its own key.
    KeyRing.open(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "keys" / "ring.json", workseal.state / "keys" / "ring.json")

    done = workseal(
        "exec", "bash", "-C", workspace, "--receipt", tmp_path / "r.json", "--args", bash("echo forged")
    )

    assert (done.returncode, done.stdout) == (125, b"")
    assert b"not pinned" in done.stderr
    assert not (tmp_path / "r.json").exists()


def test_a_forbidden_change_is_said_whatever_the_code_is(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    done = workseal("exec", "bash", "-C", workspace, "--args", bash("touch .mcp.json"))

    assert done.returncode == 0
    assert done.stderr == b"workseal: policy violation: .mcp.json breaks the rule protected:.mcp.json\n"


def test_a_token_that_is_wrong_is_125(workseal: Command, workspace: Path, host: Daemon) -> None:
    (workseal.state / "token").write_text("wrong\n")

    done = workseal("exec", "bash", "-C", workspace, "--args", bash("true"))

    assert (done.returncode, done.stdout) == (125, b"")
    assert b"token" in done.stderr


def test_a_named_socket_is_enough(workseal: Command, workspace: Path, host: Daemon, tmp_path: Path) -> None:
    done = workseal("exec", "bash", "--socket", host.ready["socket"], "--args", bash("pwd"), cwd=tmp_path)

    assert done.stdout == f"{workspace}\n".encode()


def test_ctrl_c_ends_the_tool_on_the_host(workseal: Command, workspace: Path, host: Daemon) -> None:
    command = workseal.argv("exec", "bash", "-C", workspace, "--args", bash(f"echo up > up; sleep {LONG_S}"))
    with subprocess.Popen(
        command, env=workseal.clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + LONG_S
        while not (workspace / "up").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG_S)

    assert process.returncode == 128 + signal.SIGTERM
    assert b"cancelled" in out
    assert b"asking the host to end the tool" in err


def test_a_reader_that_is_gone_does_not_change_the_code(
    workseal: Command, workspace: Path, host: Daemon
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = ("exec", "bash", "-C", workspace, "--args", bash("echo x; exit 3"))
    try:
        done = workseal(*command, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)

    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_status_and_health(workseal: Command, workspace: Path, host: Daemon) -> None:
    status = workseal("status", "-C", workspace, "--json")
    (workseal.state / "token").unlink()
    health = workseal("healthcheck", "-C", workspace)

    found = json.loads(status.stdout)
    assert (found["workspace_id"], found["key_id"]) == (host.ready["workspace_id"], host.ready["key_id"])
    assert (health.returncode, health.stdout) == (0, b"serving\n")


def test_a_host_that_is_gone_is_3(workseal: Command, workspace: Path, host: Daemon) -> None:
    host.kill()

    for verb in ("status", "healthcheck"):
        for options in (("-C", str(workspace)), ("--socket", host.ready["socket"])):
            assert workseal(verb, *options).returncode == 3
