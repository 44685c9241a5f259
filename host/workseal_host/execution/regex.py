"""Regular expressions from a caller, in a process that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from workseal_host.execution.files import MAX_FILE_BYTES, FileOperationError

REGEX_TIMEOUT_S = 5.0
_WORKER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "regex_worker.py")


def replace_regex(
    content: bytes, pattern: str, replacement: str, count: int = 0, *, timeout_s: float = REGEX_TIMEOUT_S
) -> tuple[bytes, int]:
    """Replace what a Python regular expression matches. Blocks for up to ``timeout_s``.

    Args:
        content: where; bytes that are not UTF-8 stay as they are.
        pattern: the expression (``re``); flags inline, such as ``(?m)``.
        replacement: the template (``re.Match.expand``).
        count: at most so many; 0 for all.
        timeout_s: seconds until the attempt is given up.

    Returns:
        The new content and the number of replacements.

    Raises:
        FileOperationError: it is no valid expression, takes too long or yields too much.
    """
    request = {"pattern": pattern, "replacement": replacement, "count": count, "limit": MAX_FILE_BYTES}
    try:
        done = subprocess.run(
            [os.path.realpath(sys.executable), "-I", "-S", "-B", _WORKER],
            input=json.dumps(request).encode() + b"\n" + content,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={},
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise FileOperationError(
            f"the regular expression took longer than {timeout_s:g} s; nothing was changed. Make it simpler"
        ) from error
    status, separator, changed = done.stdout.partition(b"\n")
    if done.returncode != 0 or not separator:
        raise FileOperationError("the regular expression could not be evaluated; nothing was changed")
    answer = json.loads(status)
    if "error" in answer:
        raise FileOperationError(f"{answer['error']}; nothing was changed")
    return changed, int(answer["count"])
