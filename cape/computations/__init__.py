"""The computations: one file each, both sides of the protocol.  Adding a file adds a computation.

Files with a leading underscore are building blocks.  `names` lists what exists, `load` imports one.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from cape.config import did_you_mean
from cape.errors import ConfigError
from cape.phases import Computation

__all__ = ["load", "names"]


def names() -> tuple[str, ...]:
    """Return the names of all computations, sorted."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def load(name: str) -> Computation[Any]:
    """Return a computation by name; ConfigError lists the nearest one if there is none."""
    if name not in names():
        hint = did_you_mean(name, names()) or f"; allowed {', '.join(names())}"
        raise ConfigError("E010", setting=f"computation={name}", hint=hint)
    computation: Computation[Any] = importlib.import_module(f"{__name__}.{name}").COMPUTATION
    return computation
