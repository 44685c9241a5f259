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
    if len(found) > MAX_LISTED_VIOLATIONS:
        left_out = len(found) - MAX_LISTED_VIOLATIONS + 1
        found = [*found[: MAX_LISTED_VIOLATIONS - 1], form.PolicyViolation("", f"{left_out} more")]
    return tuple(found)


def _broken(facts: Facts, own: Sequence[Change]) -> Iterable[form.PolicyViolation]:
    for change in own:
        path = escape_path(change.path)
        if facts.read_only:
            yield form.PolicyViolation(path, "read-only")
        for glob in facts.protected:
            if matches_glob(change.path, glob):
                yield form.PolicyViolation(path, f"protected:{glob}")


def matches_glob(path: bytes, glob: str) -> bool:
    """Tell whether a path, or a directory that it lies in, matches a protected glob."""
    rules = _rules(glob)
    parts = path.lower().split(b"/")
    for count in range(1, len(parts) + 1):
        # Of the path itself the type may have changed: as a directory it matches every kind of pattern.
        if any(rule.decides(b"/".join(parts[:count]), parts[count - 1], is_dir=True) for rule in rules):
            return True
    return False


@lru_cache(maxsize=256)
def _rules(glob: str) -> tuple[RuleSet, ...]:
    text = glob.encode("utf-8", "surrogateescape").lower()
    # `dir/**` alone would leave the directory itself out.
    texts = [text, text.removesuffix(b"/**")] if text.endswith(b"/**") else [text]
    if not text.startswith(b"/"):
        texts += [b"**/" + each for each in texts]
    rules = (parse_rule(each) for each in texts)
    return tuple(RuleSet(b"", [rule]) for rule in rules if rule is not None and not rule.negated)
