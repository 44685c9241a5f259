"""``edit_file``: replace text that occurs exactly as given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workseal.paths import escape_path
from workseal_host.errors import ArgumentsError
from workseal_host.execution.file_tool import (
    FILE_TOOL_EFFECTS,
    FILE_TOOL_TIMEOUT_S,
    PATH_PROPERTY,
    ContentTool,
)
from workseal_host.execution.files import MAX_FILE_BYTES, FileOperationError

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": PATH_PROPERTY,
        "old_string": {
            "type": "string",
            "minLength": 1,
            "description": "The exact text to replace; it must occur once, unless replace_all is true.",
        },
        "new_string": {"type": "string", "description": "The text to put in its place."},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence; false by default."},
    },
    "required": ["path", "old_string", "new_string"],
    "additionalProperties": False,
}


class EditFileTool(ContentTool):
    """Replace text in an existing file; everything else stays, byte for byte."""

    def __init__(self) -> None:
        super().__init__(
            name="edit_file",
            description="Replace text in a file of the workspace. The old text must occur exactly as given.",
            schema=_SCHEMA,
            side_effects=FILE_TOOL_EFFECTS,
            default_timeout_s=FILE_TOOL_TIMEOUT_S,
            confined=True,
        )

    def _check(self, arguments: Mapping[str, Any]) -> None:
        super()._check(arguments)
        if arguments["old_string"] == arguments["new_string"]:
            raise ArgumentsError("old_string and new_string are equal: nothing to do", field="/new_string")

    def transform(self, content: bytes, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the new content; see :meth:`ContentTool.transform`."""
        old, new = arguments["old_string"].encode(), arguments["new_string"].encode()
        path = escape_path(arguments["path"].encode())
        count = content.count(old)
        if count == 0:
            raise FileOperationError(f"old_string does not occur in {path}; nothing was changed")
        if count > 1 and not arguments.get("replace_all", False):
            raise FileOperationError(
                f"old_string occurs {count} times in {path}; nothing was changed. Give more of the text "
                "around it, or set replace_all"
            )
        if len(content) + count * (len(new) - len(old)) > MAX_FILE_BYTES:
            raise FileOperationError(f"{path} would exceed {MAX_FILE_BYTES} bytes; nothing was changed")
        word = "occurrence" if count == 1 else "occurrences"
        return content.replace(old, new), f"replaced {count} {word} in {path}\n"
