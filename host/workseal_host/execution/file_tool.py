"""What the file tools have in common: a path, a prediction, and a run in the host itself.

They run no foreign code, so no process and no isolation is involved. A failure (no such file, text not
found, no space) is a result with exit code 1, and nothing was changed.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from workseal_host.execution.files import FileOperationError, read_file, write_existing
from workseal_host.execution.paths import parse_path, refuse_ignored
from workseal_host.execution.tool import (
    PredictedEffect,
    Prediction,
    SideEffects,
    Tool,
    ToolContext,
    ToolResult,
)
from workseal_host.execution.view import WorkspaceView
from workseal_host.workspace.diff import EntryState
from workseal_host.workspace.model import Directory, EntryType, Leaf, Node

_Value = TypeVar("_Value")
FILE_TYPES = (EntryType.FILE, EntryType.EXECUTABLE)
FILE_TOOL_EFFECTS = SideEffects(stateful_action=False)
FILE_TOOL_TIMEOUT_S = 60.0

PATH_PROPERTY: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "Path of the file, relative to the workspace, such as src/app.py.",
}


def sha256(data: bytes) -> bytes:
    """Return the 32-byte SHA-256 of ``data``."""
    return hashlib.sha256(data).digest()


async def run_to_end(function: Callable[[], _Value]) -> _Value:
    """Run a function in a thread and wait for its end even when the caller is cancelled.

    A write that went on behind the back of its caller would fall into nobody's interval.
    """
    task = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class FileTool(Tool):
    """A tool on one file."""

    runs_in_host: ClassVar[bool] = True

    def _check(self, arguments: Mapping[str, Any]) -> None:
        parse_path(arguments["path"], field="/path")

    def predict(self, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        """Say what a run would change; see :meth:`Tool.predict`."""
        path = parse_path(arguments["path"], field="/path")
        refuse_ignored(path, view, field="/path")
        try:
            found = self._predict(path, arguments, view)
        except FileOperationError:
            found = []
        if found != [] or self.side_effects.read_only:
            return found
        # Nothing would change, or the run would fail. The path is the tool's own all the same: should it
        # succeed after all, on what somebody saved meanwhile, the change is not ascribed to nobody.
        state = view.lookup(path)
        return [PredictedEffect(path, state, state)]

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it; see :meth:`Tool.run`."""
        path = parse_path(arguments["path"], field="/path")
        if not self.side_effects.read_only:
            refuse_ignored(path, context.view, field="/path")
        context.root.check()
        if context.cancelled.is_set():
            return ToolResult(b"[cancelled before it began]\n", exit_code=None, cancelled=True)
        try:
            text = await run_to_end(lambda: self._apply(path, arguments, context))
        except FileOperationError as error:
            return ToolResult(f"{error}\n".encode("utf-8", "replace"), exit_code=1)
        return ToolResult(text.encode("utf-8", "replace"), exit_code=0)

    @abstractmethod
    def _predict(self, path: bytes, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        """Say what would change; a FileOperationError counts as nothing."""

    @abstractmethod
    def _apply(self, path: bytes, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Do it, in a thread, and return the text for the model."""


class ContentTool(FileTool):
    """A tool that turns the content of one existing file into another."""

    def _predict(self, path: bytes, arguments: Mapping[str, Any], view: WorkspaceView) -> Prediction | None:
        before = view.lookup(path)
        if before is None or before.type not in FILE_TYPES:
            return None if before is not None and before.type is EntryType.UNREADABLE else []
        content = read_file(view.root, path)
        if sha256(content) != before.digest:
            return None  # it changed since the scan: what a run would find is anybody's guess
        return changed(path, before, EntryState(before.type, sha256(self.transform(content, arguments)[0])))

    def _apply(self, path: bytes, arguments: Mapping[str, Any], context: ToolContext) -> str:
        content, text = self.transform(read_file(context.root, path), arguments)
        write_existing(context.root, path, content)
        return text

    @abstractmethod
    def transform(self, content: bytes, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the new content and the text for the model.

        Raises:
            FileOperationError: the content is not what the arguments expect.
        """


def changed(path: bytes, before: EntryState | None, after: EntryState | None) -> Prediction:
    """Return the prediction of one path; nothing where both states are equal."""
    return [] if before == after else [PredictedEffect(path, before, after)]


def created_below(missing: list[bytes], path: bytes, leaf: Leaf) -> Prediction:
    """Return the prediction of a new file and of the directories made for it.

    Args:
        missing: the directories that do not exist yet, outermost first.
        path: the file.
        leaf: what it will be.
    """
    effects = [PredictedEffect(path, None, EntryState(leaf.type, leaf.digest))]
    name, node = path.rpartition(b"/")[2], leaf
    below: Node = node
    for directory in reversed(missing):
        below = Directory({name: below})
        effects.append(PredictedEffect(directory, None, EntryState(EntryType.DIRECTORY, below.digest)))
        name = directory.rpartition(b"/")[2]
    return effects[::-1]
