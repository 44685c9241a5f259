"""`workseal diff`: what changed between two directories or saved manifests."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from workseal.errors import InvalidInputError
from workseal.paths import escape_path
from workseal_host.cli.scanning import (
    ConfigChoice,
    InputError,
    config_options,
    look,
    scheme_option,
    warn_unsettled,
)
from workseal_host.workspace.diff import Change, EntryState, diff
from workseal_host.workspace.manifest import ManifestHeader, read_manifest
from workseal_host.workspace.model import Directory
from workseal_host.workspace.scan import ScanLevel
from workseal_host.workspace.scheme import DigestScheme


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison."""

    header: ManifestHeader
    tree: Directory


@click.command("diff")
@click.argument("before", metavar="A", type=click.Path(path_type=bytes))
@click.argument("after", metavar="B", type=click.Path(path_type=bytes))
@scheme_option
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print one object in the form of receipts.")
def diff_command(
    before: bytes,
    after: bytes,
    scheme: str | None,
    config_file: Path | None,
    *,
    no_config: bool,
    as_json: bool,
) -> None:
    """List what is created, modified and deleted in B as against A.

    Each is a directory or a saved manifest. Exit codes: 0 equal; 1 they differ,
    or equality is not certain; 2 usage, or something cannot be read.
    """
    sides = _sides((before, after), scheme, ConfigChoice(config_file, no_config))
    old, new = (side.header for side in sides)
    changes = diff(sides[0].tree, sides[1].tree, list_directories=old.scheme is not DigestScheme.NONOKA_1)
    if as_json:
        click.echo(json.dumps({"scheme": old.scheme.value} | _lists(changes), ensure_ascii=False))
    else:
        for change in changes:
            click.echo(f"{change.kind}\t{escape_path(change.path)}")
    if old.policy_digest != new.policy_digest:
        click.echo("workseal: warning: the two sides go by different ignore rules", err=True)
    unsettled = False
    for header in (old, new):
        warn_unsettled(header.unreadable, header.unstable)
        unsettled = unsettled or bool(header.unreadable or header.unstable)
    if changes or unsettled:
        sys.exit(1)


def _sides(paths: tuple[bytes, bytes], scheme: str | None, config: ConfigChoice) -> list[_Side]:
    """Read manifests first: a directory beside one is looked at under its scheme."""
    sides: dict[bytes, _Side] = {path: _read(path) for path in paths if not os.path.isdir(path)}
    schemes = {side.header.scheme for side in sides.values()}
    if scheme is not None:
        schemes.add(DigestScheme(scheme))
    if len(schemes) > 1:
        raise click.UsageError("manifests of different schemes cannot be compared; save one of them again")
    chosen = schemes.pop() if schemes else DigestScheme.WORKSEAL_TREE_1
    for path in paths:
        if path not in sides:
            seen = look(path, chosen, ScanLevel.STAT, config=config)
            sides[path] = _Side(seen.header(), seen.tree)
    return [sides[path] for path in paths]


def _read(path: bytes) -> _Side:
    try:
        with open(path, "rb") as lines:
            manifest = read_manifest(lines)
    except OSError as error:
        raise InputError(f"cannot read {escape_path(path)}: {error.strerror}") from error
    except InvalidInputError as error:
        raise InputError(f"{escape_path(path)}: {error}") from error
    return _Side(manifest.header, manifest.tree)


def _lists(changes: list[Change]) -> dict[str, list[dict[str, object]]]:
    lists: dict[str, list[dict[str, object]]] = {"created": [], "modified": [], "deleted": []}
    for change in changes:
        path: dict[str, object] = {"path": escape_path(change.path)}
        if change.before is not None and change.after is not None:
            lists[change.kind].append(path | {"before": _state(change.before), "after": _state(change.after)})
        else:
            states = (change.before, change.after)
            lists[change.kind].extend(path | _state(state) for state in states if state is not None)
    return lists


def _state(state: EntryState) -> dict[str, object]:
    return {"type": state.type.value, "digest": {"sha256": state.digest.hex()}}
