"""``delete_file``: delete one file or symlink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workseal.paths import escape_path
from workseal_host.execution.file_tool import (
    FILE_TOOL_EFFECTS,
    FILE_TOOL_TIMEOUT_S,
    FILE_TYPES,
    PATH_PROPERTY,
    FileTool,
    changed,
)
from workseal_host.execution.files import delete_file
from workseal_host.execution.tool import Prediction, ToolContext
from workseal_host.execution.view import WorkspaceView
from workseal_host.workspace.model import EntryType

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": PATH_PROPERTY},
    "required": ["path"],
    "additionalProperties": False,
}


class DeleteFileTool(FileTool):
    """Delete a regular file, or a symlink without what it leads to. Directories stay."""

    def __init__(self) -> None:
        super().__init__(
            name="delete_file",
            description="Delete a file or a symlink in the workspace; not a directory.",
            schema=_SCHEMA,
            side_effects=FILE_TOOL_EFFECTS,
            default_timeout_s=FILE_TOOL_TIMEOUT_S,
            confined=True,
        )

    def _predict(self, path: bytes, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        del arguments
        before = view.lookup(path)
        if before is not None and before.type is EntryType.UNREADABLE:
            return None  # a directory or a file: the state does not say
        if before is None or before.type not in (*FILE_TYPES, EntryType.SYMLINK):
            return []
        return changed(path, before, None)

    def _apply(self, path: bytes, arguments: Mapping[str, Any], context: ToolContext) -> str:
        del arguments
        delete_file(context.root, path)
        return f"deleted {escape_path(path)}\n"
