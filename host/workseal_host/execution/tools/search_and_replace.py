"""``search_and_replace``: replace a literal text or a regular expression in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workseal.paths import escape_path
from workseal_host.execution.file_tool import (
    FILE_TOOL_EFFECTS,
    FILE_TOOL_TIMEOUT_S,
    PATH_PROPERTY,
    ContentTool,
)
from workseal_host.execution.files import FileOperationError
from workseal_host.execution.regex import replace_regex

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": PATH_PROPERTY,
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": 10_000,
            "description": "What to search: literal text, or with regex a Python regular expression.",
        },
        "replacement": {
            "type": "string",
            "description": r"What to put in its place; with regex, \1 and \g<name> stand for groups.",
        },
        "regex": {
            "type": "boolean",
            "description": "Whether pattern is a regular expression; default false.",
        },
        "count": {
            "type": "integer",
            "minimum": 1,
            "description": "Replace only the first ones; all by default.",
        },
    },
    "required": ["path", "pattern", "replacement"],
    "additionalProperties": False,
}


class SearchAndReplaceTool(ContentTool):
    """Replace what matches in an existing file."""

    def __init__(self) -> None:
        super().__init__(
            name="search_and_replace",
            description="Search and replace in a file of the workspace, by text or regular expression.",
            schema=_SCHEMA,
            side_effects=FILE_TOOL_EFFECTS,
            default_timeout_s=FILE_TOOL_TIMEOUT_S,
            confined=True,
        )

    def transform(self, content: bytes, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the new content; see :meth:`ContentTool.transform`."""
        limit = arguments.get("count", 0)
        if arguments.get("regex", False):
            changed, count = replace_regex(content, arguments["pattern"], arguments["replacement"], limit)
        else:
            old = arguments["pattern"].encode()
            found = content.count(old)
            count = min(found, limit) if limit else found
            changed = content.replace(old, arguments["replacement"].encode(), count)
        path = escape_path(arguments["path"].encode())
        if count == 0:
            raise FileOperationError(f"the pattern does not occur in {path}; nothing was changed")
        return changed, f"replaced {count} {'match' if count == 1 else 'matches'} in {path}\n"
