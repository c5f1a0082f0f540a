"""Joint temporal ICA with the papers' own algorithms (Imtiaz et al., Alg. 3 and 4), for comparison.

Stages, accounting and files are those of `capedjica`.  The subspace comes from covariances, the
whitening from their eigenvalues, and the rounds are Infomax, clipped time point by time point.
Settings (``pca``, ``whitening``, ``solver``, ``prewhiten``) choose those of `capedjica` instead.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from cape.algorithms.estimators import Array, Estimator
from cape.algorithms.pca import Subspace
from cape.algorithms.quasi_newton import TunedConstants
from cape.algorithms.whitening import Whitener
from cape.computations import capedjica
from cape.computations.ica.model import IcaModel
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.errors import ConfigError
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.papers.algorithms.covariance import CovariancePca, EigenWhitening
from cape.papers.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, SUBJECT_BOUND, Infomax
from cape.protocol.join import by_sizes, join
from cape.protocol.phases import Computation
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import PRODUCT
from cape.settings.option import option

_NAME = "paperdjica"
# Choices of the papers -> factor on the default's required G, as in `cape.forecast.temporal`
PAPER_EFFORT: dict[tuple[str, object], float] = {
    ("solver", "infomax"): 75.0,
    ("pca", "covariance"): 6.0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperDjicaConfig(capedjica.CapeDjicaConfig):
    """Settings of paperdjica."""

    pca: Literal["projector", "covariance"] = option("covariance", expert=True)
    covariance_clip: float = option(
        0.3, low=1e-3, high=1.0, when=("pca", "covariance"), expert=True
    )
    whitening: Literal["log-euclidean", "eigen"] = option("eigen", expert=True)
    prewhiten: Literal["ar1", "none"] = option("none", expert=True)
    solver: Literal["quasi-newton", "infomax"] = option("infomax")
    clip: Literal["subject", "time_point"] = option(
        "time_point", when=("solver", "infomax"), expert=True
    )
    subject_clip: float = option(SUBJECT_BOUND, low=0.01, high=1000.0, when=("clip", "subject"))
    gradient_clip: float = option(GRADIENT_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    bias_clip: float = option(BIAS_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    learning_rate: float = option(0.5, low=1e-4, high=2.0, when=("solver", "infomax"), expert=True)

    def check(self) -> None:
        capedjica.CapeDjicaConfig.check(self)
        if self.whitening == "eigen" and self.pca != "covariance":
            problem = "whitening=eigen needs the eigenvalues of pca=covariance"
            do = "choose whitening=log-euclidean; eigenvalues of projectors are no variances."
            raise ConfigError("E012", problem=problem, do=do)

    def make_pca(self) -> Estimator[Subspace]:
        if self.pca == "projector":
            return capedjica.CapeDjicaConfig.make_pca(self)
        return CovariancePca(
            n_components=self.n_components, clip=self.covariance_clip, private=self.private
        )

    def make_whitening(
        self, fixed: TunedConstants, released: Subspace | None
    ) -> Estimator[Whitener]:
        if self.whitening == "log-euclidean":
            return capedjica.CapeDjicaConfig.make_whitening(self, fixed, released)
        return EigenWhitening(eigenvalues=released.eigenvalues if released else np.zeros(0))

    def make_solver(self, fixed: TunedConstants) -> capedjica.Solver:
        if self.solver == "quasi-newton":
            return capedjica.CapeDjicaConfig.make_solver(self, fixed)
        return Infomax(
            n_rounds=self.n_rounds,
            learning_rate=self.learning_rate,
            clip=self.clip,
            subject_bound=self.subject_clip,
            gradient_bound=self.gradient_clip,
            bias_bound=self.bias_clip,
            private=self.private,
        )

    def releases_projectors(self) -> bool:
        return self.pca == "projector"

    def is_dithered(self) -> bool:
        return self.solver == "quasi-newton" and capedjica.CapeDjicaConfig.is_dithered(self)


def _after_pca(config: PaperDjicaConfig, model: IcaModel, mean: Array) -> Subspace:
    # The spatial set needs the mean projector.
    return (
        capedjica.with_free_set(config, model, mean)
        if config.pca == "projector"
        else capedjica.subspace(model)
    )


def _rule(config: PaperDjicaConfig, n_basis: int) -> ForecastRule:
    # Imported here, so that rounds do not pay for it.
    from cape.forecast import temporal as forecast

    chosen = forecast.settings_of_rule(
        config.settings(), {**PAPER_EFFORT, **forecast.EFFORT_FACTORS}
    )
    chosen["spatial_start"] &= config.solver != "infomax"
    # Omitting a setting would restore the papers' choice or contradict another: name the product.
    chosen["back"] = f"computation: {PRODUCT}"
    return replace(capedjica.rule(config, n_basis), **chosen)


PLANNER = IcaPlanner(
    kind="temporal",
    config=PaperDjicaConfig,
    releases=capedjica.releases,
    choose_n_basis=capedjica.choose_n_basis,
    rule=_rule,
)

# whitening=eigen makes no release, so both stages are successors.
_PCA = replace(
    capedjica.PCA, successors=(capedjica.WHITENING, capedjica.ITERATE), hand_over=_after_pca
)

COMPUTATION = Computation(
    name=_NAME,
    config=PaperDjicaConfig,
    model=IcaModel,
    table=(
        join(_NAME, by_sizes(PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="pca"),  # PublicKey -> KeyBook; probe -> Fingerprint
        _PCA,  # Masked -> Subspace
        capedjica.WHITENING,  # Masked -> Whitener, unless whitening=eigen
        capedjica.ITERATE,  # Masked -> Unmixing
        # Done -> Closing
        ica_report(
            _NAME,
            (_PCA, capedjica.WHITENING, capedjica.ITERATE),
            capedjica.final_state,
            spatial_set=capedjica.spatial_set,
        ),
    ),
)
