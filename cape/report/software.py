"""When a result was written and with what: the day, and the versions of what computes."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from typing import Final

from cape.settings.config import VERSION

PACKAGES: Final = ("numpy", "cryptography", "nibabel", "nilearn")


def today() -> str:
    """Return the day in UTC, or that of SOURCE_DATE_EPOCH, so that results can be made again."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(stated) if stated.isdecimal() else time.time()
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def versions() -> dict[str, str]:
    """Return the versions on this computer; what is not installed is left out."""
    found = {"cape": VERSION, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
