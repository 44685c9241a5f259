"""Starting a host: its place, its files, who is refused and how it says so."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.daemon import Daemon, DaemonFailedError
from support.rpc import call_message, connected, outcome_of
from workseal_host.place import AlreadyRunningError, claim_socket

DaemonFactory = Callable[..., Daemon]
USAGE = 2
NEGATIVE = 1


def refused(daemon: Daemon, *, umask: int = -1) -> tuple[int, str, str]:
    """Start a host that is expected to end by itself; return its exit code, stdout and stderr."""
    done = subprocess.run(
        daemon.command(),
        env=daemon.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        umask=umask,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Make hosts that are not started."""
    made: list[Daemon] = []

    def make(workspace: Path, **how: object) -> Daemon:
        made.append(Daemon(workspace, how.pop("state", tmp_path / "state"), **how))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for daemon in made:
        daemon.remove()


async def test_f58_a_stale_socket_is_replaced_after_a_crash(daemon: Daemon) -> None:
    path = Path(daemon.ready["socket"])
    daemon.kill()
    assert stat.S_ISSOCK(path.lstat().st_mode)

    daemon.start()

    assert daemon.ready["socket"] == str(path)
    async with connected(daemon) as rpc:
        assert (await outcome_of(rpc.start("ExecuteTool", call_message(1, "true")))).receipt.sequence == 1


async def test_f58_a_live_host_is_kept(daemon: Daemon, other: Callable[..., Daemon]) -> None:
    code, stdout, stderr = refused(other(daemon.workspace))
    assert (code, stdout) == (NEGATIVE, "")
    assert "already serves" in stderr
    async with connected(daemon) as rpc:
        await outcome_of(rpc.start("ExecuteTool", call_message(1, "true")))


def test_f58_of_two_starts_at_once_exactly_one_wins(
    workspace: Path, tmp_path: Path, daemons: DaemonFactory
) -> None:
    def start(_: int) -> str:
        try:
            daemons(workspace)
        except DaemonFailedError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as pool:
        said = sorted(pool.map(start, range(4)))
    assert said[0] == ""
    assert all("exit 1" in text and "already serves" in text for text in said[1:])


def test_f58_one_socket_path_is_given_to_one_host_only(
    tmp_path: Path, daemons: DaemonFactory, other: Callable[..., Daemon]
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    options = ("--socket", str(runtime / "s.sock"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = daemons(tmp_path / "a", state=tmp_path / "state-a", arguments=options)
    code, _, stderr = refused(other(tmp_path / "b", state=tmp_path / "state-b", arguments=options))
    assert code == NEGATIVE
    assert "already listens" in stderr
    assert first.process is not None
    assert first.process.poll() is None


def test_f58_a_socket_path_is_taken_before_anybody_listens_there(tmp_path: Path) -> None:
    first = claim_socket(tmp_path / "s")
    try:
        with pytest.raises(AlreadyRunningError):
            claim_socket(tmp_path / "s")
    finally:
        os.close(first)
    os.close(claim_socket(tmp_path / "s"))


@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
def test_f58_what_is_no_socket_is_left_alone(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon], kind: str
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    path = runtime / "mine"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        (runtime / "precious").write_text("precious")
        path.symlink_to("precious")
    else:
        os.mkfifo(path)
    before = path.lstat()
    code, stdout, stderr = refused(other(workspace, arguments=("--socket", str(path))))
    assert (code, stdout) == (USAGE, "")
    assert "left alone" in stderr
    assert path.lstat().st_ino == before.st_ino


def test_f58_a_socket_of_another_program_is_kept(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon]
) -> None:
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    path = runtime / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        code, _, stderr = refused(other(workspace, arguments=("--socket", str(path))))
        assert (code, path.exists()) == (NEGATIVE, True)
        assert "already listens" in stderr


def test_f58_everything_is_private_whatever_the_umask(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = other(workspace)
    before = os.umask(0)
    try:
        daemon.start()
    finally:
        os.umask(before)
    try:
        found = [daemon.state, *daemon.state.rglob("*"), *(daemon.runtime_dir / "workseal").rglob("*")]
        wrong = {
            str(path): oct(path.lstat().st_mode & 0o7777)
            for path in found
            if path.lstat().st_mode & 0o7777 != (0o700 if path.is_dir() else 0o600)
        }
        assert not wrong
        assert (daemon.runtime_dir / "workseal").stat().st_mode & 0o7777 == 0o700
        assert Path(daemon.ready["socket"]).is_socket()
    finally:
        daemon.remove()


def test_a_socket_in_a_directory_that_others_can_enter_is_refused(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon]
) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    code, _, stderr = refused(other(workspace, arguments=("--socket", str(tmp_path / "open" / "s"))))
    assert code == USAGE
    assert "0700" in stderr


def test_a_socket_path_that_is_too_long_is_a_clear_error(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon]
) -> None:
    path = tmp_path / ("x" * 120) / "s"
    code, stdout, stderr = refused(other(workspace, arguments=("--socket", str(path))))
    assert (code, stdout) == (USAGE, "")
    assert "--socket" in stderr
    assert not path.parent.exists()


def test_a_socket_named_by_hand_serves_where_the_usual_path_is_too_long(
    workspace: Path, tmp_path: Path, daemons: DaemonFactory
) -> None:
    with tempfile.TemporaryDirectory(prefix="ws-") as short:
        os.chmod(short, 0o700)
        state = tmp_path / ("x" * 120)
        daemon = daemons(
            workspace,
            state=state,
            environment={"XDG_RUNTIME_DIR": ""},
            arguments=("--socket", f"{short}/s"),
        )
        assert daemon.ready["socket"] == f"{short}/s"


@pytest.mark.parametrize("name", ["a%41 b", "a#b?c", "\u00e9", os.fsdecode(b"raw-\xff")], ids=ascii)
async def test_any_socket_path_works_as_it_is_written(
    workspace: Path, daemons: DaemonFactory, name: str
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ws") as base:
        path = Path(base) / name
        daemon = daemons(workspace, arguments=("--socket", str(path)))
        assert path.is_socket()
        async with daemon.client() as client:
            assert await client.workspace_id() == daemon.ready["workspace_id"]


@pytest.mark.parametrize("below", ["", "inner/state"], ids=["the-root", "below"])
def test_f50_a_state_directory_in_the_workspace_is_refused_and_not_made(
    workspace: Path, other: Callable[..., Daemon], below: str
) -> None:
    (workspace / "file").touch()
    daemon = other(workspace)
    command = [part if part != str(daemon.state) else str(workspace / below) for part in daemon.command()]
    done = subprocess.run(
        command, env=daemon.clean_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "--state-dir" in done.stderr
    assert [path.name for path in workspace.iterdir()] == ["file"]


def test_f50_a_workspace_in_the_state_directory_is_refused(
    tmp_path: Path, other: Callable[..., Daemon]
) -> None:
    inner = tmp_path / "state" / "project"
    inner.mkdir(parents=True)
    code, _, stderr = refused(other(inner))
    assert code == USAGE
    assert "--state-dir" in stderr


def test_f50_a_link_into_the_workspace_is_seen_through(
    workspace: Path, tmp_path: Path, other: Callable[..., Daemon]
) -> None:
    (workspace / "target").mkdir()
    (tmp_path / "link").symlink_to(workspace / "target")
    code, _, stderr = refused(other(workspace, state=tmp_path / "link"))
    assert code == USAGE
    assert "inside the workspace" in stderr
    assert not list((workspace / "target").iterdir())


@pytest.mark.parametrize("relation", ["above", "below"])
def test_f49_overlapping_roots_are_refused(
    tmp_path: Path, daemons: DaemonFactory, other: Callable[..., Daemon], relation: str
) -> None:
    outer, inner = tmp_path / "repo", tmp_path / "repo" / "frontend"
    inner.mkdir(parents=True)
    first, second = (inner, outer) if relation == "above" else (outer, inner)
    daemons(first)
    code, stdout, stderr = refused(other(second))
    assert (code, stdout) == (NEGATIVE, "")
    assert "overlaps" in stderr


def test_f43_a_sibling_with_the_same_prefix_is_another_workspace(
    tmp_path: Path, daemons: DaemonFactory
) -> None:
    for name in ("w", "w-evil"):
        (tmp_path / name).mkdir()
    first, second = daemons(tmp_path / "w"), daemons(tmp_path / "w-evil")
    assert first.ready["workspace_id"] != second.ready["workspace_id"]
    assert first.ready["socket"] != second.ready["socket"]


@pytest.mark.parametrize("spelling", ["{w}/", "{w}/.", "{w}//", "{w}/../workspace", "{link}"])
def test_f43_equal_roots_are_one_workspace(
    workspace: Path, tmp_path: Path, daemons: DaemonFactory, other: Callable[..., Daemon], spelling: str
) -> None:
    (tmp_path / "link").symlink_to(workspace)
    daemon = daemons(workspace)
    spelt = spelling.format(w=workspace, link=tmp_path / "link")
    command = [part if part != str(workspace) else spelt for part in daemon.command()]
    done = subprocess.run(
        command, env=daemon.clean_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (NEGATIVE, "")
    assert "already serves" in done.stderr

    daemon.stop()
    again = subprocess.Popen(
        command, env=daemon.clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert again.stdout is not None
        ready = json.loads(again.stdout.readline())
        assert ready["workspace_id"] == daemon.ready["workspace_id"]
    finally:
        again.kill()
        again.communicate()


def test_f54_stdout_carries_one_line_whatever_grpc_traces(workspace: Path, daemons: DaemonFactory) -> None:
    daemon = daemons(workspace, environment={"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "api,http"})
    process = daemon.process
    assert process is not None
    assert process.stdout is not None
    process.terminate()
    rest = process.stdout.read()
    process.wait(30)
    assert rest == b""
    assert set(daemon.ready) == {
        "socket",
        "workspace_id",
        "chain_id",
        "key_id",
        "token_file",
        "public_key_file",
        "pid",
    }


def test_the_log_is_json_lines(daemon: Daemon) -> None:
    daemon.stop()
    events = [json.loads(line)["event"] for line in daemon.log_file.read_text().splitlines()]
    assert events[0] == "serving"
    assert "stopping" in events


@pytest.mark.parametrize(
    "token", ["", "short", "two words that are long enough"], ids=["empty", "short", "spaces"]
)
def test_a_token_file_without_a_token_is_refused(
    daemon: Daemon, other: Callable[..., Daemon], token: str
) -> None:
    daemon.stop()
    Path(daemon.ready["token_file"]).write_text(token)
    code, _, stderr = refused(other(daemon.workspace))
    assert code == USAGE
    assert "remove it" in stderr


def test_grpc_is_told_about_forks_before_it_is_imported() -> None:
    code = (
        "import sys; import workseal_host.cli.serve, os; "
        "print(os.environ['GRPC_ENABLE_FORK_SUPPORT'], 'grpc' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "0 False\n"


@pytest.mark.skipif(sys.platform != "linux", reason="a fact of Linux")
def test_the_host_is_not_dumpable(daemon: Daemon) -> None:
    # The kernel gives the files of a process that is not dumpable to root.
    status = Path(f"/proc/{daemon.ready['pid']}/status").read_text()
    assert "Name:" in status
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            Path(f"/proc/{daemon.ready['pid']}/environ").read_bytes()


def test_a_host_with_another_state_directory_does_not_serve_the_same_workspace(
    daemons: DaemonFactory, workspace: Path, tmp_path: Path
) -> None:
    first = daemons(workspace)
    with pytest.raises(DaemonFailedError, match="another state directory"):
        daemons(workspace, state=tmp_path / "other")
    first.stop()
    daemons(workspace, state=tmp_path / "other")
