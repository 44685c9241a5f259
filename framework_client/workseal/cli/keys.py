"""`workseal keys trust`, `untrust`, `revoke`, `pins` and `forget`: whom this machine trusts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from workseal.cli.output import error_words, print_error, print_lines
from workseal.errors import InvalidInputError, StoreError
from workseal.receipt.keys import PublicKey
from workseal.state import state_dir
from workseal.trust import FileTrustStore, Pin, SqliteRecord

if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

COMMANDS: Final = ("trust", "untrust", "revoke", "pins", "forget")
_MAX_PEM_BYTES: Final = 65536


def add_parser(commands: _SubParsers) -> None:
    """Add the command `keys`."""
    group = commands.add_parser("keys", help="pin the public keys of hosts")
    verbs = group.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--state-dir", metavar="DIR", help="where pins are kept")
    common.add_argument("--json", action="store_true", help="print JSON")

    trust = verbs.add_parser("trust", parents=[common], help="pin a public key (PEM file, or - for stdin)")
    trust.add_argument("pem", metavar="PEM")
    trust.add_argument("--workspace", metavar="ID", help="only for this workspace")
    trust.add_argument("--chain", metavar="ID", help="only in this chain")
    trust.set_defaults(run=_trust)

    untrust = verbs.add_parser(
        "untrust", parents=[common], help="remove a key and the keys that it named in rotations"
    )
    untrust.add_argument("key_id", metavar="KEY_ID")
    untrust.set_defaults(run=_untrust)

    revoke = verbs.add_parser("revoke", parents=[common], help="refuse what a key signs from a sequence on")
    revoke.add_argument("key_id", metavar="KEY_ID")
    revoke.add_argument("--chain", metavar="ID", help="only in this chain")
    revoke.add_argument("--from", dest="from_sequence", type=int, default=1, metavar="SEQUENCE")
    revoke.set_defaults(run=_revoke)

    pins = verbs.add_parser("pins", parents=[common], help="list what is pinned")
    pins.set_defaults(run=_pins)

    forget = verbs.add_parser(
        "forget",
        parents=[common],
        help="forget what was verified of a workspace: its next receipt starts anew",
    )
    forget.add_argument("workspace_id", metavar="WORKSPACE_ID")
    forget.set_defaults(run=_forget)


def run_keys(arguments: Sequence[str]) -> int:
    """Run `workseal keys ARGUMENTS...`, for the host's command line to hand on.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="workseal")
    add_parser(parser.add_subparsers(dest="command", required=True))
    options = parser.parse_args(["keys", *arguments])
    return int(options.run(options))


def read_public_key(path: str) -> PublicKey:
    """Read a public key from a PEM file, or from stdin for ``-``.

    Raises:
        OSError: the file cannot be read.
        PublicKeyError: it is no usable public key.
    """
    if path == "-":
        return PublicKey.from_pem(sys.stdin.buffer.read(_MAX_PEM_BYTES))
    with open(path, "rb") as file:
        return PublicKey.from_pem(file.read(_MAX_PEM_BYTES))


def _store(options: argparse.Namespace) -> FileTrustStore:
    return FileTrustStore(state_dir(options.state_dir))


def _failed(error: Exception) -> int:
    print_error(error_words(error))
    return 2


def _say(options: argparse.Namespace, value: dict[str, Any], *lines: str) -> int:
    print_lines([json.dumps(value, sort_keys=True)] if options.json else lines)
    return 0


def _trust(options: argparse.Namespace) -> int:
    try:
        key = read_public_key(options.pem)
        pin = Pin(key, workspace_id=options.workspace, chain_id=options.chain)
        _store(options).update(lambda state: state.pinned(pin))
    except (OSError, InvalidInputError, StoreError) as error:
        return _failed(error)
    value = {"key_id": key.key_id, "fingerprint": key.fingerprint, "workspace_id": options.workspace}
    return _say(options, value, key.key_id)


def _untrust(options: argparse.Namespace) -> int:
    try:
        store = _store(options)
        known = any(pin.public.key_id == options.key_id for pin in store.state().pins)
        if known:
            store.update(lambda state: state.unpinned(options.key_id))
    except (InvalidInputError, StoreError) as error:
        return _failed(error)
    if not known:
        print_error(f"{options.key_id} is not pinned")
        return 1
    return _say(options, {"key_id": options.key_id, "pinned": False}, options.key_id)


def _revoke(options: argparse.Namespace) -> int:
    if options.from_sequence < 1:
        print_error("--from counts from 1")
        return 2
    if options.from_sequence > 1 and options.chain is None:
        print_error("--from needs --chain: sequences count in one chain")
        return 2
    try:
        _store(options).update(
            lambda state: state.revoked(
                options.key_id, chain_id=options.chain, from_sequence=options.from_sequence
            )
        )
    except (InvalidInputError, StoreError) as error:
        return _failed(error)
    value = {"key_id": options.key_id, "chain_id": options.chain, "revoked_from": options.from_sequence}
    return _say(options, value, options.key_id)


def _pins(options: argparse.Namespace) -> int:
    try:
        state = _store(options).state()
    except (InvalidInputError, StoreError) as error:
        return _failed(error)
    if options.json:
        values = [
            {
                "key_id": pin.public.key_id,
                "scheme": pin.public.scheme,
                "workspace_id": pin.workspace_id,
                "chain_id": pin.chain_id,
                "valid_from": pin.valid_from,
                "named_by": pin.named_by,
            }
            for pin in state.pins
        ]
        limits = [
            {"key_id": item.key_id, "chain_id": item.chain_id, "from": item.from_sequence, "why": item.why}
            for item in state.limits
        ]
        print_lines([json.dumps({"pins": values, "limits": limits}, sort_keys=True)])
        return 0
    for pin in state.pins:
        scope = f"workspace {pin.workspace_id or 'any'}, chain {pin.chain_id or 'any'} from {pin.valid_from}"
        origin = f", named by {pin.named_by}" if pin.named_by else ""
        print_lines([f"{pin.public.key_id}  {pin.public.scheme}  {scope}{origin}"])
    for item in state.limits:
        print_lines(
            [f"{item.key_id}  {item.why} from {item.from_sequence} in chain {item.chain_id or 'any'}"]
        )
    return 0


def _forget(options: argparse.Namespace) -> int:
    try:
        SqliteRecord(state_dir(options.state_dir)).forget(options.workspace_id)
    except (InvalidInputError, StoreError) as error:
        return _failed(error)
    return _say(options, {"workspace_id": options.workspace_id, "forgotten": True}, options.workspace_id)
