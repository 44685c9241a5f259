"""Paths in tool arguments: plain UTF-8, relative, beneath the root by form.

The form alone proves nothing about links; whoever opens such a path does so component by component
without following any (``open_beneath``).
"""

from __future__ import annotations

from workseal_host.errors import ArgumentsError
from workseal_host.execution.view import WorkspaceView, ignored_part

MAX_PATH_BYTES = 4096


def parse_path(text: str, *, field: str) -> bytes:
    """Return the raw path of a file argument.

    Args:
        text: the argument.
        field: its JSON pointer.

    Raises:
        ArgumentsError: it is empty, absolute, too long, holds NUL, an empty, ``.`` or ``..`` component.
    """
    raw = _encode(text, field)
    if not raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
        raise ArgumentsError(
            f"{field} must be a path relative to the workspace, such as src/app.py: not empty, not absolute, "
            "no '.', '..' or empty component, no slash at its end",
            field=field,
        )
    return raw


def parse_directory(text: str, *, field: str) -> tuple[str, ...]:
    """Return the components of a working directory argument; ``.`` and the empty text are the root.

    Raises:
        ArgumentsError: it is absolute, too long, holds NUL or a ``..`` component.
    """
    raw = _encode(text, field)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if raw.startswith(b"/") or ".." in parts:
        raise ArgumentsError(
            f"{field} must be a directory beneath the workspace: not absolute, no '..'", field=field
        )
    return tuple(parts)


def refuse_ignored(path: bytes, view: WorkspaceView | None, *, field: str) -> None:
    """Refuse a path whose change nobody would see in the digest.

    Raises:
        ArgumentsError: the path, or a directory on its way, is ignored.
    """
    if view is not None and ignored_part(view, path) is not None:
        raise ArgumentsError(
            f"{field} is ignored in this workspace, so a change could not be attested", field=field
        )


def _encode(text: str, field: str) -> bytes:
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentsError(f"{field} holds a lone surrogate: send valid Unicode", field=field) from error
    if b"\0" in raw or len(raw) > MAX_PATH_BYTES:
        raise ArgumentsError(f"{field} holds NUL or is longer than {MAX_PATH_BYTES} bytes", field=field)
    return raw
