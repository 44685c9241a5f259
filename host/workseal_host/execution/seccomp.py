"""The system call filter that keeps a sandboxed command from typing into the caller's terminal.

A terminal takes input from any process that has it open: ``ioctl`` with ``TIOCSTI`` (where
``dev.tty.legacy_tiocsti`` is 1) or, on a virtual console, ``TIOCLINUX``. The caller's shell then reads it and
runs it outside the sandbox.

Invariants: only these two requests are denied, with ``EPERM``; a system call of an architecture that the
filter does not know is denied whatever it is, since its numbers mean something else.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

__all__ = ["terminal_filter"]

# linux/bpf_common.h: BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
# linux/seccomp.h: SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, and offsets in struct seccomp_data.
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE = 0, 4
# The lower half of args[1] on little-endian machines. The kernel ignores the upper half of a request, so
# a comparison of all 64 bits would let a request with any bit set there pass.
_REQUEST = 24
# asm-generic/ioctls.h, the same on all machines below.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# asm/unistd.h: __X32_SYSCALL_BIT.
_X32 = 0x40000000


class _Architecture(NamedTuple):
    """What a system call can come in as.

    Args:
        audit: its AUDIT_ARCH_* of linux/audit.h.
        numbers: those of ``ioctl``.
    """

    audit: int
    numbers: tuple[int, ...]


# 514 is ioctl of x32; older kernels take both numbers with and without the bit of x32.
_X86 = (
    _Architecture(0xC000003E, (16, 514, _X32 | 16, _X32 | 514)),
    _Architecture(0x40000003, (54,)),
)
_ARM = (_Architecture(0xC00000B7, (29,)), _Architecture(0x40000028, (54,)))
# A 32-bit personality names the 32-bit machine; the kernel beneath may be the 64-bit one all the same.
_MACHINES = {
    "x86_64": _X86,
    "i386": _X86,
    "i686": _X86,
    "aarch64": _ARM,
    "armv8l": _ARM,
    "armv7l": _ARM,
}


def terminal_filter(machine: str | None = None) -> bytes | None:
    """Return the filter as bubblewrap's ``--seccomp`` takes it.

    Args:
        machine: as ``uname -m`` names it; None for this one.

    Returns:
        An array of ``struct sock_filter`` (linux/filter.h); None for a machine whose numbers are not
        known here.
    """
    architectures = _MACHINES.get(platform.machine() if machine is None else machine)
    if architectures is None:
        return None
    program = [_instruction(_LOAD, _ARCHITECTURE)]
    for architecture in architectures:
        block = _block(architecture.numbers)
        program += [_instruction(_JUMP_IF_EQUAL, architecture.audit, otherwise=len(block)), *block]
    return b"".join([*program, _instruction(_RETURN, _DENY)])


def _block(numbers: tuple[int, ...]) -> list[bytes]:
    """Return the verdict on a call of one architecture; every way through it ends in a return."""
    block = [_instruction(_LOAD, _NUMBER)]
    # Over the remaining comparisons and the return that follows them.
    block += [
        _instruction(_JUMP_IF_EQUAL, number, then=len(numbers) - place)
        for place, number in enumerate(numbers)
    ]
    return [
        *block,
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD, _REQUEST),
        _instruction(_JUMP_IF_EQUAL, _TIOCSTI, then=2),
        _instruction(_JUMP_IF_EQUAL, _TIOCLINUX, then=1),
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _DENY),
    ]


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one ``struct sock_filter``; ``then`` and ``otherwise`` are instructions to skip."""
    return struct.pack("<HBBI", code, then, otherwise, value)
