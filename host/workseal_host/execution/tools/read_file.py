"""``read_file``: show lines of one file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from workseal.paths import escape_path
from workseal_host.execution.file_tool import FILE_TOOL_TIMEOUT_S, PATH_PROPERTY, FileTool
from workseal_host.execution.files import FileOperationError, read_file
from workseal_host.execution.output import CapturedStream, valid_end
from workseal_host.execution.tool import READ_ONLY, Prediction, ToolContext
from workseal_host.execution.view import WorkspaceView

DEFAULT_LINES = 2000
MAX_TEXT_BYTES = 256 * 1024

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": PATH_PROPERTY,
        "offset": {"type": "integer", "minimum": 1, "description": "First line to show; 1 by default."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100_000,
            "description": f"How many lines to show; {DEFAULT_LINES} by default.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


class ReadFileTool(FileTool):
    """Show lines of a regular file; links, pipes and devices are refused."""

    def __init__(self) -> None:
        super().__init__(
            name="read_file",
            description=f"Show lines of a file in the workspace, at most {MAX_TEXT_BYTES // 1024} KiB.",
            schema=_SCHEMA,
            side_effects=READ_ONLY,
            default_timeout_s=FILE_TOOL_TIMEOUT_S,
            confined=True,
        )

    def predict(self, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        """Say that nothing changes."""
        return []

    def _predict(self, path: bytes, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        return []

    def _apply(self, path: bytes, arguments: Mapping[str, Any], context: ToolContext) -> str:
        lines = io.BytesIO(read_file(context.root, path)).readlines()
        first = arguments.get("offset", 1)
        if first > max(1, len(lines)):
            word = "line" if len(lines) == 1 else "lines"
            raise FileOperationError(f"{escape_path(path)} has only {len(lines)} {word}")
        chosen = lines[first - 1 : first - 1 + arguments.get("limit", DEFAULT_LINES)]
        shown, count, cut = _within_limit(chosen)
        return CapturedStream.of(shown).text() + _note(first, count, len(lines), cut=cut, shown=shown)


def _within_limit(lines: list[bytes]) -> tuple[bytes, int, bool]:
    """Return the bytes shown, how many lines they begin, and whether the last one is cut."""
    size = 0
    for count, line in enumerate(lines):
        if size + len(line) > MAX_TEXT_BYTES:
            if count:
                return b"".join(lines[:count]), count, False
            head = line[:MAX_TEXT_BYTES]
            return head[: valid_end(head)], 1, True
        size += len(line)
    return b"".join(lines), len(lines), False


def _note(first: int, count: int, total: int, *, cut: bool, shown: bytes) -> str:
    notes = []
    if cut:
        notes.append(f"[line {first} is cut after {len(shown)} bytes]")
    last = first + count - 1
    if first > 1 or last < total:
        more = f"; go on with offset {last + 1}" if last < total else ""
        notes.append(f"[lines {first} to {last} of {total}{more}]")
    separator = "\n" if notes and not shown.endswith(b"\n") else ""
    return separator + "".join(note + "\n" for note in notes)
