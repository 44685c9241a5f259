"""A command on the caller's own streams, terminal and environment."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.toolbox import NO_ISOLATION, Toolbox, bubblewrap, needs_bubblewrap, processes_named, until
from workseal_host.execution.inherited import run_inherited
from workseal_host.execution.registry import ToolResult

PROGRAM = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from fakes.toolbox import NO_ISOLATION, Toolbox, bubblewrap
    from workseal_host.execution.inherited import run_inherited
    base, mode, *argv = sys.argv[1:]
    isolation = NO_ISOLATION if mode == "none" else bubblewrap(Path(base), "state")
    box = Toolbox(Path(base), isolation=isolation)
    result = asyncio.run(run_inherited(argv, root=box.root, environment=os.environ, isolation=isolation))
    Path(base, "result").write_text(repr((result.exit_code, result.signal, result.stdout.total_bytes,
        result.leftover_processes, result.survivors)))
    """
)
MODES = ["none", pytest.param("bubblewrap", marks=needs_bubblewrap)]


@pytest.fixture(params=MODES)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Toolbox:
    isolation = NO_ISOLATION if request.param == "none" else bubblewrap(tmp_path, "state")
    return Toolbox(tmp_path, isolation=isolation)


def environment() -> dict[str, str]:
    paths = [os.path.abspath(path) for path in (*sys.path, "tests") if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MY_OWN": "value"}


async def run(box: Toolbox, command: str, *, given: bytes = b"") -> tuple[ToolResult, bytes, bytes]:
    """Run a shell command on pipes and return the result and what passed through."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(box.path.parent / name, "w+b")) for name in ("in", "out", "err")]
        files[0].write(given)
        files[0].seek(0)
        result = await run_inherited(
            ["sh", "-c", command],
            root=box.root,
            environment=environment(),
            isolation=box.isolation,
            streams=(files[0].fileno(), files[1].fileno(), files[2].fileno()),
        )
        return result, Path(files[1].name).read_bytes(), Path(files[2].name).read_bytes()


async def test_streams_pass_through_unchanged_while_they_are_hashed(box: Toolbox) -> None:
    result, out, err = await run(box, "cat; printf '\\377' >&2; exit 4", given=b"given\xff\n")
    assert (out, err, result.exit_code) == (b"given\xff\n", b"\xff", 4)
    assert result.stdout.digest == hashlib.sha256(out).digest()
    assert result.stderr.digest == hashlib.sha256(err).digest()
    assert result.result == b"[exit code 4]\n"


async def test_the_environment_is_the_callers_own(box: Toolbox) -> None:
    _, out, _ = await run(box, 'printf %s "$MY_OWN"')
    assert out == b"value"


async def test_large_output_passes_through_whole(box: Toolbox) -> None:
    result, out, _ = await run(box, "head -c 5000000 /dev/zero")
    assert (len(out), result.stdout.total_bytes, result.stdout.truncated) == (5_000_000, 5_000_000, True)


async def test_what_is_left_behind_is_ended(box: Toolbox) -> None:
    marker = f"900.{time.monotonic_ns()}"
    result, _, _ = await run(box, f"setsid sleep {marker} & echo x")
    assert (result.leftover_processes, result.survivors) == (1, False)
    assert processes_named(marker) == []


async def test_keyboard_signals_are_handled_as_before_afterwards(box: Toolbox) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)]
    await run(box, "true")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)] == before


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_goes_away_ends_the_writer(tmp_path: Path, mode: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), mode, "yes"], stdout=subprocess.PIPE, env=environment()
    )
    assert writer.stdout is not None
    assert writer.stdout.read(2) == b"y\n"
    writer.stdout.close()
    assert writer.wait(20) == 0
    code, number, *_ = eval((tmp_path / "result").read_text())
    assert number == signal.SIGPIPE or code == 1


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, environment())
        self.shown = b""

    def expect(self, words: bytes, *, limit_s: float = 20.0) -> None:
        deadline = time.monotonic() + limit_s
        while words not in self.shown:
            if time.monotonic() > deadline:
                raise AssertionError(f"{words!r} never came, only {self.shown!r}")
            if select.select([self.descriptor], [], [], 0.2)[0]:
                self.shown += os.read(self.descriptor, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    def wait(self) -> int:
        # A terminal that nobody reads blocks its writers.
        while True:
            try:
                if not os.read(self.descriptor, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture(params=MODES)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    terminals: list[Terminal] = []

    def start(command: str) -> Terminal:
        argv = [sys.executable, "-c", PROGRAM, str(tmp_path), request.param, "bash", "-c", command]
        terminals.append(Terminal(argv))
        return terminals[-1]

    yield start
    for terminal in terminals:
        os.close(terminal.descriptor)


def outcome(tmp_path: Path) -> tuple[object, ...]:
    result: tuple[object, ...] = eval((tmp_path / "result").read_text())
    return result


# Forking a process with threads is what a pseudo-terminal takes; the child only calls exec.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestTerminal:
    """A caller at a terminal."""

    def test_the_command_has_the_terminal_and_reads_from_it(self, start: object, tmp_path: Path) -> None:
        terminal = start("tty; test -t 0 -a -t 1 -a -t 2 && read x && echo got:$x")  # type: ignore[operator]
        terminal.expect(b"/dev/")
        terminal.type(b"hello\n")
        terminal.expect(b"got:hello")
        assert terminal.wait() == 0
        # Handed on, not captured.
        assert outcome(tmp_path) == (0, None, 0, 0, False)

    def test_ctrl_c_reaches_the_command_and_the_host_still_reports(
        self, start: object, tmp_path: Path
    ) -> None:
        terminal = start("echo ready; sleep 60")  # type: ignore[operator]
        terminal.expect(b"ready")
        terminal.type(b"\x03")
        assert terminal.wait() == 0
        assert outcome(tmp_path)[:2] == (None, signal.SIGINT)

    def test_a_command_that_handles_ctrl_c_goes_on(self, start: object, tmp_path: Path) -> None:
        terminal = start("trap 'echo caught' INT; echo ready; read x; read y; exit 6")  # type: ignore[operator]
        terminal.expect(b"ready")
        terminal.type(b"\x03")
        terminal.expect(b"caught")
        terminal.type(b"a\nb\n")
        assert terminal.wait() == 0
        assert outcome(tmp_path)[:2] == (6, None)


async def test_cancelling_ends_the_command(box: Toolbox) -> None:
    cancelled = asyncio.Event()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        running = asyncio.create_task(
            run_inherited(
                ["sh", "-c", "touch started; exec sleep 60"],
                root=box.root,
                environment=os.environ,
                isolation=box.isolation,
                cancelled=cancelled,
                streams=(null, null, null),
            )
        )
        await until((box.path / "started").exists)
        cancelled.set()
        result = await running
    finally:
        os.close(null)
    assert (result.cancelled, result.signal) == (True, signal.SIGTERM)


async def test_a_non_blocking_stream_with_a_slow_reader_loses_nothing(box: Toolbox) -> None:
    given, into = os.pipe()
    os.set_blocking(into, False)
    with open(os.devnull, "r+b") as null, open(given, "rb") as reader:
        reading = asyncio.create_task(asyncio.to_thread(reader.read))
        result = await run_inherited(
            ["sh", "-c", "head -c 2000000 /dev/zero"],
            root=box.root,
            environment=environment(),
            isolation=box.isolation,
            streams=(null.fileno(), into, null.fileno()),
        )
        os.close(into)
        passed_through = await reading
    assert (result.exit_code, result.signal, len(passed_through)) == (0, None, 2_000_000)
