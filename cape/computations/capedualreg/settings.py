"""Settings of capedualreg."""

from __future__ import annotations

import math
from typing import Literal

from cape.algorithms.templates import MOST_TEMPLATES
from cape.computations.ica.settings import IcaConfig
from cape.frozen import dataclass
from cape.settings.config import Recipe
from cape.settings.option import option


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDualRegConfig(IcaConfig):
    """Settings of capedualreg."""

    n_components: int = option(MOST_TEMPLATES, low=2, high=MOST_TEMPLATES)
    feature_space: Literal["mask", "atlas", "matrix", "parcels"] = option("mask", group="Data")

    def recipe(self) -> Recipe:
        # The forecast is read before a run only, so a round should not pay for its import.
        from cape.forecast.one_release import template_basis

        return Recipe(
            # Maps should be as smooth as the noise they are compared with.
            smooth_basis="kernel",
            templates=True,
            widest=template_basis(math.inf, self.n_components),
            max_components=self.n_components,
        )
