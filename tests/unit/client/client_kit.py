"""Names that tests of the client share."""

from __future__ import annotations

from collections.abc import Callable

from workseal.client import HostClient

Connect = Callable[..., HostClient]
