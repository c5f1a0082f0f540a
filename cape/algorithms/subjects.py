"""Results of single subjects, which only their site sees: maps, connectivity, spectra."""

from collections.abc import Callable

import numpy as np

from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass

MAX_SEGMENT = 64  # time points of a spectrum's segment: 32 frequencies above 0
MAX_R = 1.0 - 1e-9  # Fisher z of 1 is infinite
NOISE_SUBJECT_SEED = 20_261_122  # public, so that pages can be made again


@dataclass(frozen=True, kw_only=True, slots=True)
class Spectrum:
    """Power density: `frequency` (n,), in Hz or per time point; `power` (R, n)."""

    frequency: Array
    power: Array


def subject_maps(X: Data, S: Data) -> Array:
    """Z-maps (D, R): regression of data (D, T) on time courses (R, T); 0 where it is not finite."""
    # This is the second step of dual regression; the common unmixing matrix replaces the first.
    courses = S.astype(np.float64) - S.mean(axis=1, keepdims=True, dtype=np.float64)
    with np.errstate(all="ignore"):
        fitted = X.astype(np.float64) @ np.linalg.pinv(courses)
    return z_scores(np.nan_to_num(fitted, nan=0.0, posinf=0.0, neginf=0.0))


def agreement(own: Array, common: Array) -> Array:
    """Correlation (R,) of a subject's maps (D, R) with the common ones."""
    return np.asarray(np.mean(z_scores(own) * z_scores(common), axis=0))


def noise_agreement(smooth: Callable[[Array], Array], common: Array, n_times: int) -> Array:
    """`agreement` (R,) of a subject of noise alone, by the same two regressions."""
    # `smooth` makes white columns (D, T) as smooth as data; `common` (D, R) are the common maps.
    # The agreement is not 0, because the common maps also give the time courses.
    rng = np.random.default_rng(NOISE_SUBJECT_SEED)
    X = smooth(rng.standard_normal((len(common), n_times))).astype(np.float32)
    courses = np.linalg.pinv(common).astype(np.float32) @ X
    return agreement(subject_maps(X, courses), common)


def connectivity(S: Data | Array) -> Array:
    """Correlations (R, R) of time courses (R, T); 0 for constant ones."""
    courses = S.astype(np.float64) - S.mean(axis=1, keepdims=True, dtype=np.float64)
    length = np.linalg.norm(courses, axis=1, keepdims=True)
    unit = np.divide(courses, length, out=np.zeros_like(courses), where=length > 0)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


def fisher(r: Array) -> Array:
    return np.arctanh(np.clip(r, -MAX_R, MAX_R))


def spectrum(S: Data | Array, tr: float) -> Spectrum:
    """Power density of each time course (R, T) by Welch's method; `tr` in s, 0 if unknown."""
    # Hann windows of at most 64 points overlap by half; the mean of each is removed.  They may span
    # two joined runs.
    T = S.shape[1]
    n = min(MAX_SEGMENT, T)
    window = np.hanning(n + 1)[:n] if n > 1 else np.ones(1)
    starts = range(0, T - n + 1, max(1, n // 2))
    parts = np.stack([S[:, first : first + n].astype(np.float64) for first in starts])
    parts = (parts - parts.mean(axis=2, keepdims=True)) * window
    rate = 1.0 / tr if tr > 0 else 1.0
    density = np.abs(np.fft.rfft(parts, axis=2)) ** 2 / (rate * max(float(window @ window), 1e-12))
    density[:, :, 1 : (n + 1) // 2] *= 2.0  # one-sided: add the power at negative frequencies
    frequency: Array = np.asarray(np.fft.rfftfreq(n, 1.0 / rate), dtype=np.float64)
    return Spectrum(frequency=frequency, power=density.mean(axis=0))
