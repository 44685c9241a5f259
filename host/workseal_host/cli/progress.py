"""Telling a person who watches that something takes its time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from workseal.cli.output import safe

if TYPE_CHECKING:
    from rich.status import Status

_PATIENCE_S: Final = 0.8


class Waiting:
    """A spinner on stderr, shown only to a person, and only where it takes long.

    Args:
        what: what is being done.
        so_far: says how far it has come, asked again for every frame; None where that is not known.
        patience_s: after how many seconds it is shown.
    """

    def __init__(
        self, what: str, *, so_far: Callable[[], str] | None = None, patience_s: float = _PATIENCE_S
    ) -> None:
        self._what = safe(what)
        self._so_far = so_far
        self._status: Status | None = None
        self._over = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(patience_s, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take it away; nothing is written to the terminal after this."""
        with self._lock:
            self._over = True
            self._timer.cancel()
            if self._status is not None:
                self._status.stop()
                self._status = None

    def line(self) -> str:
        """Return what is shown beside the spinner."""
        return self._what if self._so_far is None else f"{self._so_far()}  {self._what}"

    def _show(self) -> None:
        with self._lock:
            if self._over:
                return
            from rich.console import Console  # noqa: PLC0415 - only where it is needed: it takes 30 ms
            from rich.status import Status  # noqa: PLC0415
            from rich.text import Text  # noqa: PLC0415

            waiting = self

            class Line:
                """Made anew for every frame. As Text: a path must not be read as markup."""

                def __rich__(self) -> Text:
                    return Text(waiting.line(), no_wrap=True, overflow="ellipsis")

            self._status = Status(Line(), console=Console(stderr=True))
            self._status.start()
