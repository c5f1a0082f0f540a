"""Wings: folders of this package that may be left out, and the error where one is missing.

The container image leaves out the papers and the laboratory.
"""

import importlib.util

from cape.errors import ConfigError
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Wing:
    """A package that may be left out, with its commands and computations."""

    title: str
    commands: tuple[str, ...] = ()
    computations: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # other wings


FLARE = "cape.engines.flare"
LABORATORY = "cape.lab"
NEUROFLAME = "cape.engines.neuroflame"
PAPERS = "cape.papers"
TABLES = "cape.computations.tables"

WINGS = {
    FLARE: Wing(title="the border to NVIDIA FLARE", commands=("flare",)),
    LABORATORY: Wing(title="the laboratory", commands=("synth",)),
    NEUROFLAME: Wing(title="the border to NeuroFLAME", commands=("neuroflame",), needs=(FLARE,)),
    PAPERS: Wing(
        title="the papers' wing",
        commands=("account",),
        computations=("djica", "dpdispca", "dpdjica", "paperdjica", "papermean"),
    ),
    TABLES: Wing(title="the tables' wing", computations=("capecca", "capemean", "capepca")),
}


def missing(wing: str) -> str:
    """Return the first missing wing among this one and those that it needs; empty: none."""
    for name in (wing, *WINGS[wing].needs):
        spec = importlib.util.find_spec(name)
        # A folder of compiled files only is found as a package without an origin.
        if spec is None or spec.origin is None:
            return name
    return ""


def require(wing: str, what: str) -> None:
    """Raise ConfigError E020 if `what` needs a wing that is not installed."""
    if name := missing(wing):
        folder = name.replace(".", "/")
        raise ConfigError("E020", what=what, wing=f"{WINGS[name].title} ({folder})")
