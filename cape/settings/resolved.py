"""The settings of a run with every ``auto`` and every default of the computation resolved.

Only `resolve` interprets these words; all other code reads its result.
"""

import functools
import math
from typing import Literal

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.words import CIFTI, CIFTI_ENTITIES, confound_columns, parse_shape, parse_strategy

BasisKind = Literal["dct", "kernel", "templates", "courses", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    """How a run is cleaned."""

    detrend: str  # {"none", "linear", "quadratic"}
    standardize: str  # {"variance", "floored", "demean", "none"}
    global_signal: bool  # whether the mean over the features is regressed out


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """All settings that affect the numbers of a subject, beside its files and the feature space.

    Readers see no other settings, so this record identifies what the data store keeps.
    """

    feature_space: Literal["mask", "atlas", "matrix", "grayordinates", "parcels"]
    # Array files only; constant for other files
    orientation: Literal["time_by_feature", "feature_by_time"]
    variable: str
    # Images only
    smoothing_fwhm: float
    resample: Literal["within_space", "never", "to_mask"]
    tr: float  # s, for files that do not state it; 0: not known
    drop_first_volumes: int
    max_timepoints: int  # 0: all
    confounds: tuple[str, ...]
    strategy: str  # for nilearn; the thresholds are 0 without one
    fd_threshold: float
    dvars_threshold: float
    high_pass: float
    low_pass: float
    needs_motion: bool  # whether a run must have a mean framewise displacement
    needs_tr: bool
    cleaning: Cleaning

    @property
    def of_cifti(self) -> bool:
        return self.feature_space in CIFTI


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """Resolved settings, known before the sites of a run have joined."""

    reading: Reading
    entities: str  # entities that names in a BIDS folder must have
    own_entities: bool  # whether the owner wrote them
    basis: BasisKind  # "none": the features are the basis
    brains: bool  # use the recipe for spatial maps of real brains: a wide kernel
    templates: bool  # whether public template maps are part of the feature space
    widest: int  # largest d that may be chosen if the space has as many features
    by_volume: bool  # d of a mask follows from its volume, up to `widest`
    image_shape: tuple[int, ...]  # of the pixels of a matrix
    max_components: int  # largest R that may be chosen; 0 without components
    room: float  # largest R per feature, where R follows from the run; inf: the owner's R

    def most_components(self, n_features: int) -> int:
        """Return the largest R of a run on so many features."""
        if math.isinf(self.room):
            return self.max_components
        return max(2, min(self.max_components, int(self.room * n_features)))

    @property
    def sends_maps(self) -> bool:
        """Whether all parties need the public maps; courses of maps are made at sites alone."""
        return self.templates and self.basis != "courses"


@functools.lru_cache(maxsize=16)
def resolve(config: Config) -> Resolved:
    recipe = config.recipe()
    brains = recipe.brains
    flat = config.feature_space == "matrix" and config.image_shape
    return Resolved(
        reading=_reading(config, brains=brains),
        entities=_entities(config),
        own_entities=config.bids_filter != "auto",
        basis="courses" if recipe.courses else _basis(config, recipe.smooth_basis),
        brains=brains,
        templates=recipe.templates or config.basis == "templates",
        widest=config.n_basis or recipe.widest,
        by_volume=recipe.by_volume and not config.n_basis,
        image_shape=parse_shape(config.image_shape) if flat else (),
        max_components=recipe.max_components,
        room=recipe.room,
    )


def _reading(config: Config, *, brains: bool) -> Reading:
    trend, scaling = config.detrend, config.standardize
    own_signal = config.global_signal == "auto"
    of_arrays = config.feature_space in ("matrix", "atlas")  # series of parcels are tables
    of_images = config.feature_space in ("mask", "atlas")
    strategy = config.confound_strategy if parse_strategy(config.confound_strategy) else ""
    return Reading(
        feature_space=config.feature_space,
        # Settings without effect get one value, so that equal numbers have equal records.
        orientation=config.orientation if of_arrays else "time_by_feature",
        variable=config.variable if of_arrays else "",
        smoothing_fwhm=config.smoothing_fwhm if of_images else 0.0,
        resample=config.resample if of_images else "never",
        tr=config.tr,
        drop_first_volumes=config.drop_first_volumes,
        max_timepoints=config.max_timepoints,
        confounds=confound_columns(config.confounds),
        strategy=strategy,
        fd_threshold=config.fd_threshold if strategy else 0.0,
        dvars_threshold=config.dvars_threshold if strategy else 0.0,
        high_pass=config.high_pass,
        low_pass=config.low_pass,
        needs_motion=config.max_mean_fd > 0,
        needs_tr=bool(config.high_pass or config.low_pass or config.min_minutes),
        cleaning=Cleaning(
            detrend=("quadratic" if brains else "linear") if trend == "auto" else trend,
            standardize=("floored" if brains else "variance") if scaling == "auto" else scaling,
            global_signal=brains if own_signal else config.global_signal == "true",
        ),
    )


def _entities(config: Config) -> str:
    if config.bids_filter != "auto":
        return config.bids_filter
    return CIFTI_ENTITIES.get(config.feature_space, "space-MNI152NLin2009cAsym_desc-preproc")


def _basis(config: Config, smooth: Literal["dct", "kernel"]) -> BasisKind:
    if config.feature_space == "grayordinates":
        return "kernel"
    if config.basis in ("dct", "kernel", "templates"):
        return config.basis
    if config.basis != "auto":
        return "none"
    if smooth == "dct":
        return "dct" if config.feature_space == "mask" else "none"
    # Sparse maps need smooth directions, so 2-D images get a kernel too.
    flat = config.feature_space == "matrix" and config.image_shape
    return "kernel" if config.feature_space in ("mask", "atlas") or flat else "none"


def check_basis(config: Config) -> None:
    """Raise ConfigError E011 or E013 if the feature space does not allow the basis."""
    has_cosines = config.recipe().smooth_basis == "dct"
    smooth = ("dct", "none") if has_cosines else ("kernel", "dct", "none")
    by_space = {
        "mask": smooth,
        "atlas": ("atlas", "none") if has_cosines else ("kernel", "atlas", "none"),
        "matrix": smooth,
        "grayordinates": ("kernel",),
        "parcels": ("none",),
    }
    # The rules of one-release models were measured only in a kernel basis.
    templates = ("templates",) if has_cosines else ()
    if config.feature_space == "grayordinates":
        templates = ()
    allowed = ("auto", *by_space[config.feature_space], *templates)
    if config.basis not in allowed:
        raise ConfigError(
            "E011",
            setting="basis",
            got=config.basis,
            allowed=f"{', '.join(allowed)} with feature_space={config.feature_space}",
            do="parcels: feature_space=atlas; kernel: computation=capegica.",
        )
    smooth_matrix = config.feature_space == "matrix" and config.basis in ("dct", "kernel")
    if smooth_matrix and not config.image_shape:
        do = f"a {config.basis} of a matrix needs 2-D images."
        raise ConfigError("E013", setting="image_shape", do=do)
