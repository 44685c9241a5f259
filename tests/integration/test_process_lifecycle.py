"""The life of a tool's processes: how they end, and what is told apart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.toolbox import NO_ISOLATION, Toolbox, bubblewrap, needs_bubblewrap, processes_named, text, until
from workseal_host.errors import WorkspaceError
from workseal_host.execution.registry import CommandToolSpec, ProcessIdentity


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Toolbox:
    isolation = NO_ISOLATION if request.param == "none" else bubblewrap(tmp_path, "state")
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "additionalProperties": False,
    }
    tools = [
        CommandToolSpec("echo_input", "d", ("cat",), schema),
        CommandToolSpec("show", "d", ("printf", "[%s]", "--", "{name}", "n={n}"), schema),
        CommandToolSpec("missing", "d", ("no-such-program",), schema),
        CommandToolSpec("in_sub", "d", ("pwd",), schema, cwd="sub"),
    ]
    return Toolbox(tmp_path, isolation=isolation, command_tools=tools)


async def cancel_when(event: asyncio.Event, path: Path) -> None:
    await until(path.exists)
    event.set()


@pytest.mark.parametrize(
    ("command", "code", "number"),
    [
        pytest.param("exit 0", 0, None, id="success"),
        pytest.param("exit 7", 7, None, id="exit-code"),
        pytest.param("exit 143", 143, None, id="exit-code-that-looks-like-a-signal"),
        pytest.param("kill -TERM $$", None, signal.SIGTERM, id="term"),
        pytest.param("kill -SEGV $$", None, signal.SIGSEGV, id="segv"),
        pytest.param("kill -KILL $$", None, signal.SIGKILL, id="kill"),
    ],
)
async def test_exit_code_and_signal_are_two_things(
    box: Toolbox, command: str, code: int | None, number: int | None
) -> None:
    result = await box.bash(command)
    assert (result.exit_code, result.signal, result.timed_out, result.cancelled) == (
        code,
        number,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("command", "code", "number"),
    [
        pytest.param("sleep 60", None, signal.SIGTERM, id="ended-by-term"),
        pytest.param("trap '' TERM; while :; do sleep 0.05; done", None, signal.SIGKILL, id="ended-by-kill"),
        pytest.param("trap 'exit 5' TERM; while :; do sleep 0.05; done", 5, None, id="exits-by-itself"),
    ],
)
async def test_a_time_out_says_how_the_process_ended(
    box: Toolbox, command: str, code: int | None, number: int | None
) -> None:
    result = await box.bash(command, timeout_s=1.5, kill_grace_s=0.5)
    assert (result.exit_code, result.signal, result.timed_out, result.cancelled) == (
        code,
        number,
        True,
        False,
    )
    assert "timed out" in text(result)


async def test_the_requests_own_time_limit_counts(box: Toolbox) -> None:
    result = await box.run("bash", {"command": "sleep 60", "timeout_ms": 200})
    assert result.timed_out


async def test_cancelling_is_no_time_out(box: Toolbox) -> None:
    cancelled = asyncio.Event()
    watcher = asyncio.create_task(cancel_when(cancelled, box.path / "started"))
    result = await box.bash("touch started; sleep 60", cancelled=cancelled)
    await watcher
    assert (result.timed_out, result.cancelled, result.signal) == (False, True, signal.SIGTERM)
    assert "cancelled" in text(result)


async def test_a_task_that_is_cancelled_takes_the_tool_with_it(box: Toolbox) -> None:
    marker = f"800.{time.monotonic_ns()}"
    command = f"setsid sleep {marker} & trap '' TERM; touch started; sleep {marker}; :"
    task = asyncio.create_task(box.bash(command))
    await until((box.path / "started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_named(f"sleep\0{marker}") == []


async def test_output_comes_as_it_is_printed(box: Toolbox) -> None:
    chunks: list[tuple[str, int, bytes]] = []

    def see(stream: str, offset: int, data: bytes) -> None:
        chunks.append((stream, offset, data))
        if data == b"one\n":
            (box.path / "seen").touch()

    command = "echo one; while [ ! -e seen ]; do sleep 0.01; done; echo two; echo err >&2"
    await box.bash(command, on_output=see)
    assert [chunk for chunk in chunks if chunk[0] == "stdout"] == [
        ("stdout", 0, b"one\n"),
        ("stdout", 4, b"two\n"),
    ]
    assert ("stderr", 0, b"err\n") in chunks


async def test_the_result_shows_output_errors_and_status_in_this_order(box: Toolbox) -> None:
    result = await box.bash("printf out; printf err >&2; exit 3")
    assert text(result) == "out\n[stderr]\nerr\n[exit code 3]\n"


async def test_sigpipe_works_as_in_any_shell(box: Toolbox) -> None:
    result = await box.bash("set -o pipefail; yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert result.stdout.head == b"y\n141\n"


async def test_arguments_of_a_command_tool_come_as_json_and_then_the_end(box: Toolbox) -> None:
    arguments = {"name": "gr\u00fc\u00df $(id) \n", "n": 3}
    result = await box.run("echo_input", arguments)
    assert json.loads(result.stdout.head) == arguments


async def test_long_arguments_of_a_command_tool_do_not_block(box: Toolbox) -> None:
    result = await box.run("echo_input", {"name": "x" * 1_000_000})
    assert result.stdout.total_bytes == len('{"name": ""}\n') + 1_000_000


async def test_placeholders_are_never_read_by_a_shell(box: Toolbox) -> None:
    result = await box.run("show", {"name": "$(touch evil); `touch evil` ; * 'x' \"y\"", "n": -3})
    assert text(result) == "[--][$(touch evil); `touch evil` ; * 'x' \"y\"][n=-3]"
    assert not (box.path / "evil").exists()


async def test_a_program_that_does_not_exist_is_a_result(box: Toolbox) -> None:
    result = await box.run("missing", {})
    assert (result.exit_code, result.signal) == (127, None)
    assert "cannot be started" in text(result)


async def test_a_command_tool_runs_in_its_directory(box: Toolbox) -> None:
    (box.path / "sub").mkdir()
    assert text(await box.run("in_sub", {})) == f"{box.path}/sub\n"


async def test_a_root_that_was_replaced_is_refused_and_nothing_runs(box: Toolbox) -> None:
    box.path.rename(box.path.with_name("moved"))
    box.path.mkdir()
    with pytest.raises(WorkspaceError):
        await box.bash("touch ran")
    assert not (box.path / "ran").exists()


async def test_the_process_can_be_found_again(box: Toolbox) -> None:
    identities: list[ProcessIdentity] = []
    cancelled = asyncio.Event()
    watcher = asyncio.create_task(cancel_when(cancelled, box.path / "started"))
    running = asyncio.create_task(
        box.bash(
            "touch started; sleep 60",
            cancelled=cancelled,
            on_started=identities.append,
            execution_id="execution-7",
        )
    )
    await until((box.path / "started").exists)
    assert identities[0].pid in processes_named("execution-7")
    assert identities[0].start_time is not None
    await asyncio.gather(running, watcher)


async def test_a_supervisor_that_does_not_answer_is_ended(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workseal_host.execution import process

    monkeypatch.setattr(process, "_SUPERVISOR_GRACE_S", 0.3)
    identities: list[ProcessIdentity] = []

    async def stop_it() -> None:
        await until((box.path / "started").exists)
        for pid in processes_named("execution-8"):
            os.kill(pid, signal.SIGSTOP)

    stopper = asyncio.create_task(stop_it())
    result = await box.bash(
        "touch started; sleep 60",
        timeout_s=1.0,
        kill_grace_s=0.2,
        on_started=identities.append,
        execution_id="execution-8",
    )
    await stopper
    assert result.timed_out
    # Nobody can tell what is left, and that is what the result says.
    assert result.survivors
    await until(lambda: processes_named("execution-8") == [])


async def test_a_pipe_that_a_foreign_process_holds_does_not_hold_the_call(
    box: Toolbox, tmp_path: Path
) -> None:
    if box.isolation.kind == "bubblewrap":
        pytest.skip("no foreign process can be reached from inside")
    holder = f"""
        import os, socket, sys, time
        server = socket.socket(socket.AF_UNIX); server.bind("{tmp_path}/s"); server.listen()
        print("ready", flush=True)
        connection, _ = server.accept()
        message, held, *_ = socket.recv_fds(connection, 10, 1)
        connection.send(b"k"); time.sleep(60)
    """
    import sys
    import textwrap

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(holder), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        give = f"""
            import socket
            client = socket.socket(socket.AF_UNIX); client.connect("{tmp_path}/s")
            print("done", flush=True)
            socket.send_fds(client, [b"x"], [1]); client.recv(1)
        """
        (box.path / "give.py").write_text(textwrap.dedent(give))
        started = time.monotonic()
        result = await box.bash(f"{sys.executable} give.py")
        assert time.monotonic() - started < 5
        assert result.stdout.head == b"done\n"
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


def test_unknown_tools_name_those_that_exist(box: Toolbox) -> None:
    from workseal_host.errors import ArgumentsError

    with pytest.raises(ArgumentsError, match="bash"):
        box.registry.get("nothing")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": ""},
        {"command": "x" * 200_000},
        {"command": "x", "timeout_ms": 0},
        {"command": "x", "y": 1},
    ],
    ids=["missing", "empty", "too-long", "no-time", "unknown"],
)
async def test_arguments_of_bash_are_checked(box: Toolbox, arguments: dict[str, Any]) -> None:
    from workseal_host.errors import ArgumentsError

    with pytest.raises(ArgumentsError):
        await box.run("bash", arguments)
