"""Which computation is meant where settings name none: the one that suits the data.

On real brains temporal ICA separated nothing in 18 of 18 runs (docs/separations.md), so images are
for capegica; matrices, of which nobody knows where a column lies, for capedjica.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from cape.computations import load

PROPOSED = ("capegica", "capedjica")  # for images, for matrices


def proposed(settings: Mapping[str, object]) -> str:
    """Return the computation of settings: their own word, else the one that suits the data.

    Settings that only the other of the two has ask for that one.
    """
    if name := settings.get("computation"):
        return str(name)
    candidates = list(PROPOSED)
    # The default of the setting is images.
    if settings.get("feature_space") == "matrix":
        candidates.reverse()
    fitting = (name for name in candidates if has_all(name, settings))
    return next(fitting, candidates[0])


def has_all(computation: str, settings: Mapping[str, object]) -> bool:
    """Whether a computation has every one of these settings."""
    known = {option.name for option in dataclasses.fields(load(computation).config)}
    return set(settings) - {"computation"} <= known
