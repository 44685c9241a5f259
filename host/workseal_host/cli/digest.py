"""`workseal digest`: one hash over a directory, or the check of one."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import click
import xxhash

from workseal.errors import InvalidInputError
from workseal.paths import escape_path
from workseal_host.cli.scanning import (
    ConfigChoice,
    Look,
    config_options,
    look,
    scheme_option,
    warn_unsettled,
)
from workseal_host.workspace.manifest import count_listed, parse_digest
from workseal_host.workspace.model import tree_object
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme


@click.command("digest")
@click.argument("directory", type=click.Path(path_type=bytes), default=b".")
@scheme_option
@config_options
@click.option("--check", "expected", metavar="DIGEST", help="Exit 0 if this is the digest, else 1.")
@click.option("--full", is_flag=True, help="Read every byte, whatever is known of earlier scans.")
@click.option("--fast", is_flag=True, help="Print an unsigned xxh3 in place of a digest.")
@click.option("--json", "as_json", is_flag=True, help="Print an object that also says how it came about.")
def digest_command(
    directory: bytes,
    scheme: str | None,
    config_file: Path | None,
    expected: str | None,
    *,
    no_config: bool,
    full: bool,
    fast: bool,
    as_json: bool,
) -> None:
    """Print the digest of DIRECTORY (the current one by default).

    It is what a host of yours comes to: the built-in names, the .worksealignore
    files and the `ignore` of your workseal.toml do not count.

    Exit codes: 0 printed, or equal; 1 not equal, or not certain; 2 usage, or
    the directory or its ignore rules cannot be read.
    """
    wanted = _wanted(expected, fast=fast, scheme=scheme)
    level = ScanLevel.FULL if full or fast else ScanLevel.STAT
    new_hash = xxhash.xxh3_128 if fast else hashlib.sha256
    seen = look(
        directory,
        DigestScheme(scheme or DigestScheme.WORKSEAL_TREE_1),
        level,
        config=ConfigChoice(config_file, no_config),
        new_hash=new_hash,
    )
    text = f"sha256:{seen.digest.hex()}"
    if fast:
        text = f"xxh3:{xxhash.xxh3_128_hexdigest(tree_object(seen.tree))}"
    click.echo(json.dumps(_report(seen, text, fast=fast), ensure_ascii=False) if as_json else text)
    warn_unsettled(tuple(seen.scan.unreadable), tuple(seen.scan.unstable))
    if wanted is not None:
        _answer(wanted, seen)


def _wanted(expected: str | None, *, fast: bool, scheme: str | None) -> bytes | None:
    if fast and scheme == DigestScheme.NONOKA_1.value:
        raise click.UsageError("--fast has no nonoka/1 form; leave out one of the two")
    if expected is None:
        return None
    if fast:
        raise click.UsageError("--check needs a SHA-256 digest; leave out --fast")
    try:
        return parse_digest(expected)
    except InvalidInputError as error:
        raise click.UsageError(f"--check: {error}") from error


def _report(seen: Look, text: str, *, fast: bool) -> dict[str, object]:
    return {
        "scheme": "xxh3" if fast else seen.scheme.value,
        "digest": text,
        "root": seen.root,
        "entries": count_listed(seen.tree, seen.scheme),
        "unreadable": [escape_path(path) for path in seen.scan.unreadable],
        "unstable": [escape_path(path) for path in seen.scan.unstable],
        "policy_digest": f"sha256:{seen.scan.policy.digest}",
        "scan": seen.scan.level.value,
    }


def _answer(wanted: bytes, seen: Look) -> None:
    """Exit with 1 unless the digest is the wanted one, and certainly so."""
    if wanted != seen.digest:
        click.echo(f"workseal: the digest differs from sha256:{wanted.hex()}", err=True)
        sys.exit(1)
    if not seen.scan.settled:
        click.echo("workseal: equal, but something could not be read or did not hold still", err=True)
        sys.exit(1)
