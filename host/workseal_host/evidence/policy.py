"""Which changes break a rule of the host. Pure.

A protected glob is a gitignore pattern with one difference, on the safe side: it
matches at any depth even when it has a slash inside; a leading slash ties it to
the root. A directory that matches protects all below it. Case does not matter,
because on some file systems it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from workseal.paths import escape_path
from workseal.receipt import statement as form
from workseal_host.evidence.facts import Facts
from workseal_host.workspace.diff import Change
from workseal_host.workspace.rules import RuleSet, parse_rule

MAX_LISTED_VIOLATIONS = 1000


def violations(facts: Facts, own: Sequence[Change]) -> tuple[form.PolicyViolation, ...]:
    """Return the rules that the call's own changes break; where there are too many, the last says so."""
    found = [*facts.violations, *_broken(facts, own)]
    # By their bytes as well: a tool decides how long paths are, and what outgrows a receipt has none.
    fitting, _ = form.bound_paths([item.path for item in found[:MAX_LISTED_VIOLATIONS]])
    if len(fitting) == len(found):
        return tuple(found)
    listed = found[: min(len(fitting), MAX_LISTED_VIOLATIONS - 1)]
    return (*listed, form.PolicyViolation("", f"{len(found) - len(listed)} more"))


def _broken(facts: Facts, own: Sequence[Change]) -> Iterable[form.PolicyViolation]:
    protected = ProtectedPaths(facts.protected)
    for change in own:
        path = escape_path(change.path)
        if facts.read_only:
            yield form.PolicyViolation(path, "read-only")
        for glob in protected.globs_of(change.path):
            yield form.PolicyViolation(path, f"protected:{glob}")


class ProtectedPaths:
    """Protected globs, to be asked about many paths.

    Args:
        globs: as configured.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        self._globs = [(glob, _rules(glob)) for glob in globs]
        self._directories: dict[bytes, tuple[str, ...]] = {}

    def globs_of(self, path: bytes) -> tuple[str, ...]:
        """Return the globs that a path, or a directory that it lies in, matches."""
        path = path.lower()
        # Up to a directory that is known: a chain of thousands must not be gone up for each of them.
        directory, way = path.rpartition(b"/")[0], [path]
        while directory and directory not in self._directories:
            way.append(directory)
            directory = directory.rpartition(b"/")[0]
        matched = self._directories.get(directory, ())
        for below in reversed(way[1:]):
            matched = self._directories[below] = self._with(matched, below)
        return self._with(matched, path)

    def _with(self, matched: tuple[str, ...], path: bytes) -> tuple[str, ...]:
        # Its type may have changed: as a directory it matches every kind of pattern.
        name = path.rpartition(b"/")[2]
        return tuple(
            glob
            for glob, rules in self._globs
            if glob in matched or any(rule.decides(path, name, is_dir=True) for rule in rules)
        )


def matches_glob(path: bytes, glob: str) -> bool:
    """Tell whether a path, or a directory that it lies in, matches a protected glob."""
    return bool(ProtectedPaths([glob]).globs_of(path))


@lru_cache(maxsize=256)
def _rules(glob: str) -> tuple[RuleSet, ...]:
    text = glob.encode("utf-8", "surrogateescape").lower()
    # `dir/**` would leave the directory itself out; what lies in one that matches is protected anyway.
    text = text.removesuffix(b"/**") or text
    # Without a slash inside, a pattern matches at any depth by itself.
    texts = [text] if text.startswith(b"/") or b"/" not in text[:-1] else [text, b"**/" + text]
    rules = (parse_rule(each) for each in texts)
    return tuple(RuleSet(b"", [rule]) for rule in rules if rule is not None and not rule.negated)
