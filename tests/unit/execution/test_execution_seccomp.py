"""The system call filter, run on the values that the kernel would give it."""

from __future__ import annotations

import struct

import pytest

from support.daemon import requires
from workseal_host.execution import isolation as module
from workseal_host.execution.descriptors import Descriptors
from workseal_host.execution.isolation import Isolation, detect
from workseal_host.execution.seccomp import terminal_filter

ALLOW, EPERM = 0x7FFF0000, 0x00050001
X86_64, I386, AARCH64, ARM, RISCV64 = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC00000F3
X32 = 0x40000000
STI, LINUX, TCGETS = 0x5412, 0x541C, 0x5401


def verdict(program: bytes, data: bytes) -> int:
    """Run classic BPF as the kernel does; only what the filter may use."""
    instructions = list(struct.iter_unpack("<HBBI", program))
    place, accumulator = 0, 0
    for _ in instructions:
        code, then, otherwise, value = instructions[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                place += then if accumulator == value else otherwise
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")
    raise AssertionError("no return")


def call(machine: str, audit: int, number: int, *arguments: int) -> int:
    program = terminal_filter(machine)
    assert program is not None
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    return verdict(program, struct.pack("<IIQ6Q", number, audit, 0, *padded))


@pytest.mark.parametrize("request_number", [STI, LINUX, STI | 1 << 32, LINUX | 0xFFFFFFFF << 32])
@pytest.mark.parametrize(
    ("machine", "audit", "number"),
    [
        pytest.param("x86_64", X86_64, 16, id="x86_64"),
        pytest.param("x86_64", X86_64, X32 | 514, id="x32"),
        pytest.param("x86_64", X86_64, X32 | 16, id="x32-bit-on-the-other-number"),
        pytest.param("x86_64", X86_64, 514, id="x32-number-without-its-bit"),
        pytest.param("x86_64", I386, 54, id="i386"),
        pytest.param("i686", X86_64, 16, id="x86_64-under-a-32-bit-personality"),
        pytest.param("aarch64", AARCH64, 29, id="aarch64"),
        pytest.param("aarch64", ARM, 54, id="arm"),
    ],
)
def test_typing_is_denied(machine: str, audit: int, number: int, request_number: int) -> None:
    assert call(machine, audit, number, 0, request_number) == EPERM


@pytest.mark.parametrize(
    ("machine", "audit", "number", "arguments"),
    [
        pytest.param("x86_64", X86_64, 16, (STI, TCGETS, STI), id="another-request"),
        pytest.param("x86_64", X86_64, 16, (0, STI << 32, 0), id="upper-half-alone"),
        pytest.param("x86_64", X86_64, 0, (0, STI), id="read"),
        pytest.param("x86_64", X86_64, 54, (0, STI), id="a-number-of-i386"),
        pytest.param("x86_64", X86_64, X32 | 0, (0, STI), id="x32-read"),
        pytest.param("x86_64", X86_64, 0xFFFFFFFF, (0, STI), id="no-call"),
        pytest.param("x86_64", I386, 54, (0, TCGETS), id="i386-another-request"),
        pytest.param("x86_64", I386, 16, (0, STI), id="i386-lchown"),
        pytest.param("aarch64", AARCH64, 29, (0, TCGETS), id="aarch64-another-request"),
        pytest.param("aarch64", AARCH64, 63, (0, STI), id="aarch64-read"),
        pytest.param("aarch64", ARM, 29, (0, STI), id="a-number-of-aarch64"),
    ],
)
def test_everything_else_is_allowed(
    machine: str, audit: int, number: int, arguments: tuple[int, ...]
) -> None:
    assert call(machine, audit, number, *arguments) == ALLOW


@pytest.mark.parametrize(("machine", "audit"), [("x86_64", AARCH64), ("x86_64", RISCV64), ("aarch64", I386)])
def test_an_unknown_architecture_may_call_nothing(machine: str, audit: int) -> None:
    assert call(machine, audit, 63, 0, TCGETS) == EPERM


@pytest.mark.parametrize("machine", ["riscv64", "aarch64_be", ""])
def test_a_machine_that_is_not_known_has_no_filter(machine: str) -> None:
    assert terminal_filter(machine) is None


def test_a_command_without_the_filter_leaves_the_callers_session() -> None:
    assert Isolation("bubblewrap", "bwrap").needs_own_session
    assert b"--new-session" in Isolation("bubblewrap", "bwrap").wrap(["true"], root=b"/w")


def test_a_command_with_the_filter_stays_in_the_callers_session() -> None:
    isolation = Isolation("bubblewrap", "bwrap", seccomp=b"12345678")
    with Descriptors() as ours:
        descriptor = isolation.filter_fd(ours)
        command = isolation.wrap(["true"], root=b"/w", seccomp_fd=descriptor)
    assert not isolation.needs_own_session
    assert command[command.index(b"--seccomp") + 1] == b"%d" % (descriptor or 0)
    assert b"--new-session" not in command


@pytest.mark.parametrize("program", [None, b"\xff" * 8], ids=["unknown-machine", "refused-by-the-kernel"])
@requires("bwrap")
def test_bubblewrap_is_used_without_a_filter_that_does_not_work(
    monkeypatch: pytest.MonkeyPatch, program: bytes | None
) -> None:
    monkeypatch.setattr(module, "terminal_filter", lambda: program)
    found = detect("bubblewrap")
    assert (found.kind, found.seccomp, found.reason) == ("bubblewrap", b"", "")
