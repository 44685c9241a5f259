"""A command at the caller's terminal types into it, for the caller's shell to run outside the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.toolbox import needs_bubblewrap, needs_root, until
from workseal_host.execution.seccomp import terminal_filter

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(sys.platform != "linux", reason="ioctls of Linux"),
]
needs_filter = pytest.mark.skipif(terminal_filter() is None, reason="no filter for this machine")

ALLOW_ALL = bytes.fromhex("060000000000ff7f")
NO_FILTER = b""
# What stands in for the caller: it runs the command, and then reads what has been typed meanwhile.
CALLER = textwrap.dedent(
    """
    import asyncio, dataclasses, json, os, select, sys
    from workseal_host.execution.inherited import run_inherited
    from workseal_host.execution.isolation import detect
    from workseal_host.workspace.root import WorkspaceRoot
    home, seccomp, *argv = sys.argv[1:]
    isolation = detect("bubblewrap", masked_dirs=[home + "/state"])
    if seccomp != "own":
        isolation = dataclasses.replace(isolation, seccomp=bytes.fromhex(seccomp))
    root = WorkspaceRoot.open(home + "/workspace")
    result = asyncio.run(
        run_inherited(argv, root=root, environment={"PATH": os.defpath}, isolation=isolation, timeout_s=30)
    )
    typed = os.read(0, 100).decode() if select.select([0], [], [], 0)[0] else ""
    with open(home + "/answer", "w") as file:
        json.dump({"uid": os.getuid(), "exit_code": result.exit_code, "signal": result.signal,
            "cancelled": result.cancelled, "survivors": result.survivors, "typed": typed}, file)
    """
)
TYPING = textwrap.dedent(
    """
    import ctypes, errno, json, os
    libc = ctypes.CDLL(None, use_errno=True)
    answers = []
    def attempt(descriptor, request, argument):
        failed = libc.ioctl(descriptor, ctypes.c_ulong(request), ctypes.c_char_p(argument))
        answers.append(errno.errorcode[ctypes.get_errno()] if failed else "done")
    terminal = os.open("/dev/tty", os.O_RDWR) if MAY_OPEN else 0
    for descriptor in (0, 1, terminal):
        for key in (b"x", b"\\n"):
            attempt(descriptor, 0x5412, key)
            attempt(descriptor, 1 << 32 | 0x5412, key)
        attempt(descriptor, 0x541C, b"\\x03")
    json.dump(sorted(set(answers)), open("answers", "w"))
    """
)


def interpreter_of(user: list[str]) -> str:
    """Return a Python of this version that the user may run."""
    for path in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
        # Through a shell: setpriv itself still has root's rights when it starts a program.
        probe = [*user, "sh", "-c", 'exec "$0" -c "import asyncio"', path]
        if os.path.exists(path) and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip("no Python of this version can be run by the other user")


class Caller:
    """A caller at a pseudo-terminal that is the controlling one of its session."""

    def __init__(self, home: Path, user: list[str]) -> None:
        self.home = home
        self.python = interpreter_of(user)
        self._user = user
        self._keyboard, self._screen = os.openpty()
        termios.tcsetwinsize(self._screen, (33, 99))

    def start(self, *argv: str, seccomp: bytes | None = None) -> subprocess.Popen[bytes]:
        """Run a command; None for the filter that the sandbox has by itself."""
        paths = [path for path in sys.path if path and not path.startswith(sys.base_prefix)]
        chosen = "own" if seccomp is None else seccomp.hex()
        program = [self.python, "-c", CALLER, str(self.home), chosen, *argv]
        return subprocess.Popen(
            ["setsid", "--ctty", *self._user, *program],
            stdin=self._screen,
            stdout=self._screen,
            stderr=self._screen,
            env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))},
        )

    def finish(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Wait for its end and return what the caller says of it."""
        try:
            code = process.wait(60)
        finally:
            process.kill()
        answer = self.home / "answer"
        assert (code, answer.exists()) == (0, True), os.read(self._keyboard, 65536).decode()
        told: dict[str, Any] = json.loads(answer.read_text())
        return told

    def types(self, seccomp: bytes | None = None, *, may_open: bool = True) -> tuple[list[str], str]:
        """Return what the attempts to type came to, and what arrived at the terminal."""
        script = TYPING.replace("MAY_OPEN", str(may_open))
        told = self.finish(self.start(self.python, "-I", "-S", "-c", script, seccomp=seccomp))
        assert told["exit_code"] == 0
        return json.loads((self.home / "workspace" / "answers").read_text()), told["typed"]

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._keyboard, keys)

    def leave(self) -> None:
        """Close the terminal."""
        os.close(self._keyboard)
        os.close(self._screen)


USERS = [
    pytest.param([], id="same-user"),
    pytest.param(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
        id="normal-user",
        marks=[needs_root, pytest.mark.root],
    ),
]


@pytest.fixture(params=USERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    home = Path("/var/tmp") / f"workseal-terminal-{time.monotonic_ns()}"
    for name in ("workspace", "state"):
        (home / name).mkdir(parents=True)
    if request.param:
        for path in (home, *home.rglob("*")):
            os.chown(path, 65534, 65534)
    caller = Caller(home, request.param)
    yield caller
    caller.leave()
    shutil.rmtree(home)


@needs_filter
def test_a_command_cannot_type_into_the_callers_terminal(caller: Caller) -> None:
    assert caller.types() == (["EPERM"], "")


def test_without_a_filter_it_cannot_either(caller: Caller) -> None:
    # The session has no terminal, so /dev/tty cannot be opened; TIOCLINUX is for virtual consoles only.
    assert caller.types(NO_FILTER, may_open=False) == (["ENOTTY", "EPERM"], "")


def test_a_filter_that_does_nothing_lets_it_type(caller: Caller) -> None:
    try:
        legacy = Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip()
    except FileNotFoundError:
        legacy = "1"  # older kernels have no switch
    if legacy != "1":
        pytest.skip("the kernel refuses it by itself")
    answers, typed = caller.types(ALLOW_ALL)
    assert "done" in answers
    assert typed.startswith("xx\n")


@pytest.mark.parametrize(
    "seccomp", [pytest.param(None, marks=needs_filter, id="filter"), pytest.param(NO_FILTER, id="no-filter")]
)
def test_programs_use_the_terminal_as_ever(caller: Caller, seccomp: bytes | None) -> None:
    command = "stty size > size && stty -icanon -echo && stty -a > raw && stty sane"
    told = caller.finish(caller.start("sh", "-c", command, seccomp=seccomp))
    work = caller.home / "workspace"
    assert (told["exit_code"], (work / "size").read_text()) == (0, "33 99\n")
    assert "-icanon" in (work / "raw").read_text()


@needs_filter
async def test_ctrl_c_is_the_commands_own(caller: Caller) -> None:
    running = caller.start("sh", "-c", "trap 'exit 6' INT; touch ready; read x")
    await until((caller.home / "workspace" / "ready").exists)
    caller.press(b"\x03")
    told = caller.finish(running)
    assert (told["exit_code"], told["cancelled"]) == (6, False)


async def test_without_a_filter_ctrl_c_ends_the_command(caller: Caller) -> None:
    running = caller.start("sh", "-c", "touch ready; exec sleep 60", seccomp=NO_FILTER)
    await until((caller.home / "workspace" / "ready").exists)
    caller.press(b"\x03")
    told = caller.finish(running)
    assert (told["signal"], told["cancelled"], told["survivors"]) == (15, True, False)
