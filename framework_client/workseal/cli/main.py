"""Entry point of `workseal`: what the client can do itself, and the way to the host.

`verify` and the commands about pins need nothing but the base installation and
behave the same with and without the host. Everything else is the host's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

#: Commands of `keys` that are the client's; known here so that no other verb loads cryptography.
KEY_COMMANDS: Final = frozenset({"trust", "untrust", "revoke", "pins", "forget"})
EXIT_USAGE: Final = 2
EXIT_OUR_FAILURE: Final = 125
_HOST_PACKAGES: Final = frozenset(
    {
        "aiosqlite",
        "click",
        "grpc_health",
        "grpc_reflection",
        "jsonschema",
        "rich",
        "structlog",
        "workseal_host",
        "xxhash",
    }
)
CLIENT_VERBS: Final = ("verify", "keys")
#: Verbs that only the host has; known here so that a base installation can tell them from typing errors.
HOST_VERBS: Final = (
    "serve",
    "run",
    "exec",
    "digest",
    "manifest",
    "diff",
    "receipts",
    "status",
    "healthcheck",
    "validate",
    "completion",
)
HOST_KEY_COMMANDS: Final = ("show", "export", "rotate")
_INSTALL: Final = "workseal: this needs the host: pip install 'workseal[host]'"


def client_parser() -> argparse.ArgumentParser:
    """Return the parser of what the client does itself."""
    from workseal.cli import keys, verify  # noqa: PLC0415 - cryptography takes most of the time

    parser = argparse.ArgumentParser(
        prog="workseal",
        description="Verify receipts and pin the keys of hosts.",
        epilog=f"With the host (pip install 'workseal[host]') also: {', '.join(HOST_VERBS)}, "
        f"keys {'|'.join(HOST_KEY_COMMANDS)}.",
    )
    parser.add_argument("--version", action="version", version=f"workseal, version {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    verify.add_parser(commands)
    keys.add_parser(commands)
    return parser


def is_client_command(arguments: Sequence[str]) -> bool:
    """Say whether the client answers a command line itself."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        return False
    return words[0] == "verify" or (words[0] == "keys" and len(words) > 1 and words[1] in KEY_COMMANDS)


def _run_client(arguments: Sequence[str]) -> int:
    options = client_parser().parse_args(arguments)
    return int(options.run(options))


def _run_host(arguments: Sequence[str]) -> int:
    try:
        from workseal_host.cli.app import app  # noqa: PLC0415 - absent in a client's installation

        app(args=list(arguments), prog_name="workseal")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _HOST_PACKAGES:
            raise
        return _without_host(arguments)
    return 0


def _without_host(arguments: Sequence[str]) -> int:
    """Answer a command line in a base installation: only what the host has needs the host."""
    words = [word for word in arguments if not word.startswith("-")]
    verb = words[0] if words else ""
    if verb in HOST_VERBS or (verb == "keys" and len(words) > 1 and words[1] in HOST_KEY_COMMANDS):
        print(_INSTALL, file=sys.stderr)  # noqa: T201
        # Of these two, every code but one is a tool's own.
        return EXIT_OUR_FAILURE if verb in ("run", "exec") else EXIT_USAGE
    if not arguments:
        client_parser().print_help(sys.stdout)
        return EXIT_USAGE
    if list(arguments) == ["keys"]:
        return _run_client(["keys", "--help"])
    if verb and verb not in CLIENT_VERBS:
        client_parser().error(
            f"no such command {verb!r}: there are {' and '.join(CLIENT_VERBS)}, "
            f"and with the host (pip install 'workseal[host]') {', '.join(HOST_VERBS)}"
        )
    return _run_client(arguments)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - seldom asked for, slow

    try:
        return version("workseal")
    except PackageNotFoundError:
        return "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; the process's own by default.

    Returns:
        The exit code: 0 yes or done, 1 a negative answer, 2 usage or unreadable input.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run_client(given) if is_client_command(given) else _run_host(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has gone; the interpreter must not complain about it on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
