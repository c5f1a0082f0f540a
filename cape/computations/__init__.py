"""The computations: one file each, both sides of the protocol.  Adding a file adds a computation.

Files with a leading underscore are building blocks.  Computations that exist only to compare with
the papers lie in `cape.papers.computations` and are found by name all the same; nothing imports
them otherwise.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from cape.errors import ConfigError
from cape.protocol.phases import Computation
from cape.settings.option import did_you_mean

__all__ = ["about", "load", "module_of", "names"]

# Packages whose modules are computations
PLACES = (__name__, "cape.computations.tables", "cape.papers.computations")


@functools.cache
def _homes() -> Mapping[str, str]:
    # Listed, not imported: a round pays for the import of its own computation only.
    homes: dict[str, str] = {}
    for place in PLACES:
        spec = importlib.util.find_spec(place)
        found = pkgutil.iter_modules(spec.submodule_search_locations if spec else [])
        homes |= {m.name: f"{place}.{m.name}" for m in found if f"{place}.{m.name}" not in PLACES}
    return dict(sorted(homes.items()))


def names() -> tuple[str, ...]:
    """Return the names of all computations, those of the papers included."""
    return tuple(_homes())


def module_of(name: str) -> ModuleType:
    """Return the module of a computation; ConfigError names the nearest one if there is none."""
    if name not in _homes():
        hint = did_you_mean(name, names()) or f"; allowed {', '.join(names())}"
        raise ConfigError("E010", setting=f"computation={name}", hint=hint)
    return importlib.import_module(_homes()[name])


def about(name: str) -> tuple[str, str]:
    """Return what the docstring of a computation's module says: its title, its first paragraph."""
    title, _, rest = (module_of(name).__doc__ or "").partition("\n\n")
    first = " ".join(rest.partition("\n\n")[0].split()).replace("``", "")
    return title.rstrip("."), first


def load(name: str) -> Computation[Any]:
    """Return the table of a computation: its phases, settings and citation."""
    computation: Computation[Any] = module_of(name).COMPUTATION
    return computation
