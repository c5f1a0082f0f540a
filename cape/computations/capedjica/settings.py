"""Settings of capedjica, and what follows from them and the sizes of a run alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from cape.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, SUBJECT_BOUND
from cape.errors import ConfigError
from cape.forecast.rule import RunSize, Separation
from cape.frozen import dataclass
from cape.protocol.plan import noise_shares_of
from cape.settings.config import Config, Recipe
from cape.settings.option import option
from cape.settings.resolved import check_basis
from cape.space.feature_space import FeatureSpace

# R where the owner leaves it open: of temporal and template runs, and the most of a spatial one
N_COMPONENTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(Config):
    """Settings of capedjica."""

    n_components: int = option(0, low=0, high=50)
    separation: Separation = option("temporal")
    symmetry: Literal["auto", "none", "assume"] = option("auto", when=("separation", "spatial"))
    midline_x: str = option("auto", when=("separation", "spatial"))
    label_pairs: str = option("", when=("feature_space", "atlas"))
    pca: Literal["projector", "covariance"] = option("projector", when=("separation", "temporal"))
    covariance_clip: float = option(0.3, low=1e-3, high=1.0, when=("pca", "covariance"))
    whitening: Literal["log-euclidean", "eigen"] = option(
        "log-euclidean", when=("separation", "temporal")
    )
    n_looks: int = option(0, low=0, high=10, when=("separation", "temporal"))
    prewhiten: Literal["ar1", "none"] = option("ar1", when=("separation", "temporal"))
    solver: Literal["quasi-newton", "infomax"] = option(
        "quasi-newton", when=("separation", "temporal")
    )
    score: Literal["volatility", "tanh"] = option("volatility", when=("separation", "temporal"))
    n_rounds: int = option(40, low=1, high=2000, when=("separation", "temporal"))
    shares: str = option("auto", when=("separation", "temporal"))
    clip_schedule: str = option("auto", when=("separation", "temporal"))
    step_limit: float = option(0.0, low=0.0, high=10.0, when=("separation", "temporal"))
    clip: Literal["subject", "time_point"] = option("subject", when=("solver", "infomax"))
    subject_clip: float = option(SUBJECT_BOUND, low=0.01, high=1000.0, when=("solver", "infomax"))
    gradient_clip: float = option(GRADIENT_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    bias_clip: float = option(BIAS_BOUND, low=0.01, high=1e6, when=("clip", "time_point"))
    learning_rate: float = option(0.5, low=1e-4, high=2.0, when=("solver", "infomax"))
    round_mu: float = option(0.0, low=0.0, high=100.0, when=("separation", "temporal"))

    standardize: Literal["auto", "variance", "floored", "demean"] = option("auto", group="Data")

    def __post_init__(self) -> None:
        # G is known only once all sites have joined; the other models do not wait for it.
        if not self.n_components and self.separation != "spatial":
            object.__setattr__(self, "n_components", N_COMPONENTS)

    def recipe(self) -> Recipe:
        temporal = self.separation == "temporal"
        return Recipe(
            # The other models want maps as smooth as the noise they are compared with.
            smooth_basis="dct" if temporal else "kernel",
            # Columns have no place in mm, and synthetic images are not left-right symmetric.
            brains=self.separation == "spatial" and self.feature_space != "matrix",
            templates=self.separation == "template",
            widest=Config.recipe(self).widest if temporal else self._widest_basis(),
            # Before G is known; what a subject is checked against.
            max_components=self.n_components or N_COMPONENTS,
        )

    def _widest_basis(self) -> int:
        # The forecast is read before a run only, so a round should not pay for its import.
        from cape.forecast.one_release import spatial_basis, template_basis

        widest = spatial_basis if self.separation == "spatial" else template_basis
        return widest(math.inf, self.n_components)

    def midline_mm(self) -> float | None:
        """Return the x of the midplane; None: it has to be found from the mask."""
        if self.midline_x == "auto":
            # The voxels of grayordinates are those of an MNI brain by definition.
            known = self.mask != "file" and self.feature_space == "mask"
            return 0.0 if known or self.feature_space == "grayordinates" else None
        try:
            x = float(self.midline_x)
        except ValueError:
            x = math.nan
        if not abs(x) <= 1000.0:
            do = "such as 0, in the coordinates of the mask."
            allowed = "auto or -1000 to 1000"
            raise ConfigError(
                "E011", setting="midline_x", got=self.midline_x, allowed=allowed, do=do
            )
        return x

    def pairs_of_labels(self) -> tuple[tuple[int, int], ...]:
        """Return pairs of mirror images among the labels; every label in one pair at most."""
        pairs = [part.split("-") for part in self.label_pairs.split(",") if part.strip()]
        found = [int(label) for pair in pairs for label in pair if label.strip().isdecimal()]
        if any(len(pair) != 2 for pair in pairs) or len(set(found)) != 2 * len(pairs):
            got, allowed = self.label_pairs, "pairs of labels such as 1-2,3-4, each label once"
            do = "cape pairs finds them in the table of the atlas."
            raise ConfigError("E011", setting="label_pairs", got=got, allowed=allowed, do=do)
        return tuple(zip(found[::2], found[1::2], strict=True))

    def check(self) -> None:
        Config.check(self)
        check_basis(self)
        numbers("shares", self.shares, 3)
        numbers("clip_schedule", self.clip_schedule, 2)
        self.midline_mm()
        self.pairs_of_labels()
        if self.separation != "temporal" and self.pca != "projector":
            problem = f"separation={self.separation} with pca={self.pca}"
            do = "other separations have one release of their own: leave pca as it is."
            raise ConfigError("E012", problem=problem, do=do)
        if self.n_components == 1:
            allowed, do = "0, or 2 to 50", "one component has nothing to be separated from."
            raise ConfigError("E011", setting="n_components", got=1, allowed=allowed, do=do)
        if self.separation == "template" and self.feature_space == "grayordinates":
            problem = "separation=template with feature_space=grayordinates"
            raise ConfigError("E012", problem=problem, do="use parcels, or another separation.")
        if (got := self.min_timepoints) < (least := self.recipe().max_components + 2):
            allowed, do = f"at least n_components + 2 = {least}", "raise it or lower n_components."
            raise ConfigError("E011", setting="min_timepoints", got=got, allowed=allowed, do=do)
        if self.whitening == "eigen" and self.pca != "covariance":
            problem = "whitening=eigen needs the eigenvalues of pca=covariance"
            do = "eigenvalues of projectors say nothing of variances."
            raise ConfigError("E012", problem=problem, do=do)


def separates(separation: Separation) -> Callable[[CapeDjicaConfig], bool]:
    return lambda config: config.separation == separation


def first_stage(config: CapeDjicaConfig) -> str:
    # Temporal ICA needs a subspace first; the other models have one release, named like them.
    return "pca" if config.separation == "temporal" else config.separation


def numbers(name: str, text: str, count: int) -> tuple[float, ...]:
    """Return the numbers of ``"0.4,0.3,0.3"``, () for ``"auto"``; positive, else ConfigError."""
    if text == "auto":
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(v) and v > 0 for v in values):
        allowed = f"auto, or {count} numbers above 0 separated by commas"
        do = "such as " + ",".join(["0.3"] * count)
        raise ConfigError("E011", setting=name, got=text, allowed=allowed, do=do)
    return values


def run_size(config: Config, n_sites: int, n_subjects: int) -> RunSize:
    return RunSize(
        n_sites=n_sites,
        n_subjects=n_subjects,
        noise_shares=noise_shares_of(config, n_sites),
        delta=config.delta,
    )


def effective_g(config: Config, n_sites: int, n_subjects: int) -> float:
    """Return G of the run, which alone decides its quality; inf without noise."""
    if not config.private:
        return math.inf
    return run_size(config, n_sites, n_subjects).g(config.epsilon)


def sized(
    config: CapeDjicaConfig, n_sites: int, n_subjects: int, space: FeatureSpace
) -> CapeDjicaConfig:
    """Return the settings with R: the owner's, or what G, people and features carry."""
    if config.n_components:
        return config
    # Spatial runs only, once a phase: a round should not pay for this import.
    from cape.forecast.one_release import room_for, spatial_components

    room = room_for(min(config.n_basis or space.n_features, space.n_features))
    most = spatial_components(effective_g(config, n_sites, n_subjects))
    return replace(config, n_components=max(2, min(most, room, n_subjects)))
