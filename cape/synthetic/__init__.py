"""Synthetic studies whose truth is known: generators, layouts of files, surrogates, scores.

This is the one door: commands, benches and tests import from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape.synthetic.brain import NETWORKS, Scanner, network_maps
    from cape.synthetic.consortium import Summary, split_unequally, write_consortium
    from cape.synthetic.differences import random_fields
    from cape.synthetic.generators import (
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
    from cape.synthetic.presets import PRESETS, Preset
    from cape.synthetic.resting import TwoSided, two_sided
    from cape.synthetic.scores import (
        calinski_harabasz,
        captured_energy,
        compare_with_truth,
        err_corr,
        isi,
        map_energy,
        match_maps,
        mdi,
        principal_cosines,
    )
    from cape.synthetic.surrogate import SMOOTH_NOISE_SEED, SurrogateSource

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
    "calinski_harabasz",
    "captured_energy",
    "compare_with_truth",
    "correlated_maps",
    "djica_sim",
    "djica_sim_maps",
    "err_corr",
    "garch_sources",
    "generate",
    "isi",
    "map_energy",
    "match_maps",
    "mdi",
    "network_maps",
    "principal_cosines",
    "random_fields",
    "split_unequally",
    "standardise",
    "two_sided",
    "two_views",
    "write_consortium",
]

# Searched in this order: the scores of a run must not wait for the readers that the writer of
# consortia imports.
_MODULES = (
    "scores",
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
            home = importlib.import_module(f"cape.synthetic.{module}")
            if hasattr(home, name):
                return getattr(home, name)
    raise AttributeError(f"module 'cape.synthetic' has no attribute '{name}'")
