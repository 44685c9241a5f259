"""Tools that attack: the key, the host's processes, its socket, the rest of the disk, their own end.

Under bubblewrap every one of them fails. Without isolation only what cannot be left behind is promised, and
the tests say so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.toolbox import Toolbox, bubblewrap, needs_bubblewrap, needs_root, processes_named, text, until
from workseal_host.execution.isolation import detect
from workseal_host.execution.registry import CommandToolSpec

SECRET = "canary-of-the-key"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def python(script: str) -> str:
    """Return a shell command that runs a Python script with an interpreter that the sandbox has."""
    return f"{shlex.quote(os.path.realpath(sys.executable))} -I -S -c {shlex.quote(textwrap.dedent(script))}"


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    box = Toolbox(tmp_path, isolation=bubblewrap(tmp_path, "state", "config", "run"))
    for name in ("state/key.pem", "state/token", "config/workseal.toml"):
        (tmp_path / name).write_text(SECRET)
    (tmp_path / "state" / "ledger.sqlite").write_text(SECRET)
    return box


@pytest.fixture
def bare(tmp_path: Path) -> Toolbox:
    return Toolbox(tmp_path)


@needs_bubblewrap
class TestBubblewrap:
    """Attacks from inside the sandbox."""

    @pytest.mark.parametrize(
        "name", ["state/key.pem", "state/token", "state/ledger.sqlite", "config/workseal.toml"]
    )
    async def test_private_files_cannot_be_read(self, box: Toolbox, name: str) -> None:
        target = box.path.parent / name
        result = await box.bash(
            f"cat {target}; cat ../{name}; ls -laR {target.parent}; find /tmp /var/tmp -name key.pem"
        )
        assert SECRET not in text(result)
        assert target.read_text() == SECRET

    @pytest.mark.parametrize("name", ["state/key.pem", "state/new", "config/workseal.toml", "other"])
    async def test_nothing_outside_the_workspace_is_written(self, box: Toolbox, name: str) -> None:
        target = box.path.parent / name
        before = target.read_text() if target.exists() else None
        await box.bash(f"echo evil > {target}; rm -f {target}; mkdir -p {target.parent}")
        assert (target.read_text() if target.exists() else None) == before

    @pytest.mark.parametrize(
        "target", ["/etc/workseal-canary", "/usr/bin/workseal-canary", "/var/tmp/workseal-canary"]
    )
    async def test_the_system_is_read_only(self, box: Toolbox, target: str) -> None:
        result = await box.bash(f"echo evil > {target}")
        assert result.exit_code != 0
        assert not Path(target).exists()

    async def test_home_is_read_only(self, box: Toolbox) -> None:
        result = await box.bash('touch "$HOME/.workseal-canary"')
        assert result.exit_code != 0

    async def test_the_private_tmp_is_the_calls_own(self, box: Toolbox) -> None:
        name = f"/tmp/workseal-{time.monotonic_ns()}"
        first = await box.bash(f"echo x > {name} && cat {name} && echo $TMPDIR")
        assert first.stdout.head == b"x\n/tmp\n"
        assert not Path(name).exists()
        assert (await box.bash(f"cat {name}")).exit_code != 0

    @pytest.mark.parametrize("name", ["environ", "mem", "maps", "root/etc/passwd", "fd", "cwd"])
    async def test_the_host_process_is_not_there(self, box: Toolbox, name: str) -> None:
        result = await box.bash(f"ls -d /proc/{os.getpid()}/{name} || cat /proc/{os.getpid()}/{name}")
        assert result.exit_code != 0
        assert "No such file" in text(result)

    async def test_no_process_outside_is_seen_or_signalled(self, box: Toolbox) -> None:
        result = await box.bash(f"kill -0 {os.getpid()}; ls /proc | grep -c '^[0-9]'")
        assert "No such process" in text(result)
        assert int(result.stdout.head) < 10

    async def test_the_supervisor_gives_nothing_away(self, box: Toolbox) -> None:
        script = """
            import os
            for name in ("environ", "mem", "maps", "fd", "root", "cwd"):
                try:
                    path = f"/proc/1/{name}"
                    if name == "fd":
                        # Root may list the numbers; what they are must stay out of reach.
                        [os.open(f"{path}/{number}", os.O_RDONLY) for number in os.listdir(path)]
                    else:
                        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
                    print("READ", name)
                except OSError as error:
                    print(name, error.strerror)
        """
        assert "READ" not in text(await box.bash(python(script)))

    async def test_a_socket_in_a_masked_directory_cannot_be_reached(self, box: Toolbox) -> None:
        path = box.path.parent / "run" / "s"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            script = f"""
                import socket
                socket.socket(socket.AF_UNIX).connect({str(path)!r})
                print("CONNECTED")
            """
            result = await box.bash(python(script))
        assert result.exit_code != 0
        assert "CONNECTED" not in text(result)

    async def test_control_sockets_of_the_machine_are_out_of_sight(self, box: Toolbox) -> None:
        result = await box.bash("ls -A /run /tmp; ls /run/user /run/dbus /run/docker.sock")
        assert result.exit_code != 0
        assert "user\n" not in result.stdout.text()

    @pytest.mark.parametrize(
        "command",
        [
            pytest.param("umount {state}", id="umount"),
            pytest.param("umount -l {state}", id="lazy-umount"),
            pytest.param("mount -o remount,rw /", id="remount"),
            pytest.param("mount -o remount,rw,bind /etc", id="remount-bind"),
            pytest.param("mount --bind / /tmp", id="bind"),
            pytest.param("unshare -Urm umount {state}", id="umount-in-a-nested-namespace"),
            pytest.param("unshare -Urm mount -o remount,rw,bind / /", id="remount-in-a-nested-namespace"),
            pytest.param(
                "unshare -Urm mount --bind {parent} /mnt && cat /mnt/state/key.pem", id="nested-bind"
            ),
            pytest.param("mknod {work}/disk b 254 0", id="mknod"),
            pytest.param("chroot /", id="chroot"),
            pytest.param("nsenter -t 1 -m true", id="nsenter"),
            pytest.param("hostname evil", id="hostname"),
            pytest.param("chown 1:1 {work}", id="chown"),
        ],
    )
    async def test_privileged_operations_fail(self, box: Toolbox, command: str) -> None:
        parent = box.path.parent
        result = await box.bash(command.format(state=parent / "state", work=box.path, parent=parent))
        assert result.exit_code not in (0, None)
        assert SECRET not in text(result)

    async def test_a_nested_namespace_unmasks_nothing(self, box: Toolbox) -> None:
        state = box.path.parent / "state"
        attempts = (
            f"umount {state}; umount -l /tmp; umount -R /; mount -t tmpfs none /mnt; cat {state}/key.pem"
        )
        result = await box.bash(f"unshare -Urmpf --mount-proc sh -c '{attempts}'")
        assert SECRET not in text(result)

    async def test_there_are_no_capabilities_and_no_new_privileges(self, box: Toolbox) -> None:
        result = await box.bash("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
        lines = dict(line.split() for line in result.stdout.head.splitlines())
        assert lines == {b"CapEff:": b"0" * 16, b"CapBnd:": b"0" * 16, b"NoNewPrivs:": b"1"}

    @pytest.mark.parametrize("number", ["TERM", "KILL", "STOP", "INT", "HUP", "SEGV"])
    async def test_the_supervisor_cannot_be_killed(self, box: Toolbox, number: str) -> None:
        marker = f"700.{time.monotonic_ns()}"
        command = f"setsid sleep {marker} & kill -{number} 1; kill -{number} $PPID; sleep 0.2; echo alive"
        result = await box.bash(command)
        assert (result.exit_code, result.stdout.head, result.survivors) == (0, b"alive\n", False)
        assert processes_named(marker) == []

    async def test_the_supervisor_cannot_be_traced(self, box: Toolbox) -> None:
        script = """
            import ctypes, os
            PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
            libc = ctypes.CDLL(None, use_errno=True)
            for request in (PTRACE_ATTACH, PTRACE_SEIZE):
                print(libc.ptrace(request, 1, None, None))
        """
        assert (await box.bash(python(script))).stdout.head == b"-1\n-1\n"

    async def test_only_the_three_streams_are_inherited(self, box: Toolbox) -> None:
        script = "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
        assert (await box.bash(python(script))).stdout.head == b"[0, 1, 2]\n"

    @pytest.mark.parametrize(
        "escape",
        [
            pytest.param("setsid sleep {m} &", id="setsid"),
            pytest.param("(setsid sh -c 'setsid sleep {m} &' &)", id="double-fork"),
            pytest.param("nohup sleep {m} >/dev/null 2>&1 & disown", id="nohup"),
            pytest.param("(trap '' TERM; exec sleep {m}) & kill -STOP $!", id="stopped"),
        ],
    )
    async def test_nothing_outlives_the_call(self, box: Toolbox, escape: str) -> None:
        marker = f"700.{time.monotonic_ns()}"
        result = await box.bash(f"{escape.format(m=marker)}\nsleep 0.1; echo done")
        assert (result.exit_code, result.survivors) == (0, False)
        assert result.leftover_processes >= 1
        assert processes_named(marker) == []

    async def test_processes_that_replace_themselves_for_ever_are_ended(self, box: Toolbox) -> None:
        # Each starts exactly one other before it ends: always 64 of them, never more.
        bomb = "f() { sleep 0.02; f & }; for i in $(seq 64); do f & done; echo started"
        result = await box.bash(bomb, timeout_s=10)
        assert (result.exit_code, result.survivors) == (0, False)

    async def test_a_masked_file_is_empty_and_its_neighbours_are_not(self, tmp_path: Path) -> None:
        home = Path("/var/tmp") / f"workseal-{time.monotonic_ns()}"
        home.mkdir()
        try:
            (home / "tls.key").write_text(SECRET)
            (home / "neighbour").write_text("seen")
            box = Toolbox(tmp_path, isolation=detect("bubblewrap", masked_files=[str(home / "tls.key")]))
            shown = text(await box.bash(f"cat {home}/tls.key {home}/neighbour; echo x > {home}/tls.key"))
            assert SECRET not in shown
            assert "seen" in shown
            assert (home / "tls.key").read_text() == SECRET
        finally:
            shutil.rmtree(home)

    async def test_a_masked_directory_behind_a_link_is_masked(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "key").write_text(SECRET)
        (tmp_path / "link").symlink_to("real")
        box = Toolbox(tmp_path, isolation=detect("bubblewrap", masked_dirs=[str(tmp_path / "link")]))
        assert SECRET not in text(await box.bash(f"cat {tmp_path}/real/key {tmp_path}/link/key"))

    async def test_a_workspace_outside_tmp_hides_its_neighbours_too(self, box: Toolbox) -> None:
        # Everything above lies in /tmp, which is private anyway; this does not.
        home = Path("/var/tmp") / f"workseal-{time.monotonic_ns()}"
        (home / "state").mkdir(parents=True)
        try:
            (home / "state" / "key").write_text(SECRET)
            other = Toolbox(home, isolation=bubblewrap(home, "state"))
            result = await other.bash(f"echo x > inside; cat {home}/state/key; echo y > {home}/outside")
            assert SECRET not in text(result)
            assert (other.path / "inside").exists()
            assert not (home / "outside").exists()
        finally:
            subprocess.run(["rm", "-r", str(home)], check=True)

    async def test_a_tool_without_network_has_none(self, tmp_path: Path) -> None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            port = server.getsockname()[1]
            connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
            tools = [
                CommandToolSpec(name, "d", ("bash", "-c", connect), {"type": "object"}, network=network)
                for name, network in (("online", True), ("offline", False))
            ]
            box = Toolbox(tmp_path, isolation=bubblewrap(tmp_path, "state"), command_tools=tools)
            assert (await box.run("online", {})).stdout.head == b"connected\n"
            assert (await box.run("offline", {})).exit_code != 0

    async def test_a_writable_path_can_be_written(self, box: Toolbox) -> None:
        cache = box.path.parent / "cache"
        cache.mkdir()
        isolation = detect("bubblewrap", writable_paths=[str(cache)])
        await box.bash(f"echo x > {cache}/f", isolation=isolation)
        assert (cache / "f").read_text() == "x\n"

    async def test_isolation_that_breaks_later_is_an_error_and_nothing_ran(self, box: Toolbox) -> None:
        from dataclasses import replace

        from workseal_host.errors import IsolationError

        broken = replace(box.isolation, program="/bin/false")
        with pytest.raises(IsolationError, match="nothing ran"):
            await box.bash("echo x > ran", isolation=broken)
        assert not (box.path / "ran").exists()


@needs_bubblewrap
@needs_root
@pytest.mark.root
class TestNormalUser:
    """The same sandbox, started by a user without any privilege."""

    @pytest.fixture
    def interpreter(self) -> str:
        """Return a Python of this version that another user may run."""
        for path in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}"):
            # Through a shell: setpriv itself still has root's rights when it starts a program.
            probe = [*AS_NOBODY, "sh", "-c", 'exec "$0" -c "import asyncio"', path]
            if (
                os.path.exists(path)
                and subprocess.run(probe, capture_output=True, check=False).returncode == 0
            ):
                return path
        pytest.skip("no Python of this version can be run by another user")

    @pytest.fixture
    def home(self) -> Iterator[Path]:
        home = Path("/var/tmp") / f"workseal-user-{time.monotonic_ns()}"
        for name in ("workspace", "state"):
            (home / name).mkdir(parents=True)
        (home / "state" / "key").write_text(SECRET)
        for path in (home, *home.rglob("*")):
            os.chown(path, 65534, 65534)
        (home / "state" / "key").chmod(0o600)
        yield home
        subprocess.run(["rm", "-r", str(home)], check=True)

    @pytest.fixture
    def run(self, interpreter: str, home: Path) -> object:
        script = textwrap.dedent(
            """
            import asyncio, json, os, sys
            from workseal_host.execution.isolation import detect, harden_process
            from workseal_host.execution.registry import ToolContext, build_registry
            from workseal_host.workspace.root import WorkspaceRoot
            home, mode, command = sys.argv[1:]
            assert os.getuid() == 65534 and harden_process()
            async def main():
                isolation = detect(mode, masked_dirs=[home + "/state"])
                context = ToolContext(WorkspaceRoot.open(home + "/workspace"), {"PATH": os.environ["PATH"],
                    "HOST": str(os.getpid())}, isolation, 20.0)
                result = await build_registry().get("bash").run({"command": command}, context)
                print(json.dumps([isolation.kind, result.result.decode(), result.exit_code,
                    result.leftover_processes, result.survivors]))
            asyncio.run(main())
            """
        )

        def run(mode: str, command: str) -> list[object]:
            argv = [*AS_NOBODY, interpreter, "-c", script]
            # Not the standard library of this interpreter, which the other user may not be able to read.
            paths = [path for path in sys.path if path and not path.startswith(sys.base_prefix)]
            environment = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
            done = subprocess.run(
                [*argv, str(home), mode, command],
                env=environment,
                capture_output=True,
                check=True,
                timeout=60,
            )
            answer: list[object] = json.loads(done.stdout)
            return answer

        return run

    def test_it_works_and_masks(self, run: object, home: Path) -> None:
        command = f"id -u; echo x > f; cat {home}/state/key; echo y > {home}/outside; setsid sleep 60 & true"
        kind, shown, code, leftover, survivors = run("bubblewrap", command)  # type: ignore[operator]
        assert (kind, code, leftover, survivors) == ("bubblewrap", 0, 1, False)
        assert str(shown).startswith("65534\n")
        assert SECRET not in str(shown)
        assert (home / "workspace" / "f").exists()
        assert not (home / "outside").exists()

    def test_a_nested_namespace_works_and_unmasks_nothing(self, run: object, home: Path) -> None:
        attempts = [f"umount {home}/state", "umount -l /tmp", "umount -R /", "mount -o remount,rw,bind / /"]
        attempts += [f"mount --bind {home} /mnt", "cat /mnt/state/key", f"cat {home}/state/key"]
        attempts += [
            f"mount --rbind {home} /mnt && umount /mnt/state",
            "cat /mnt/state/key",
            "touch /etc/evil",
        ]
        command = f"unshare -Urmpf --mount-proc sh -c 'id -u; {'; '.join(attempts)}'"
        _, shown, *_ = run("bubblewrap", command)  # type: ignore[operator]
        assert str(shown).startswith("0\n")
        assert SECRET not in str(shown)
        assert not Path("/etc/evil").exists()

    def test_a_nested_pid_namespace_does_not_outlive_the_call(self, run: object) -> None:
        marker = f"700.{time.monotonic_ns()}"
        command = f"unshare -Urpf sleep {marker} >/dev/null 2>&1 & sleep 0.2; echo done"
        _, _, code, leftover, survivors = run("bubblewrap", command)  # type: ignore[operator]
        assert (code, survivors) == (0, False)
        assert leftover >= 1
        assert processes_named(marker) == []

    @pytest.mark.parametrize("name", ["environ", "mem", "maps", "fd"])
    def test_even_without_isolation_the_host_process_cannot_be_read(self, run: object, name: str) -> None:
        command = f"head -c1 /proc/$HOST/{name} || ls /proc/$HOST/{name}; head -c1 /proc/$PPID/{name}"
        _, shown, code, *_ = run("none", command)  # type: ignore[operator]
        assert code != 0
        assert "Permission denied" in str(shown)

    def test_a_tool_that_kills_its_supervisor_is_ended_by_the_host(self, run: object, home: Path) -> None:
        marker = f"700.{time.monotonic_ns()}"
        command = f"setsid sleep {marker} & setsid sh -c 'sleep {marker} & :' & kill -9 $PPID; sleep 9"
        _, shown, code, _, survivors = run("none", command)  # type: ignore[operator]
        assert (code, survivors) == (None, False)
        assert "SIGKILL" in str(shown)
        assert processes_named(marker) == []


class TestNoIsolation:
    """Without isolation: what is left is ended; nothing else is promised."""

    @pytest.mark.parametrize(
        "escape",
        [
            "setsid sleep {m} &",
            "(setsid sh -c 'setsid sleep {m} &' &)",
            "nohup sleep {m} >/dev/null 2>&1 & disown",
        ],
        ids=["setsid", "double-fork", "nohup"],
    )
    async def test_nothing_outlives_the_call(self, bare: Toolbox, escape: str) -> None:
        marker = f"700.{time.monotonic_ns()}"
        result = await bare.bash(f"{escape.format(m=marker)}\nsleep 0.1; echo done")
        assert (result.exit_code, result.survivors) == (0, False)
        assert processes_named(marker) == []

    async def test_signals_that_can_be_caught_do_not_end_the_supervisor(self, bare: Toolbox) -> None:
        result = await bare.bash(
            "for s in TERM INT HUP QUIT USR1 USR2; do kill -$s $PPID; done; sleep 0.1; echo alive"
        )
        assert (result.exit_code, result.stdout.head) == (0, b"alive\n")

    async def test_a_tool_that_kills_its_group_kills_itself_alone(self, bare: Toolbox) -> None:
        marker = f"700.{time.monotonic_ns()}"
        result = await bare.bash(
            f"setsid sh -c 'touch up; exec sleep {marker}' & until [ -e up ]; do :; done; kill -9 0; sleep 60"
        )
        assert (result.signal, result.leftover_processes, result.survivors) == (9, 1, False)
        assert processes_named(marker) == []

    async def test_a_stopped_process_is_asked_to_end_before_it_is_killed(self, bare: Toolbox) -> None:
        child = "trap 'echo bye > bye; exit' TERM; touch ready; while :; do sleep 0.01; done"
        await bare.bash(f'bash -c "{child}" & until [ -e ready ]; do :; done; kill -STOP $!')
        assert (bare.path / "bye").exists()

    async def test_a_killed_supervisor_is_admitted(self, bare: Toolbox) -> None:
        marker, main = f"700.{time.monotonic_ns()}", f"701.{time.monotonic_ns()}"
        result = await bare.bash(f"setsid sleep {marker} >/dev/null 2>&1 & kill -9 $PPID; sleep {main}; :")
        try:
            # This process is no subreaper, so nobody can tell, and that is what the result says.
            assert (result.exit_code, result.survivors) == (None, True)
            assert "may still be running" in text(result)
            await until(lambda: processes_named(f"bash\0-c\0setsid sleep {marker}") == [])
        finally:
            for pid in processes_named(marker) + processes_named(f"sleep\0{main}"):
                os.kill(pid, 9)

    async def test_the_key_is_within_reach_and_the_kind_says_so(self, bare: Toolbox) -> None:
        secret = bare.path.parent / "key"
        secret.write_text(SECRET)
        assert bare.isolation.kind == "none"
        assert not bare.isolation.enforces_confinement(network=False)
        assert SECRET in text(await bare.bash(f"cat {secret}"))


@needs_bubblewrap
@needs_root
@pytest.mark.root
def test_a_masked_directory_that_is_mounted_twice_is_masked_twice(tmp_path: Path) -> None:
    home = Path("/var/tmp") / f"workseal-{time.monotonic_ns()}"
    (home / "state").mkdir(parents=True)
    (home / "alias").mkdir()
    (home / "state" / "key").write_text(SECRET)
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from fakes.toolbox import Toolbox, bubblewrap, text
        home = Path(sys.argv[1])
        box = Toolbox(home, isolation=bubblewrap(home, "state"))
        print((home / "alias" / "state" / "key").read_text())
        print(text(asyncio.run(box.bash(f"ls {home}/alias; cat {home}/alias/state/key"))))
        """
    )
    mount = 'mount --bind "$0" "$0/alias" && exec "$@"'
    paths = os.pathsep.join(os.path.abspath(path) for path in (*sys.path, "tests") if path)
    try:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mount, str(home), sys.executable, "-c", script, str(home)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
    finally:
        subprocess.run(["rm", "-r", str(home)], check=True)
    seen_by_host, seen_by_tool = done.stdout.split("\n", 1)
    assert seen_by_host == SECRET
    assert "state" in seen_by_tool
    assert SECRET not in seen_by_tool


async def test_nothing_outlives_a_host_that_was_killed(tmp_path: Path) -> None:
    marker = f"700.{time.monotonic_ns()}"
    script = textwrap.dedent(
        f"""
        import asyncio, os, sys
        from pathlib import Path
        from fakes.toolbox import Toolbox, bubblewrap
        base = Path(sys.argv[1])
        isolation = {{"isolation": bubblewrap(base, "state")}} if sys.argv[2] == "bubblewrap" else {{}}
        command = "setsid sleep {marker} & trap '' TERM; sleep {marker}; :"
        asyncio.run(Toolbox(base, **isolation).bash(command))
        """
    )
    paths = os.pathsep.join(
        os.path.abspath(path) for path in (*sys.path, "tests", "host", "framework_client") if path
    )
    for mode in ("none", "bubblewrap"):
        host = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), mode], env={**os.environ, "PYTHONPATH": paths}
        )
        await until(lambda: len(processes_named(f"sleep\0{marker}")) == 2)
        host.kill()
        host.wait()
        await until(lambda: processes_named(f"sleep\0{marker}") == [])
    await asyncio.sleep(0)
