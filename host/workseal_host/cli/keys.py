"""`workseal keys`: the host's signing keys, and the way to the pins of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from workseal.cli.keys import read_public_key, run_keys
from workseal.errors import InvalidInputError
from workseal.state import state_dir
from workseal_host.attestation.keyring import KeyRing, KeySource, RingKey
from workseal_host.errors import KeyRingError

_state_option = click.option("--state-dir", type=click.Path(), metavar="DIR", help="Where the key ring is.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.group("keys")
def keys_group() -> None:
    """Show, export and rotate this host's keys; pin the keys of others."""


def _ring(state: str | None) -> KeyRing:
    try:
        return KeyRing.load(state_dir(state))
    except (KeyRingError, InvalidInputError) as error:
        _leave(str(error))
        raise


def _leave(message: str) -> None:
    click.echo(f"workseal: {message}", err=True)
    sys.exit(2)


def _form(key: RingKey, current: str) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "scheme": key.public.scheme,
        "fingerprint": key.public.fingerprint,
        "uri": key.uri,
        "created_time": key.created_time,
        "retired_time": key.retired_time,
        "current": key.key_id == current,
    }


@keys_group.command("show")
@_state_option
@_json_option
def show(state_dir: str | None, as_json: bool) -> None:
    """List the keys of this host; the current one is marked."""
    ring = _ring(state_dir)
    forms = [_form(key, ring.current.key_id) for key in ring.keys]
    if as_json:
        click.echo(json.dumps({"keys": forms}, sort_keys=True))
        return
    for form in forms:
        mark = "*" if form["current"] else " "
        until = f", retired {form['retired_time']}" if form["retired_time"] else ""
        click.echo(f"{mark} {form['key_id']}  {form['scheme']}  created {form['created_time']}{until}")


@keys_group.command("export")
@_state_option
@click.option("--key-id", metavar="ID", help="Which key; the current one by default.")
def export(state_dir: str | None, key_id: str | None) -> None:
    """Print a public key as PEM, to be pinned with `workseal keys trust`."""
    ring = _ring(state_dir)
    try:
        key = ring.current if key_id is None else ring.key(key_id)
    except KeyRingError as error:
        _leave(str(error))
        raise
    click.echo(key.public.pem, nl=False)


@keys_group.command("rotate")
@_state_option
@click.option(
    "--uri", metavar="URI", help="Use the key that this URI names (a KMS or an HSM) in place of a new file."
)
@click.option(
    "--public",
    "public_file",
    type=click.Path(),
    metavar="PEM",
    help="Its public key as PEM; goes with --uri.",
)
def rotate(state_dir: str | None, uri: str | None, public_file: str | None) -> None:
    """Make a new key the current one.

    Hosts take it up at their next start: each signs one entry with the old key that
    names the new one. Old receipts still verify, and who pinned the old key follows.
    """
    if (uri is None) != (public_file is None):
        _leave("--uri and --public go together")
    ring = _ring(state_dir)
    try:
        source = KeySource(uri, read_public_key(public_file)) if uri and public_file else None
        key = ring.rotate(source)
    except (KeyRingError, InvalidInputError, OSError) as error:
        _leave(str(error))
        raise
    click.echo(key.key_id)
    click.echo("workseal: running hosts take the new key at their next start", err=True)


def _pass_on(verb: str, text: str) -> Callable[[click.Context], None]:
    @keys_group.command(verb, help=text, context_settings=_PASS_ON)
    @click.pass_context
    def command(context: click.Context) -> None:
        sys.exit(run_keys([verb, *context.args]))

    return command


for _verb, _text in {
    "trust": "Pin a public key.",
    "untrust": "Remove a pinned key.",
    "revoke": "Refuse what a key signs from a sequence on.",
    "pins": "List what is pinned.",
    "forget": "Forget what was verified of a workspace.",
}.items():
    _pass_on(_verb, _text)

__all__ = ["keys_group"]
