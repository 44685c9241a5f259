"""How a tool is kept away from the host's key, token, ledger and processes.

``bubblewrap`` (Linux): own pid, user and IPC namespace; everything outside the workspace read-only; a
private ``/tmp`` and ``/run``; the host's own directories masked; no capabilities, no new privileges; no
typing into the caller's terminal (a system call filter; where that cannot be used, a session without a
terminal); the supervisor is the init of the pid namespace, so nothing outlives it. ``none``: only the
supervisor; the tool could have reached the key, and the receipt says so.

Invariants: whether bubblewrap works is found out by running it, never from its version; a directory to
be masked is masked by its real path and at every other place where it is mounted; ``bubblewrap`` that
was demanded is never replaced by ``none``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from workseal_host.errors import IsolationError
from workseal_host.execution.descriptors import Descriptors
from workseal_host.execution.mounts import is_beneath, other_places
from workseal_host.execution.orphans import harden_process
from workseal_host.execution.seccomp import terminal_filter

__all__ = ["PRIVATE_DIRS", "Isolation", "IsolationKind", "IsolationMode", "detect", "harden_process"]

IsolationMode = Literal["auto", "bubblewrap", "none"]
IsolationKind = Literal["bubblewrap", "none"]

# Emptied, because the control sockets of other programs lie there: through `systemd-run --user`, a tmux
# or a docker socket a tool would start processes outside its sandbox, and those can read the key.
PRIVATE_DIRS = (b"/tmp", b"/run")
# What programs need of /run: name resolution, and the system profile of NixOS.
_KEPT_OF_RUN = (b"/run/systemd/resolve", b"/run/current-system", b"/run/booted-system", b"/run/opengl-driver")
_PROBE_TIMEOUT_S = 10
#: The program that starts every tool; it must be readable in the sandbox.
SUPERVISOR = os.path.join(os.path.dirname(os.path.realpath(__file__)), "supervisor.py")
_READ = "import sys; open(sys.argv[1]).close()"
# --unshare-user and --cap-drop: as root, a tool with capabilities could undo every mount below.
_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
_BASE = ("--as-pid-1", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation that tools of this host run under.

    Args:
        kind: as the receipt names it.
        program: path of ``bwrap``; empty for ``none``.
        masked_dirs: real paths of directories that no tool may see.
        masked_files: real paths of single files that no tool may read.
        writable_paths: real paths outside the workspace that tools may write.
        seccomp: the system call filter for every command; empty where none can be used.
        reason: why it is ``none``, for people.
    """

    kind: IsolationKind
    program: str = ""
    masked_dirs: tuple[bytes, ...] = ()
    writable_paths: tuple[bytes, ...] = ()
    masked_files: tuple[bytes, ...] = ()
    seccomp: bytes = b""
    reason: str = field(default="", compare=False)

    def enforces_confinement(self, *, network: bool) -> bool:
        """Return whether a tool under it can have effects in the workspace alone.

        Args:
            network: whether the tool has the network.
        """
        return self.kind == "bubblewrap" and not network and not self.writable_paths

    @property
    def needs_own_session(self) -> bool:
        """Whether a command has to leave the caller's session, so that it cannot type into its terminal."""
        return self.kind == "bubblewrap" and not self.seccomp

    def filter_fd(self, ours: Descriptors) -> int | None:
        """Return a new descriptor of the filter for one command to inherit; None where there is none."""
        return ours.memory_file(self.seccomp) if self.seccomp else None

    def wrap(
        self, argv: Sequence[str], *, root: bytes, network: bool = True, seccomp_fd: int | None = None
    ) -> list[bytes]:
        """Return the command line that runs ``argv`` isolated.

        Args:
            argv: the command.
            root: real path of the workspace.
            network: whether the tool keeps the machine's network.
            seccomp_fd: what :meth:`filter_fd` returned; the process must inherit it. Without it the
                command gets a session of its own.

        Raises:
            IsolationError: the workspace cannot be shown without a masked directory.
        """
        command = [os.fsencode(item) for item in argv]
        if self.kind == "none":
            return command
        fixed = (self.program, *_NAMESPACES, *_BASE, *_against_typing(seccomp_fd))
        options = [os.fsencode(item) for item in fixed]
        if not network:
            options.append(b"--unshare-net")
        options += self._mounts(root)
        return [*options, b"--", *command]

    def check_start(self, root: bytes) -> None:
        """Find out, before the first call, whether a process can start under it at all.

        Args:
            root: real path of the workspace.

        Raises:
            IsolationError: none can: what Python needs lies in a masked directory, say.
        """
        if self.kind == "none":
            return
        python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", _READ, SUPERVISOR]
        try:
            with Descriptors() as ours:
                seccomp_fd = self.filter_fd(ours)
                done = _try(self.wrap(python, root=root, seccomp_fd=seccomp_fd), seccomp_fd)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IsolationError(f"no tool can start in the sandbox: {error}") from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise IsolationError(
                f"no tool can start in the sandbox ({said or f'exit code {done.returncode}'}): keep this "
                "program and Python out of the host's own directories, /tmp and /run"
            )

    def _mounts(self, root: bytes) -> list[bytes]:
        masks = _existing(self.masked_dirs)
        if root in masks:
            raise IsolationError("the workspace is the host's own state directory: move the state directory")
        options = _private_dirs()
        shown = [(path, b"--bind-try") for path in self.writable_paths] + [(root, b"--bind")]
        # Outer before inner, whatever it is: a later mount hides what an earlier one put below it.
        steps = [(path, b"--tmpfs") for path in masks] + shown
        for path, how in sorted(steps, key=lambda step: (step[0].count(b"/"), step[0])):
            options += [how, path] if how == b"--tmpfs" else [how, path, path]
        for path in masks:
            options += [b"--remount-ro", path]
        # Last, over whatever shows them; what a mask hides already needs no cover.
        for path in _everywhere(self.masked_files):
            if not any(is_beneath(path, mask) for mask in masks):
                options += [b"--ro-bind", b"/dev/null", path]
        return options


def detect(
    mode: IsolationMode = "auto",
    *,
    masked_dirs: Sequence[str | bytes] = (),
    masked_files: Sequence[str | bytes] = (),
    writable_paths: Sequence[str | bytes] = (),
) -> Isolation:
    """Find out what isolation works here, by trying it.

    Args:
        mode: ``auto`` (bubblewrap where it works), ``bubblewrap`` (nothing less) or ``none``.
        masked_dirs: directories with the host's state, key, token and socket.
        masked_files: single files of the host's, such as its configuration and its TLS key.
        writable_paths: existing paths outside the workspace that tools may write, such as caches.

    Raises:
        IsolationError: ``bubblewrap`` was demanded and does not work, or a writable path would
            uncover a masked directory or let it be replaced.
    """
    masks = tuple(sorted({os.path.realpath(os.fsencode(path)) for path in masked_dirs}))
    files = tuple(sorted({os.path.realpath(os.fsencode(path)) for path in masked_files}))
    writable = tuple(
        sorted({os.path.realpath(os.path.expanduser(os.fsencode(path))) for path in writable_paths})
    )
    for path in writable:
        for mask in masks:
            _refuse_overlap(path, mask)
    if mode == "none":
        reason = "isolation is switched off in the configuration"
        return Isolation("none", masked_dirs=masks, masked_files=files, reason=reason)
    found = terminal_filter()
    program, reason = _probe(found) if found else ("", "")
    if not program:
        # A kernel without seccomp, or a machine whose system calls are not known: all the rest holds.
        found = None
        program, reason = _probe(None)
    if program:
        return Isolation("bubblewrap", program, masks, writable, files, found or b"")
    if mode == "bubblewrap":
        raise IsolationError(
            f'isolation = "bubblewrap" is demanded, but {reason}; install bubblewrap, allow user namespaces, '
            'or set isolation = "auto"'
        )
    return Isolation("none", masked_dirs=masks, masked_files=files, reason=reason)


def _refuse_overlap(writable: bytes, mask: bytes) -> None:
    named = f"writable path {os.fsdecode(writable)!r}"
    if is_beneath(writable, mask):
        raise IsolationError(f"{named} lies in the host's own directory {os.fsdecode(mask)!r}: leave it out")
    if is_beneath(mask, writable):
        # A mask hides the directory, not its name: a tool could move its parent away, or make it first.
        raise IsolationError(
            f"{named} holds the host's own directory {os.fsdecode(mask)!r}, which a tool could replace "
            "there: name the directories in it that tools need"
        )


def _probe(seccomp: bytes | None) -> tuple[str, str]:
    """Return (path of a bubblewrap that works with the filter, why there is none); one of them is empty."""
    if sys.platform != "linux":
        return "", "bubblewrap exists on Linux only"
    program = shutil.which("bwrap")
    if program is None:
        return "", "the program bwrap was not found in PATH"
    mounts = [os.fsdecode(option) for option in _private_dirs()]
    try:
        with Descriptors() as ours:
            descriptor = ours.memory_file(seccomp) if seccomp else None
            options = (*_NAMESPACES, *_BASE, *_against_typing(descriptor), *mounts)
            done = _try([program, *options, "--", "/bin/sh", "-c", ":"], descriptor)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{program} could not be run ({error})"
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        return "", f"{program} does not work here ({said or f'exit code {done.returncode}'})"
    return os.path.realpath(program), ""


def _against_typing(seccomp_fd: int | None) -> tuple[str, ...]:
    """Return the options that keep a command from typing into the caller's terminal."""
    # In another session the kernel refuses it by itself, but Ctrl-C and job control are lost.
    return ("--new-session",) if seccomp_fd is None else ("--seccomp", str(seccomp_fd))


def _try(
    command: Sequence[str] | Sequence[bytes], seccomp_fd: int | None
) -> subprocess.CompletedProcess[bytes]:
    """Run a short command to its end, without input; OSError and TimeoutExpired are the caller's."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT_S,
        check=False,
        pass_fds=() if seccomp_fd is None else (seccomp_fd,),
    )


def _existing(directories: Iterable[bytes]) -> list[bytes]:
    """Return the directories that exist, and every other place where they are mounted."""
    found = set()
    for path in directories:
        if os.path.isdir(path):
            found.add(path)
            found.update(other_places(path))
    return sorted(found)


def _everywhere(files: Iterable[bytes]) -> list[bytes]:
    """Return the files that exist, at every place where their directory is mounted."""
    found: set[bytes] = set()
    for path in files:
        directory, name = os.path.split(path)
        places = (os.path.join(place, name) for place in (directory, *other_places(directory)))
        found.update(place for place in places if os.path.isfile(place))
    return sorted(found)


def _private_dirs() -> list[bytes]:
    """Return the mounts that empty the private directories, but for what every program needs of them."""
    options: list[bytes] = []
    for directory in PRIVATE_DIRS:
        if os.path.isdir(directory) and not os.path.islink(directory):
            options += [b"--perms", b"1777", b"--tmpfs", directory]
    here = os.path.dirname(os.path.realpath(__file__))
    needed = [os.fsencode(os.path.realpath(path)) for path in (sys.base_prefix, here, "/etc/resolv.conf")]
    for path in (*needed, *_KEPT_OF_RUN):
        if any(is_beneath(path, directory) for directory in PRIVATE_DIRS):
            options += [b"--ro-bind-try", path, path]
    return options
