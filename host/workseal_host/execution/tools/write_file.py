"""``write_file``: give a file this content, whether it exists or not."""

from __future__ import annotations

import stat
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
    created_below,
    sha256,
)
from workseal_host.execution.files import FileOperationError, create_file, entry_mode, write_existing
from workseal_host.execution.tool import Prediction, ToolContext
from workseal_host.execution.view import WorkspaceView
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import EntryType, Leaf

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": PATH_PROPERTY,
        "content": {"type": "string", "description": "The whole new content, written as UTF-8."},
        "create_directories": {
            "type": "boolean",
            "description": "Create missing directories on the way; true by default.",
        },
        "executable": {
            "type": "boolean",
            "description": "Whether the file may be executed; an existing file keeps its mode by default.",
        },
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


class WriteFileTool(FileTool):
    """Create a file, or replace its whole content."""

    def __init__(self) -> None:
        super().__init__(
            name="write_file",
            description="Create a file in the workspace, or replace its whole content.",
            schema=_SCHEMA,
            side_effects=FILE_TOOL_EFFECTS,
            default_timeout_s=FILE_TOOL_TIMEOUT_S,
            confined=True,
        )

    def _predict(self, path: bytes, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        digest = sha256(arguments["content"].encode())
        executable = arguments.get("executable")
        before = view.lookup(path)
        if before is None:
            missing = _missing_directories(path, view)
            if missing is None or (missing and not arguments.get("create_directories", True)):
                return []
            entry_type = EntryType.EXECUTABLE if executable else EntryType.FILE
            return created_below(missing, path, Leaf(entry_type, digest))
        if before.type is EntryType.UNREADABLE:
            return None
        if before.type not in FILE_TYPES:
            return []
        entry_type = before.type if executable is None else FILE_TYPES[executable]
        return changed(path, before, EntryState(entry_type, digest))

    def _apply(self, path: bytes, arguments: Mapping[str, Any], context: ToolContext) -> str:
        content = arguments["content"].encode()
        executable = arguments.get("executable")
        mode = entry_mode(context.root, path)
        if mode is None:
            create_directories = arguments.get("create_directories", True)
            create_file(
                context.root,
                path,
                content,
                executable=bool(executable),
                create_directories=create_directories,
            )
            return f"created {escape_path(path)} ({len(content)} bytes)\n"
        if stat.S_ISLNK(mode):
            raise FileOperationError(f"{escape_path(path)} is a symlink: name the file that it leads to")
        write_existing(context.root, path, content, executable=executable)
        return f"wrote {escape_path(path)} ({len(content)} bytes)\n"


def _missing_directories(path: bytes, view: WorkspaceView) -> list[bytes] | None:
    """Return the directories on the way that do not exist; None where something else is in the way."""
    parts = path.split(b"/")
    missing = []
    for count in range(1, len(parts)):
        prefix = b"/".join(parts[:count])
        state = view.lookup(prefix)
        if state is None:
            missing.append(prefix)
        elif state.type is not EntryType.DIRECTORY:
            return None
    return missing
