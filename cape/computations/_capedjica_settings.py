"""Joint ICA: settings, the estimators they choose, and the plan of all releases.

Everything here follows from the settings, the number of sites and subjects, and the feature space:
public values only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from cape.algorithms.estimators import Estimator
from cape.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, SUBJECT_BOUND, Infomax
from cape.algorithms.pca import CovariancePca, ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton, TunedConstants, tuned_constants
from cape.algorithms.whitening import EigenWhitening, LogEuclidean, Whitener
from cape.computations import _capedjica_separations
from cape.config import SCALINGS, Config, option
from cape.errors import ConfigError, ConsortiumError
from cape.forecast.rule import ForecastRule
from cape.forecast.rules import rule_of
from cape.forecast.size import RunSize
from cape.forecast.spatial import spatial_basis
from cape.forecast.temporal import (
    BRAIN_ENERGY,
    IMAGE_ENERGY,
    PCA_SHARE,
    TemporalRule,
    choose_n_basis,
    energy_inside,
)
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.protocol.join import RunPlan
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import settings_of
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, filtered, make_plan, noise_shares_of
from cape.public_basis import basis_kind, check_basis, widest_basis

MEASURED = ("quasi-newton", "projector", "log-euclidean")
FEW_ROUNDS = 20
"""The usefulness rule holds for this algorithm with about 40 rounds."""

MAX_IDENTITY = 400
"""Features that may go without a public basis whatever the budget."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(Config):
    """Settings of capedjica."""

    n_components: int = option(
        20,
        "Components",
        low=2,
        high=50,
        help="Rather too few: too many is the most harmful mistake under noise.",
    )
    separation: Literal["temporal", "spatial", "template"] = option(
        "temporal",
        "What makes components independent",
        help="temporal: joint temporal ICA.  spatial: independent maps, one release.  template: "
        "private dual regression on public maps (templates.nii.gz or templates.csv at every site).",
    )
    pca: Literal["projector", "covariance"] = option(
        "projector", "PCA", help="covariance: Imtiaz et al., Alg. 3."
    )
    covariance_clip: float = option(
        0.3, "Clip norm of a subject's covariance", low=1e-3, high=1.0, help="pca=covariance only."
    )
    whitening: Literal["log-euclidean", "eigen"] = option(
        "log-euclidean", "Whitening", help="eigen: from the PCA eigenvalues, no release."
    )
    n_looks: int = option(0, "Whitening looks", low=0, high=10, help="0: chosen from G.")
    prewhiten: Literal["ar1", "none"] = option(
        "ar1", "Temporal filter before ICA", help="One number per subject; maps are unaffected."
    )
    solver: Literal["quasi-newton", "infomax"] = option(
        "quasi-newton", "Solver", help="infomax: Imtiaz et al., Alg. 4."
    )
    score: Literal["volatility", "tanh"] = option("volatility", "Score of quasi-newton")
    n_rounds: int = option(40, "Rounds of the solver", low=1, high=2000)
    shares: str = option(
        "auto", "Shares of mu^2", help="pca,whitening,iterate such as 0.4,0.3,0.3; auto: from G."
    )
    clip_schedule: str = option(
        "auto", "Clip norms of quasi-newton", help="first,last such as 0.2,0.4; auto: from G."
    )
    step_limit: float = option(
        0.0, "Largest step of quasi-newton", low=0.0, high=10.0, help="0: chosen from G."
    )
    clip: Literal["subject", "time_point"] = option(
        "subject", "What infomax clips", help="time_point: Alg. 4 to the letter."
    )
    subject_clip: float = option(
        SUBJECT_BOUND, "Clip norm of infomax per subject", low=0.01, high=1000.0
    )
    gradient_clip: float = option(GRADIENT_BOUND, "B_G of Alg. 4", low=0.01, high=1e6)
    bias_clip: float = option(BIAS_BOUND, "B_h of Alg. 4", low=0.01, high=1e6)
    learning_rate: float = option(0.5, "Learning rate of infomax", low=1e-4, high=2.0)
    round_mu: float = option(
        0.0,
        "Fixed mu of every solver round",
        low=0.0,
        high=100.0,
        help="0: planned from epsilon.  A plan that does not fit is refused.",
    )

    standardize: Literal["variance", "floored", "demean"] = option(
        "variance", "Scaling of each voxel", group="Data", help=SCALINGS
    )

    @property
    def smooth_basis(self) -> Literal["dct", "kernel"]:
        """What ``basis=auto`` means for voxels; sparse maps want a kernel."""
        return "dct" if self.separation == "temporal" else "kernel"

    @property
    def needs_templates(self) -> bool:
        """Whether every site maps the owner's template maps."""
        return self.separation == "template" or self.basis == "templates"

    def widest_smooth_basis(self) -> int:
        """Return the most directions that a run chooses by itself."""
        if self.separation == "temporal":
            return Config.widest_smooth_basis(self)
        return spatial_basis(math.inf, self.n_components)

    def check(self) -> None:
        """Check what the settings say together."""
        Config.check(self)
        check_basis(self)
        numbers("shares", self.shares, 3)
        numbers("clip_schedule", self.clip_schedule, 2)
        if self.separation != "temporal" and self.pca != "projector":
            raise ConfigError(
                "E012",
                problem=f"separation={self.separation} with pca={self.pca}",
                do="other separations have one release of their own: leave pca as it is.",
            )
        if self.min_timepoints < self.n_components + 2:
            raise ConfigError(
                "E011",
                setting="min_timepoints",
                got=self.min_timepoints,
                allowed=f"at least n_components + 2 = {self.n_components + 2}",
                do="raise it or lower n_components.",
            )
        if self.whitening == "eigen" and self.pca != "covariance":
            raise ConfigError(
                "E012",
                problem="whitening=eigen needs the eigenvalues of pca=covariance",
                do="eigenvalues of projectors say nothing of variances.",
            )


def numbers(name: str, text: str, count: int) -> tuple[float, ...]:
    """Return the numbers of ``"0.4,0.3,0.3"``, () for ``"auto"``; positive, else ConfigError."""
    if text == "auto":
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(v) and v > 0 for v in values):
        raise ConfigError(
            "E011",
            setting=name,
            got=text,
            allowed=f"auto, or {count} numbers above 0 separated by commas",
            do="such as " + ",".join(["0.3"] * count),
        )
    return values


# -- what each stage is, from the settings and the roster ----------------------------------------


def constants(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> TunedConstants:
    """Return the public constants of a run: measured ones for its G, unless the owner set them."""
    found = tuned_constants(strength(config, n_sites, n_subjects) if config.private else None)
    if given := numbers("shares", config.shares, 3):
        found = replace(found, mu2_weights=(given[0], given[1], given[2]))
    if config.n_looks:
        found = replace(found, n_looks=config.n_looks)
    if clips := numbers("clip_schedule", config.clip_schedule, 2):
        found = replace(found, clips=clips)
    return replace(found, step_limit=config.step_limit) if config.step_limit else found


def run_size(config: Config, n_sites: int, n_subjects: int) -> RunSize:
    """Return what G follows from."""
    return RunSize(
        n_sites=n_sites,
        n_subjects=n_subjects,
        noise_shares=noise_shares_of(config, n_sites),
        delta=config.delta,
    )


def strength(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> float:
    """Return G of the run, which alone decides its quality; inf without noise."""
    if not config.private:
        return math.inf
    return run_size(config, n_sites, n_subjects).g(config.epsilon)


def rule(config: CapeDjicaConfig, n_basis: int) -> ForecastRule:
    """Return the rule by which `cape budget` and a run say whether maps can be expected."""
    if config.separation != "temporal":
        return rule_of(config.separation, config.n_components)
    energy = 1.0  # of templates: of what they hold; what they lack nobody knows
    if basis_kind(config) not in ("none", "templates"):
        voxels = config.feature_space == "mask"
        energy = energy_inside(n_basis, BRAIN_ENERGY if voxels else IMAGE_ENERGY)
    return TemporalRule(
        n_components=config.n_components,
        prewhitened=config.prewhiten == "ar1",
        basis_energy=energy,
    )


def make_pca(config: CapeDjicaConfig) -> Estimator[Subspace]:
    """Return the estimator of the common subspace."""
    if config.pca == "covariance":
        return CovariancePca(
            n_components=config.n_components, clip=config.covariance_clip, private=config.private
        )
    return ProjectorPca(n_components=config.n_components, private=config.private)


def make_whitening(
    config: CapeDjicaConfig, fixed: TunedConstants, released: Subspace | None
) -> Estimator[Whitener]:
    """Return the estimator of the common whitening."""
    if config.whitening == "eigen":
        return EigenWhitening(subspace=released)
    return LogEuclidean(n_looks=fixed.n_looks, clip=fixed.whitening_clip, private=config.private)


def make_solver(config: CapeDjicaConfig, fixed: TunedConstants) -> QuasiNewton | Infomax:
    """Return the solver."""
    if config.solver == "infomax":
        return Infomax(
            n_rounds=config.n_rounds,
            learning_rate=config.learning_rate,
            clip=config.clip,
            subject_bound=config.subject_clip,
            gradient_bound=config.gradient_clip,
            bias_bound=config.bias_clip,
            private=config.private,
        )
    return QuasiNewton(
        n_rounds=config.n_rounds,
        clips=fixed.clips,
        step_limit=fixed.step_limit,
        alpha_first=fixed.alpha_first,
        alpha_last=fixed.alpha_last,
        private=config.private,
        score=config.score,
    )


# -- the plan ------------------------------------------------------------------------------------


def stages(
    config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    """Return all releases of a run and how they share the budget."""
    if config.separation != "temporal":
        return _capedjica_separations.stages(config, n_basis)
    R = config.n_components
    fixed = constants(config, n_sites, n_subjects)
    pca, whitening, iterate = fixed.mu2_weights
    return (
        PlannedStage(phase="pca", releases=make_pca(config).schedule(n_basis), mu2_weight=pca),
        PlannedStage(
            phase="whitening",
            releases=make_whitening(config, fixed, None).schedule(R),
            mu2_weight=whitening,
        ),
        PlannedStage(
            phase="iterate",
            releases=make_solver(config, fixed).schedule(R),
            mu2_weight=iterate,
            fixed_mu=config.round_mu if config.private else 0.0,
        ),
    )


def plan_run(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    """Return the plan of a run; ConfigError or PrivacyBudgetError if there is none."""
    config = own(config)
    if n_subjects < config.n_components:
        raise ConsortiumError("E130", got=n_subjects, allowed=config.n_components)
    _capedjica_separations.check_templates(config, space)
    g = strength(config, n_sites, n_subjects)
    d = basis_size(config, space, g)
    found = stages(config, n_sites=n_sites, n_subjects=n_subjects, n_basis=d)
    plan = make_plan(config, found, n_sites=n_sites, n_subjects=n_subjects)
    told = (*_quality(config, space, n_sites, n_subjects, d), *filtered(config))
    return RunPlan(releases=plan, n_basis=d, warnings=told)


def basis_size(config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
    """Return d: the owner's, or the best one for G; ConfigError if R does not fit it."""
    D, R = space.n_features, config.n_components
    if basis_kind(config) == "none":
        limit = max(MAX_IDENTITY, int(min(0.1 * PCA_SHARE * g * g / R, 1e9)))
        limit = min(limit, config.max_features)
        if limit < D:
            raise ConfigError(
                "E145",
                setting="features without a public basis",
                got=D,
                allowed=limit,
                do="use an atlas or basis=dct, raise epsilon, or add subjects.",
            )
        d = D
    elif space.n_templates and basis_kind(config) == "templates":
        d = space.n_templates
    elif config.n_basis:
        d = min(config.n_basis, D)
    elif config.separation != "temporal":
        d = min(spatial_basis(g, R), D)
    else:
        energies = BRAIN_ENERGY if space.kind == "mask" else IMAGE_ENERGY
        widest = widest_basis(config, space)
        d = choose_n_basis(n_components=R, g=g, limit=widest, energies=energies)
    if d > config.max_features:
        raise ConfigError(
            "E145", setting="n_basis", got=d, allowed=config.max_features, do="lower n_basis."
        )
    if d < R:
        raise ConfigError(
            "E149", got=R, allowed=f"2 to {d}", do=f"the public basis has {d} directions."
        )
    return d


def _quality(
    config: CapeDjicaConfig, space: FeatureSpace, n_sites: int, n_subjects: int, d: int
) -> tuple[str, ...]:
    """Return what the owner should know; refuse a run whose maps would mostly show noise."""
    if not config.private:
        return (PROTECTS_NOBODY,)
    if config.separation != "temporal":
        return _capedjica_separations.quality(config, n_sites, n_subjects, d)
    if (config.solver, config.pca, config.whitening) != MEASURED or config.n_rounds < FEW_ROUNDS:
        return ("How good the maps will be was measured for the default algorithm only.",)
    found = rule(config, d).verdict(
        run_size(config, n_sites, n_subjects),
        gdp_mu(epsilon=config.epsilon, delta=config.delta),
        n_basis=d,
    )
    if found.usable:
        return found.warnings
    if not config.accept_low_quality:
        raise ConfigError("E150", problem=found.text.rstrip("."), do="or set accept_low_quality.")
    return (found.text, *found.warnings)


def own(config: Config) -> CapeDjicaConfig:
    """Return settings as those of this computation."""
    return settings_of(CapeDjicaConfig, config)
