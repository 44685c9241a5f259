"""What a framework is handed of a verified call, typed and strictly parsed.

These forms carry no authority: they are what verification left, made readable.
Parsing refuses whatever is not exactly of the expected type; it never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workseal.errors import InvalidInputError


class Completeness(StrEnum):
    """How much of a result there is."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


def _fail(name: str, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"{name} must be {wanted}", field=name)


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _fail(name, "an object")
    return value


def _text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str) or not value:
        raise _fail(name, "a non-empty string")
    return value


def _optional_text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    if value is not None and not isinstance(value, str):
        raise _fail(name, "a string or null")
    return value


def _paths(source: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = source.get(name, ())
    # A string is a sequence of strings too: "abc" must not become three paths.
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _fail(name, "a list of strings")
    return tuple(value)


def _flag(source: Mapping[str, Any], name: str) -> bool:
    value = source.get(name, False)
    if not isinstance(value, bool):
        raise _fail(name, "true or false")
    return value


def _integer(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _fail(name, "an integer or null")
    return value


def _seconds(source: Mapping[str, Any], name: str) -> float | None:
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _fail(name, "a number of seconds or null")
    return float(value)


@dataclass(frozen=True, slots=True)
class WorkspaceAttestation:
    """What a call changed in the workspace.

    Args:
        root: path of the workspace, escaped.
        before_digest: digest before the call.
        after_digest: digest after the call.
        created, modified, deleted: changed paths, escaped.
        policy_violations: protected paths that the call changed.
        restored_paths: those of them that were put back.
        collector: what made the observation.
    """

    root: str
    before_digest: str
    after_digest: str
    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    policy_violations: tuple[str, ...] = ()
    restored_paths: tuple[str, ...] = ()
    collector: str = "host"

    @classmethod
    def from_value(cls, value: object) -> WorkspaceAttestation:
        """Parse the plain form.

        Raises:
            InvalidInputError: a field is missing or of another type.
        """
        if isinstance(value, cls):
            return value
        source = _mapping(value, "workspace")
        return cls(
            root=_text(source, "root"),
            before_digest=_text(source, "before_digest"),
            after_digest=_text(source, "after_digest"),
            created=_paths(source, "created"),
            modified=_paths(source, "modified"),
            deleted=_paths(source, "deleted"),
            policy_violations=_paths(source, "policy_violations"),
            restored_paths=_paths(source, "restored_paths"),
            collector=_optional_text(source, "collector") or "host",
        )


@dataclass(frozen=True, slots=True)
class EffectAttestation:
    """Whether a call changed anything, and where.

    Args:
        changed: whether it did.
        scope: where, in a word.
        collector: what made the observation.
        summary: the same for people.
    """

    changed: bool
    scope: str = "workspace"
    collector: str = "host"
    summary: str | None = None

    @classmethod
    def from_value(cls, value: object) -> EffectAttestation:
        """Parse the plain form.

        Raises:
            InvalidInputError: a field is missing or of another type.
        """
        if isinstance(value, cls):
            return value
        source = _mapping(value, "effect")
        if "changed" not in source:
            raise _fail("changed", "true or false")
        return cls(
            changed=_flag(source, "changed"),
            scope=_optional_text(source, "scope") or "workspace",
            collector=_optional_text(source, "collector") or "host",
            summary=_optional_text(source, "summary"),
        )


@dataclass(frozen=True, slots=True)
class ExternalToolReceipt:
    """The result of one call, in the form that frameworks read.

    Args:
        result: the text for the model.
        exit_code: of the tool; ``None`` where it has none or did not run.
        elapsed_seconds: how long it ran.
        workspace: what it changed there.
        effect: whether it changed anything.
        host: who ran it.
        artifact_ref: where the signed receipt is found.
        output_kind: what ``result`` is, in a word.
        original_bytes: length of the whole result, in bytes.
        truncated: whether ``result`` is a part of it.
        completeness: how much of it there is.
    """

    result: str | None = None
    exit_code: int | None = None
    elapsed_seconds: float | None = None
    workspace: WorkspaceAttestation | None = None
    effect: EffectAttestation | None = None
    host: str | None = None
    artifact_ref: str | None = None
    output_kind: str | None = None
    original_bytes: int | None = None
    truncated: bool = False
    completeness: Completeness = Completeness.UNKNOWN

    @classmethod
    def from_value(cls, value: object) -> ExternalToolReceipt:
        """Parse the plain form.

        Raises:
            InvalidInputError: a field is of another type, or an unknown completeness.
        """
        if isinstance(value, cls):
            return value
        source = _mapping(value, "receipt")
        workspace, effect = source.get("workspace"), source.get("effect")
        return cls(
            result=_optional_text(source, "result"),
            exit_code=_integer(source, "exit_code"),
            elapsed_seconds=_seconds(source, "elapsed_seconds"),
            workspace=None if workspace is None else WorkspaceAttestation.from_value(workspace),
            effect=None if effect is None else EffectAttestation.from_value(effect),
            host=_optional_text(source, "host"),
            artifact_ref=_optional_text(source, "artifact_ref"),
            output_kind=_optional_text(source, "output_kind"),
            original_bytes=_integer(source, "original_bytes"),
            truncated=_flag(source, "truncated"),
            completeness=_completeness(source),
        )


def _completeness(source: Mapping[str, Any]) -> Completeness:
    value = source.get("completeness")
    if value is None:
        return Completeness.PARTIAL if _flag(source, "truncated") else Completeness.UNKNOWN
    try:
        return Completeness(value)
    except ValueError as error:
        raise _fail("completeness", "complete, partial or unknown") from error
