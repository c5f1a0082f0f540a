"""Synthetic studies with known maps and sources.

`generate` draws a preset in a public basis.  Blobs stand for networks, GARCH processes for time
courses (capeDJICA, Imtiaz et al., Sec. V).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal, Self

import numpy as np

from cape.algorithms.basis import dct_image
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.settings.option import out_of_range

# Discarded first samples: later volatility does not depend on the start
BURN_IN = 50

# alpha + beta of the GARCH(1, 1) sources
PERSISTENCE = 0.9

# AR(1) coefficient of time courses and noise, as in fMRI at a TR of about 2 s
AUTOCORRELATION = 0.4

# Tries after which the list of accepted maps is emptied
TRIES = 400
# Largest number of lists: 26 maps of `paper` on 30 x 30 took 11 to 220, 28 took over 400.
LISTS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Statistical properties of a synthetic study."""

    blob_sd: tuple[float, float]  # range of blob standard deviations, pixels
    max_cosine: float  # largest |cos| of two maps
    ar: float  # AR(1) coefficient of the time courses
    noise: float  # trace of the voxel noise covariance over the trace of the signal covariance
    heterogeneity: float  # lognormal sd of the amplitude per subject and source
    strength: float  # lognormal sd of the map norms


PRESETS: Final[dict[str, Preset]] = {
    "paper": Preset(
        blob_sd=(1.4, 2.6), max_cosine=0.35, ar=0.0, noise=0.0, heterogeneity=0.0, strength=0.0
    ),
    "realistic": Preset(
        blob_sd=(1.6, 3.0),
        max_cosine=0.5,
        ar=AUTOCORRELATION,
        noise=0.5,
        heterogeneity=0.3,
        strength=0.25,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Study:
    """A synthetic study before its observation noise is drawn."""

    A: Array  # (D, R): true maps
    B: Array  # (D, d): public basis of the data
    S: Data  # (M, R, T): true time courses without time mean
    noise_std: float  # of every entry in the basis
    rng_state: dict[str, object]  # after drawing the sources; blocks of noise start from it

    def blocks(self, size: int) -> Iterator[Data]:
        """Yield subjects in the basis, (size, d, T) float32 each; draws do not depend on size."""
        rng = np.random.default_rng()
        rng.bit_generator.state = self.rng_state
        in_basis = (self.B.T @ self.A).astype(np.float32)
        for first in range(0, len(self.S), size):
            block = in_basis @ self.S[first : first + size]
            if self.noise_std > 0.0:
                noise = rng.standard_normal(block.shape, dtype=np.float32)
                noise *= np.float32(self.noise_std)
                block += noise
            yield block

    def subjects(self) -> Data:
        """Return all subjects in the basis, (M, d, T) float32 (4 M d T bytes)."""
        return np.concatenate(list(self.blocks(max(1, len(self.S) // 8))))

    def in_voxels(self) -> Self:
        """Return the study with the identity as basis: blocks then have shape (size, D, T)."""
        return replace(self, B=np.eye(len(self.A)))


def blob_maps(rng: np.random.Generator, n: int, n_components: int, preset: Preset) -> Array:
    """Draw maps (n * n, R) of one or two Gaussian blobs, columns of norm 1.

    A map is accepted if its |cos| with every earlier map is below the bound.  Every 400th try
    empties the list.  ConfigError: no room for so many maps.
    """
    row, column = np.indices((n, n), dtype=np.float64)
    accepted: list[Array] = []
    tries = 0
    while len(accepted) < n_components:
        tries += 1
        if tries % TRIES == 0:
            accepted.clear()
        if tries > LISTS * TRIES:
            size = f"{n} x {n}"
            allowed = f"as many maps as find room on {size} with |cos| below {preset.max_cosine:g}"
            do = "ask for fewer, or choose another preset."
            raise out_of_range("n_networks", n_components, allowed, do)
        image = np.zeros((n, n))
        for _ in range(rng.integers(1, 3)):
            centre = rng.uniform(3, n - 4, 2)
            sd = rng.uniform(*preset.blob_sd, 2)
            image += np.exp(
                -(((row - centre[0]) / sd[0]) ** 2) / 2 - ((column - centre[1]) / sd[1]) ** 2 / 2
            )
        candidate = image.ravel() / np.linalg.norm(image)
        if all(abs(float(candidate @ other)) < preset.max_cosine for other in accepted):
            accepted.append(candidate)
    return np.stack(accepted, axis=1)


def garch_sources(
    rng: np.random.Generator,
    n_subjects: int,
    n_components: int,
    n_timepoints: int,
    *,
    ar: float,
    alpha: tuple[float, float] = (0.15, 0.30),
    innovations: Literal["normal", "laplace"] = "normal",
) -> Data:
    """Draw AR(1) time courses (M, R, T) with GARCH(1, 1) volatility and unit variance.

    `ar` lies in (-1, 1); `alpha` is the range of GARCH's alpha over components, alpha + beta = .9.
    Time means are not removed.
    """
    # Keep the order of draws, which defines a study: alpha of each component, then the samples.
    a = rng.uniform(*alpha, n_components)
    b = PERSISTENCE - a
    w = 1.0 - PERSISTENCE
    shape = (n_subjects, n_components)
    h, e, y = np.ones(shape), np.zeros(shape), np.zeros(shape)
    courses = np.empty((*shape, n_timepoints), dtype=np.float32)
    for t in range(-BURN_IN, n_timepoints):
        h = w + a * e**2 + b * h
        if innovations == "normal":
            shock = rng.standard_normal(shape)
        else:
            shock = rng.laplace(size=shape) / np.sqrt(2.0)
        e = np.sqrt(h) * shock
        y = ar * y + np.sqrt(1.0 - ar**2) * e
        if t >= 0:
            courses[:, :, t] = y
    return courses


def generate(
    preset: Preset,
    *,
    n_subjects: int,
    seed: int,
    n_components: int = 20,
    n_timepoints: int = 250,
    image_size: int = 30,
    n_basis: int = 100,
) -> Study:
    """Draw a study: maps, strengths, sources, amplitudes, in this order; D = image_size^2."""
    rng = np.random.default_rng(1000 + seed)  # the offset separates this module's random streams
    maps = blob_maps(rng, image_size, n_components, preset)
    A = maps * np.exp(preset.strength * rng.standard_normal(n_components))
    S = garch_sources(rng, n_subjects, n_components, n_timepoints, ar=preset.ar)
    if preset.heterogeneity > 0.0:
        amplitude = rng.standard_normal((n_subjects, n_components, 1))
        S *= np.exp(preset.heterogeneity * amplitude).astype(np.float32)
    # Sites centre their data in time: centre the true sources too.
    S -= S.mean(axis=2, keepdims=True)
    return Study(
        A=A,
        B=dct_image((image_size, image_size), n_basis),
        S=S,
        noise_std=float(np.sqrt(preset.noise * np.sum(A**2) / len(A))),
        rng_state=dict(rng.bit_generator.state),
    )


def correlated_maps(maps: Array, smooth_noise: Array, r: float) -> Array:
    """Return maps (D, R) of std 1 whose correlation with `maps` is exactly r, 0 to 1."""
    truth = maps - maps.mean(axis=0)
    truth /= np.linalg.norm(truth, axis=0)
    rest = smooth_noise - smooth_noise.mean(axis=0)
    # Orthogonal to the truth, so that the correlation is exactly r
    rest -= truth * np.sum(truth * rest, axis=0)
    rest /= np.linalg.norm(rest, axis=0)
    mixed = r * truth + np.sqrt(1.0 - r * r) * rest
    return np.asarray(mixed * np.sqrt(float(len(maps))))


# -- two views of one person, for CCA -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TwoViews:
    """Records of two views with known canonical correlations."""

    records: Array  # (N, D_x + D_y): one row per person, columns of unit variance
    covariance: Array  # (D, D): true, of the columns
    loadings: Array  # (D, K): correlation of every column with the true variate of its own view
    correlations: Array  # (K,): true canonical correlations


def two_views(
    seed: int, *, n_records: int, n_x: int, n_y: int, correlations: tuple[float, ...]
) -> TwoViews:
    """Draw Gaussian records whose two views share K = len(correlations) pairs of factors.

    Mixing matrices are random with singular values from 1 to 2.  Scaling columns to unit variance
    keeps the canonical correlations.
    """
    rng = np.random.default_rng(3000 + seed)
    K = len(correlations)
    cross = np.zeros((n_x, n_y))
    cross[np.arange(K), np.arange(K)] = correlations
    mixing = [_conditioned(rng, n) for n in (n_x, n_y)]
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in mixing)
    covariance = np.block([[A @ A.T, A @ cross @ B.T], [B @ cross.T @ A.T, B @ B.T]])
    # A root of the joint covariance gives exactly the planted correlations.
    root = np.linalg.cholesky(covariance)
    return TwoViews(
        records=rng.standard_normal((n_records, n_x + n_y)) @ root.T,
        covariance=covariance,
        loadings=np.vstack([A[:, :K], B[:, :K]]),
        correlations=np.array(correlations),
    )


def _conditioned(rng: np.random.Generator, n: int) -> Array:
    # With singular values from 1 to 2, every direction of a view can be found.
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return np.asarray((left * np.linspace(1.0, 2.0, n)) @ right)
