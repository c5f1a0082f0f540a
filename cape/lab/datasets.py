"""Synthetic studies in memory with known truth, ready for `Consortium`.

study = cape.datasets.make_study("realistic", n_subjects=64, n_components=5, seed=1)
cape.Consortium(study.sites(4), space=study.space, truth=study.maps).run(epsilon=8.0)
"""

from collections.abc import Iterator
from dataclasses import field

from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.lab.synthetic.consortium import split_unequally
from cape.lab.synthetic.generators import PRESETS, Study, generate, two_views
from cape.settings.option import out_of_range
from cape.space.feature_space import FeatureSpace

__all__ = ["SyntheticStudy", "make_study", "presets", "two_views"]

# Edge of the square images, pixels, as in all measured figures
EDGE = 30


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SyntheticStudy:
    """Synthetic subjects with the true maps and time courses."""

    preset: str
    seed: int
    maps: Array  # (D, R): the common maps
    sources: Data  # (M, T, R): true time courses
    space: FeatureSpace  # a square image
    study: Study = field(repr=False)

    def __repr__(self) -> str:
        n_subjects, n_timepoints, n_components = self.sources.shape
        return (
            f"<SyntheticStudy {self.preset}: {n_subjects} subjects, {n_components} maps of "
            f"{len(self.maps)} pixels, {n_timepoints} time points, seed {self.seed}>"
        )

    def subjects(self) -> Iterator[Data]:
        """Yield X_m (T, D) of each subject, the same data at every call."""
        return (X.T for (X,) in self.study.blocks(1))

    def sites(self, n_sites: int) -> dict[str, list[Data]]:
        """Distribute the subjects over sites of unequal sizes: site1, site2 ..."""
        subjects = self.subjects()
        sizes = split_unequally(len(self.sources), n_sites)
        return {f"site{k}": [next(subjects) for _ in range(n)] for k, n in enumerate(sizes, 1)}


def presets() -> tuple[str, ...]:
    """Return the names that `make_study` knows."""
    return tuple(PRESETS)


def make_study(
    preset: str = "realistic",
    *,
    n_subjects: int,
    n_components: int = 20,
    n_timepoints: int = 250,
    seed: int,
) -> SyntheticStudy:
    """Draw maps of blobs on a square image, and volatile time courses (GARCH, Bollerslev 1986).

    ``paper`` follows the simulations of Imtiaz et al. (capeDJICA).  ``realistic`` adds noise, AR(1)
    and individual amplitudes.
    ConfigError CAPE-E011: unknown preset.
    """
    if preset not in PRESETS:
        raise out_of_range("preset", preset, ", ".join(PRESETS), "choose one.")
    study = generate(
        PRESETS[preset],
        n_subjects=n_subjects,
        seed=seed,
        n_components=n_components,
        n_timepoints=n_timepoints,
        image_size=EDGE,
    ).in_voxels()
    space = FeatureSpace.of_matrix(EDGE * EDGE, (EDGE, EDGE))
    return SyntheticStudy(
        preset=preset,
        seed=seed,
        maps=study.A,
        sources=study.S.transpose(0, 2, 1),
        space=space,
        study=study,
    )
