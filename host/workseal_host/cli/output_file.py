"""Writing a result into a file that the user named.

Invariants: a regular file is replaced in one step or left as it was; what is no
regular file (a FIFO, ``/dev/fd/3``) is written to and never replaced.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from workseal.errors import InvalidInputError, StoreError
from workseal_host.place import is_inside

_OWN_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/([0-9]+))")


def check_output(path: Path) -> None:
    """Find out before anything runs whether a file could be written there.

    Raises:
        InvalidInputError: it could not.
    """
    if os.fspath(path) == "-":
        raise InvalidInputError("stdout has its own use here: name a file (/dev/fd/3 will do)", field="file")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a directory: name a file", field="file")
    target = path if _is_special(path) else Path(os.path.realpath(path)).parent
    if not os.access(target, os.W_OK):
        what = "is not writable" if target.exists() else "does not exist"
        raise InvalidInputError(f"cannot write {path}: {target} {what}", field="file")


def write_output(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        StoreError: it could not be written; a file that was there is as it was.
    """
    try:
        if _is_special(path):
            _write_into(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def lies_inside(path: Path, root: str | bytes | Path) -> bool:
    """Tell whether a file lies in a directory, by identity and not by name."""
    with suppress(OSError):
        return is_inside(os.fsencode(os.path.realpath(path)), os.fsencode(root))
    return False


def _is_special(path: Path) -> bool:
    # A descriptor may lead to a regular file: replacing that would leave its holder with the old one.
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _write_into(path: Path, data: bytes) -> None:
    own = _OWN_DESCRIPTOR.fullmatch(os.path.abspath(path))
    if own is not None:
        # Opened by its name, a descriptor of a regular file would begin at its start again.
        _write_all({"stdout": 1, "stderr": 2}.get(own[1]) or int(own[2]), data)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            if target.exists():
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
