"""The computations: one file or folder each, for both sides of the protocol, found by name.

Computations of tables and of the papers are in wings, packages that may be absent
(`cape.settings.wings`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cape.errors import ConfigError
from cape.protocol.phases import Computation
from cape.settings.config import PRODUCT, Config
from cape.settings.option import did_you_mean

__all__ = ["about", "configured", "load", "module_of", "names", "planner_of"]

if TYPE_CHECKING:  # most computations have none
    from cape.computations.ica.plan import IcaPlanner

# Packages whose modules are computations, and modules that several computations share
PLACES = (__name__, "cape.computations.tables", "cape.papers.computations")
SHARED = (f"{__name__}.ica",)
# Computations built on one of another wing
BUILT_ON = {"dpdispca": "capepca", "papermean": "capemean"}


@functools.cache
def _homes() -> Mapping[str, str]:
    # Modules are listed, not imported: a round imports its own computation only.
    homes: dict[str, str] = {}
    for place in PLACES:
        try:
            spec = importlib.util.find_spec(place)
        except ModuleNotFoundError:  # the whole wing is absent
            spec = None
        modules = pkgutil.iter_modules(spec.submodule_search_locations if spec else [])
        homes |= {module.name: f"{place}.{module.name}" for module in modules}
    homes = {name: home for name, home in homes.items() if home not in (*PLACES, *SHARED)}
    return {name: homes[name] for name in sorted(homes) if BUILT_ON.get(name, name) in homes}


def names() -> tuple[str, ...]:
    """Return the names of all computations that are installed.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> "capegica" in cape.names()
    True
    """
    return tuple(_homes())


def module_of(name: str) -> ModuleType:
    """Return the module of a computation.

    ConfigError E020: its wing is not installed; E010: unknown name, with the nearest one proposed.
    """
    if name not in _homes():
        from cape.settings.wings import WINGS, require  # no round needs them

        for wing, brought in WINGS.items():
            if {name, BUILT_ON.get(name)} & {*brought.computations}:
                require(wing, f"computation={name}")
        hint = did_you_mean(name, names()) or f"; allowed {', '.join(names())}"
        raise ConfigError("E010", setting=f"computation={name}", hint=hint)
    return importlib.import_module(_homes()[name])


def about(name: str) -> tuple[str, str]:
    """Return title and first paragraph of the docstring of a computation's module."""
    title, _, rest = (module_of(name).__doc__ or "").partition("\n\n")
    first = " ".join(rest.partition("\n\n")[0].split()).replace("``", "")
    return title.rstrip("."), first


def planner_of(name: str) -> IcaPlanner | None:
    """Return the planner of a computation, which needs no data; None for most."""
    return getattr(module_of(name), "PLANNER", None)


def load(name: str) -> Computation[Any]:
    """Return the table of a computation: its phases, settings and citation.

    Parameters
    ----------
    name : str
        One of `cape.names()`.

    Returns
    -------
    Computation
        ``.config`` are its settings, ``.guarantee`` what it promises.

    Raises
    ------
    ConfigError
        CAPE-E010: unknown name; CAPE-E020: its wing is not installed.

    Examples
    --------
    >>> cape.load("capegica").guarantee
    'dp'
    """
    computation: Computation[Any] = module_of(name).COMPUTATION
    return computation


def configured(settings: Mapping[str, object]) -> tuple[Computation[Any], Config]:
    """Return the named computation (default: the product) and its Config; E010 to E013."""
    given = dict(settings)
    computation = load(str(given.pop("computation", PRODUCT)))
    return computation, computation.config.from_input(given)
