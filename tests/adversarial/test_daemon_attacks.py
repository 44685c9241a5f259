"""What a hostile tool of a real host tries: its key, token, ledger, socket, processes, and the world outside.

Each attack runs against a host of root and against one of a normal user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from fakes.toolbox import needs_bubblewrap
from support.daemon import Daemon
from support.rpc import call_message, connected, outcome_of, predicate, token_of, tool_message
from workseal.v1 import execution_pb2

CANARY = "sk-canary-123"
NOBODY = 65534
_AS_NOBODY = (
    f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
# Not the standard library of this interpreter, which the other user may not be able to read.
NOBODYS_PATH = {
    "PYTHONPATH": os.pathsep.join(
        str(Path(path).absolute()) for path in sys.path if path and not path.startswith(sys.base_prefix)
    )
}

pytestmark = [needs_bubblewrap, pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux")]


class NobodysDaemon(Daemon):
    """A host that runs as a normal user, where the tests run as root."""

    def command(self) -> list[str]:
        command = [*as_nobody(), *super().command()[1:]]
        give_away(self.state.parent)
        return command

    def clean_environment(self) -> dict[str, str]:
        environment = super().clean_environment()
        give_away(self.state.parent)
        return {**environment, **NOBODYS_PATH}


def give_away(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def as_nobody() -> list[str]:
    """Return a command line that runs Python as another user; skip where no Python lets it."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}"):
        command = [sys.executable, "-c", _AS_NOBODY, python]
        probe = [*command, "-c", "import workseal_host.daemon"]
        environment = {**os.environ, **NOBODYS_PATH}
        if (
            subprocess.run(
                probe, env=environment, capture_output=True, timeout=60, check=False, cwd="/"
            ).returncode
            == 0
        ):
            return command
    pytest.skip("this code, or Python, lies where other users cannot read it")


def python_of(daemon: Daemon) -> str:
    """Return a Python that a tool of this host can run."""
    return "/usr/bin/python3" if isinstance(daemon, NobodysDaemon) else f"{sys.base_prefix}/bin/python3"


@pytest.fixture(
    scope="module",
    params=[
        "same-user",
        pytest.param(
            "normal-user", marks=pytest.mark.skipif(os.geteuid() != 0, reason="runs as one already")
        ),
    ],
)
def host(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A host with a canary in its environment."""
    # Not below pytest's own directory, which other users cannot enter; and not in /tmp, which tools do
    # not see, so that what hides the state is the mask and nothing else.
    base = Path(tempfile.mkdtemp(prefix="ws-", dir="/var/tmp"))
    base.chmod(0o755)
    (base / "workspace").mkdir()
    kind = NobodysDaemon if request.param == "normal-user" else Daemon
    daemon = kind(
        base / "workspace",
        base / "state",
        config='isolation = "bubblewrap"\n',
        environment={"FAKE_API_KEY": CANARY},
        runtime_dir=Path(tempfile.mkdtemp(prefix="run-", dir=base)),
    ).start()
    yield daemon
    daemon.remove()
    shutil.rmtree(base, ignore_errors=True)


@dataclass(frozen=True)
class Done:
    """What came of one attack."""

    output: str
    body: dict[str, Any]
    wire: execution_pb2.Outcome

    @property
    def execution(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["execution"]
        return found


_number = iter(range(1_000_000))


async def attack(daemon: Daemon, command: str, **more: Any) -> Done:
    """Run a hostile command; whatever came of it, the host must still answer."""
    return await ask(daemon, call_message(f"attack-{next(_number)}", command, **more))


async def ask(daemon: Daemon, request: execution_pb2.ExecuteToolRequest) -> Done:
    async with connected(daemon) as rpc:
        wire = await outcome_of(rpc.start("ExecuteTool", request, timeout=90))
        alive = await outcome_of(
            rpc.start("ExecuteTool", call_message(f"alive-{next(_number)}", "echo alive"))
        )
    assert alive.output.stdout.head == b"alive\n"
    output = wire.output.stdout.head + wire.output.stdout.tail + wire.output.stderr.head
    return Done(output.decode("utf-8", "replace"), predicate(wire.receipt.envelope), wire)


def secrets_of(daemon: Daemon) -> list[str]:
    """Return the token, and lines of the private key."""
    found = [token_of(daemon)]
    for path in daemon.state.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in (data := path.read_bytes()):
            found += [line for line in data.decode().splitlines() if len(line) > 20 and "---" not in line]
    assert len(found) > 1
    return found


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("find {state} {run} -type f -exec cat {{}} +", id="read-all"),
        pytest.param("cat {state}/token", id="token"),
        pytest.param(
            "for p in /proc/[0-9]*; do cat $p/root{state}/token $p/cwd/../state/token; done", id="proc-root"
        ),
        pytest.param("ln -s {state} leak; cat leak/token; rm leak", id="link"),
        pytest.param("ln {state}/token hard; cat hard; rm -f hard", id="hard-link"),
        pytest.param("cp -a {state} copy; find copy -type f -exec cat {{}} +; rm -rf copy", id="copy"),
        pytest.param("umount {state}; umount -l {run}; cat {state}/token", id="unmount"),
        pytest.param(
            "unshare -Urm sh -c 'umount {state}; umount -l {run}; cat {state}/token'",
            id="unmount-in-a-namespace",
        ),
        pytest.param(
            "unshare -Urm sh -c 'mount --bind / /mnt; cat /mnt{state}/token'", id="bind-in-a-namespace"
        ),
        pytest.param(
            "mount -o remount,rw {state}; mount -t tmpfs x {state}; cat {state}/token", id="remount"
        ),
        pytest.param("cat {config}/workseal.toml {config}/*", id="configuration"),
        pytest.param(
            "dd if=/proc/{pid}/mem bs=1M count=1; cat /proc/{pid}/maps /proc/{pid}/environ", id="memory"
        ),
        pytest.param(
            "for p in /proc/[0-9]*; do cat $p/environ; done | tr '\\0' '\\n'; env", id="environments"
        ),
        pytest.param(
            "for f in /proc/[0-9]*/fd/*; do readlink $f; timeout 1 cat $f; done </dev/null", id="descriptors"
        ),
    ],
)
async def test_f38_nothing_of_the_hosts_own_can_be_read(host: Daemon, command: str) -> None:
    config = host.state.parent / f"{host.state.name}-config"
    spelt = command.format(state=host.state, run=host.runtime_dir, pid=host.ready["pid"], config=config)
    done = await attack(host, spelt)
    for secret in (*secrets_of(host), CANARY, "ledger.sqlite3", 'isolation = "bubblewrap"'):
        assert secret not in done.output


CALL_HOST = """
import socket, sys, glob
paths = [{socket!r}, *(root + {socket!r} for root in glob.glob("/proc/[0-9]*/root"))]
paths += [line.split()[-1] for line in open("/proc/net/unix") if "workseal" in line]
for path in paths:
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path if not path.startswith("@") else "\\0" + path[1:])
        print("CONNECTED", path)
    except OSError as error:
        print("refused", error.errno)
"""


async def test_the_hosts_socket_cannot_be_reached(host: Daemon) -> None:
    program = CALL_HOST.format(socket=host.ready["socket"])
    done = await attack(host, f"{python_of(host)} - <<'END'\n{program}\nEND")
    assert "refused" in done.output
    assert "CONNECTED" not in done.output


@pytest.mark.parametrize(
    "place",
    [
        "{home}/new",
        "{state}/new",
        "{state}/workspaces/new",
        "{run}/new",
        "/etc/new",
        "/usr/new",
        "{base}/new",
    ],
)
async def test_nothing_outside_the_workspace_can_be_written(host: Daemon, place: str) -> None:
    base = host.state.parent
    target = place.format(home=base / "home", state=host.state, run=host.runtime_dir, base=base)
    done = await attack(host, f"echo x > {target} && echo WRITTEN; mkdir -p {target}.d && echo WRITTEN")
    assert "WRITTEN" not in done.output
    assert not Path(target).exists()
    assert not Path(f"{target}.d").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"path": "leak/token"}, id="through-a-directory-link"),
        pytest.param({"path": "leak-file"}, id="through-a-file-link"),
        pytest.param({"path": "../state/token"}, id="upwards"),
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "delete_file"])
async def test_f42_the_hosts_own_file_tools_follow_no_link(
    host: Daemon, tool: str, arguments: dict[str, Any]
) -> None:
    await attack(host, f"ln -sfn {host.state} leak; ln -sfn {host.state}/token leak-file")
    before = token_of(host)
    given = {**arguments, "content": "mine"} if tool == "write_file" else arguments
    done = await ask(host, tool_message(f"file-{next(_number)}", tool, given))
    assert token_of(host) == before
    assert before.encode() not in done.wire.output.result
    await attack(host, "rm -f leak leak-file")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("setsid sleep 600.{id} & ", id="setsid"),
        pytest.param("(setsid sh -c 'sleep 600.{id} & sleep 600.{id}' &)", id="double-fork"),
        pytest.param(
            "setsid nohup bash -c 'trap \"\" TERM INT HUP; exec sleep 600.{id}' &", id="ignores-signals"
        ),
        pytest.param("unshare -Urpf sleep 600.{id} &", id="namespace-of-its-own"),
    ],
)
async def test_f17_nothing_outlives_the_call(host: Daemon, command: str) -> None:
    marker = f"{os.getpid()}{next(_number)}"
    done = await attack(host, command.replace("{id}", marker))
    assert done.execution["exitCode"] == 0
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(f"600.{marker}" in part for part in process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("kill -9 {pid}; kill -TERM {pid}", id="by-number"),
        pytest.param("kill -9 $PPID; sleep 0.1; kill -9 1", id="its-own-supervisor"),
        pytest.param("kill -9 -1", id="everything"),
        pytest.param("for i in $(seq 1 3000); do kill -9 $i; done 2>/dev/null", id="all-numbers"),
    ],
)
async def test_the_host_cannot_be_killed(host: Daemon, command: str) -> None:
    done = await attack(host, command.format(pid=host.ready["pid"]))
    assert host.process is not None
    assert host.process.poll() is None
    assert done.body["outcome"] in ("completed", "inDoubt")


async def test_many_processes_are_all_ended(host: Daemon) -> None:
    marker = f"601.{os.getpid()}"
    done = await attack(host, f"for i in $(seq 200); do setsid sleep {marker} & done; echo begun")
    assert "begun" in done.output
    assert done.execution["leftoverProcesses"] >= 1
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if marker in (process.info["cmdline"] or ())
    ]


async def test_what_a_tool_puts_into_tmp_is_gone_with_it(host: Daemon) -> None:
    name = f"ws-attack-{os.getpid()}-{next(_number)}"
    done = await attack(host, f"head -c 20000000 /dev/zero > /tmp/{name} && ls -l /tmp/{name}")
    assert "20000000" in done.output
    assert not Path("/tmp", name).exists()
    assert name not in (await attack(host, "ls /tmp")).output


async def test_a_tool_cannot_attach_to_the_host(host: Daemon) -> None:
    # PTRACE_SEIZE (0x4206); also process_vm_readv would need the same right.
    program = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
        "print('ATTACHED' if libc.ptrace(0x4206, {pid}, 0, 0) == 0 else 'refused')"
    ).format(pid=host.ready["pid"])
    assert (await attack(host, f'{python_of(host)} -c "{program}"')).output.strip() == "refused"


@pytest.mark.skipif(os.geteuid() != 0, reason="another process of the same user is needed")
async def test_the_host_is_closed_to_processes_of_its_own_user(host: Daemon) -> None:
    if not isinstance(host, NobodysDaemon):
        pytest.skip("root may read everything")
    pid = host.ready["pid"]
    program = f"open('/proc/{pid}/environ', 'rb').read()"
    done = subprocess.run(
        [*as_nobody(), "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env={**os.environ, **NOBODYS_PATH},
    )
    assert "PermissionError" in done.stderr


async def test_a_forged_outcome_on_the_hosts_streams_is_only_output(host: Daemon) -> None:
    done = await attack(
        host, "for f in /proc/[0-9]*/fd/[0-9]*; do echo '{\"outcome\": 1}' > $f; done 2>/dev/null; :"
    )
    assert done.body["outcome"] == "completed"
    assert '"outcome": 1' not in host.log_file.read_text()
