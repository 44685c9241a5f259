"""Lines of gitignore syntax, and which of them decides about a path.

Reading follows git to the byte: comments, escapes, trailing spaces, a carriage
return before the line end, a byte order mark, NUL. Pure.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from re import Pattern
from typing import Final

from workseal_host.workspace.wildmatch import translate

_SPECIAL: Final = frozenset(b"*?[\\")


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern.

    Args:
        negated: whether it re-includes.
        directories_only: whether it matches directories alone.
        whole_path: whether it is compared with the path below its file's directory, else with the last name.
        literal: the text to be equal to, for patterns without wildcards.
        pattern: for the others; None if the pattern is malformed and matches nothing.
    """

    negated: bool
    directories_only: bool
    whole_path: bool
    literal: bytes | None
    pattern: Pattern[bytes] | None


def parse_rules(content: bytes) -> list[Rule]:
    """Read the content of a rules file."""
    lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    rules = (parse_rule(line) for line in lines)
    return [rule for rule in rules if rule is not None]


def parse_rule(line: bytes) -> Rule | None:
    """Read one line, without its newline; None for blank lines and comments."""
    if not line or line.startswith(b"#"):
        return None
    text = _trim(line.removesuffix(b"\r").partition(b"\0")[0])
    negated = text.startswith(b"!")
    text = text[1:] if negated else text
    directories_only = text.endswith(b"/")
    text = text[:-1] if directories_only else text
    whole_path = b"/" in text
    text = text[1:] if text.startswith(b"/") else text
    if not text:
        return None
    literal = text if _SPECIAL.isdisjoint(text) else None
    pattern = translate(text, path=whole_path) if literal is None else None
    return Rule(negated, directories_only, whole_path, literal, pattern)


def _trim(text: bytes) -> bytes:
    """Drop trailing spaces, but for one that is escaped and those before it."""
    end = len(text)
    while end and text[end - 1] == ord(" "):
        end -= 1
    backslashes = end - len(text[:end].rstrip(b"\\"))
    # A backslash that is itself escaped does not protect the space after it.
    return text[: end + 1] if backslashes % 2 and end < len(text) else text[:end]


class RuleSet:
    """The rules of one file, which match what is below its directory. Immutable.

    Args:
        directory: raw path of the directory, empty for the root.
        rules: in order of the file; a later one wins.
    """

    def __init__(self, directory: bytes, rules: Iterable[Rule]) -> None:
        self.directory = directory
        self._base_length = len(directory) + 1 if directory else 0
        self._rules = tuple(rules)
        # Nearly all rules of the field are plain names: those are looked up, latest first.
        self._names: dict[bytes, list[int]] = {}
        self._paths: dict[bytes, list[int]] = {}
        self._patterns: list[int] = []
        for index in reversed(range(len(self._rules))):
            rule = self._rules[index]
            if rule.literal is not None:
                (self._paths if rule.whole_path else self._names).setdefault(rule.literal, []).append(index)
            elif rule.pattern is not None:
                self._patterns.append(index)

    def __len__(self) -> int:
        return len(self._rules)

    def decides(self, path: bytes, name: bytes, *, is_dir: bool) -> bool | None:
        """Return whether the last matching rule ignores a path; None if no rule matches.

        Args:
            path: raw path below the root, in or below this set's directory.
            name: its last component.
            is_dir: whether it is a directory; a link to one is not.
        """
        below = path[self._base_length :]
        best = -1
        for index in (*self._names.get(name, ()), *self._paths.get(below, ())):
            if index > best and (is_dir or not self._rules[index].directories_only):
                best = index
        for index in self._patterns:
            if index < best:
                break
            if self._matches(self._rules[index], below, name, is_dir):
                best = index
                break
        return None if best < 0 else not self._rules[best].negated

    @staticmethod
    def _matches(rule: Rule, below: bytes, name: bytes, is_dir: bool) -> bool:
        if rule.pattern is None or (rule.directories_only and not is_dir):
            return False
        return rule.pattern.fullmatch(below if rule.whole_path else name) is not None
