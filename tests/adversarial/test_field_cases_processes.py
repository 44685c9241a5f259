"""Field cases of running processes, at the level of the tools themselves."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

from fakes.toolbox import NO_ISOLATION, Toolbox, bubblewrap, needs_bubblewrap, processes_named, text
from workseal_host.errors import ArgumentsError, HostError
from workseal_host.execution import process
from workseal_host.execution.inherited import run_inherited

CANARY = "sk-canary-123"


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Toolbox:
    isolation = NO_ISOLATION if request.param == "none" else bubblewrap(tmp_path, "state")
    return Toolbox(tmp_path, isolation=isolation)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 600.{id} & echo done", id="background"),
        pytest.param("setsid sleep 600.{id} & echo done", id="setsid"),
        pytest.param("(setsid sh -c 'sleep 600.{id} & sleep 600.{id}' &) ; echo done", id="double-fork"),
        pytest.param("nohup sleep 600.{id} >/dev/null 2>&1 & echo done", id="nohup"),
        pytest.param("(while :; do echo tick; sleep 0.1; done; : 600.{id}) & echo done", id="ticking"),
        pytest.param(
            "(trap '' TERM HUP; while :; do sleep 0.05; done; : 600.{id}) & echo done", id="ignores-term"
        ),
    ],
)
async def test_f17_background_child_keeps_pipe_open(box: Toolbox, command: str) -> None:
    unique = str(time.monotonic_ns())
    started = time.monotonic()
    result = await box.bash(command.replace("{id}", unique), timeout_s=10)
    assert time.monotonic() - started < 3
    assert (result.exit_code, result.timed_out, result.survivors) == (0, False, False)
    assert b"done" in result.stdout.head
    assert result.leftover_processes >= 1
    assert "background process" in text(result)
    assert processes_named(f"600.{unique}") == []


async def test_f17_a_child_that_is_about_to_end_is_not_left_over(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SETTLE_S", 5.0)  # this machine may be slow; the rule is the same
    result = await box.bash("echo one > >(sleep 0.05; cat); echo two")
    assert sorted(result.stdout.head.split()) == [b"one", b"two"]
    assert result.leftover_processes == 0


async def test_f18_timeout_ends_grandchildren_before_it_answers(box: Toolbox) -> None:
    command = "bash -c 'trap \"\" TERM; while :; do date >> alive.log; sleep 0.05; done'; true"
    started = time.monotonic()
    result = await box.bash(command, timeout_s=1.5, kill_grace_s=0.5)
    assert time.monotonic() - started < 6
    assert (result.timed_out, result.cancelled, result.survivors) == (True, False, False)
    size = (box.path / "alive.log").stat().st_size
    assert size > 0
    await asyncio.sleep(0.3)  # six more lines, if anything still lived
    assert (box.path / "alive.log").stat().st_size == size


async def test_f18_no_zombie_is_left_under_the_host(box: Toolbox) -> None:
    await box.bash("sleep 60 & sleep 60", timeout_s=0.2, kill_grace_s=0.2)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        pytest.param("cat", 0, b"", id="cat"),
        pytest.param("read x; echo got:$x", 0, b"got:\n", id="read"),
        pytest.param("cat <<E\nhi\nE\nread y; echo after", 0, b"hi\nafter\n", id="here-document"),
        pytest.param("tty", 1, b"not a tty\n", id="no-terminal"),
        pytest.param("exec 3</dev/tty", 1, b"", id="no-controlling-terminal"),
    ],
)
async def test_f19_a_command_that_reads_gets_the_end_of_file(
    box: Toolbox, command: str, code: int, output: bytes
) -> None:
    result = await box.bash(command, timeout_s=10)
    assert (result.exit_code, result.stdout.head, result.timed_out) == (code, output, False)


async def test_f19_git_commit_without_an_editor_ends(box: Toolbox) -> None:
    result = await box.bash("git init -q . && git commit --allow-empty", timeout_s=15)
    assert not result.timed_out
    assert result.exit_code not in (0, None)


async def test_f20_endless_output_stays_bounded_and_ends_on_time(box: Toolbox) -> None:
    # Peak memory of the whole process: what it was before does not matter, only what this adds.
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    result = await box.bash("yes", timeout_s=1)
    assert time.monotonic() - started < 5
    assert (result.timed_out, result.stdout.truncated) == (True, True)
    assert result.stdout.total_bytes > 1024 * 1024
    assert len(result.result) < 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 16 * 1024


async def test_f20_digest_and_length_are_of_the_whole_stream_and_the_end_is_shown(box: Toolbox) -> None:
    result = await box.bash("head -c 50000000 /dev/zero | tr '\\0' a; echo END")
    assert result.stdout.total_bytes == 50_000_004
    assert result.stdout.digest == hashlib.sha256(b"a" * 50_000_000 + b"END\n").digest()
    assert text(result).endswith("aEND\n")
    assert "bytes left out" in text(result)


async def test_f21_output_that_is_not_utf8_is_kept_and_named(box: Toolbox) -> None:
    result = await box.bash("printf 'ok\\n\\360\\nafter\\n'; exit 0")
    assert result.exit_code == 0
    assert result.stdout.digest == hashlib.sha256(b"ok\n\xf0\nafter\n").digest()
    assert text(result).startswith("ok\n\ufffd\nafter\n")
    assert "not valid UTF-8" in text(result)


async def test_f21_binary_output_is_exact(box: Toolbox) -> None:
    result = await box.bash("cat /bin/true | head -c 4096")
    assert result.stdout.head == Path("/bin/true").read_bytes()[:4096]


async def test_f38_environment_is_an_allow_list(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from workseal_host.execution.environment import allowed_environment

    for name in ("FAKE_API_KEY", "GH_TOKEN", "WORKSEAL_CONFIG", "LD_PRELOADED"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("DECLARED", "declared-value")
    environment = allowed_environment(os.environ, ["DECLARED"])
    result = await box.bash("env; cat /proc/$PPID/environ | tr '\\0' '\\n'", environment=environment)
    assert CANARY not in text(result)
    assert "DECLARED=declared-value" in text(result)
    assert "PATH=" in text(result)


async def test_f38_nothing_of_the_host_is_inherited(box: Toolbox) -> None:
    with (box.path.parent / "database").open("w+") as file:
        os.set_inheritable(file.fileno(), True)
        result = await box.bash("ls /proc/self/fd | wc -l; ls -l /proc/self/fd")
    # Three streams, and the directory that ls itself has open.
    assert result.stdout.head.startswith(b"4\n")
    assert "database" not in text(result)


async def test_f39_no_message_or_log_holds_a_secret_of_the_arguments(
    box: Toolbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = [
        ("bash", {"command": CANARY, "timeout_ms": CANARY}),
        ("bash", {"command": CANARY, CANARY: 1}),
        ("bash", {"command": CANARY + "\0"}),
        ("write_file", {"path": "/" + CANARY, "content": CANARY}),
        ("write_file", {"path": "a", "content": CANARY, "executable": CANARY}),
        (CANARY, {}),
    ]
    for name, arguments in wrong:
        with pytest.raises(HostError) as caught:
            await box.run(name, arguments)
        assert CANARY not in f"{caught.value} {caught.value!r}"
    await box.run("write_file", {"path": ".env", "content": f"A={CANARY}"})
    assert CANARY not in caplog.text


async def test_f39_the_command_runs_byte_for_byte(box: Toolbox) -> None:
    result = await box.bash(
        f"echo 'Bearer {CANARY}' | wc -c; printf '%s' '\u00e4\u20ac\\n\t\"$x' | od -An -tx1"
    )
    counted, dumped = result.stdout.head.split(b"\n", 1)
    assert int(counted) == len(f"Bearer {CANARY}\n")
    assert bytes.fromhex(dumped.decode()) == '\u00e4\u20ac\\n\t"$x'.encode()


async def test_f39_the_command_is_in_no_other_process_arguments(box: Toolbox) -> None:
    result = await box.bash(
        "read -r -d '' line < /proc/$PPID/cmdline; tr '\\0' '\\n' < /proc/$PPID/cmdline # " + CANARY
    )
    assert "supervisor.py" in text(result)
    assert CANARY not in text(result)


@pytest.mark.parametrize("path", ["leak", "up/passwd"], ids=["file-link", "directory-link"])
async def test_f42_read_through_a_link_is_refused(box: Toolbox, path: str) -> None:
    (box.path / "leak").symlink_to("/etc/passwd")
    (box.path / "up").symlink_to("/etc")
    result = await box.run("read_file", {"path": path})
    assert result.exit_code == 1
    assert "root:" not in text(result)


@pytest.mark.parametrize("cwd", ["../workspace-evil", "/", "sub/../../workspace-evil"])
async def test_f43_a_working_directory_outside_is_refused(box: Toolbox, cwd: str) -> None:
    Path(f"{box.path}-evil").mkdir()
    with pytest.raises(ArgumentsError):
        await box.run("bash", {"command": "pwd", "cwd": cwd})


async def test_f43_a_link_to_a_sibling_is_no_working_directory(box: Toolbox) -> None:
    Path(f"{box.path}-evil").mkdir()
    (box.path / "link").symlink_to(f"{box.path}-evil")
    result = await box.run("bash", {"command": "pwd", "cwd": "link"})
    assert result.exit_code == 127
    assert "working directory" in text(result)


@pytest.mark.parametrize("cwd", ["", ".", "sub", "sub/", "./sub"])
async def test_f43_directories_beneath_the_root_work_however_they_are_spelt(box: Toolbox, cwd: str) -> None:
    (box.path / "sub").mkdir()
    result = await box.run("bash", {"command": "pwd -P", "cwd": cwd})
    expected = box.path / "sub" if "sub" in cwd else box.path
    assert result.stdout.head.decode() == f"{expected}\n"


async def test_f44_run_leaves_no_trace_of_the_environment(box: Toolbox) -> None:
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        result = await run_inherited(
            ["sh", "-c", "printf %s $MY_INHOUSE_CRED | wc -c"],
            root=box.root,
            environment={**os.environ, "MY_INHOUSE_CRED": "canary"},
            isolation=box.isolation,
            streams=(null, writer, null),
        )
    finally:
        os.close(writer)
        os.close(null)
    with os.fdopen(reader) as passed_on:
        assert int(passed_on.read()) == len("canary")
    assert "canary" not in repr(result)


async def test_f56_many_spawns_leave_descriptors_and_threads_as_they_were(box: Toolbox) -> None:
    async def some(count: int) -> None:
        for _ in range(count):
            result = await box.bash("echo x")
            assert result.stdout.head == b"x\n"

    await some(1)
    await asyncio.sleep(0)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    await asyncio.gather(*(some(5) for _ in range(8)))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    # asyncio's own pool may grow to its limit, and no further.
    assert threading.active_count() <= threads + min(32, (os.cpu_count() or 1) + 4)


async def test_f56_descriptor_numbers_beyond_select_work(box: Toolbox) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1300:
        pytest.skip("the system allows fewer descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1300), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert (await box.bash("echo x")).stdout.head == b"x\n"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_supervisor_needs_nothing_but_the_standard_library() -> None:
    source = Path(sys.modules["workseal_host.execution.orphans"].__file__ or "").with_name("supervisor.py")
    assert "workseal" not in "".join(
        line for line in source.read_text().splitlines() if line.startswith(("import", "from"))
    )
