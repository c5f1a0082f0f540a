"""Presets of the synthetic matrices.

Every preset except `paper` changes one property of `realistic`: two runs show its cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from cape.frozen import dataclass

# AR(1) coefficient of time courses and noise, as in fMRI at a TR of about 2 s
AUTOCORRELATION = 0.4

# With alpha = 0 of GARCH, time courses are stationary Gaussian.
STATIONARY: Final = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Statistical properties of a synthetic study."""

    blob_sd: tuple[float, float]  # range of blob standard deviations, pixels
    max_cosine: float  # largest |cos| of two maps
    ar: float  # AR(1) coefficient of the time courses
    noise: float  # trace of the voxel noise covariance over the trace of the signal covariance
    heterogeneity: float  # lognormal sd of the amplitude per subject and source
    strength: float  # lognormal sd of the map norms
    alpha: tuple[float, float] = (0.15, 0.30)  # of GARCH(1, 1), alpha + beta = .9 (Bollerslev 1986)
    innovations: Literal["normal", "laplace"] = "normal"
    sub_gaussian: float = 0.0  # share of the sources with uniform innovations and no volatility
    correlation: float = 0.0  # of the time courses of neighbours 1 and 2, 3 and 4, ...
    fields: bool = False  # maps are Gaussian random fields, which are not sparse
    jitter: float = 0.0  # sd of a network's position over subjects, pixels, along each axis
    lengths: tuple[float, float] = (1.0, 1.0)  # range of T over subjects, in `n_timepoints`
    site_effect: float = 0.0  # power of a site's artefact, and lognormal sd of its gains
    spikes: float = 0.0  # share of volumes with an artefact of 5 times the signal (head motion)
    subgroup: float = 0.0  # share of subjects whose every third network lies elsewhere


_REALISTIC = Preset(
    blob_sd=(1.6, 3.0),
    max_cosine=0.5,
    ar=AUTOCORRELATION,
    noise=0.5,
    heterogeneity=0.3,
    strength=0.25,
)

PRESETS: Final[dict[str, Preset]] = {
    "paper": Preset(
        blob_sd=(1.4, 2.6), max_cosine=0.35, ar=0.0, noise=0.0, heterogeneity=0.0, strength=0.0
    ),
    "realistic": _REALISTIC,
    "weak": replace(_REALISTIC, alpha=(0.05, 0.10)),
    "heavy": replace(_REALISTIC, innovations="laplace"),
    # All rotations of these time courses are equivalent: a run must not claim one.
    "gaussian": replace(_REALISTIC, alpha=STATIONARY, heterogeneity=0.0),
    # Gaussian in every subject; individual amplitudes separate the sources.
    "gaussian-het": replace(_REALISTIC, alpha=STATIONARY),
    "sub-gaussian": replace(_REALISTIC, sub_gaussian=0.3),
    "correlated": replace(_REALISTIC, correlation=0.3),
    "jitter": replace(_REALISTIC, jitter=1.0),
    "fields": replace(_REALISTIC, fields=True),
    # Neither time courses nor maps distinguish a rotation.
    "gaussian-fields": replace(_REALISTIC, alpha=STATIONARY, heterogeneity=0.0, fields=True),
    "lengths": replace(_REALISTIC, lengths=(0.4, 1.6)),
    "smooth-courses": replace(_REALISTIC, ar=0.8),
    "noisy": replace(_REALISTIC, noise=1.5),
    "sites": replace(_REALISTIC, site_effect=0.3),
    "spikes": replace(_REALISTIC, spikes=0.02),
    "subgroups": replace(_REALISTIC, subgroup=0.3),
}
