"""Settings shared by joint ICAs, and quantities that follow from them and the sizes of a run."""

import math
from dataclasses import fields, replace
from typing import Literal, Self, TypeVar

from cape.forecast.rule import RunSize
from cape.frozen import dataclass
from cape.protocol.plan import noise_shares_of
from cape.settings.config import Config, Recipe
from cape.settings.option import option, out_of_range
from cape.settings.resolved import check_basis, resolve
from cape.space.feature_space import FeatureSpace

# Default of R; if R follows from G, the number for which a subject is checked before G is known
N_COMPONENTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaConfig(Config):
    """Settings of a joint ICA."""

    n_components: int = option(N_COMPONENTS, low=2, high=50)
    standardize: Literal["auto", "variance", "floored", "demean"] = option(
        "auto", group="Data", expert=True
    )

    def check(self) -> None:
        Config.check(self)
        check_basis(self)
        if (got := self.min_timepoints) < (needed := resolve(self).max_components + 2):
            allowed, do = f"at least n_components + 2 = {needed}", "raise it or lower n_components."
            raise out_of_range("min_timepoints", got, allowed, do)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftRightConfig(IcaConfig):
    """Settings of a joint ICA that compares left and right."""

    symmetry: Literal["auto", "none", "assume"] = option("auto", expert=True)
    midline_x: str = option("auto", expert=True)
    label_pairs: str = option("", when=("feature_space", "atlas"))

    def midline_mm(self) -> float | None:
        """Return the x of the midplane; None if it has to be found from the mask."""
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
            raise out_of_range("midline_x", self.midline_x, "auto or -1000 to 1000", do)
        return x

    def pairs_of_labels(self) -> tuple[tuple[int, int], ...]:
        """Return pairs of mirror images among the labels; each label is in at most one pair."""
        pairs = [part.split("-") for part in self.label_pairs.split(",") if part.strip()]
        labels = [int(label) for pair in pairs for label in pair if label.strip().isdecimal()]
        if any(len(pair) != 2 for pair in pairs) or len(set(labels)) != 2 * len(pairs):
            got, allowed = self.label_pairs, "pairs of labels such as 1-2,3-4, each label once"
            do = "cape pairs finds them in the table of the atlas."
            raise out_of_range("label_pairs", got, allowed, do)
        return tuple(zip(labels[::2], labels[1::2], strict=True))

    def check(self) -> None:
        IcaConfig.check(self)
        self.midline_mm()
        self.pairs_of_labels()


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialConfig(LeftRightConfig):
    """Settings under which maps are made by the spatial recipe."""

    def recipe(self) -> Recipe:
        # Imported here, because rounds do not need the forecast.
        from cape.forecast.one_release import MAX_R_OVER_D, NOISELESS_SIZE, spatial_basis_size

        # Without noise, parts of the mean that are small do not drown in the noise.
        fine = self.feature_space == "mask" and not self.private
        d = spatial_basis_size(math.inf, self.n_components)
        return Recipe(
            # Maps must be as smooth as the noise with which they are compared.
            smooth_basis="kernel",
            # Columns have no positions in mm, and synthetic images no symmetry.
            brains=self.feature_space != "matrix",
            widest=max(d, NOISELESS_SIZE) if fine else d,
            by_volume=fine,
            max_components=self.n_components or N_COMPONENTS,
            room=math.inf if self.n_components else MAX_R_OVER_D,
        )

    @classmethod
    def of(cls, config: LeftRightConfig, *, n_basis: int) -> Self:
        """Return the settings of another computation as those of the recipe, in its own basis."""
        values = {field.name: getattr(config, field.name) for field in fields(cls)}
        return cls(**{**values, "basis": "auto", "n_basis": n_basis})


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


C = TypeVar("C", bound=IcaConfig)


def sized(config: C, n_sites: int, n_subjects: int, space: FeatureSpace) -> C:
    """Return the settings with R: the owner's, or the number that G, people and features allow."""
    if config.n_components:
        return config
    # Imported here, because most rounds do not need it.
    from cape.forecast.one_release import room_for, spatial_components

    room = room_for(min(config.n_basis or space.n_features, space.n_features))
    for_g = spatial_components(effective_g(config, n_sites, n_subjects))
    return replace(config, n_components=max(2, min(for_g, room, n_subjects)))
