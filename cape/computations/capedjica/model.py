"""What the three models of capedjica share: public state, end of a run, form of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.pca import Subspace
from cape.algorithms.spatial import SpatialComponents
from cape.algorithms.templates import TemplateMaps
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.verdict import Verdict
from cape.algorithms.whitening import Whitener
from cape.computations.capedjica.settings import CapeDjicaConfig
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.protocol.model import Model, joined
from cape.protocol.plan import PlannedStage
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import public_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaModel(Model):
    """States of the estimators; None before the first release of a stage."""

    subspace: Subspace | None = None  # V (d, k)
    whitener: Whitener | None = None  # U (k, k)
    unmixing: Unmixing | None = None  # W (k, k)
    # The one release of the other models.  Checkpoints and messages of version 1 came before.
    spatial: SpatialComponents | None = field(default=None, metadata={"added": True})
    template: TemplateMaps | None = field(default=None, metadata={"added": True})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FinalState:
    """What the last stage of a run leaves, whatever its model."""

    V: Array  # (d, k), directions
    U: Array  # (k, k), whitener
    W: Array  # (k, k), what the solver found
    unmixing: Array  # (k, k): maps are ``B V unmixing^-1``, time courses ``unmixing V' Y``
    order: tuple[int, ...]  # signed order of the components
    status: str
    reason: str
    stability: float = 0.0  # 0 where there are no rounds
    verdict: Verdict | None = None  # of a dithered run; components in the order of the solver
    spectrum: Subspace | None = None  # what the first release said of directions; None without one
    spatial: SpatialComponents | None = None  # of a spatial run

    def maps(self, config: Config, model: IcaModel) -> Array:
        """Return A = B V unmixing^-1, shape (D, k), in the order of the solver."""
        B = public_basis(resolve(config), joined(model).space, joined(model).n_basis)
        directions = self.V if B is None else B @ self.V
        return np.asarray(np.linalg.solve(self.unmixing.T, directions.T).T)


class SeparationModel(ABC):
    """One answer to "independent in what?"; it has no state of its own."""

    @abstractmethod
    def stages(
        self, config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[PlannedStage, ...]:
        """Return all releases of a run and their weights in mu^2."""

    def check_space(self, config: CapeDjicaConfig, space: FeatureSpace) -> None:  # noqa: B027
        """Raise ConfigError if the sites' feature space does not suit the settings."""

    @abstractmethod
    def choose_n_basis(self, config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
        """Return the best d for G."""

    def rule(self, config: CapeDjicaConfig, n_basis: int) -> ForecastRule:
        """Return the rule that says whether maps can be expected."""
        from cape.forecast.rules import rule_of

        return rule_of(config.separation, config.n_components, config.settings())

    @abstractmethod
    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        """Return what the last stage left."""
