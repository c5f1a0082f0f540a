"""What the three models of capedjica have in common: the form of each, for plan, check and end."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cape.computations.capedjica.model import FinalState, IcaModel
from cape.computations.capedjica.settings import CapeDjicaConfig
from cape.feature_space import FeatureSpace
from cape.forecast.rule import ForecastRule
from cape.protocol.plan import PlannedStage


class SeparationModel(ABC):
    """One answer to "independent in what?"; it has no state of its own."""

    first: str  # the stage that makes the first release

    @abstractmethod
    def stages(
        self, config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[PlannedStage, ...]:
        """Return all releases of a run and their weights in mu^2."""

    def check_space(self, config: CapeDjicaConfig, space: FeatureSpace) -> None:  # noqa: B027
        """Raise ConfigError if the sites' feature space does not suit the settings."""

    def choose_n_basis(self, config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
        from cape.forecast.spatial import spatial_basis

        return min(spatial_basis(g, config.n_components), space.n_features)

    @abstractmethod
    def rule(self, config: CapeDjicaConfig, n_basis: int) -> ForecastRule:
        """Return the rule that says whether maps can be expected."""

    def untested(self, config: CapeDjicaConfig) -> str:
        """Return a warning where the rule was not measured for these settings, else nothing."""
        return ""

    @abstractmethod
    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        """Return what the last stage left."""
