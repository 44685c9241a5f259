"""Replace what a regular expression matches. A script of its own, standard library only.

A pattern can take exponential time, and Python's matcher cannot be interrupted; a process can. Standard
input: one line of JSON (``pattern``, ``replacement``, ``count``, ``limit`` in bytes), then the content.
Standard output: one line of JSON (``count`` or ``error``), then the new content.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

_MEMORY_BYTES = 1 << 30


class _TooLargeError(Exception):
    pass


def replace(content: str, request: dict[str, Any]) -> tuple[str, int]:
    """Return the new content and the number of replacements."""
    size = len(content)
    count = 0
    template = request["replacement"]

    def expand(match: re.Match[str]) -> str:
        nonlocal size, count
        # expand() parses the template anew for every match, which only one with groups is worth.
        text = match.expand(template) if "\\" in template else template
        size += len(text) - len(match.group())
        count += 1
        # Checked as it grows: the result of an empty match everywhere is content times replacement.
        if size > request["limit"]:
            raise _TooLargeError
        return text

    return re.sub(request["pattern"], expand, content, count=request["count"]), count


def main() -> None:
    """Run as a script."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    request = json.loads(sys.stdin.buffer.readline())
    # Bytes that are not UTF-8 survive the round trip.
    content = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    answer: dict[str, Any]
    try:
        changed, count = replace(content, request)
    except (re.error, IndexError) as error:
        answer, changed = {"error": f"not a valid regular expression or replacement: {error}"}, ""
    except (_TooLargeError, MemoryError, RecursionError, OverflowError):
        answer, changed = {"error": "the result would be too large"}, ""
    else:
        answer = {"count": count}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + changed.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
