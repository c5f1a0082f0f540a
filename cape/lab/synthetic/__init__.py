"""Synthetic studies whose truth is known: generators, layouts of files, surrogates.

This is the one door: commands, benches and tests import from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape.lab.synthetic.brain import NETWORKS, Scanner, network_maps
    from cape.lab.synthetic.consortium import Summary, split_unequally, write_consortium
    from cape.lab.synthetic.differences import random_fields
    from cape.lab.synthetic.generators import (
        Study,
        blob_maps,
        correlated_maps,
        djica_sim,
        djica_sim_maps,
        garch_sources,
        generate,
        standardise,
        two_views,
    )
    from cape.lab.synthetic.presets import PRESETS, Preset
    from cape.lab.synthetic.resting import TwoSided, two_sided
    from cape.lab.synthetic.surrogate import SMOOTH_NOISE_SEED, SurrogateSource

__all__ = [
    "NETWORKS",
    "PRESETS",
    "SMOOTH_NOISE_SEED",
    "Preset",
    "Scanner",
    "Study",
    "Summary",
    "SurrogateSource",
    "TwoSided",
    "blob_maps",
    "correlated_maps",
    "djica_sim",
    "djica_sim_maps",
    "garch_sources",
    "generate",
    "network_maps",
    "random_fields",
    "split_unequally",
    "standardise",
    "two_sided",
    "two_views",
    "write_consortium",
]

# Searched in this order: generators must not wait for the readers that the writer of consortia
# imports.
_MODULES = (
    "presets",
    "differences",
    "generators",
    "surrogate",
    "resting",
    "brain",
    "consortium",
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in __all__:
        for module in _MODULES:
            home = importlib.import_module(f"cape.lab.synthetic.{module}")
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module 'cape.lab.synthetic' has no attribute '{name}'")
