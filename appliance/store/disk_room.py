"""How full the disk is, and what is refused before it is full: at a first limit the log warns, at a second nothing new begins."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from appliance.clock import now_ms
from appliance.errors import DiskFull

LOG = logging.getLogger(__name__)
AGAIN_MS = 3_600_000  # between two warnings
Limits = Callable[[], tuple[float, float]]


def used_part(folder: Path) -> float:
    """The part of a disk that is in use, as `df` counts it; 0 where it cannot be told."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0.0
    used = space.f_blocks - space.f_bfree
    return used / (used + space.f_bavail) if used + space.f_bavail else 0.0


class DiskRoom:
    """The disk of a folder, with the two limits that hold now."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits
        self._warned_ms = 0

    def require(self, what: str) -> None:
        """DiskFull when the disk is too full for `what`; from the first limit on the log says so, once an hour."""
        part, (warn, refuse) = used_part(self._folder), self._limits()
        if part >= refuse:
            raise DiskFull(
                f"the disk is {part:.0%} full: {what}",
                hint="free some space: owlbox doctor disk says how; owlbox maintain --now archives what is idle",
            )
        if part >= warn and now_ms() - self._warned_ms >= AGAIN_MS:
            self._warned_ms = now_ms()
            LOG.warning("the disk is %.0f %% full", part * 100, extra={"disk_used": round(part, 3)})
